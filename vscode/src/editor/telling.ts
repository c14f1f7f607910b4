// Telling of questions, and of calls that ended late, while the chat is not in sight: one notification of each kind at a
// time, however many there are, which says how many wait. The next comes when the person is done with this one. The editor cannot take a notification back, so one whose
// questions are over makes room for another only after a while: who asks and takes back quickly fills no screen.

import * as vscode from "vscode";
import type { Asked } from "../tools/ToolHandler.js";
import { notice } from "./notices.js";
import { askNatively, type QuestionPorts } from "./questions.js";
import { readSettings } from "./settings.js";

const APART_MS = 10_000;
const REVIEW = "Review";
const CHAT = "Open the chat";

export interface TellingPorts extends QuestionPorts {
  chatVisible(): boolean;
  waiting(): readonly Asked[];
  /** How long a notification that is over keeps its place. */
  readonly apartMs?: number;
}

export class Telling {
  readonly #ports: TellingPorts;
  readonly #untold = new Set<string>();
  #open: { readonly ids: readonly string[]; readonly since: number } | null = null;
  #later: ReturnType<typeof setTimeout> | undefined;
  #ended = false;
  #lateOpen = false;
  #moreLate = 0;

  constructor(ports: TellingPorts) {
    this.#ports = ports;
  }

  asked(question: Asked): void {
    if (this.#ports.chatVisible() || !readSettings().notify) return;
    this.#untold.add(question.id);
    this.#next();
  }

  /** One that is over need not be told any more, and those behind it need not wait for it. */
  over(id: string): void {
    this.#untold.delete(id);
    this.#next();
  }

  /** A call was not answered in time, or took too long. */
  late(words: string): void {
    if (this.#lateOpen) {
      this.#moreLate += 1;
      return;
    }
    this.#lateOpen = true;
    void this.#putLate(words).finally(() => {
      this.#lateOpen = false;
      const more = this.#moreLate;
      this.#moreLate = 0;
      if (more === 0 || this.#ended || this.#ports.chatVisible()) return;
      this.late(`Byleave: ${more} more ended because nobody answered in time, or they took too long.`);
    });
  }

  end(): void {
    this.#ended = true;
    clearTimeout(this.#later);
  }

  #next(): void {
    clearTimeout(this.#later);
    if (this.#ended || this.#untold.size === 0 || this.#holds()) return;
    const waiting = this.#ports.waiting();
    const untold = waiting.filter(({ id }) => this.#untold.has(id));
    this.#untold.clear();
    const [first] = untold;
    if (first === undefined || this.#ports.chatVisible() || !readSettings().notify) return;
    const open = { ids: untold.map(({ id }) => id), since: Date.now() };
    this.#open = open;
    const told = untold.length === 1 ? askNatively(first, this.#ports, waiting.length - 1) : this.#many(waiting);
    void told.finally(() => {
      if (this.#open === open) this.#open = null;
      this.#next();
    });
  }

  /** Whether the notification that is open keeps its place; if only for a while, then this is looked at again. */
  #holds(): boolean {
    if (this.#open === null) return false;
    const { ids, since } = this.#open;
    if (ids.some((id) => this.#ports.stillWaits(id))) return true;
    const left = since + (this.#ports.apartMs ?? APART_MS) - Date.now();
    if (left <= 0) return false;
    this.#later = setTimeout(() => this.#next(), left);
    return true;
  }

  async #putLate(words: string): Promise<void> {
    if ((await vscode.window.showWarningMessage(notice(words), CHAT)) === CHAT) this.#ports.openWaiting();
  }

  async #many(waiting: readonly Asked[]): Promise<void> {
    const high = waiting.filter(({ risk }) => risk === "HIGH").length;
    const which = high === 0 ? "" : `, ${high} of them high risk`;
    const put = high === 0 ? vscode.window.showWarningMessage : vscode.window.showErrorMessage;
    const said = await put(`Byleave: ${waiting.length} to review${which}.`, REVIEW);
    if (said === REVIEW) this.#ports.openWaiting();
  }
}
