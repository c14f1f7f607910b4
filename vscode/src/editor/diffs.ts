// Differences in the editor's own viewer: documents that exist in memory only and cannot be written. That of a question
// has Allow and Deny in its title bar while it waits, and is closed when it is over. A few are kept, for as long as
// somebody may look at them.

import * as vscode from "vscode";
import { visible } from "../../../ui/src/text/visible.js";
import type { Asked } from "../tools/ToolHandler.js";

export const SCHEME = "byleave-change";
const MOST_KEPT = 40;
/** Nobody has read a diff that is younger. */
const UNREAD_MS = 500;
/** The diffs, by address, whose title bar has Allow and Deny. */
const ASKING = "byleave.askingDiffs";

interface Asking {
  readonly question: Asked;
  readonly left: vscode.Uri;
  readonly right: vscode.Uri;
  readonly since: number;
}

export class Differences implements vscode.TextDocumentContentProvider, vscode.Disposable {
  readonly #texts = new Map<string, string>();
  /** The question of each diff that asks, by the address of its right side, and since when it is in sight. */
  readonly #asking = new Map<string, Asking>();
  readonly #registered: vscode.Disposable[];
  #next = 1;
  /** Called with the questions whose difference is open, whenever they are others. */
  onOpen: (questionIds: readonly string[]) => void = () => {};

  constructor() {
    this.#registered = [
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.window.tabGroups.onDidChangeTabs(({ closed }) => this.#closed(closed)),
    ];
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.#texts.get(uri.toString()) ?? "This difference is no longer kept. Open it from the chat again.";
  }

  /** `title` begins with the file's path, so that the viewer knows the language. */
  async show(title: string, before: string, after: string): Promise<void> {
    const path = title.replace(/ \((new file|changed|deleted)\)$/, "");
    const [left, right] = [this.#keep("current", path, before), this.#keep("proposed", path, after)];
    await open(left, right, `${visible(title)}: current ↔ proposed`, false);
  }

  /** What a write that waits would change, with Allow and Deny beside it. */
  async ask(question: Asked, path: string, before: string, after: string, preserveFocus: boolean): Promise<void> {
    const known = [...this.#asking].find(([, each]) => each.question.id === question.id);
    if (known !== undefined) {
      const [uri, asking] = known;
      this.#asking.set(uri, { ...asking, since: Date.now() });
      return await show(asking.left, asking.right, path, question, preserveFocus);
    }
    const [left, right] = [this.#keep("current", path, before), this.#keep("proposed", path, after)];
    this.#asking.set(right.toString(), { question, left, right, since: Date.now() });
    this.#tell();
    await show(left, right, path, question, preserveFocus);
  }

  /** What was there before a call against what is there now: a file, or a text of it. */
  async showKept(path: string, before: string, now: vscode.Uri | string): Promise<void> {
    const left = this.#keep("before", path, before);
    await open(
      left,
      typeof now === "string" ? this.#keep("now", path, now) : now,
      `${visible(path)}: before the agent ↔ now`,
      false,
    );
  }

  /** The question of a diff: the one a button was pressed in, else the one in sight. Null for one that just appeared. */
  questionOf(uri: vscode.Uri | undefined): Asked | null {
    const shown = uri ?? rightOf(vscode.window.tabGroups.activeTabGroup.activeTab);
    const found = shown && this.#asking.get(shown.toString());
    // A press that was meant for what stood there before answers nothing.
    return found && Date.now() - found.since >= UNREAD_MS ? found.question : null;
  }

  /** A question is over: its diffs ask nothing any more, and are closed. */
  over(questionId: string): void {
    const over = [...this.#asking].filter(([, { question }]) => question.id === questionId).map(([uri]) => uri);
    for (const uri of over) this.#asking.delete(uri);
    if (over.length === 0) return;
    this.#tell();
    const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs);
    const ours = tabs.filter((tab) => over.includes(rightOf(tab)?.toString() ?? ""));
    void vscode.window.tabGroups.close(ours, true);
  }

  dispose(): void {
    for (const each of this.#registered) each.dispose();
    this.#texts.clear();
    this.#asking.clear();
  }

  #closed(tabs: readonly vscode.Tab[]): void {
    const some = tabs.map((tab) => this.#asking.delete(rightOf(tab)?.toString() ?? ""));
    if (some.includes(true)) this.#tell();
  }

  #tell(): void {
    this.onOpen([...this.#asking.values()].map(({ question }) => question.id));
    void vscode.commands.executeCommand("setContext", ASKING, [...this.#asking.keys()]);
  }

  #keep(side: string, path: string, text: string): vscode.Uri {
    // Made from parts: whatever the path holds, it stays a name.
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${side}/${this.#next++}/${path}` });
    this.#texts.set(uri.toString(), text);
    for (const old of this.#texts.keys()) {
      if (this.#texts.size <= MOST_KEPT) break;
      this.#texts.delete(old);
      // What cannot be seen any more must not be allowed by a button.
      if (this.#asking.delete(old)) this.#tell();
    }
    return uri;
  }
}

async function show(left: vscode.Uri, right: vscode.Uri, path: string, { risk }: Asked, preserveFocus: boolean) {
  await open(left, right, `${visible(path)}: current ↔ proposed (${risk.toLowerCase()} risk)`, preserveFocus);
}

async function open(left: vscode.Uri, right: vscode.Uri, title: string, preserveFocus: boolean): Promise<void> {
  await vscode.commands.executeCommand("vscode.diff", left, right, title, { preview: true, preserveFocus });
}

function rightOf(tab: vscode.Tab | undefined): vscode.Uri | undefined {
  return tab?.input instanceof vscode.TabInputTextDiff ? tab.input.modified : undefined;
}
