// Which folder of the window agents may work in: the only one, or the one the person chose, asked once. A folder that is
// not on this machine's disk is none: nothing could be executed in it.

import * as vscode from "vscode";
import { oneLine } from "../../../ui/src/text/visible.js";
import { listed } from "./notices.js";

export type Found =
  | { readonly kind: "folder"; readonly folder: vscode.WorkspaceFolder }
  | { readonly kind: "none" | "virtual" | "unchosen" };

const KEY = "folder";

/** `ask`: whether the person may be asked now. */
export async function findFolder(memory: vscode.Memento, ask: boolean): Promise<Found> {
  const all = vscode.workspace.workspaceFolders ?? [];
  const here = all.filter((folder) => folder.uri.scheme === "file");
  const [first] = here;
  if (!first) return { kind: all.length > 0 ? "virtual" : "none" };
  if (here.length === 1) return { kind: "folder", folder: first };
  const known = memory.get<string>(KEY);
  const chosen = here.find((folder) => folder.uri.toString() === known) ?? (ask ? await choose(here) : undefined);
  if (!chosen) return { kind: "unchosen" };
  await memory.update(KEY, chosen.uri.toString());
  return { kind: "folder", folder: chosen };
}

/** So that the next connecting asks again. */
export async function forgetFolder(memory: vscode.Memento): Promise<void> {
  await memory.update(KEY, undefined);
}

async function choose(folders: vscode.WorkspaceFolder[]): Promise<vscode.WorkspaceFolder | undefined> {
  const picked = await vscode.window.showQuickPick(
    folders.map((folder) => ({
      label: listed(oneLine(folder.name)),
      description: listed(oneLine(folder.uri.fsPath)),
      folder,
    })),
    { title: "Byleave: in which folder may agents work?", placeHolder: "They see nothing outside it" },
  );
  return picked?.folder;
}
