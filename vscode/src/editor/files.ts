// Opening a file that the chat names. Only files below the connected folder, by their real place: a name that an agent
// gave must not lead the person elsewhere.

import { realpath } from "node:fs/promises";
import { isAbsolute, join, relative, sep } from "node:path";
import * as vscode from "vscode";
import { oneLine } from "../../../ui/src/text/visible.js";
import { notice } from "./notices.js";

export async function openFile(folder: string, path: string, line: number | null): Promise<void> {
  const name = notice(oneLine(path));
  let real: string;
  try {
    const root = await realpath(folder);
    real = await realpath(isAbsolute(path) ? path : join(folder, path));
    const below = relative(root, real);
    if (below === ".." || below.startsWith(`..${sep}`) || isAbsolute(below)) {
      await vscode.window.showWarningMessage(`${name} is outside the connected folder, so it is not opened from here.`);
      return;
    }
    const shown = await vscode.window.showTextDocument(vscode.Uri.file(real), { preview: true });
    if (line !== null) {
      const at = new vscode.Position(Math.max(line - 1, 0), 0);
      shown.selection = new vscode.Selection(at, at);
      shown.revealRange(new vscode.Range(at, at), vscode.TextEditorRevealType.InCenter);
    }
  } catch (error) {
    await vscode.window.showWarningMessage(notice(problem(name, error)));
  }
}

function problem(name: string, error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ENOENT" || code === "ENOTDIR")
    return `There is no ${name} in the folder now. It was moved or deleted since.`;
  if (code === "EACCES" || code === "EPERM") return `You may not read ${name}: its permissions do not allow it.`;
  return `${name} could not be opened: ${oneLine(error instanceof Error ? error.message : String(error))}`;
}
