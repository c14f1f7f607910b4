// A question while the chat is not in sight: a notification, where a person can deny, look at it in the chat, or
// go on to a dialog that says exactly what would happen. Only there can it be allowed, never by the button that has the
// focus, and HIGH takes a second step. A write is seen as a difference, which has its answers in its title bar. What other
// files belong to is seen in the chat alone. The answer carries the digest of what was shown.

import * as vscode from "vscode";
import { type Api, Problem } from "../../../ui/src/api.js";
import { oneLine, shortened, visible } from "../../../ui/src/text/visible.js";
import { callSummary, verb } from "../../../ui/src/text/words.js";
import type { Asked } from "../tools/ToolHandler.js";
import type { Differences } from "./diffs.js";
import { notice, plain, sentence } from "./notices.js";

const REVIEW = "Review";
const ALLOW = "Allow once…";
const DENY = "Deny";
const MOST_SHOWN = 4000;
/** What a dialog has room for; below its end nobody looks. */
const MOST_ROWS = 60;
const ROW = 80;

export interface QuestionPorts {
  readonly api: Api;
  readonly projectId: string;
  readonly differences: Differences;
  stillWaits(id: string): boolean;
  openWaiting(): void;
}

/** Puts one question; resolves when the person did something about it, or let it be. `more`: how many wait beside it. */
export async function askNatively(question: Asked, ports: QuestionPorts, more = 0): Promise<void> {
  const risk = question.risk === "HIGH" ? " (high risk)" : "";
  const beside = more === 0 ? "" : ` · ${more} more to review`;
  const wants = `${wish(question.toolName)} ${shortened(summary(question), 180)}`;
  const head = notice(`Byleave: the agent wants to ${wants}${risk}${beside}`);
  const put = question.risk === "HIGH" ? vscode.window.showErrorMessage : vscode.window.showWarningMessage;
  // A dialog cannot show what a file holds, or how it would change.
  // The first has the colour: it only shows.
  const buttons = question.inspected ? [REVIEW, DENY] : [REVIEW, ALLOW, DENY];
  const said = await put(head, ...buttons);
  if (said === undefined) return;
  if (!ports.stillWaits(question.id)) return over();
  if (said === REVIEW) return show(question, ports);
  if (said === DENY) return deny(question, ports);
  await allow(question, ports);
}

async function over(): Promise<void> {
  await vscode.window.showInformationMessage("This question is over: it was answered elsewhere, or its time was up.");
}

async function show(question: Asked, ports: QuestionPorts): Promise<void> {
  ports.openWaiting();
  await showChange(question, ports, true);
}

/** Shows the difference of a write in the editor's viewer. Whether there was one to show. */
export async function showChange(question: Asked, ports: QuestionPorts, preserveFocus: boolean): Promise<boolean> {
  if (question.toolName !== "write_file") return false;
  const told = await ports.api.change(question.id).catch(() => null);
  // Another digest belongs to another question: showing it would mislead.
  if (told === null || told.digest !== question.digest) return false;
  const { after, before, kind, note, path } = told.change;
  // Half a difference, or one with something to say beside it, is judged in the chat, which shows that too.
  if (after == null || (before == null && kind !== "create") || note != null) return false;
  if (hidesBlanks(before ?? "", after) || !ports.stillWaits(question.id)) return false;
  await ports.differences.ask(question, path, before ?? "", after, preserveFocus);
  return true;
}

/** Whether the editor's viewer would pass over a change: by default it ignores blanks at a line's beginning and end. */
function hidesBlanks(before: string, after: string): boolean {
  if (vscode.workspace.getConfiguration("diffEditor").get("ignoreTrimWhitespace") === false) return false;
  const whole = new Set(before.split("\n"));
  const trimmed = new Set([...whole].map((line) => line.trim()));
  return after.split("\n").some((line) => !whole.has(line) && line.trim() !== "" && trimmed.has(line.trim()));
}

/** Allow or deny the write whose difference a button was pressed in. */
export async function answerInDiff(question: Asked, ports: QuestionPorts, allows: boolean): Promise<void> {
  if (!ports.stillWaits(question.id)) return over();
  if (!allows) return deny(question, ports);
  if (question.risk === "HIGH" && !(await sure(question))) return;
  await approve(question, ports);
}

async function deny(question: Asked, ports: QuestionPorts): Promise<void> {
  const reason = await vscode.window.showInputBox({
    title: "Byleave: deny",
    prompt: "Why? The agent is told. Leave it empty for no reason; Escape goes back.",
    ignoreFocusOut: true,
  });
  if (reason === undefined) return;
  await decided(ports, () => ports.api.reject(ports.projectId, question.id, reason.trim().slice(0, 1000) || null));
}

async function allow(question: Asked, ports: QuestionPorts): Promise<void> {
  const whole = await ports.api.whole(question.id).then(
    (told) => detail(question, told.text),
    () => null,
  );
  if (whole === null || isTooMuch(whole)) {
    const why = whole === null ? "It cannot be shown whole now" : "There is too much to show in a dialog";
    await vscode.window.showInformationMessage(`${why}: it is in the chat.`);
    return show(question, ports);
  }
  // The first button has the focus: it is never the one that allows.
  const said = await vscode.window.showWarningMessage(
    question.risk === "HIGH" ? "Allow this once? High risk." : "Allow this once?",
    { modal: true, detail: whole },
    DENY,
    "Allow once",
  );
  if (said === DENY) return deny(question, ports);
  if (said !== "Allow once") return;
  if (question.risk === "HIGH" && !(await sure(question))) return;
  await approve(question, ports);
}

async function approve(question: Asked, ports: QuestionPorts): Promise<void> {
  await decided(ports, () =>
    ports.api.approve(ports.projectId, question.id, {
      decision: "approved",
      digest: question.digest,
      calls: question.calls,
    }),
  );
}

/** Measured as it is shown: blanks and newlines take room too, and what is made visible grows. */
function isTooMuch(shown: string): boolean {
  const rows = shown.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / ROW)), 0);
  return shown.length > MOST_SHOWN || rows > MOST_ROWS;
}

/** What the agent wants to do, as a verb. */
function wish(toolName: string): string {
  return WISHES[toolName] ?? `call ${verb(toolName)} with`;
}

const WISHES: Record<string, string> = {
  execute_command: "run",
  write_file: "write",
  read_file: "read",
  list_directory: "list",
  search_files: "search for",
  search_web: "search the web for",
};

function summary(question: Asked): string {
  return shortened(callSummary(question.toolName, question.params), 500);
}

function detail(question: Asked, whole: string): string {
  const parts = [summary(question), measured(question, visible(whole)), why(question)];
  if (question.calls > 1) parts.push(`${question.calls} identical calls wait for this one answer.`);
  if (question.network) parts.push("It may use the network.");
  return parts.filter((part) => part !== "").join("\n\n");
}

/** The parameter that is a time, with its unit. Nothing else of a call stands alone at the beginning of a line. */
function measured({ toolName }: Asked, whole: string): string {
  if (toolName !== "execute_command") return whole;
  return whole.replace(/^timeout: (\d+)$/m, (line, many) => `${line} ${many === "1" ? "second" : "seconds"}`);
}

function why(question: Asked): string {
  return question.reasons.map((reason) => `• ${oneLine(reason)}`).join("\n");
}

async function sure(question: Asked): Promise<boolean> {
  const said = await vscode.window.showWarningMessage(
    "High risk. Runs immediately.",
    { modal: true, detail: [summary(question), why(question)].join("\n\n") },
    "Do not run it",
    "Run it",
  );
  return said === "Run it";
}

async function decided(ports: QuestionPorts, send: () => Promise<unknown>): Promise<void> {
  try {
    await send();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const words = error.status === 409 ? `Somebody was faster: ${plain(oneLine(error.message))}` : sentence(error);
    // With a button the editor shows all of it; without one, a line.
    if ((await vscode.window.showWarningMessage(notice(`Byleave: ${words}`), REVIEW)) === REVIEW) ports.openWaiting();
  }
}
