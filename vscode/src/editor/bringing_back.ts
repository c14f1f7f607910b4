// Taking an undo back: offered right after it, and later from a list of what was undone here, whoever asked for that. It is
// done only while nobody changed the files since; what may be brought back is decided where it was kept.

import * as vscode from "vscode";
import { Problem } from "../../../ui/src/api.js";
import { oneLine } from "../../../ui/src/text/visible.js";
import { ByleaveError } from "../tools/errors.js";
import type { UndoneCall } from "../tools/undo_desk.js";
import { listed, named, notice, plain, sentence } from "./notices.js";
import type { EditorUndo, Undone } from "./undoing.js";

const BACK_AGAIN = "Bring It Back";

export type Back = Pick<EditorUndo, "bringBack">;

/** Say that a call was undone; whoever presses the button has it back. Where that fails the button stays. */
export async function offerBack(undo: Back, { message, undoId }: Undone): Promise<void> {
  const words = notice(`Byleave: ${plain(oneLine(message))}`);
  const said = await vscode.window.showInformationMessage(words, ...(undoId === null ? [] : [BACK_AGAIN]));
  if (undoId !== null && said === BACK_AGAIN) await bring(undo, undoId);
}

/** Let the person choose one of those that were undone, and bring it back. */
export async function chooseBack(undone: readonly UndoneCall[], undo: Back): Promise<void> {
  if (undone.length === 0) {
    await vscode.window.showInformationMessage("Byleave: nothing was undone here that could be brought back.");
    return;
  }
  const items = undone.map(({ at, paths, undoId }) => ({
    label: listed(named(paths)),
    description: `undone ${new Date(at).toLocaleString()}`,
    undoId,
  }));
  const said = await vscode.window.showQuickPick(items, { title: "Byleave: bring back what was undone" });
  if (said !== undefined) await bring(undo, said.undoId);
}

async function bring(undo: Back, undoId: string): Promise<void> {
  for (let pressed = true; pressed; ) {
    try {
      await vscode.window.showInformationMessage(notice(`Byleave: ${await undo.bringBack(undoId)}`));
      return;
    } catch (error) {
      pressed = (await vscode.window.showWarningMessage(notice(`Byleave: ${why(error)}`), BACK_AGAIN)) === BACK_AGAIN;
    }
  }
}

/** What went wrong, where it is nothing of ours. */
export function why(error: unknown): string {
  if (!(error instanceof ByleaveError) && !(error instanceof Problem)) throw error;
  return sentence(error);
}
