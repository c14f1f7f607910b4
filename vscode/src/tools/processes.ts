// Starting one process, draining its output, and ending everything it started. A `Launch` goes in; output comes out through
// a keeper; the exit code is null when we ended it. Whatever happens (time is up, it is cancelled) no process of the
// command is left when `runProcess` returns: with a namespace its first process is killed and waited for, without one the
// process group is, and then all that carry the launch's mark. A child that keeps the pipes open holds nothing up.

import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { refuseLate } from "./deadline.js";
import { codeOf, ExecutionCancelled, ToolFailure } from "./errors.js";
import type { Keeper, StreamName } from "./output.js";
import { type Clock, SYSTEM_CLOCK, type Timer } from "./ports.js";
import type { Launch } from "./sandbox.js";

const DRAIN = 2_000;
const DEATH = 10_000;
const POLL = 3;
/** O_CLOEXEC, which Node has no name for. */
const CLOSED_ON_EXEC = 0o2000000;

/** How a process ended. */
export interface Ended {
  /** 128 + n when signal n ended it, null when we did. */
  readonly exitCode: number | null;
  readonly timedOut: boolean;
  /** Ended because it said nothing for too long, though its time was not up. */
  readonly idle: boolean;
}

export interface ProcessOptions {
  readonly seconds: number;
  readonly idleSeconds?: number | null;
  readonly signal?: AbortSignal | undefined;
  /** Whether its time is up: then it is not started. */
  readonly late?: (() => boolean) | undefined;
  readonly clock?: Clock;
}

/** Run to the end, until the time is up, until it has said nothing for too long, or until it is cancelled. */
export async function runProcess(launch: Launch, keeper: Keeper, options: ProcessOptions): Promise<Ended> {
  refuseLate(options.late);
  if (options.signal?.aborted) {
    throw new ExecutionCancelled("It was called off before it was started.");
  }
  const tree = new Tree(await started(launch), launch, keeper);
  const why = await tree.watched(options);
  // Also after a normal end: what the command left running in the background ends with it.
  await tree.end();
  if (why === "cancelled") {
    throw new ExecutionCancelled("It was called off while it ran.");
  }
  if (why !== "exited") {
    return { exitCode: null, timedOut: true, idle: why === "idle" };
  }
  if (!tree.began) {
    const said = keeper.said();
    throw new ToolFailure(`The sandbox could not start the command: ${said || "it gave no reason"}.`);
  }
  return { exitCode: tree.exitCode, timedOut: false, idle: false };
}

function started(launch: Launch): Promise<ChildProcess> {
  const [program, ...args] = launch.argv as [string, ...string[]];
  return new Promise((resolve, reject) => {
    const failed = (error: unknown) =>
      reject(
        codeOf(error) === "E2BIG"
          ? new ToolFailure("The arguments are too long for this machine.")
          : new ToolFailure(`The command could not be started: ${codeOf(error) ?? "unknown"}.`),
      );
    const nothing = openSync("/dev/null", "r");
    try {
      const extras = launch.extras.map((one) => (one === "status" ? ("pipe" as const) : one));
      const child = spawn(program, args, {
        env: { ...launch.env },
        cwd: launch.cwd,
        stdio: covered(["ignore", "pipe", "pipe", ...extras], nothing),
        detached: true,
        ...(launch.uid === undefined ? {} : { uid: launch.uid }),
        ...(launch.gid === undefined ? {} : { gid: launch.gid }),
      });
      child.once("error", failed);
      child.once("spawn", () => resolve(child));
    } catch (error) {
      failed(error);
    } finally {
      closeSync(nothing);
    }
  });
}

/**
 * What a child gets from number 0 on, with nothing in place of all it was not meant to get. Node closes no descriptor
 * that its own process inherited, and an open directory of the editor would be a way out of any sandbox.
 */
function covered(given: readonly ("ignore" | "pipe" | number)[], nothing: number): ("ignore" | "pipe" | number)[] {
  const all = [...given];
  for (const stray of inherited().filter((fd) => fd >= given.length)) {
    while (all.length < stray) {
      all.push("ignore"); // leaves the number as it is
    }
    all[stray] = nothing;
  }
  return all;
}

/** The descriptors of this process that its children would get, whatever they are started with. */
function inherited(): number[] {
  if (process.platform !== "linux") {
    return [];
  }
  return readdirSync("/proc/self/fd")
    .map(Number)
    .filter((fd) => {
      try {
        const flags = /^flags:\s*([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1] ?? "0";
        return (Number.parseInt(flags, 8) & CLOSED_ON_EXEC) === 0;
      } catch {
        return false; // it was the one the list was read from
      }
    })
    .sort((one, other) => one - other);
}

type Why = "exited" | "late" | "idle" | "cancelled";

/** All processes of one command. */
class Tree {
  readonly #exited: Promise<void>;
  readonly #drained: Promise<unknown>;
  readonly #status: Readable | undefined;
  #told = "";
  #inner: { readonly pid: number; readonly born: string; readonly ours: boolean } | undefined;
  #spoke = () => {};

  constructor(
    private readonly child: ChildProcess,
    private readonly launch: Launch,
    private readonly keeper: Keeper,
  ) {
    const at = launch.extras.indexOf("status");
    this.#status = at < 0 ? undefined : (child.stdio[3 + at] as Readable);
    this.#status?.on("data", (data: Buffer) => this.#listen(data));
    this.#status?.on("error", () => {});
    firstToGo(child.pid as number);
    this.#exited = new Promise((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null) {
        resolve();
      }
      child.once("exit", () => resolve());
    });
    const streams: (readonly [StreamName, Readable])[] = [
      ["stdout", child.stdout as Readable],
      ["stderr", child.stderr as Readable],
    ];
    this.#drained = Promise.all([
      ...streams.map(([name, stream]) => this.#drain(name, stream)),
      ...(this.#status === undefined ? [] : [closed(this.#status)]),
    ]);
  }

  get exitCode(): number {
    const { exitCode, signalCode } = this.child;
    return exitCode ?? 128 + (signalCode === null ? 0 : constants.signals[signalCode]);
  }

  /** Whether the sandbox came as far as the command, and told how it ended. */
  get began(): boolean {
    return this.#status === undefined || this.#told.includes('"exit-code"');
  }

  /** Wait for its end, or for a reason to end it. */
  async watched({ seconds, idleSeconds, signal, clock = SYSTEM_CLOCK }: ProcessOptions): Promise<Why> {
    let quiet: Timer | undefined;
    let late: Timer | undefined;
    let cancel = () => {};
    const reason = new Promise<Why>((resolve) => {
      late = clock.after(seconds * 1000, () => resolve("late"));
      if (idleSeconds) {
        this.#spoke = () => {
          quiet?.cancel();
          quiet = clock.after(idleSeconds * 1000, () => resolve("idle"));
        };
        this.#spoke();
      }
      cancel = () => resolve("cancelled");
      signal?.addEventListener("abort", cancel, { once: true });
      if (signal?.aborted) {
        cancel(); // while it was started
      }
    });
    try {
      return await Promise.race([this.#exited.then((): Why => "exited"), reason]);
    } finally {
      this.#spoke = () => {};
      quiet?.cancel();
      late?.cancel();
      signal?.removeEventListener("abort", cancel);
    }
  }

  #drain(name: StreamName, stream: Readable): Promise<void> {
    stream.on("data", (data: Buffer) => {
      this.#spoke();
      this.keeper.feed(name, data);
    });
    return closed(stream).then(() => this.keeper.feed(name, Buffer.alloc(0), true));
  }

  /** Read what the sandbox reports: its first process, then the exit code. */
  #listen(data: Buffer): void {
    this.#told += data.toString("latin1");
    const found = /"child-pid":\s*(\d+)/.exec(this.#told);
    if (found !== null && this.#inner === undefined) {
      const pid = Number(found[1]);
      const [parent, born] = process.platform === "linux" ? originOf(pid) : [0, ""];
      // Once its parent is gone the number alone no longer proves whose process it is.
      this.#inner = { pid, born, ours: parent === this.child.pid };
      if (this.#inner.ours) {
        firstToGo(pid);
      }
    }
  }

  /** Kill what is left and wait until it is gone. */
  async end(): Promise<void> {
    kill(-(this.child.pid as number)); // it has a session of its own, so its number is the group's
    await this.#exited;
    await within(this.#drained, DRAIN);
    if (this.#inner?.ours) {
      await this.#untilDead(this.#inner.pid, this.#inner.born);
    }
    if (this.launch.mark !== undefined) {
      await sweep(this.launch.mark);
    }
    await within(this.#drained, DRAIN);
    for (const stream of this.child.stdio) {
      stream?.destroy();
    }
  }

  async #untilDead(pid: number, born: string): Promise<void> {
    const until = performance.now() + DEATH;
    while (born !== "" && originOf(pid)[1] === born && performance.now() < until) {
      kill(pid);
      await pause(POLL);
    }
  }
}

/** When memory runs out, end the command and nothing of the user's. */
function firstToGo(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, "1000");
  } catch {
    // not this system, or it is gone
  }
}

/** Whose child a process is and when it began: with its number, that names it for ever. A zombie counts as gone. */
function originOf(pid: number): [parent: number, born: string] {
  try {
    const fields = (readFileSync(`/proc/${pid}/stat`, "latin1").split(")").at(-1) as string).trim().split(" ");
    return fields[0] === "Z" ? [0, ""] : [Number(fields[1]), fields[19] as string];
  } catch {
    return [0, ""];
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // it is gone, or not ours
  }
}

/** Kill every process that carries the mark, and what it started meanwhile. */
async function sweep(mark: string): Promise<void> {
  for (let round = 0; round < 20; round += 1) {
    const strays = marked(mark);
    if (strays.length === 0) {
      return;
    }
    strays.forEach(kill);
    await pause(10);
  }
}

function marked(mark: string): number[] {
  if (process.platform !== "linux") {
    return [];
  }
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/environ`, "latin1").split("\0").includes(mark);
      } catch {
        return false;
      }
    })
    .map(Number);
}

function closed(stream: Readable): Promise<void> {
  return new Promise((resolve) => {
    stream.once("close", () => resolve());
  });
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

async function within(work: Promise<unknown>, milliseconds: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([work, new Promise((resolve) => (timer = setTimeout(resolve, milliseconds)))]);
  clearTimeout(timer);
}
