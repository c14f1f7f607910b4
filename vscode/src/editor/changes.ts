// "Changed by agents": the files that calls changed in the connected folder and nobody took back, the newest first. Each
// opens as a difference in the editor's own viewer, and can be undone after a dialog has said exactly what that would do.
// What another client of the project changed is listed as the feed tells it, and goes through the server. What may be
// undone is decided where it was kept; here it is only shown and asked.

import { realpath } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { ChangedFile, FeedEvent, UndoList, Undone, UndoneElsewhere, UndoPlan } from "@protocol";
import * as vscode from "vscode";
import type { Api } from "../../../ui/src/api.js";
import { changedFiles } from "../../../ui/src/cards/effects.js";
import { fieldsOf, textOf } from "../../../ui/src/cards/reading.js";
import { oneLine, shortened } from "../../../ui/src/text/visible.js";
import { ago, moment } from "../../../ui/src/text/words.js";
import type { Engine } from "../engine/engine.js";
import { chooseBack, offerBack, why } from "./bringing_back.js";
import type { Differences } from "./diffs.js";
import { changedSince, listed, named, notice, plain } from "./notices.js";

export const CHANGES = "byleave.changes";
const MOST_NAMED = 12;
const MOST_NOTES = 6;
const SHOW = "Show the Difference";
const UNDO = "Undo";
const FINISH = "Finish It…";

/** A folder whose changes are kept, and the engine that keeps them. */
export interface KeptFolder {
  readonly engine: Pick<Engine, "ask" | "on">;
  readonly api: Pick<Api, "undoPlan" | "undo">;
  /** Its real path. */
  readonly folder: string;
}

const EMPTY: UndoList = { changes: [], undone: [] };
const MOST_ELSEWHERE = 100;
/** How long ago a change was is said anew this often. */
const EVERY_MS = 60_000;

export class ChangedFiles implements vscode.TreeDataProvider<ChangedFile>, vscode.Disposable {
  readonly #changed = new vscode.EventEmitter<undefined>();
  readonly onDidChangeTreeData = this.#changed.event;
  readonly #differences: Differences;
  readonly #registered: vscode.Disposable[];
  #kept: KeptFolder | null = null;
  #list: UndoList = EMPTY;
  /** What other clients changed since the folder was connected, newest first. */
  #elsewhere: ChangedFile[] = [];

  constructor(differences: Differences) {
    this.#differences = differences;
    this.#registered = [
      vscode.window.registerTreeDataProvider(CHANGES, this),
      vscode.commands.registerCommand("byleave.openChange", (file: ChangedFile) => this.open(file)),
      vscode.commands.registerCommand("byleave.undoChange", (file: ChangedFile) => this.undo(file)),
      vscode.commands.registerCommand("byleave.bringBack", () => this.bringBack()),
    ];
  }

  /** List what is kept of a folder, until the function that is given is called. */
  show(kept: KeptFolder): () => void {
    const { engine } = kept;
    this.#kept = kept;
    const ends = [
      engine.on("execution/ended", () => void this.#refresh()),
      engine.on("connection/changed", () => void this.#refresh()),
      engine.on("undo/done", (told) => {
        this.#tellUndone(kept, told);
        void this.#refresh();
      }),
    ];
    void this.#refresh().then(() => this.#offerEnds());
    const timer = setInterval(() => this.getChildren().length > 0 && this.#tell(), EVERY_MS);
    return () => {
      clearInterval(timer);
      for (const end of ends) end();
      if (this.#kept !== kept) return;
      this.#kept = null;
      this.#list = EMPTY;
      this.#elsewhere = [];
      this.#tell();
    };
  }

  /** A call ended, or was undone: what this engine does not keep may be another client's. */
  heard(event: FeedEvent): void {
    if (event.kind === "tool.undone") {
      this.#elsewhere = this.#elsewhere.filter(({ tool_id }) => tool_id !== event.tool_id);
    } else if (event.kind === "tool.finished") {
      this.#elsewhere = [...changedBy(event), ...this.#elsewhere].slice(0, MOST_ELSEWHERE);
    } else return;
    void this.#refresh();
  }

  /** Ask the engine for the list anew. */
  async #refresh(): Promise<void> {
    const kept = this.#kept;
    if (kept === null) return;
    // Without an answer it ended, and its successor is asked again; or another client works in the folder.
    const list = await kept.engine.ask("undo/list", {}).catch(() => this.#list);
    if (this.#kept !== kept) return;
    this.#list = list;
    this.#tell();
  }

  #tell(): void {
    this.#changed.fire(undefined);
  }

  getChildren(parent?: ChangedFile): ChangedFile[] {
    if (parent !== undefined) return [];
    const { changes } = this.#list;
    const others = this.#elsewhere.filter((file) => !changes.some(({ tool_id }) => tool_id === file.tool_id));
    return [...changes, ...others].sort((one, other) => other.at.localeCompare(one.at));
  }

  getTreeItem(file: ChangedFile): vscode.TreeItem {
    const name = listed(oneLine(basename(file.path)));
    const item = new vscode.TreeItem(name, vscode.TreeItemCollapsibleState.None);
    const now = Date.now();
    const [what, icon, done] = WORDS[file.kind];
    const where = dirname(file.path) === "." ? "" : ` in ${listed(oneLine(dirname(file.path)))}`;
    item.id = `${file.tool_id} ${file.path}`;
    item.description = `${what}${where}, ${ago(file.at, now)}`;
    item.tooltip = `${oneLine(file.path)}: ${done} by an agent at ${moment(file.at, now)}`;
    item.iconPath = new vscode.ThemeIcon(icon);
    item.contextValue = "byleave.change";
    item.command = { command: "byleave.openChange", title: "Open the Difference", arguments: [file] };
    return item;
  }

  /** What was there before against what is there now. */
  async open(file: ChangedFile): Promise<void> {
    const kept = this.#kept;
    if (kept === null) return;
    if (this.#elsewhere.includes(file)) return await this.#openElsewhere(kept, file);
    const asked = { tool_id: file.tool_id, path: file.path };
    const before = await kept.engine.ask("undo/before", asked).catch(tellWhy);
    if (before === undefined) return;
    if (!before.shown) {
      await tell(
        `What ${oneLine(file.path)} held before cannot be shown: it is no text, too large, or no longer kept.`,
      );
      return;
    }
    const now = join(kept.folder, file.path);
    // A link that came since must not lead the person elsewhere.
    const real = await realpath(now).catch(() => null);
    await this.#differences.showKept(file.path, before.text ?? "", real === now ? vscode.Uri.file(now) : "");
  }

  /** As the undo of it would be, which the client that did it says. */
  async #openElsewhere({ api }: KeptFolder, file: ChangedFile): Promise<void> {
    const plan = await api.undoPlan(file.tool_id).catch(tellWhy);
    if (plan === undefined) return;
    const change = plan.files.find(({ path }) => path === file.path);
    if (plan.total_files === 0) return await tell(`${oneLine(file.path)} is as it was before the call.`);
    if (change === undefined || change.note || change.unshown) {
      const why = change?.unshown ?? change?.note ?? "there are too many files";
      return await tell(`What ${oneLine(file.path)} held before cannot be shown: ${oneLine(why)}.`);
    }
    await this.#differences.showKept(file.path, change.after ?? "", change.before ?? "");
  }

  /** Undo the call that changed a file, when the person says so. */
  async undo(file: ChangedFile): Promise<void> {
    const kept = this.#kept;
    if (kept === null) return;
    try {
      const isElsewhere = this.#elsewhere.includes(file);
      const plan = isElsewhere
        ? await kept.api.undoPlan(file.tool_id)
        : await kept.engine.ask("undo/preview", { tool_id: file.tool_id });
      const conflicts = plan.conflicts ?? [];
      if (conflicts.length > 0) {
        const todo = "Undo the later changes first; what you changed yourself is yours to merge.";
        await tell(`Nothing was undone: ${changedSince(conflicts, "again since")}. ${todo}`);
        return;
      }
      const lost = Object.keys(plan.lost ?? {}).length > 0;
      const question = lost ? "Undo what can be undone of this change?" : "Undo this change?";
      // The first button has the focus: it is never the one that changes files.
      const options = { modal: true, detail: detail(plan) };
      const said = await vscode.window.showWarningMessage(question, options, SHOW, UNDO);
      if (said === SHOW) return await this.open(file);
      if (said !== UNDO) return;
      const asked = { tool_id: file.tool_id, plan: plan.plan, partial: lost };
      if (isElsewhere) {
        const { message } = await kept.api.undo(file.tool_id, { plan: plan.plan, partial: lost });
        await vscode.window.showInformationMessage(notice(`Byleave: ${plain(oneLine(message))}`));
        return;
      }
      const done = await kept.engine.ask("undo/carryOut", asked);
      await this.#refresh();
      void this.#offerBack(kept, done);
    } catch (error) {
      await tellWhy(error);
    }
  }

  /** The engine was killed, or the disk was full, in the middle of an undo: nobody else says so. */
  #offerEnds(): void {
    const stopped = this.#list.changes.filter(({ interrupted }) => interrupted);
    for (const file of new Map(stopped.map((file) => [file.tool_id, file])).values()) void this.#offerEnd(file);
  }

  async #offerEnd(file: ChangedFile): Promise<void> {
    const words = `Byleave: an undo stopped in the middle. Of what an agent did to ${oneLine(file.path)} and the files with it, only a part is undone.`;
    if ((await vscode.window.showWarningMessage(notice(words), FINISH)) === FINISH) await this.undo(file);
  }

  /** A call was undone that nobody here asked for: say so, and offer to take it back. */
  #tellUndone(kept: KeptFolder, { paths, undo_id }: UndoneElsewhere): void {
    // None where an undo that was interrupted had done all of it already.
    const message = `Undone, as asked in the chat or on the page${paths.length === 0 ? "" : `: ${named(paths)}`}.`;
    void this.#offerBack(kept, { message, undo_id });
  }

  /** Nobody else says that a call is back: the list is asked for. */
  async #offerBack({ engine }: KeptFolder, done: Undone): Promise<void> {
    await offerBack(engine, done);
    await this.#refresh();
  }

  /** Take one of the undos back that were carried out here, whoever asked for them. */
  async bringBack(): Promise<void> {
    if (this.#kept === null) return;
    await this.#refresh();
    await chooseBack(this.#list.undone, this.#kept.engine);
    await this.#refresh();
  }

  dispose(): void {
    for (const each of this.#registered) each.dispose();
    this.#changed.dispose();
  }
}

/** The files of a call that ended, by what it told. */
function changedBy({
  result,
  status,
  timestamp: at,
  tool_id,
  tool_name,
}: Extract<FeedEvent, { kind: "tool.finished" }>): ChangedFile[] {
  const told = fieldsOf(result);
  const path = textOf(told.path);
  if (tool_name === "write_file" && status === "completed" && path !== null)
    return [{ tool_id, path, kind: "change", at, interrupted: false }];
  const kinds = { created: "create", deleted: "delete" } as const;
  return changedFiles(told).map(({ path, change }) => ({
    tool_id,
    path,
    kind: kinds[change as keyof typeof kinds] ?? "change",
    at,
    interrupted: false,
  }));
}

const WORDS = {
  create: ["new", "diff-added", "created"],
  change: ["changed", "diff-modified", "changed"],
  delete: ["deleted", "diff-removed", "deleted"],
} as const;
const AS_A_WHOLE = "The agent did this in one step, so it is undone as a whole:";
const TOGETHER = "Other calls ran at the same time; some of this may be their doing.";
const NOTHING = "There is nothing to change: everything is already as it was before.";

/** What a plan would do, path by path, and what else to know before it is done. */
function detail(plan: UndoPlan): string {
  const lost = Object.entries(plan.lost ?? {}).map(
    ([path, why]) => `${oneLine(path)} cannot be brought back: ${oneLine(why)}.`,
  );
  const paths = [...plan.files.map(becomes), ...lost];
  const notes = (plan.notes ?? []).map((note) => plain(oneLine(note)));
  if ((plan.together ?? []).length > 0) notes.unshift(TOGETHER);
  const head = paths.length === 0 ? [NOTHING] : paths.length > 1 && lost.length === 0 ? [AS_A_WHOLE] : [];
  const unlisted = Math.max(plan.total_files - plan.files.length, 0);
  return [...head, ...few(paths, MOST_NAMED, unlisted), ...few(notes, MOST_NOTES)].join("\n");
}

/** The first lines, and how many more there are, with those that were not listed at all. */
function few(lines: readonly string[], most: number, unlisted = 0): string[] {
  const more = unlisted + Math.max(lines.length - most, 0);
  const first = lines.slice(0, most).map((line) => shortened(line, 200));
  return more > 0 ? [...first, `and ${more} more`] : first;
}

/** What becomes of one path. */
function becomes({ kind, note, path }: UndoPlan["files"][number]): string {
  const also = note ? ` (${oneLine(note)})` : "";
  if (kind === "change") return `${oneLine(path)} will be changed back to what it was before${also}.`;
  const what = kind === "delete" ? "deleted: the agent created it" : "restored: the agent deleted it";
  return `${oneLine(path)}${also} will be ${what}.`;
}

async function tellWhy(error: unknown): Promise<void> {
  await tell(why(error));
}

async function tell(words: string): Promise<void> {
  await vscode.window.showWarningMessage(notice(`Byleave: ${words}`));
}
