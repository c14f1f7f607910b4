// How much time there is to answer, by the server's clock: as text, and said aloud only twice.

import { useEffect, useRef, useState } from "react";
import { span } from "../text/words";

const SAID_AT = [60, 10] as const;
const SOON = 30;

/** Whole seconds until the deadline; 0 when it has passed, or when nobody can tell. */
export function secondsLeft(deadline: string, now: number): number {
  const left = Math.ceil((Date.parse(deadline) - now) / 1000);
  return left >= 1 ? left : 0;
}

/** The same, kept up to date. */
export function useSecondsLeft(deadline: string, now: () => number, running: boolean): number {
  const [left, setLeft] = useState(() => secondsLeft(deadline, now()));
  const clock = useRef(now);
  clock.current = now;
  useEffect(() => {
    const look = () => setLeft(secondsLeft(deadline, clock.current()));
    look();
    if (!running) return;
    const timer = setInterval(look, 500);
    return () => clearInterval(timer);
  }, [deadline, running]);
  return left;
}

interface CountdownProps {
  left: number;
  of: number;
}

export function Countdown({ left: counted, of }: CountdownProps) {
  // The server's clock is known to a second or so: a question never has more than its whole time.
  const left = Math.min(counted, Math.max(1, of));
  const [said, setSaid] = useState("");
  const before = useRef(left);
  useEffect(() => {
    const crossed = SAID_AT.find((second) => before.current > second && left <= second && left > 0);
    if (crossed) setSaid(`${span(left)} left to answer.`);
    else if (before.current > 0 && left === 0) setSaid("Time is up. Nothing ran.");
    before.current = left;
  }, [left]);
  return (
    <p className="card-countdown" data-soon={left <= SOON ? "" : undefined}>
      <span className="card-left">{left > 0 ? `Expires in ${clock(left)}` : "Time is up. Nothing ran."}</span>
      {left > 0 && <span className="card-left-means">; nothing runs without your approval.</span>}
      <span className="card-said" role="status">
        {said}
      </span>
    </p>
  );
}

function clock(seconds: number): string {
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
