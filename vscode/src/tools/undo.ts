// What one workspace needs to undo, put together: contents and a list of changes in a directory of the client's own, a
// recorder for calls, a desk for people. What would lie in the workspace itself is refused: commands could change it, and
// an undo would trust it.

import { mkdirSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { osError } from "./errors.js";
import type { PathValidator } from "./PathValidator.js";
import type { Clock, Memory } from "./ports.js";
import { Restorer } from "./restoring.js";
import { UndoDesk } from "./undo_desk.js";
import { UndoHistory } from "./undo_history.js";
import { UndoList } from "./undo_list.js";
import { CallGate, type UndoLimits, UndoRecorder } from "./undo_recorder.js";
import { ContentStore } from "./undo_store.js";

const LIMITS: UndoLimits = { days: 7, maxBytes: 1024 ** 3 };

/** Where it is kept. One program at a time uses one. */
export interface UndoPlace {
  readonly directory: string;
  readonly memory: Memory;
  readonly limits?: UndoLimits;
}

export interface Undo {
  readonly recorder: UndoRecorder;
  readonly desk: UndoDesk;
}

/** Open it. Throws what the system says, and where it would lie in the workspace. */
export function openUndo(
  paths: PathValidator,
  { directory, limits = LIMITS, memory }: UndoPlace,
  clock: Clock,
  forbids: (path: string, tool: string) => boolean,
): Undo {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const real = realpathSync(directory);
  if (real === paths.root || real.startsWith(`${paths.root}/`)) {
    throw osError("EINVAL");
  }
  const store = new ContentStore(join(real, "contents"), limits.maxBytes);
  const list = new UndoList(memory);
  const gate = new CallGate(clock);
  const recorder = new UndoRecorder(paths, store, list, gate, clock, limits, () => desk.changed());
  const history = new UndoHistory(paths, store, list);
  const restorer = new Restorer(paths, store, list, history, clock);
  const desk: UndoDesk = new UndoDesk({ recorder, history, restorer, clock, forbids });
  void gate.alone(0, () => recorder.sweep()); // nothing runs yet
  return { recorder, desk };
}
