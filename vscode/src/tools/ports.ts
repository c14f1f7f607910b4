// What the tools need of whoever runs them: a log, a clock, a person to ask, a memory that outlasts the program. Small
// interfaces, so that everything here runs in plain Node: the extension hands in the editor's own.

import type { ApprovalRequested, ApprovalScope, GrantTerms, WriteChange } from "@protocol";

export type Fields = Readonly<Record<string, unknown>>;

/** Where steps are told (C9): info for each step, debug for arguments and timing, error for failures. */
export interface Log {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
}

export const NO_LOG: Log = { debug() {}, info() {}, warn() {}, error() {} };

/** Something that will happen, unless it is called off. */
export interface Timer {
  cancel(): void;
}

export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Milliseconds on a clock that never jumps. */
  monotonic(): number;
  after(milliseconds: number, act: () => void): Timer;
}

const LONGEST_TIMER = 2 ** 31 - 1;

export const SYSTEM_CLOCK: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(milliseconds, act) {
    const timer = setTimeout(act, Math.min(Math.max(milliseconds, 0), LONGEST_TIMER));
    return { cancel: () => clearTimeout(timer) };
  },
};

export function sleep(clock: Clock, milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.after(milliseconds, resolve);
    const wake = () => {
      timer.cancel();
      resolve();
    };
    if (signal?.aborted) {
      wake();
    }
    signal?.addEventListener("abort", wake, { once: true });
  });
}

/** A person's decision. */
export interface Answer {
  readonly allow: boolean;
  readonly reason?: string | null;
  readonly scope?: ApprovalScope;
  /** With a scope beyond this call. */
  readonly terms?: GrantTerms | null;
}

/** One approval to be asked. */
export interface Question {
  readonly event: ApprovalRequested;
  /** Aborted, with a sentence as its reason, when the question ended without an answer from here. */
  readonly closed: AbortSignal;
  /** When it will be over, in milliseconds since 1970. */
  readonly until: number;
  /** All of the call, where the question shows a part. */
  whole(): Promise<string>;
  /** What a write would do to its file; undefined for other calls. */
  readonly change?: () => Promise<WriteChange>;
}

/** Puts questions to a person, one at a time. */
export interface Prompt {
  /** The answer; undefined when there was none. */
  ask(question: Question): Promise<Answer | undefined>;
  say(sentence: string): void;
}

/** Keyed texts that outlast this program. One program at a time uses one. */
export interface Memory {
  keys(): Iterable<string>;
  read(key: string): string | undefined;
  /** Resolves when it is kept; with `durable` when it would outlast a crash of the machine. Rejects when it is not. */
  write(key: string, value: string, durable: boolean): Promise<void>;
  remove(key: string): Promise<void>;
  close(): void;
}

/** A machine's settings (C6). */
export interface ToolSettings {
  readonly commandTimeoutSeconds: number;
  readonly commandIdleSeconds: number | null;
  readonly maxFileBytes: number;
  readonly maxOutputBytes: number;
  readonly concurrency: number;
  readonly queueLimit: number;
  readonly approvalTimeoutSeconds: number;
  readonly cacheEnabled: boolean;
  readonly cacheSeconds: number;
  readonly postTries: number;
  /** What isolates commands; `none` only where the owner says so. */
  readonly sandbox: "auto" | "bwrap" | "seatbelt" | "none";
}

export const DEFAULT_SETTINGS: ToolSettings = {
  commandTimeoutSeconds: 300,
  commandIdleSeconds: null,
  maxFileBytes: 100 * 1024 * 1024,
  maxOutputBytes: 1024 * 1024,
  concurrency: 3,
  queueLimit: 1000,
  approvalTimeoutSeconds: 300,
  cacheEnabled: true,
  cacheSeconds: 300,
  postTries: 3,
  sandbox: "auto",
};
