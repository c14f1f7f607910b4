// The status bar's entry: one look at how things stand; a click opens the chat.

import * as vscode from "vscode";
import type { Shown } from "./standing.js";

export class StatusBar implements vscode.Disposable {
  readonly #item: vscode.StatusBarItem;

  constructor() {
    this.#item = vscode.window.createStatusBarItem("byleave", vscode.StatusBarAlignment.Left, 10);
    this.#item.name = "Byleave";
    this.#item.command = "byleave.openChat";
    this.#item.show();
  }

  show({ text, tooltip, alarm }: Shown): void {
    this.#item.text = text;
    this.#item.tooltip = `${tooltip}\nClick to open the chat.`;
    this.#item.backgroundColor = alarm ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
    // Read aloud without the names of pictures.
    this.#item.accessibilityInformation = {
      label: `${text.replace(/\$\([^)]*\)\s*/g, "")}. ${tooltip}`,
      role: "button",
    };
  }

  dispose(): void {
    this.#item.dispose();
  }
}
