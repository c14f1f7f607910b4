// Opening a file that the chat names. Only files of the connected folder, by their real place, as the engine says: a name
// that an agent gave must not lead the person elsewhere.

import * as vscode from "vscode";
import { oneLine } from "../../../ui/src/text/visible.js";
import { EngineError } from "../engine/engine.js";
import type { PathValidator } from "../tools/executors.js";
import { notice, plain } from "./notices.js";

export async function openFile(paths: PathValidator, path: string, line: number | null): Promise<void> {
  const name = notice(oneLine(path));
  try {
    const { error, realPath, valid } = await paths.validatePath(path);
    if (!valid || realPath === null) return tell(`${name} cannot be opened: ${plain(oneLine(error ?? ""))}`);
    const editor = await vscode.window.showTextDocument(vscode.Uri.file(realPath), { preview: true });
    if (line === null) return;
    const at = new vscode.Position(line - 1, 0);
    editor.selection = new vscode.Selection(at, at);
    editor.revealRange(new vscode.Range(at, at), vscode.TextEditorRevealType.InCenter);
  } catch (error) {
    // The editor says itself of a file that is not there, or is no text.
    if (error instanceof EngineError) return tell(`${name} cannot be opened now: ${oneLine(error.message)}`);
    tell(`${name} cannot be opened: it is not there, or is no text.`);
  }
}

function tell(words: string): void {
  void vscode.window.showWarningMessage(`Byleave: ${words}`);
}
