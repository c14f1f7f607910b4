// Asking the server and showing how that stands: on its way, failed with what to do, nothing there. An answer that was
// overtaken by a newer question is dropped; what is on screen stays until the new answer is there.

import type { ReactNode } from "react";
import { useCallback, useEffect, useRef, useState } from "react";
import { Problem, passing } from "../api";
import { Again } from "../state/again";
import { Sentences } from "../text/Sentences";

export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem("The page stumbled over the answer.", 0, "Reload the page; if it happens again, report it.");
}

export interface Loaded<T> {
  value: T | null;
  problem: Problem | null;
  busy: boolean;
  again: () => void;
}

/** Tries again what the server could not answer, until it can or `key` is another one. */
function useAgain(key: string): Again {
  const [again] = useState(() => new Again());
  // biome-ignore lint/correctness/useExhaustiveDependencies: what waits for one key is nothing to the next
  useEffect(() => () => again.reset(), [again, key]);
  return again;
}

/** Loads when it is first shown and whenever `key` is another one. */
export function useLoaded<T>(load: () => Promise<T>, key: string): Loaded<T> {
  const [attempt, setAttempt] = useState(0);
  const [held, setHeld] = useState<{ key: string; value: T | null; problem: Problem | null; busy: boolean }>({
    key,
    value: null,
    problem: null,
    busy: true,
  });
  const latest = useRef(load);
  latest.current = load;
  const waiting = useAgain(key);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key stands for what `load` would ask; `attempt` asks again
  useEffect(() => {
    let wanted = true;
    setHeld((before) => ({ key, value: before.key === key ? before.value : null, problem: null, busy: true }));
    latest.current().then(
      (value) => {
        if (!wanted) return;
        waiting.reset();
        setHeld({ key, value, problem: null, busy: false });
      },
      (error) => {
        if (!wanted) return;
        setHeld((before) => ({ key, value: before.value, problem: asProblem(error), busy: false }));
        if (passing(error)) waiting.later(() => setAttempt((count) => count + 1));
      },
    );
    return () => {
      wanted = false;
    };
  }, [key, attempt]);
  const again = useCallback(() => setAttempt((count) => count + 1), []);
  const { value, problem, busy } = held;
  return { value, problem, busy, again };
}

export interface Part<T> {
  items: T[];
  total: number;
  /** What asks for the part after this one; null at the end. */
  next: string | null;
}

export interface Paged<T> {
  /** Null until the first answer. */
  items: T[] | null;
  total: number;
  more: boolean;
  busy: boolean;
  problem: Problem | null;
  older: () => void;
  again: () => void;
}

interface Pile<T> {
  items: T[] | null;
  total: number;
  next: string | null;
  problem: Problem | null;
  busy: boolean;
}

/** A long list, a part at a time. A new `key` starts it over. */
export function usePaged<T>(load: (from: string | null) => Promise<Part<T>>, key: string): Paged<T> {
  const [attempt, setAttempt] = useState(0);
  const [pile, setPile] = useState<Pile<T>>({ items: null, total: 0, next: null, problem: null, busy: true });
  const latest = useRef(load);
  latest.current = load;
  const turn = useRef(0);
  const waiting = useAgain(key);
  const ask = useCallback(
    (from: string | null) => {
      turn.current += 1;
      const mine = turn.current;
      setPile((before) => ({ ...before, problem: null, busy: true }));
      latest.current(from).then(
        (part) => {
          if (mine !== turn.current) return;
          waiting.reset();
          setPile((before) => ({
            items: from === null ? part.items : [...(before.items ?? []), ...part.items],
            total: part.total,
            next: part.next,
            problem: null,
            busy: false,
          }));
        },
        (error) => {
          if (mine !== turn.current) return;
          setPile((before) => ({ ...before, problem: asProblem(error), busy: false }));
          if (passing(error)) waiting.later(() => ask(from));
        },
      );
    },
    [waiting],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key stands for what `load` would ask; `attempt` asks again
  useEffect(() => {
    ask(null);
    return () => {
      turn.current += 1;
    };
  }, [ask, key, attempt]);
  const { items, total, next, problem, busy } = pile;
  return {
    items,
    total,
    more: next !== null,
    busy,
    problem,
    older: () => ask(next),
    again: useCallback(() => setAttempt((count) => count + 1), []),
  };
}

export function Waiting({ what }: { what: string }) {
  return (
    <p className="page-waiting" role="status">
      {what}
    </p>
  );
}

/** What went wrong and what to do, with a way to try again. */
export function Trouble({
  problem,
  again,
  retry = "Try again",
}: {
  problem: Problem;
  again?: () => void;
  retry?: string;
}) {
  return (
    <div className="page-trouble" role="alert">
      <p>
        <strong>
          <Sentences text={problem.message} />
        </strong>
      </p>
      {problem.hint && (
        <p>
          <Sentences text={problem.hint} />
        </p>
      )}
      {again && (
        <button type="button" className="page-button" onClick={again}>
          {retry}
        </button>
      )}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="page-empty">
      <p className="page-empty-title">{title}</p>
      {children}
    </div>
  );
}
