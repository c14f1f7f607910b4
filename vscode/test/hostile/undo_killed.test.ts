// An undo that is killed, at each of its steps: repeated it leads all the way back, and taken back all the way forth. Real
// files and a real store; from the step at which it is killed, nothing that changes a disk does anything any more.

import fs, { chmodSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { afterEach, expect, it, vi } from "vitest";
import { PathValidator } from "../../src/tools/PathValidator.js";
import { SYSTEM_CLOCK } from "../../src/tools/ports.js";
import { Restorer } from "../../src/tools/restoring.js";
import { UndoHistory } from "../../src/tools/undo_history.js";
import type { UndoRecorder } from "../../src/tools/undo_recorder.js";
import { FakeMemory } from "../tools/fakes.js";
import { temporary, workspaceWith } from "../tools/places.js";
import { tree, undoIn } from "../tools/undoes.js";

// A power cut is another matter; here it would only take time.
vi.mock("../../src/tools/io.js", async (original) => ({
  ...(await original<typeof import("../../src/tools/io.js")>()),
  fsyncAsync: async () => {},
}));

const CHANGING = [
  "renameSync",
  "unlinkSync",
  "linkSync",
  "symlinkSync",
  "mkdirSync",
  "rmdirSync",
  "chmodSync",
  "fchmodSync",
  "lchownSync",
  "fchownSync",
  "ftruncateSync",
  "writeSync",
] as const;
const real = Object.fromEntries(CHANGING.map((name) => [name, fs[name] as (...given: unknown[]) => unknown]));
let left = Number.POSITIVE_INFINITY;

function step(): void {
  if (left <= 0) throw new Error("killed");
  left -= 1;
}

/** What is done from here on, after so many steps, never happens. */
function killAfter(steps: number): void {
  left = steps;
  for (const [name, act] of Object.entries(real)) {
    const counted = (...given: unknown[]) => {
      step();
      return act(...given);
    };
    Object.assign(fs, { [name]: counted });
  }
  syncBuiltinESMExports();
}

function startAgain(): void {
  left = Number.POSITIVE_INFINITY;
  Object.assign(fs, real);
  syncBuiltinESMExports();
}

afterEach(startAgain);

class Memory extends FakeMemory {
  override async write(key: string, value: string): Promise<void> {
    step();
    await super.write(key, value);
  }

  override async remove(key: string): Promise<void> {
    step();
    await super.remove(key);
  }
}

const FILES = ["changed", "gone/in", "d2l/in", "f2d", "closed/in", "other/in"];

/** A call that changes, makes and removes, and lets one kind become another; and what it left. */
async function called() {
  const root = workspaceWith(Object.fromEntries(FILES.map((path) => [path, "old"])));
  const at = (path: string) => join(root, path);
  for (const link of ["l2l", "l2d"]) symlinkSync("other", at(link));
  const memory = new Memory();
  const directory = temporary();
  const paths = new PathValidator(root);
  const open = () => parts(paths, undoIn(paths, directory, memory).recorder);
  const undo = open();
  const before = tree(root);
  const running = await undo.recorder.begin("exec_1", "exec_1");
  for (const path of ["gone", "d2l", "f2d", "l2l", "l2d"]) rmSync(at(path), { recursive: true });
  symlinkSync("other", at("d2l"));
  symlinkSync("elsewhere", at("l2l"));
  for (const path of ["f2d", "l2d", "made"]) mkdirSync(at(path));
  for (const path of ["changed", "f2d/in", "l2d/in", "made/in", "closed/in"]) writeFileSync(at(path), "new");
  chmodSync(at("closed"), 0o500);
  await undo.recorder.end(running);
  undo.recorder.close();
  return { root, memory, open, before, after: tree(root) };
}

/** What carries an undo out, without what shows it: that only takes time here. */
function parts(paths: PathValidator, recorder: UndoRecorder) {
  const { list, store } = recorder;
  const history = new UndoHistory(paths, store, list);
  return { recorder, history, restorer: new Restorer(paths, store, list, history, SYSTEM_CLOCK) };
}

async function carryOut(undo: ReturnType<typeof parts>, id: string, steps = Number.POSITIVE_INFINITY): Promise<string> {
  const plan = await undo.history.plan(undo.history.entry(id));
  expect([plan.conflicts, plan.lost.size]).toEqual([[], 0]);
  killAfter(steps);
  return (await undo.restorer.apply(plan).finally(startAgain)).id;
}

it("leads back and forth wherever it was killed", { timeout: 60_000 }, async () => {
  const { after, before, memory, open, root } = await called();
  let steps = 0;
  for (let killed = true; killed; steps += 1) {
    const undo = open();
    killed = await carryOut(undo, "exec_1", steps).then(
      () => false,
      () => true,
    );
    undo.recorder.close();
    if (killed) {
      const again = open();
      const undoId = await carryOut(again, "exec_1");
      expect([steps, tree(root)]).toEqual([steps, before]);
      await carryOut(again, undoId);
      expect([steps, tree(root)]).toEqual([steps, after]);
      again.recorder.close();
      for (const key of [...memory.keys()]) if (key !== "undo:exec_1") memory.values.delete(key);
    }
  }
  expect(steps).toBeGreaterThan(40);
});
