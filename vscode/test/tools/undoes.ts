// What tests of undo begin with and look at: an undo over real files, a person who looks and carries out, and all that lies
// beneath a directory.

import { lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import type { PathValidator } from "../../src/tools/PathValidator.js";
import { type Memory, SYSTEM_CLOCK } from "../../src/tools/ports.js";
import { openUndo, type Undo } from "../../src/tools/undo.js";
import type { UndoDesk } from "../../src/tools/undo_desk.js";
import type { UndoLimits } from "../../src/tools/undo_recorder.js";

/** An undo that no rule holds back. */
export function undoIn(paths: PathValidator, directory: string, memory: Memory, limits?: UndoLimits): Undo {
  const place = { directory, memory, ...(limits === undefined ? {} : { limits }) };
  return openUndo(paths, place, SYSTEM_CLOCK, () => false);
}

/** Look and carry out, as a person does; under which id that can be taken back. */
export async function takeBack(desk: UndoDesk, id: string, partial = false): Promise<string | null> {
  const { plan } = await desk.look(id);
  return (await desk.carryOut(id, plan, partial, () => true)).undoId;
}

/** What lies beneath a directory, with kinds, modes and contents. */
export function tree(root: string, beneath = ""): Record<string, string> {
  const entries = readdirSync(join(root, beneath), { withFileTypes: true }).map((one) => {
    const name = join(beneath, one.name);
    const mode = (lstatSync(join(root, name)).mode & 0o7777).toString(8);
    if (one.isSymbolicLink()) return { [name]: readlinkSync(join(root, name)) };
    return one.isDirectory()
      ? { [name]: mode, ...tree(root, name) }
      : { [name]: `${mode} ${readFileSync(join(root, name), "hex")}` };
  });
  return Object.assign({}, ...entries);
}
