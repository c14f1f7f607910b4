// Getting the engine's program, in the editor's way: the person's settings and storage, progress while it is installed,
// and one sentence with one button when there is none.

import { relative } from "node:path";
import * as vscode from "vscode";
import { oneLine } from "../../../ui/src/text/visible.js";
import { EngineProblem, type EngineProgram, findEngine } from "../engine/program.js";
import type { Log } from "./log.js";
import { notice } from "./notices.js";
import type { Projects } from "./projects.js";
import { readSettings } from "./settings.js";

const ACTS = { "Open Settings": "byleave.openSettings", "Try Again": "byleave.connect", "Show Log": "byleave.showLog" };

/** Folders that agents work in, or worked in: those of the window, and those that were ever connected. */
export function agentFolders(projects: Pick<Projects, "folders">, storage: string): string[] {
  const open = (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === "file");
  // Whoever once connected their whole home could start nothing any more.
  const earlier = projects.folders().filter((folder) => relative(folder, storage).startsWith(".."));
  return [...new Set([...open.map(({ uri }) => uri.fsPath), ...earlier])];
}

/** Finds the program each time: it may have been installed, moved or updated since. */
export function gettingEngine(
  context: Pick<vscode.ExtensionContext, "globalStorageUri" | "extensionUri">,
  folders: () => readonly string[],
  log: Log,
  signal: AbortSignal,
): () => Promise<EngineProgram> {
  return async () => {
    const shown = new InstallProgress();
    try {
      return await findEngine({
        setting: readSettings().path,
        env: process.env,
        folders: folders(),
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
