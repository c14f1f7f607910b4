// The client that executes, started in the editor's way: with its settings, its log and a place of its own on the disk.
// It asks nobody by itself: questions are put by the chat and by notifications, and it executes what was approved.

import { Api } from "../../../ui/src/api.js";
import type { ConnectionState } from "../connection/index.js";
import { connectWorkspace } from "../connection/index.js";
import type { ExecutingState, StartExecuting } from "../host/executing.js";
import { NodeHost } from "../host/node_host.js";
import { DEFAULT_SETTINGS, type Log } from "../tools/ports.js";
import type { WebSettings } from "../tools/web.js";
import { withWhatToDo } from "../tools/words.js";
import type { ChangedFiles } from "./changes.js";
import { readSettings } from "./settings.js";
import { EditorUndo } from "./undoing.js";

export interface ExecutingPlace {
  /** Where the extension may keep files of its own. */
  readonly storage: string;
  /** The bundle of the thread that searches where there is no ripgrep. */
  readonly scanWorker: string;
  /** Who searches the web, asked for each search. */
  readonly web: () => Promise<WebSettings>;
  /** Where what agents change is listed. */
  readonly changes: Pick<ChangedFiles, "show" | "tellUndone">;
}

export function executingIn({ changes, scanWorker, storage, web }: ExecutingPlace, log: Log): StartExecuting {
  return async ({ access, projectId, folder, changed }) => {
    let state: ExecutingState = { connected: false, isolation: null, ended: null };
    const become = (more: Partial<ExecutingState>) => {
      state = { ...state, ...more };
      changed();
    };
    const api = new Api(new NodeHost(access));
    let undo: EditorUndo | undefined;
    const { connection, workspace } = await connectWorkspace({
      serverUrl: access.origin,
      token: access.token,
      projectId,
      folder,
      storage,
      scanWorker,
      web,
      settings: { ...DEFAULT_SETTINGS, sandbox: readSettings().sandbox },
      log,
      onUndone: (plan, undoId) => {
        if (undo !== undefined && !undo.isAsking(plan.tool_id, undoId)) changes.tellUndone(undo, plan, undoId);
      },
      onState: (now) => become({ connected: now.kind === "connected", ended: endOf(now) }),
    });
    const desk = workspace.undoing;
    undo = desk && new EditorUndo(desk, api, () => state.connected);
    const unlist = desk && undo && changes.show({ desk, folder: workspace.root, undo });
    void workspace.prepare();
    void connection.run();
    void workspace.isolation().then(
      ({ backend }) => become({ isolation: backend }),
      (error: unknown) => log.error("isolation unknown", { error: String(error) }),
    );
    return {
      get state() {
        return state;
      },
      dispose: async () => {
        unlist?.();
        await connection.close();
      },
    };
  };
}

/** Why it ended for good. A sign-in that is over is seen by the watch too, which says what to do. */
function endOf(state: ConnectionState): string | null {
  if (state.kind !== "ended" || state.signedOut) return null;
  return withWhatToDo(state.why, state.hint);
}
