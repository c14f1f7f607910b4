// A project that is connected: the watch over it, the engine at work in the folder, the calls both tell of, and what a
// person is told while the chat is not in sight. Ends as one.

import type { ApprovalStatus, ConnectionChanged, FeedEvent, WorkspaceSettings } from "@protocol";
import * as vscode from "vscode";
import type { Api } from "../../../ui/src/api.js";
import { oneLine, shortened } from "../../../ui/src/text/visible.js";
import { saidOf } from "../../../ui/src/text/words.js";
import { type Engine, EngineError } from "../engine/engine.js";
import type { EngineHost } from "../engine/host.js";
import { type Link, Watch } from "../host/watch.js";
import { PathValidator } from "../tools/executors.js";
import { type Asked, ToolHandler } from "../tools/ToolHandler.js";
import type { ChangedFiles } from "./changes.js";
import type { Differences } from "./diffs.js";
import type { Log } from "./log.js";
import { notice, plain, sentence } from "./notices.js";
import type { OutputTerminal } from "./output.js";
import { answerInDiff, type QuestionPorts, showChange } from "./questions.js";
import { readSettings } from "./settings.js";
import { Telling } from "./telling.js";

const QUIET_TRIES = 2;
const AGAIN_MS = 2000;
const CONNECT = "Connect again";
const UNANSWERED = "nobody answered a question in time, so nothing ran. Ask the agent again if you want it.";
const IN_CHAT = "The chat shows what is known of it.";

export interface LivePorts {
  readonly log: Log;
  readonly engine: Engine;
  readonly differences: Differences;
  readonly changes: ChangedFiles;
  readonly output: OutputTerminal;
  readonly settings: () => Promise<WorkspaceSettings>;
  /** How long to wait before the folder is connected again. */
  readonly againMs?: number;
  chatVisible(): boolean;
  openWaiting(): void;
}

export interface Connected {
  readonly host: EngineHost;
  readonly api: Api;
  readonly projectId: string;
  readonly folder: string;
}

/** How the engine stands in the folder. */
export interface ExecutingState {
  /** Whether the server has this machine on its list now. */
  readonly connected: boolean;
  /** What holds its commands; null while it is found out. */
  readonly isolation: string | null;
  /** What is weaker than it should be, in words. */
  readonly warnings: readonly string[];
  /** Why it ended for good, in a sentence; null while it runs or tries again. */
  readonly ended: string | null;
  /** Another client works in the folder for the project, such as `byleave up`: calls run there. */
  readonly elsewhere: boolean;
}

const STARTED: ExecutingState = { connected: false, isolation: null, warnings: [], ended: null, elsewhere: false };

export class LiveProject {
  readonly #connected: Connected;
  readonly #ports: LivePorts;
  readonly #changed: () => void;
  readonly #watch: Watch;
  readonly #questions: QuestionPorts;
  readonly #telling: Telling;
  readonly #handler: ToolHandler;
  readonly #ends: (() => void)[] = [];
  readonly paths: PathValidator;
  #executing: ExecutingState | null = null;
  #starting = false;
  #unlist: (() => void) | undefined;
  #tries = 0;
  #again: ReturnType<typeof setTimeout> | undefined;
  #ended = false;

  constructor(connected: Connected, ports: LivePorts, changed: () => void) {
    this.#connected = connected;
    this.#ports = ports;
    this.#changed = changed;
    this.paths = new PathValidator(ports.engine);
    const dialogs = { ask: (question: Asked) => this.#asked(question), over: this.#over.bind(this) };
    const { approvalTimeoutMs } = readSettings();
    this.#handler = new ToolHandler(dialogs, ports.output, ports.log, { approvalTimeoutMs }, changed);
    this.#questions = {
      api: connected.api,
      projectId: connected.projectId,
      differences: ports.differences,
      stillWaits: (id) => this.#handler.isWaiting(id),
      openWaiting: () => ports.openWaiting(),
    };
    this.#telling = new Telling({
      ...this.#questions,
      chatVisible: () => ports.chatVisible(),
      waiting: () => this.#handler.pendingApprovals,
    });
    const { host, api, projectId } = connected;
    const listener = { changed, event: (event: FeedEvent) => this.#heard(event) };
    const wake = (listener: () => void) => {
      const ends = [wakeOfWindow(listener), ports.engine.onUp(listener)];
      return () => {
        for (const end of ends) end();
      };
    };
    this.#watch = new Watch(host, api, projectId, this.#handler, listener, wake);
    this.#listen(ports.engine);
  }

  get host(): EngineHost {
    return this.#connected.host;
  }

  get origin(): string {
    return this.#connected.host.origin;
  }

  get folder(): string {
    return this.#connected.folder;
  }

  get link(): Link {
    return this.#watch.link;
  }

  get waiting(): readonly Asked[] {
    return this.#handler.pendingApprovals;
  }

  get handler(): ToolHandler {
    return this.#handler;
  }

  /** How the engine stands in the folder; null when nothing is executed there. */
  get executing(): ExecutingState | null {
    return this.#executing;
  }

  /** Lets the engine execute in the folder, once. */
  async execute(): Promise<void> {
    if (this.#starting || this.#ended) return;
    this.#starting = true;
    const { projectId: project_id, folder: workspace } = this.#connected;
    this.#executing = STARTED;
    try {
      const connected = await this.#ports.engine.connect({
        project_id,
        workspace,
        settings: await this.#ports.settings(),
      });
      if (this.#ended) return;
      this.#showChanges(connected.workspace);
      this.#changed();
    } catch (error) {
      // A boundary: whatever keeps the engine from starting there, the chat stays and the person is told.
      this.#notStarted(error);
    }
  }

  /** After a restart of the engine the folder could not be connected again. */
  lostFolder(error: EngineError): void {
    this.#notStarted(error);
  }

  /** Shows what a write that waits would change. Whether it could. */
  async showQuestion(approvalId: string): Promise<boolean> {
    const question = this.#handler.pendingApprovals.find(({ id }) => id === approvalId);
    return question !== undefined && (await showChange(question, this.#questions, false));
  }

  /** Allow or Deny in a difference's title bar. */
  async answer(question: Asked, allows: boolean): Promise<void> {
    await answerInDiff(question, this.#questions, allows);
  }

  async end(): Promise<void> {
    this.#ended = true;
    clearTimeout(this.#again);
    for (const end of this.#ends) end();
    this.#unlist?.();
    this.#watch.end();
    this.#telling.end();
    this.#handler.dispose();
    this.#executing = null;
    await this.#ports.engine.leave();
    this.host.dispose();
  }

  #listen(engine: Engine): void {
    const handler = this.#handler;
    this.#ends.push(
      engine.on("execution/started", (event) => handler.handleToolExecutionSignal(event)),
      engine.on("execution/output", (event) => handler.handleToolOutput(event)),
      engine.on("execution/ended", (result) => handler.handleToolEnded(result)),
      engine.on("execution/acknowledged", (event) => handler.handleToolResultAck(event)),
      engine.on("connection/changed", (told) => this.#moved(told)),
      engine.on("isolation/found", ({ backend, warnings }) => this.#become({ isolation: backend, warnings })),
      engine.onGone(() => {
        handler.handleEngineGone();
        this.#become({ connected: false });
      }),
    );
  }

  #become(more: Partial<ExecutingState>): void {
    if (this.#executing !== null) this.#executing = { ...this.#executing, ...more };
    this.#changed();
  }

  #showChanges(folder: string): void {
    this.#unlist?.();
    this.#unlist = this.#ports.changes.show({ engine: this.#ports.engine, api: this.#connected.api, folder });
  }

  /** A window that was just closed may still be ending in this folder: it is tried again before anybody is told. */
  #notStarted(error: unknown): void {
    if (error instanceof EngineError && error.kind === "AlreadyServed" && this.#tries >= QUIET_TRIES && !this.#ended) {
      this.#starting = false;
      this.#executing = { ...STARTED, elsewhere: true };
      this.#showChanges(this.folder);
      this.#changed();
      return;
    }
    const why = error instanceof EngineError ? sentence(error) : oneLine(String(error));
    this.#ports.log.error("nothing can be executed here", { error: why });
    this.#starting = false;
    this.#executing = null;
    if (this.#ended) return;
    if (this.#tries < QUIET_TRIES) {
      this.#tries += 1;
      this.#again = setTimeout(() => void this.execute(), this.#ports.againMs ?? AGAIN_MS);
      return;
    }
    this.#changed();
    const words = notice(`Byleave: nothing can be executed in this folder: ${why}`);
    void vscode.window.showErrorMessage(words, "Try again").then((said) => {
      if (said === "Try again") void this.execute();
    });
  }

  #moved({ hint, message, signed_out, state }: ConnectionChanged): void {
    if (state !== "ended") {
      this.#become({ connected: state === "connected" });
      return;
    }
    // A sign-in that is over is seen by the watch too, which says what to do.
    const ended = signed_out ? null : sentence({ message: message ?? "", hint });
    this.#become({ connected: false, ended });
    if (ended !== null && !this.#ended) void this.#tellEnded(ended);
  }

  /** It does not come back by itself: what it would take is in the words, or connecting asks for it. */
  async #tellEnded(why: string): Promise<void> {
    const words = `Byleave: nothing is executed in this folder any more. ${plain(oneLine(why))}`;
    const said = await vscode.window.showErrorMessage(notice(words), CONNECT);
    if (said === CONNECT) await vscode.commands.executeCommand("byleave.connect");
  }

  #asked(question: Asked): void {
    if (readSettings().openDiffs) void showChange(question, this.#questions, true);
    this.#telling.asked(question);
  }

  #over(question: Asked, _status: ApprovalStatus): void {
    this.#telling.over(question.id);
    this.#ports.differences.over(question.id);
  }

  #heard(event: FeedEvent): void {
    this.#ports.changes.heard(event);
    // The other client left: this one takes its place.
    if (event.kind === "project.machines" && event.machines.length === 0 && this.#executing?.elsewhere) {
      void this.execute();
      return;
    }
    if (event.kind !== "tool.finished" || event.error === null || this.#ports.chatVisible()) return;
    if (event.error_type !== "approval_timeout" && event.error_type !== "execution_timeout") return;
    this.#telling.late(`Byleave: ${lateWords(event.error, event.error_type)}`);
  }
}

/** A call that ended late, for a person: the error's hint is for the agent, down to the names of its parameters. */
function lateWords(error: string, type: "approval_timeout" | "execution_timeout"): string {
  if (type === "approval_timeout") return UNANSWERED;
  return `${shortened(oneLine(saidOf(error).what), 200)} ${IN_CHAT}`;
}

/** The person is back at this window: worth trying at once. */
function wakeOfWindow(listener: () => void): () => void {
  const heard = vscode.window.onDidChangeWindowState((state) => {
    if (state.focused) listener();
  });
  return () => heard.dispose();
}
