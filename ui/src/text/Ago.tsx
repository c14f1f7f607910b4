// A moment as people say it, exact on hover. All of them on a page are kept up to date by one timer.

import { useSyncExternalStore } from "react";
import { ago, moment } from "./words";

const EVERY_MS = 20_000;

let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const shown = new Set<() => void>();

function subscribe(changed: () => void): () => void {
  if (shown.size === 0) {
    now = Date.now();
    timer = setInterval(() => {
      now = Date.now();
      for (const each of shown) each();
    }, EVERY_MS);
  }
  shown.add(changed);
  return () => {
    shown.delete(changed);
    if (shown.size === 0) clearInterval(timer);
  };
}

export function Ago({ at, className }: { at: string | number; className?: string }) {
  const seen = useSyncExternalStore(subscribe, () => now);
  const time = new Date(at);
  const known = !Number.isNaN(time.getTime());
  return (
    <time className={className} dateTime={known ? time.toISOString() : undefined} title={moment(at, seen)}>
      {ago(at, seen)}
    </time>
  );
}
