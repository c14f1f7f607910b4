// A project that is connected: the watch over it, the client that executes in the folder, and what a person is told while
// the chat is not in sight. Ends as one.

import type { FeedEvent } from "@protocol";
import * as vscode from "vscode";
import type { Api } from "../../../ui/src/api.js";
import { oneLine, shortened } from "../../../ui/src/text/visible.js";
import { saidOf } from "../../../ui/src/text/words.js";
import type { Executing, ExecutingState, StartExecuting } from "../host/executing.js";
import type { NodeHost } from "../host/node_host.js";
import { type Asked, type Link, Watch } from "../host/watch.js";
import { MORE_TIME } from "../tools/CommandExecutor.js";
import { ByleaveError } from "../tools/errors.js";
import type { Log } from "../tools/ports.js";
import { SEARCH_LESS } from "../tools/SearchExecutor.js";
import type { Differences } from "./diffs.js";
import { notice, plain, sentence } from "./notices.js";
import type { OutputTerminal } from "./output.js";
import { type QuestionPorts, showChange } from "./questions.js";
import { readSettings } from "./settings.js";
import { Telling } from "./telling.js";

const QUIET_TRIES = 2;
const AGAIN_MS = 2000;
const CONNECT = "Connect again";
const UNANSWERED =
  "nobody answered a question in time, so what it asked for was not done. Ask the agent again if you want it.";
const IN_CHAT = "The chat shows what is known of it.";
/** What to do, where the hint of an error says it to the agent. */
const FOR_PEOPLE = new Map([
  [MORE_TIME, "If it needs longer, ask the agent to allow it more time: at most 300 seconds."],
  [SEARCH_LESS, "The agent was told to search a smaller part."],
]);

export interface LivePorts {
  readonly log: Log;
  readonly differences: Differences;
  readonly output: OutputTerminal;
  /** How long to wait before the client is started again. */
  readonly againMs?: number;
  chatVisible(): boolean;
  openWaiting(): void;
}

export interface Connected {
  readonly host: NodeHost;
  readonly api: Api;
  readonly projectId: string;
  readonly folder: string;
}

export class LiveProject {
  readonly #connected: Connected;
  readonly #ports: LivePorts;
  readonly #changed: () => void;
  readonly #watch: Watch;
  readonly #questions: QuestionPorts;
  readonly #telling: Telling;
  #executing: Executing | null = null;
  #starting = false;
  #tries = 0;
  #again: ReturnType<typeof setTimeout> | undefined;
  #ended = false;

  constructor(connected: Connected, ports: LivePorts, changed: () => void) {
    this.#connected = connected;
    this.#ports = ports;
    this.#changed = changed;
    this.#questions = {
      api: connected.api,
      projectId: connected.projectId,
      differences: ports.differences,
      stillWaits: (id) => this.#watch.isWaiting(id),
      openWaiting: () => ports.openWaiting(),
    };
    this.#telling = new Telling({
      ...this.#questions,
      chatVisible: () => ports.chatVisible(),
      waiting: () => this.#watch.waiting,
    });
    this.#watch = new Watch(
      connected.host,
      connected.api,
      connected.projectId,
      {
        changed,
        asked: (question) => this.#asked(question),
        over: (question, status, by) => {
          ports.log.info("question over", { id: question.id, status, by });
          this.#telling.over(question.id);
        },
        event: (event) => this.#heard(event),
      },
      wakeOfWindow,
    );
  }

  get host(): NodeHost {
    return this.#connected.host;
  }

  get origin(): string {
    return this.#connected.host.access.origin;
  }

  get folder(): string {
    return this.#connected.folder;
  }

  get link(): Link {
    return this.#watch.link;
  }

  get waiting(): readonly Asked[] {
    return this.#watch.waiting;
  }

  /** How the executing client stands; null when there is none. */
  get executing(): ExecutingState | null {
    return this.#executing?.state ?? null;
  }

  /** Starts the client that executes, once. */
  async execute(start: StartExecuting): Promise<void> {
    if (this.#starting || this.#ended) return;
    this.#starting = true;
    const { host, projectId, folder } = this.#connected;
    try {
      const executing = await start({ access: host.access, projectId, folder, changed: () => this.#moved() });
      if (this.#ended) await executing.dispose();
      else this.#executing = executing;
      this.#changed();
    } catch (error) {
      // A boundary: whatever keeps the client from starting, the chat stays and the person is told.
      this.#starting = false;
      this.#notStarted(start, error);
    }
  }

  async end(): Promise<void> {
    this.#ended = true;
    clearTimeout(this.#again);
    this.#watch.end();
    this.#telling.end();
    const executing = this.#executing;
    this.#executing = null;
    await executing?.dispose();
  }

  /** A window that was just closed may still be ending in this folder: it is tried again before anybody is told. */
  #notStarted(start: StartExecuting, error: unknown): void {
    const sentence = reason(error);
    this.#ports.log.error("nothing can be executed here", { error: sentence });
    if (this.#ended) return;
    if (this.#tries < QUIET_TRIES) {
      this.#tries += 1;
      this.#again = setTimeout(() => void this.execute(start), this.#ports.againMs ?? AGAIN_MS);
      return;
    }
    this.#changed();
    const words = notice(`Byleave: nothing can be executed in this folder: ${sentence}`);
    void vscode.window.showErrorMessage(words, "Try again").then((said) => {
      if (said === "Try again") void this.execute(start);
    });
  }

  #moved(): void {
    const ended = this.#executing?.state.ended ?? null;
    if (ended !== null && !this.#ended) void this.#tellEnded(ended);
    this.#changed();
  }

  /** It does not come back by itself: what it would take is in the words, or connecting asks for it. */
  async #tellEnded(why: string): Promise<void> {
    const words = `Byleave: nothing is executed in this folder any more. ${plain(oneLine(why))}`;
    const said = await vscode.window.showErrorMessage(notice(words), CONNECT);
    if (said === CONNECT) await vscode.commands.executeCommand("byleave.connect");
  }

  #asked(question: Asked): void {
    this.#ports.log.info("question", { id: question.id, tool: question.toolName, risk: question.risk });
    if (readSettings().openDiffs) void showChange(question, this.#questions, true);
    this.#telling.asked(question);
  }

  #heard(event: FeedEvent): void {
    this.#ports.output.hear(event);
    if (event.kind !== "tool.finished" || event.error === null || this.#ports.chatVisible()) return;
    if (event.error_type !== "approval_timeout" && event.error_type !== "execution_timeout") return;
    this.#telling.late(`Byleave: ${lateWords(event.error, event.error_type)}`);
  }
}

/** A call that ended late, for a person: what the error says is for the agent, down to the names of its parameters. */
function lateWords(error: string, type: "approval_timeout" | "execution_timeout"): string {
  if (type === "approval_timeout") return UNANSWERED;
  const { hint, what } = saidOf(error, false);
  const todo = hint === null ? IN_CHAT : (FOR_PEOPLE.get(hint) ?? plain(oneLine(hint)));
  return `${shortened(oneLine(what), 200)} ${shortened(todo, 200)}`;
}

/** Why a client did not start, in a sentence that says what to do. */
function reason(error: unknown): string {
  if (error instanceof ByleaveError) return sentence(error);
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ENOENT") return "the folder is not there any more. Open it again from where it is now.";
  if (code === "EACCES" || code === "EPERM") {
    return "you may not read it, or not write where the editor keeps its state: the permissions do not allow it. Correct them, then try again.";
  }
  return oneLine(error instanceof Error ? error.message : String(error));
}

/** The person is back at this window: worth trying at once. */
function wakeOfWindow(listener: () => void): () => void {
  const heard = vscode.window.onDidChangeWindowState((state) => {
    if (state.focused) listener();
  });
  return () => heard.dispose();
}
