// Which presses count. A button that allows something must not react to a key that was held or typed elsewhere, nor to a
// click that was meant for what stood there a moment ago. Nothing here focuses anything or presses anything.

import {
  type KeyboardEvent,
  type MouseEvent,
  type PointerEvent,
  useCallback,
  useEffect,
  useRef,
  useState,
} from "react";

export const SETTLE_MILLISECONDS = 600;

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
  useEffect(() => {
    watch();
    lock();
    return () => clearTimeout(timer.current);
  }, [lock]);
  const button = (press: () => void, disabled = false): GuardedButton => ({
    type: "button",
    "aria-disabled": disabled || !open,
    onClick: (event) => {
      event.preventDefault();
      const elsewhere = event.detail === 0 && isPress(heldKey?.key) && heldKey?.target !== event.currentTarget;
      if (disabled || !open || elsewhere || performance.now() < until.current) return;
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
  });
  return { open, lock, button };
}

const isPress = (key: string | undefined) => key === "Enter" || key === " ";
