// How much time there is to answer, by the server's clock: as text and as a thin bar, and said aloud only twice.

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

/** Which of several it is. */
export interface Place {
  at: number;
  of: number;
}

interface CountdownProps {
  left: number;
  of: number;
  place: Place | null;
}

export function Countdown({ left: counted, of, place }: CountdownProps) {
  // The server's clock is known to a second or so: a question never has more than its whole time.
  const left = Math.min(counted, Math.max(1, of));
  const [said, setSaid] = useState("");
  const before = useRef(left);
  useEffect(() => {
    const crossed = SAID_AT.find((second) => before.current > second && left <= second && left > 0);
    if (crossed) setSaid(`${span(left)} left to answer.`);
    else if (before.current > 0 && left === 0) setSaid("Time is up, nothing runs.");
    before.current = left;
  }, [left]);
  return (
    <div className="card-countdown" data-soon={left <= SOON ? "" : undefined}>
      {/* On the line of the time: where another question comes, nothing of this one moves. */}
      <span className="card-left">
        {place && `${place.at} of ${place.of} · `}
        {left > 0 ? `${clock(left)} left` : "time is up, nothing runs"}
      </span>
      <progress className="card-bar" max={Math.max(1, of)} value={left} aria-hidden="true" />
      <span className="card-said" role="status">
        {said}
      </span>
    </div>
  );
}

function clock(seconds: number): string {
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
