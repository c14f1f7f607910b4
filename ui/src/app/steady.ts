// Keeps what a person may be about to press where it is: a panel that stands on what is below it would push its content
// up when something is added to it. It then keeps its height, and what is new waits below, inside.

import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef } from "react";
import type { Question, Settled } from "../state/model";

/** Holds the panel's height while questions are only added; returns how to let it go. */
export function useSteadyHeight(
  panel: RefObject<HTMLElement | null>,
  questions: Question[],
  settled: Settled[],
): () => void {
  const height = useRef<number | null>(null);
  const before = useRef<ReadonlySet<string>>(new Set());
  const release = useCallback(() => {
    panel.current?.style.removeProperty("height");
  }, [panel]);
  const there = questions.length > 0 || settled.length > 0;
  useEffect(() => {
    const element = panel.current;
    if (!there || !element || typeof ResizeObserver === "undefined") return;
    // Told after each layout: when something was added this still knows how tall it was without.
    const watching = new ResizeObserver(() => {
      height.current = element.getBoundingClientRect().height;
    });
    watching.observe(element);
    // Where the window itself is another, nothing is where it was.
    window.addEventListener("resize", release);
    return () => {
      watching.disconnect();
      height.current = null;
      window.removeEventListener("resize", release);
    };
  }, [there, panel, release]);
  useLayoutEffect(() => {
    const now = new Set(questions.map(({ id }) => id));
    const stays = [...before.current].every((id) => now.has(id));
    const added = before.current.size > 0 && now.size > before.current.size;
    before.current = now;
    if (!stays) release();
    else if (added && height.current !== null && panel.current) panel.current.style.height = `${height.current}px`;
  }, [questions, panel, release]);
  return release;
}
