// Getting the engine's program, in the editor's way: the person's settings and storage, progress while it is installed,
// and one sentence with one button when there is none.

import * as vscode from "vscode";
import { oneLine } from "../../../ui/src/text/visible.js";
import { EngineProblem, type EngineProgram, findEngine } from "../engine/program.js";
import type { Log } from "./log.js";
import { notice } from "./notices.js";
import { readSettings } from "./settings.js";

const ACTS = { "Open Settings": "byleave.openSettings", "Try Again": "byleave.connect", "Show Log": "byleave.showLog" };

/** The folders of the window that are on this machine's disk. */
export function openFolders(): string[] {
  return (vscode.workspace.workspaceFolders ?? [])
    .filter(({ uri }) => uri.scheme === "file")
    .map(({ uri }) => uri.fsPath);
}

/** Finds the program each time: it may have been installed, moved or updated since. */
export function gettingEngine(
  context: Pick<vscode.ExtensionContext, "globalStorageUri" | "extensionUri">,
  log: Log,
  signal: AbortSignal,
): () => Promise<EngineProgram> {
  return async () => {
    const shown = new InstallProgress();
    try {
      return await findEngine({
        setting: readSettings().path,
        env: process.env,
        folders: openFolders(),
        storage: context.globalStorageUri.fsPath,
        packed: vscode.Uri.joinPath(context.extensionUri, "engine").fsPath,
        signal,
        progress: (message) => shown.say(message),
        log: (message, fields) => log.info(message, fields),
      });
    } catch (error) {
      if (error instanceof EngineProblem) log.error(error.message, { kind: error.kind, details: error.details });
      throw error;
    } finally {
      shown.end();
    }
  };
}

/** Says why there is no engine, with the button that helps. */
export async function tellEngineProblem(error: unknown): Promise<void> {
  const button = error instanceof EngineProblem ? error.button : "Show Log";
  const words = error instanceof Error ? error.message : String(error);
  const said = await vscode.window.showErrorMessage(notice(oneLine(words)), button);
  if (said !== undefined) await vscode.commands.executeCommand(ACTS[said]);
}

/** A notification while something is installed; none where nothing had to be. */
class InstallProgress {
  #say: ((message: string) => void) | null = null;
  #end: (() => void) | null = null;

  say(message: string): void {
    if (this.#say !== null) {
      this.#say(message);
      return;
    }
    void vscode.window.withProgress(
      { location: vscode.ProgressLocation.Notification, title: "Byleave" },
      (progress) =>
        new Promise<void>((resolve) => {
          this.#say = (more) => progress.report({ message: more });
          this.#end = resolve;
          progress.report({ message });
        }),
    );
  }

  end(): void {
    this.#end?.();
  }
}
