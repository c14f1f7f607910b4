// A call that was checked in time and then had to wait, for its turn or for the disk, with no server to call it off.

import { expect, it } from "vitest";
import { Gate } from "../../src/gate/index.js";
import { ExecutionCancelled } from "../../src/tools/errors.js";
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
