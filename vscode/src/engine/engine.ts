// The engine as a child process: started, spoken to over JSON-RPC, watched, and started again with growing pauses when it
// ends by itself. It remembers which server and which folder were wanted, so that a new process goes on where the old one
// ended. It decides nothing about calls, and never puts a token on a command line or into an environment.

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { ConnectWorkspace, EngineNotifications, EngineRequests, UseServer, WorkspaceConnected } from "@protocol";
import {
  createMessageConnection,
  ErrorCodes,
  type MessageConnection,
  ResponseError,
  StreamMessageReader,
  StreamMessageWriter,
} from "vscode-jsonrpc/node";
import type { Log } from "../editor/log.js";
import { ENGINE, type EngineProgram, engineEnvironment } from "./program.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** One that ran so long was a good one: pauses begin small again. */
const GOOD_MS = 30_000;
/** After so many that ended early nobody waits for the next. */
const MOST_FAILURES = 6;
const ANSWER_MS = 20_000;
const ENDING_MS = 10_000;
/** What the channel itself answers once nobody is at its other end. */
const GONE: readonly number[] = [
  ErrorCodes.PendingResponseRejected,
  ErrorCodes.ConnectionInactive,
  ErrorCodes.MessageWriteError,
  ErrorCodes.MessageReadError,
];

/** Why a request to the engine failed. `kind` is the engine's class of error; `unreachable`: another try may help. */
export class EngineError extends Error {
  constructor(
    message: string,
    readonly kind: string,
    readonly hint: string | null = null,
  ) {
    super(message);
    this.name = "EngineError";
  }

  get unreachable(): boolean {
    return this.kind === "UnreachableError" || this.kind === "EngineGone";
  }
}

export interface EnginePorts {
  /** The program, found or installed. Rejects with what a person is told. */
  readonly program: () => Promise<EngineProgram>;
  /** Where it runs: never the opened folder. */
  readonly directory: string;
  readonly env: NodeJS.ProcessEnv;
  /** The folders open in the editor: nothing of them is started. */
  readonly folders: () => readonly string[];
  readonly log: Log;
  /** Called when it could not be kept running: it stays down until somebody starts it again. */
  readonly gaveUp: (problem: Error) => void;
  /** Called after a restart when the folder could not be connected again. */
  readonly lostFolder: (problem: EngineError) => void;
  readonly firstPauseMs?: number;
}

type Listener<M extends keyof EngineNotifications> = (params: EngineNotifications[M]) => void;

interface Running {
  readonly process: ChildProcessWithoutNullStreams;
  readonly rpc: MessageConnection;
  readonly since: number;
  readonly ended: Promise<void>;
}

export class Engine {
  readonly #ports: EnginePorts;
  readonly #listeners = new Map<string, Set<(params: never) => void>>();
  readonly #gone = new Set<() => void>();
  readonly #up = new Set<() => void>();
  #running: Running | null = null;
  #starting: Promise<void> | null = null;
  #server: UseServer | null = null;
  #folder: ConnectWorkspace | null = null;
  #failures = 0;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #disposed = false;

  constructor(ports: EnginePorts) {
    this.#ports = ports;
  }

  get pid(): number | null {
    return this.#running?.process.pid ?? null;
  }

  /** Starts it unless it runs. Rejects when there is no program, or it does not speak. */
  start(): Promise<void> {
    if (this.#running !== null) return Promise.resolve();
    clearTimeout(this.#retry);
    this.#starting ??= this.#start().finally(() => {
      this.#starting = null;
    });
    return this.#starting;
  }

  /** One request. Rejects with an EngineError. */
  async ask<M extends keyof EngineRequests>(method: M, params: EngineRequests[M][0]): Promise<EngineRequests[M][1]> {
    const running = this.#running;
    if (running === null) throw gone();
    return await send(running, method, params);
  }

  on<M extends keyof EngineNotifications>(method: M, listener: Listener<M>): () => void {
    const all = this.#listeners.get(method) ?? new Set();
    this.#listeners.set(method, all.add(listener as (params: never) => void));
    return () => all.delete(listener as (params: never) => void);
  }

  /** Called each time the process ended by itself: what it had open is gone. */
  onGone(listener: () => void): () => void {
    this.#gone.add(listener);
    return () => this.#gone.delete(listener);
  }

  /** Called each time a process has started: what could not be reached can be. */
  onUp(listener: () => void): () => void {
    this.#up.add(listener);
    return () => this.#up.delete(listener);
  }

  async useServer(server: UseServer): Promise<void> {
    this.#folder = null;
    await this.ask("server/use", server);
    this.#server = server;
  }

  async connect(folder: ConnectWorkspace): Promise<WorkspaceConnected> {
    const connected = await this.ask("workspace/connect", folder);
    this.#folder = folder;
    return connected;
  }

  /** Leaves folder and server; what runs in the folder is ended and reported. */
  async leave(): Promise<void> {
    this.#folder = null;
    this.#server = null;
    if (this.#running !== null) await this.ask("server/forget", {}).catch(() => {});
  }

  /** Ends it and starts it again, perhaps from another program. */
  async restart(): Promise<void> {
    clearTimeout(this.#retry);
    await this.#starting?.catch(() => {});
    await this.#stop();
    await this.start();
  }

  /** Ends it in order: what runs is ended with its whole tree, and reported. */
  async dispose(): Promise<void> {
    this.#disposed = true;
    clearTimeout(this.#retry);
    await this.#starting?.catch(() => {});
    await this.#stop();
  }

  async #stop(): Promise<void> {
    const running = this.#running;
    this.#running = null;
    if (running === null) return;
    for (const listener of [...this.#gone]) listener();
    void send(running, "shutdown", {}).catch(() => {});
    const late = setTimeout(() => running.process.kill("SIGKILL"), ENDING_MS);
    await running.ended;
    clearTimeout(late);
  }

  async #start(): Promise<void> {
    const { directory, env, folders, log, program } = this.#ports;
    const { args, command, from, version } = await program();
    if (this.#disposed) throw gone();
    log.info("starting the engine", { command, from, version });
    const process = spawn(command, [...args, "connect", "--stdio"], {
      cwd: directory,
      env: engineEnvironment(env, folders()),
      stdio: ["pipe", "pipe", "pipe"],
      windowsHide: true,
    });
    const rpc = createMessageConnection(
      new StreamMessageReader(process.stdout),
      new StreamMessageWriter(process.stdin),
    );
    const ended = new Promise<void>((resolve) => {
      process.once("close", () => resolve());
      process.once("error", () => resolve());
    });
    const running: Running = { process, rpc, since: Date.now(), ended };
    void ended.then(() => rpc.dispose());
    createInterface({ input: process.stderr }).on("line", (line) => this.#logged(line));
    process.stdin.on("error", () => {}); // it ended: `close` says so
    rpc.onNotification((method, params) => this.#told(method, params));
    rpc.onError(([error]) => log.error("the engine's channel failed", { error: error.message }));
    rpc.listen();
    try {
      await within(ANSWER_MS, send(running, "initialize", { protocol: ENGINE, editor: "VS Code" }));
      if (this.#server !== null) await send(running, "server/use", this.#server);
    } catch (error) {
      process.kill("SIGKILL");
      throw error;
    }
    this.#running = running;
    void ended.then(() => this.#over(running));
    for (const listener of [...this.#up]) listener();
    if (this.#folder !== null) void this.#reconnect(this.#folder);
  }

  /** A new process goes on in the folder of the one before. */
  async #reconnect(folder: ConnectWorkspace): Promise<void> {
    try {
      await this.ask("workspace/connect", folder);
    } catch (error) {
      // One that ended again is started again, and comes back here.
      if (error instanceof EngineError && error.kind !== "EngineGone") this.#ports.lostFolder(error);
    }
  }

  #over(running: Running): void {
    if (this.#running !== running) return;
    this.#running = null;
    const { exitCode, signalCode } = running.process;
    this.#ports.log.warn("the engine ended", { code: exitCode, signal: signalCode });
    for (const listener of [...this.#gone]) listener();
    if (Date.now() - running.since > GOOD_MS) this.#failures = 0;
    this.#again(new EngineError("Byleave's engine ends again and again. The log says why.", "EngineFault"));
  }

  /** Starts it after a pause, or gives up when the last few ended early: then `problem` is told. */
  #again(problem: EngineError): void {
    if (this.#disposed) return;
    if (this.#failures >= MOST_FAILURES) {
      this.#failures = 0;
      this.#ports.gaveUp(problem);
      return;
    }
    const pause = Math.min((this.#ports.firstPauseMs ?? FIRST_PAUSE_MS) * 2 ** this.#failures, LONGEST_PAUSE_MS);
    this.#failures += 1;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.#tryAgain(), pause);
  }

  async #tryAgain(): Promise<void> {
    try {
      await this.start();
    } catch (error) {
      this.#ports.log.error("the engine did not start", { error: String(error) });
      if (error instanceof EngineError) this.#again(error);
      else if (!this.#disposed) this.#ports.gaveUp(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #told(method: string, params: unknown): void {
    for (const listener of [...(this.#listeners.get(method) ?? [])]) listener(params as never);
  }

  /** A line of its own log, under the level it has itself. */
  #logged(line: string): void {
    const { log } = this.#ports;
    const [, level, words] = /^\S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+(.*)$/.exec(line.trimEnd()) ?? [];
    if (level === "DEBUG") log.debug(`engine: ${words}`);
    else if (level === "INFO") log.info(`engine: ${words}`);
    else if (level === "ERROR" || level === "CRITICAL") log.error(`engine: ${words}`);
    else if (line.trim() !== "") log.warn(`engine: ${words ?? line.trimEnd()}`);
  }
}

async function send<M extends keyof EngineRequests>(
  { rpc }: Running,
  method: M,
  params: EngineRequests[M][0],
): Promise<EngineRequests[M][1]> {
  try {
    // When the process ends the connection is disposed of, and that rejects what nobody will answer.
    return await rpc.sendRequest<EngineRequests[M][1]>(method, params);
  } catch (error) {
    throw engineError(error);
  }
}

function engineError(error: unknown): EngineError {
  if (!(error instanceof ResponseError) || GONE.includes(error.code)) return gone();
  const data = (error.data ?? {}) as { kind?: unknown; hint?: unknown };
  return new EngineError(
    error.message,
    typeof data.kind === "string" ? data.kind : "EngineFault",
    typeof data.hint === "string" ? data.hint : null,
  );
}

function gone(): EngineError {
  return new EngineError("Byleave's engine is not running.", "EngineGone", "it is started again automatically");
}

async function within<T>(milliseconds: number, work: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new EngineError("Byleave's engine does not answer.", "EngineFault")), milliseconds);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
