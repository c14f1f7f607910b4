// A call that was checked in time and then had to wait, for its turn or for the disk, with no server to call it off.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { Gate } from "../../src/gate/index.js";
import { ExecutionCancelled, ExecutionTimeout } from "../../src/tools/errors.js";
import { Journal } from "../../src/tools/journal.js";
import { ToolHandler } from "../../src/tools/ToolHandler.js";
import { type ToolRun, Workspace } from "../../src/tools/Workspace.js";
import { BY_ALICE, CLIENT, FakeClock, FakeLink, FakeLog, FakeMemory, PROJECT, signal, until } from "../tools/fakes.js";
import { workspaceWith } from "../tools/places.js";

it("A call is called off when its deadline passes, also after it was begun", async () => {
  const [link, log, clock] = [new FakeLink(), new FakeLog(), new FakeClock()];
  const workspace = new Workspace(workspaceWith({}));
  let waiting = false;
  workspace.run = (_tool, _params, run: ToolRun = {}) =>
    new Promise((_, reject) => {
      waiting = true;
      run.signal?.addEventListener("abort", () => reject(new ExecutionCancelled("called off")));
    });
  const journal = await Journal.open(new FakeMemory(), log, clock);
  const parts = { projectId: PROJECT, clientId: CLIENT, workspace, gate: new Gate({}), journal, link, log, clock };
  const handler = new ToolHandler(parts);
  const deadline = new Date(clock.now() + 5_000).toISOString();
  handler.handleToolExecutionSignal(signal("write_file", { path: "b.txt", content: "x" }, { ...BY_ALICE, deadline }));
  await until(() => waiting);
  clock.advance(5_001);
  await until(() => link.results.length === 1, 3);
  expect(link.results[0]?.body).toMatchObject({ status: "failed", error_type: "execution_timeout" });
});

it("Time that is up right before the effect is seen, although no timer has come yet: as after the machine slept", async () => {
  const [link, log, clock] = [new FakeLink(), new FakeLog(), new FakeClock()];
  const root = workspaceWith({});
  const memory = new FakeMemory();
  let ahead = 0;
  const asleep = { ...clock, now: () => clock.now() + ahead, monotonic: () => 0, after: () => ({ cancel: () => {} }) };
  const write = memory.write.bind(memory);
  memory.write = async (key, value) => {
    await write(key, value);
    ahead = value.includes("acting") ? 3_600_000 : ahead;
  };
  const journal = await Journal.open(memory, log, asleep);
  const workspace = new Workspace(root);
  const parts = { projectId: PROJECT, clientId: CLIENT, workspace, gate: new Gate({}), journal, link, log };
  const handler = new ToolHandler({ ...parts, clock: asleep });
  handler.handleToolExecutionSignal(signal("write_file", { path: "b.txt", content: "x" }, BY_ALICE));
  await until(() => link.results.length === 1, 3);
  expect(link.results[0]?.body).toMatchObject({
    error_type: "execution_timeout",
    error: expect.stringMatching(/nothing was run/),
  });
  expect(existsSync(join(root, "b.txt"))).toBe(false);
});

const NEW = { path: "made/b.txt", content: "late", mode: "write" };
const CODE = "open('b.txt', 'w').write('late')";

it.each([
  ["a write that is late from the beginning", "write_file", NEW, 0],
  ["a write that is late only when all of it is ready", "write_file", NEW, 1],
  ["an addition that is late when the old file was copied", "write_file", { ...NEW, path: "a.txt", mode: "append" }, 2],
  ["a command", "execute_command", { command: "python", args: ["-c", CODE], timeout: 30 }, 0],
])("Nothing comes of %s", async (_, tool, params, inTime) => {
  const root = workspaceWith({ "a.txt": "one\n" });
  const workspace = new Workspace(root);
  let asked = 0;
  const late = () => {
    asked += 1;
    return asked > inTime;
  };
  await expect(workspace.run(tool, params, { late })).rejects.toThrow(ExecutionTimeout);
  workspace.close();
  expect(asked).toBe(inTime + 1);
  expect(["b.txt", "made"].filter((name) => existsSync(join(root, name)))).toEqual([]);
  expect(readFileSync(join(root, "a.txt"), "utf8")).toBe("one\n");
});
