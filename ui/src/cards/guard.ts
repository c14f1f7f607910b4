// Which presses count. A button that allows something must not react to a key that was held or typed elsewhere, nor to a
// click that was meant for what stood there a moment ago. Nothing here focuses anything or presses anything.

import {
  type KeyboardEvent,
  type MouseEvent,
  type PointerEvent,
  type RefCallback,
  useCallback,
  useEffect,
  useRef,
  useState,
} from "react";

export const SETTLE_MILLISECONDS = 600;
const LOOK_MILLISECONDS = 100;
const STILL_PIXELS = 2;

// Where the pointer last was, and which key is down since when and where: only the document knows.
let lastPointer: { x: number; y: number } | null = null;
let heldKey: { key: string; target: EventTarget | null } | null = null;
let watched: Document | null = null;

function watch(): void {
  if (watched === document) return;
  watched = document;
  const moved = (event: globalThis.PointerEvent) => {
    lastPointer = { x: event.screenX, y: event.screenY };
  };
  document.addEventListener("pointermove", moved, { capture: true, passive: true });
  document.addEventListener("pointerup", moved, { capture: true, passive: true });
  document.addEventListener(
    "keydown",
    (event) => {
      if (!event.repeat) heldKey = { key: event.key, target: event.target };
    },
    { capture: true },
  );
  // After the button's own listeners, which still ask where the key went down.
  const released = () => {
    heldKey = null;
  };
  window.addEventListener("keyup", released);
  // A key that goes up in another window is never heard of.
  window.addEventListener("blur", released);
}

/** Whether the pointer is here because it moved, not because this did. */
function cameByItself(event: PointerEvent): boolean {
  // Without real coordinates (a screen reader, a test) there is no pointer that could be tricked.
  if (event.screenX === 0 && event.screenY === 0) return true;
  return lastPointer === null || lastPointer.x !== event.screenX || lastPointer.y !== event.screenY;
}

/** Where a button stands on the screen, and in what it scrolls with. */
interface Place {
  x: number;
  y: number;
  scrolledX: number;
  scrolledY: number;
}

interface Scrolled {
  x: number;
  y: number;
}

function scrolledAround(element: Element): Scrolled {
  const scrolled = { x: 0, y: 0 };
  for (let around = element.parentElement; around; around = around.parentElement) {
    scrolled.x += around.scrollLeft;
    scrolled.y += around.scrollTop;
  }
  return scrolled;
}

function placeOf(element: Element, scrolled: Scrolled): Place {
  const { left, top } = element.getBoundingClientRect();
  return { x: left, y: top, scrolledX: left + scrolled.x, scrolledY: top + scrolled.y };
}

function watchAround(observer: ResizeObserver | null, element: Element): void {
  for (let around = element.parentElement; around; around = around.parentElement) observer?.observe(around);
}

/** Whether it went elsewhere by itself. What the person scrolled is theirs; what was held in its place meanwhile, wholly
 * or for a part of the way (as what sticks to an edge is), went no further than they scrolled. */
function hasMoved(before: Place, now: Place): boolean {
  const beyond = (went: number, scrolled: number) =>
    went < Math.min(0, -scrolled) - STILL_PIXELS || went > Math.max(0, -scrolled) + STILL_PIXELS;
  const scrolled = (place: Place) => ({ x: place.scrolledX - place.x, y: place.scrolledY - place.y });
  const [was, is] = [scrolled(before), scrolled(now)];
  return beyond(now.x - before.x, is.x - was.x) || beyond(now.y - before.y, is.y - was.y);
}

export interface Guard {
  /** Whether presses count now. */
  open: boolean;
  /** Something moved or appeared: presses do not count for a moment. */
  lock: () => void;
  /** For each button that decides something. */
  button: (press: () => void, disabled?: boolean) => GuardedButton;
}

export interface GuardedButton {
  type: "button";
  "aria-disabled": boolean;
  onClick: (event: MouseEvent) => void;
  onKeyDown: (event: KeyboardEvent) => void;
  onKeyUp: (event: KeyboardEvent) => void;
  onPointerEnter: (event: PointerEvent) => void;
  onPointerDown: () => void;
  ref: RefCallback<HTMLButtonElement>;
}

/** Presses count once nothing has moved for a while. Disabled is said, not taken out of the way of the keyboard. */
export function useGuard(): Guard {
  const [open, setOpen] = useState(false);
  const until = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const lock = useCallback(() => {
    // A timer may fire a little early by this clock.
    until.current = performance.now() + SETTLE_MILLISECONDS - 20;
    setOpen(false);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setOpen(true), SETTLE_MILLISECONDS);
  }, []);
  // Whether the pointer went down while presses did not count: then its click does not either, however long it is held.
  const early = useRef(false);
  const places = useRef(new Map<Element, Place>());
  // However a pointer or a finger comes to it: what just moved may not be what was aimed at.
  const look = useCallback(() => {
    let moved = false;
    // The buttons of one card scroll together.
    let scrolled: Scrolled | null = null;
    for (const [element, before] of places.current) {
      scrolled ??= scrolledAround(element);
      const now = placeOf(element, scrolled);
      moved ||= hasMoved(before, now);
      places.current.set(element, now);
    }
    if (moved) lock();
  }, [lock]);
  // What grows around a button moves it: then it says at once that it takes no press, not with the next look.
  const growing = useRef<ResizeObserver | null>(null);
  const track = useCallback((element: HTMLButtonElement | null) => {
    if (!element) return;
    places.current.set(element, placeOf(element, scrolledAround(element)));
    watchAround(growing.current, element);
    return () => void places.current.delete(element);
  }, []);
  useEffect(() => {
    watch();
    lock();
    const looking = setInterval(look, LOOK_MILLISECONDS);
    growing.current = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(look);
    for (const element of places.current.keys()) watchAround(growing.current, element);
    return () => {
      clearTimeout(timer.current);
      clearInterval(looking);
      growing.current?.disconnect();
    };
  }, [lock, look]);
  const button = (press: () => void, disabled = false): GuardedButton => ({
    type: "button",
    "aria-disabled": disabled || !open,
    onClick: (event) => {
      event.preventDefault();
      const byKey = event.detail === 0;
      const elsewhere = byKey && isPress(heldKey?.key) && heldKey?.target !== event.currentTarget;
      if (disabled || !open || elsewhere || performance.now() < until.current || (!byKey && early.current)) return;
      press();
    },
    onKeyDown: (event) => {
      if (event.repeat && isPress(event.key)) event.preventDefault();
    },
    onKeyUp: (event) => {
      if (isPress(event.key) && heldKey?.target !== event.currentTarget) event.preventDefault();
    },
    onPointerEnter: (event) => {
      if (!cameByItself(event)) lock();
    },
    onPointerDown: () => {
      look();
      early.current = performance.now() < until.current;
    },
    ref: track,
  });
  return { open, lock, button };
}

const isPress = (key: string | undefined) => key === "Enter" || key === " ";
