// A write's difference in the editor's own viewer: two documents that exist in memory only and cannot be written. A few
// are kept, for as long as somebody may look at them.

import * as vscode from "vscode";
import { visible } from "../../../ui/src/text/visible.js";

export const SCHEME = "byleave-change";
const MOST_KEPT = 40;

export class Differences implements vscode.TextDocumentContentProvider, vscode.Disposable {
  readonly #texts = new Map<string, string>();
  readonly #registered: vscode.Disposable;
  #next = 1;

  constructor() {
    this.#registered = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.#texts.get(uri.toString()) ?? "This difference is no longer kept. Open it from the chat again.";
  }

  /** `title` begins with the file's path, so that the viewer knows the language. */
  async show(title: string, before: string, after: string, preserveFocus = false): Promise<void> {
    const path = title.replace(/ \((new file|changed|deleted)\)$/, "");
    const left = this.#keep("now", path, before);
    const right = this.#keep("asked", path, after);
    await vscode.commands.executeCommand("vscode.diff", left, right, `${visible(title)}: now ↔ as asked`, {
      preview: true,
      preserveFocus,
    });
  }

  /** What was there before a call against what is there now; null: nothing is. */
  async showKept(path: string, before: string, now: vscode.Uri | null): Promise<void> {
    const left = this.#keep("before", path, before);
    const title = `${visible(path)}: before the agent ↔ now`;
    await vscode.commands.executeCommand("vscode.diff", left, now ?? this.#keep("gone", path, ""), title, {
      preview: true,
    });
  }

  dispose(): void {
    this.#registered.dispose();
    this.#texts.clear();
  }

  #keep(side: string, path: string, text: string): vscode.Uri {
    // Made from parts: whatever the path holds, it stays a name.
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${side}/${this.#next++}/${path}` });
    this.#texts.set(uri.toString(), text);
    for (const old of this.#texts.keys()) {
      if (this.#texts.size <= MOST_KEPT) break;
      this.#texts.delete(old);
    }
    return uri;
  }
}
