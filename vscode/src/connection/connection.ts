// The client's life: connect to the feed, hand events to the handler, connect again when the stream breaks. Each time it
// connects, this machine's rules are declared, what could not be delivered is sent, and the questions that wait are taken
// from the server's list. A token that is not accepted, a missing scope or an unknown project end it with a clear state:
// trying again would not help. Everything else is tried again, with growing pauses.

import type { ExecutionSignal, FeedEvent, PolicyDeclaration } from "@protocol";
import type { DeclaredLayer } from "../gate/index.js";
import { ByleaveError, NotFound, UnreachableError } from "../tools/errors.js";
import { pauseBefore } from "../tools/link.js";
import { type Clock, type Log, NO_LOG, SYSTEM_CLOCK, sleep, type Timer } from "../tools/ports.js";
import type { ToolHandler } from "../tools/ToolHandler.js";
import type { Undoer } from "../tools/undoing.js";
import type { Workspace } from "../tools/Workspace.js";
import { type ServerApi, SignedOut } from "./api.js";
import { isFeedEvent } from "./events.js";
import { type Frame, FrameReader } from "./sse.js";

const FIRST_PAUSE = 200;
const LONGEST_PAUSE = 15_000;
/** A connection that lasted so long, or brought an event, was a good one: the pauses start small again. */
const GOOD = 5_000;
/** The server beats every 15 s; a stream that says nothing for so long is taken for dead. */
const SILENCE = 45_000;
/** What this client can do when it is asked what a call would do; said on connecting. */
const LOOKS = "write_file";

/** Where a connection stands, for people. */
export type ConnectionState =
  | { readonly kind: "connecting" }
  | { readonly kind: "connected" }
  | { readonly kind: "waiting"; readonly milliseconds: number; readonly why: string }
  /** Over: `signedOut` says that signing in again would help. */
  | { readonly kind: "ended"; readonly why: string; readonly hint: string | null; readonly signedOut: boolean }
  | { readonly kind: "closed" };

export interface ConnectionParts {
  readonly projectId: string;
  readonly api: ServerApi;
  readonly handler: ToolHandler;
  readonly workspace: Workspace;
  /** Undoes calls when the server asks; left out: nobody does. */
  readonly undoer?: Undoer | undefined;
  /** The owner's rules as they are declared: `LoadedPolicy.texts`. */
  readonly rules?: readonly DeclaredLayer[];
  readonly log?: Log | undefined;
  readonly clock?: Clock | undefined;
  /** Whether somebody here can answer: then what waits is asked for. */
  readonly interactive?: boolean;
  readonly onState?: (state: ConnectionState) => void;
  /** Every event of the feed, after the handler has it. */
  readonly onEvent?: (number: number, event: FeedEvent) => void;
}

/** One workspace, connected to one project of a server. */
export class Connection {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #lastEventId: number | undefined;
  #failures = 0;
  #state: ConnectionState = { kind: "closed" };

  constructor(private readonly parts: ConnectionParts) {
    this.#log = parts.log ?? NO_LOG;
    this.#clock = parts.clock ?? SYSTEM_CLOCK;
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** Serve until closed, or until trying again would not help; never rejects. */
  run(): Promise<void> {
    this.#running ??= this.#run();
    return this.#running;
  }

  /** End everything that runs for this connection, in order. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await this.parts.undoer?.close();
    await this.parts.handler.dispose();
    this.parts.workspace.close();
    this.#become({ kind: "closed" });
  }

  #become(state: ConnectionState): void {
    this.#state = state;
    this.parts.onState?.(state);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const began = this.#clock.monotonic();
      let why = "The server ended the stream.";
      try {
        this.#become({ kind: "connecting" });
        await this.#serve();
        this.#log.info("stream ended by the server", { server: this.parts.api.serverUrl });
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        if (!(error instanceof UnreachableError)) {
          this.#end(error);
          return;
        }
        why = error.message;
        this.#log.warn("not connected", { error: why });
      }
      this.#failures = this.#clock.monotonic() - began > GOOD ? 0 : this.#failures;
      const milliseconds = pauseBefore(this.#failures, FIRST_PAUSE, LONGEST_PAUSE);
      this.#failures += 1;
      this.#become({ kind: "waiting", milliseconds, why });
      await sleep(this.#clock, milliseconds, signal);
    }
  }

  #end(error: unknown): void {
    const told = error instanceof ByleaveError ? error : new ByleaveError(`The connection failed: ${String(error)}`);
    this.#log.error("connection ended", { error: told.message });
    const signedOut = told instanceof SignedOut;
    this.#become({ kind: "ended", why: told.message, hint: told.hint, signedOut });
  }

  async #serve(): Promise<void> {
    const { api, handler, projectId, workspace } = this.parts;
    await this.#declare();
    const { backend } = await workspace.isolation();
    const query = new URLSearchParams({ client: api.clientId ?? "", workspace: workspace.root, isolation: backend });
    const headers: Record<string, string> = {
      Accept: "text/event-stream",
      "Cache-Control": "no-store",
      "Byleave-Looks": LOOKS,
      "Byleave-Editor": "vscode",
      ...(this.#lastEventId === undefined ? {} : { "Last-Event-ID": String(this.#lastEventId) }),
    };
    const stream = new AbortController();
    const watchdog = new Watchdog(this.#clock, () => stream.abort());
    const signal = AbortSignal.any([this.#stop.signal, stream.signal]);
    try {
      const response = await api.openStream(projectId, query, headers, signal);
      const date = Date.parse(response.headers.get("date") ?? "");
      if (!Number.isNaN(date)) {
        handler.setServerTime(date);
      }
      this.#become({ kind: "connected" });
      this.#log.info("connected", { server: api.serverUrl, project: projectId, again: this.#failures > 0 });
      void this.#catchUp();
      await this.#read(response, watchdog);
    } catch (error) {
      throw error instanceof ByleaveError ? error : api.unreachable(error);
    } finally {
      watchdog.end();
      stream.abort();
    }
  }

  async #read(response: Response, watchdog: Watchdog): Promise<void> {
    const reader = new FrameReader();
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      watchdog.heard();
      for (const frame of reader.feed(chunk)) {
        this.#take(frame);
      }
    }
  }

  /** Each time, also when there are no rules: what this machine declared before must not go on. */
  async #declare(): Promise<void> {
    const { api, projectId, rules = [] } = this.parts;
    const layers = rules.map(({ layer, source, text, trusted }) => ({ layer, source, text, trusted }));
    try {
      const declaration = { client_id: api.clientId ?? "", layers: layers as PolicyDeclaration["layers"] };
      await api.declarePolicy(projectId, declaration);
    } catch (error) {
      if (!(error instanceof NotFound)) {
        throw error;
      }
      // An unknown project fails the same way right after, on the feed.
      this.#log.warn("the server takes no rules of a machine; they hold here all the same");
    }
  }

  /** A frame as an event. What a newer server says and we do not understand is passed over, never fatal. */
  #take(frame: Frame): void {
    const number = Number.parseInt(frame.id ?? "", 10);
    let value: unknown;
    try {
      value = JSON.parse(frame.data);
    } catch {
      value = undefined;
    }
    if (!isFeedEvent(value, frame.event) || Number.isNaN(number)) {
      this.#passOver(frame, value);
      return;
    }
    this.#failures = 0;
    this.#dispatch(value);
    this.#lastEventId = number;
    this.parts.onEvent?.(number, value);
  }

  #passOver(frame: Frame, value: unknown): void {
    this.#log.debug("event passed over", { kind: frame.event.slice(0, 100) });
    // A signal we cannot read is still somebody's call: it must not wait for its deadline to fail.
    const { client_id, tool_id } = (value ?? {}) as Partial<ExecutionSignal>;
    const ours = client_id === this.parts.api.clientId && typeof tool_id === "string";
    if (frame.event === "tool.execution_signal" && ours) {
      this.parts.handler.handleUnreadableSignal(tool_id);
    }
  }

  #dispatch(event: FeedEvent): void {
    const { handler } = this.parts;
    switch (event.kind) {
      case "tool.execution_signal":
        handler.handleToolExecutionSignal(event);
        break;
      case "tool.result_ack":
        handler.handleToolResultAck(event);
        break;
      case "tool.cancel_signal":
        handler.handleToolCancelSignal(event);
        break;
      case "tool.inspection_request":
        handler.handleToolInspectionRequest(event);
        break;
      case "tool.approval_request":
        handler.handleToolApprovalRequest(event);
        break;
      case "tool.approval_decided":
        handler.handleToolApprovalDecided(event);
        break;
      case "tool.undo_request":
        this.parts.undoer?.request(event, handler.serverAhead);
        break;
      default: // of the chat, and for those who show it
    }
  }

  /** Deliver what was kept, and learn what waits for an answer. */
  async #catchUp(): Promise<void> {
    const { api, handler, interactive } = this.parts;
    try {
      await handler.outbox.resend();
      await handler.approvals.resend();
      await this.parts.undoer?.resend();
      if (interactive) {
        const known = handler.pendingApprovals;
        const { approvals } = await api.approvals();
        handler.approvals.settle(approvals, known, handler.serverAhead);
      }
    } catch (error) {
      this.#log.warn("could not catch up", { error: (error as Error).message });
    }
  }
}

/** Ends a stream that has said nothing for too long. */
class Watchdog {
  #timer: Timer | undefined;

  constructor(
    private readonly clock: Clock,
    private readonly bark: () => void,
  ) {
    this.heard();
  }

  heard(): void {
    this.end();
    this.#timer = this.clock.after(SILENCE, this.bark);
  }

  end(): void {
    this.#timer?.cancel();
  }
}
