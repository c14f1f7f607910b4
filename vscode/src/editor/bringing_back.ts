// Taking an undo back: offered right after it, and later from a list of what was undone here, whoever asked for that. It is
// done only while nobody changed the files since; what may be brought back is decided where it was kept.

import type { Undone, UndoneCall } from "@protocol";
import * as vscode from "vscode";
import { oneLine } from "../../../ui/src/text/visible.js";
import { type Engine, EngineError } from "../engine/engine.js";
import { listed, named, notice, plain, sentence } from "./notices.js";

const BACK_AGAIN = "Bring It Back";

export type Back = Pick<Engine, "ask">;

/** Say that a call was undone; whoever presses the button has it back. Where that fails the button stays. */
export async function offerBack(engine: Back, { message, undo_id: undoId }: Undone): Promise<void> {
  const words = notice(`Byleave: ${plain(oneLine(message))}`);
  const said = await vscode.window.showInformationMessage(words, ...(undoId === null ? [] : [BACK_AGAIN]));
  if (undoId !== null && said === BACK_AGAIN) await bring(engine, undoId);
}

/** Let the person choose one of those that were undone, and bring it back. */
export async function chooseBack(undone: readonly UndoneCall[], engine: Back): Promise<void> {
  if (undone.length === 0) {
    await vscode.window.showInformationMessage("Byleave: nothing was undone here that could be brought back.");
    return;
  }
  const items = undone.map(({ at, paths, undo_id: undoId }) => ({
    label: listed(named(paths)),
    description: `undone ${new Date(at).toLocaleString()}`,
    undoId,
  }));
  const said = await vscode.window.showQuickPick(items, { title: "Byleave: bring back what was undone" });
  if (said !== undefined) await bring(engine, said.undoId);
}

async function bring(engine: Back, undoId: string): Promise<void> {
  for (let pressed = true; pressed; ) {
    try {
      const { message } = await engine.ask("undo/bringBack", { tool_id: undoId });
      await vscode.window.showInformationMessage(notice(`Byleave: ${plain(oneLine(message))}`));
      return;
    } catch (error) {
      pressed = (await vscode.window.showWarningMessage(notice(`Byleave: ${why(error)}`), BACK_AGAIN)) === BACK_AGAIN;
    }
  }
}

/** What went wrong, where it is nothing of ours. */
export function why(error: unknown): string {
  if (!(error instanceof EngineError)) throw error;
  return sentence(error);
}
