// A command that waits for its turn can be called off, and does not hold up the others.

import { expect, test } from "vitest";
import { ExecutionCancelled } from "../../src/tools/errors.js";
import { Turns } from "../../src/tools/turns.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { workspaceWith } from "../tools/places.js";

test("Who is called off while waiting leaves, and those behind it go on", async () => {
  const turns = new Turns();
  const first = await turns.take(false);
  const stop = new AbortController();
  const alone = turns.take(true, stop.signal);
  const behind = turns.take(false);
  stop.abort();
  await expect(alone).rejects.toThrow(ExecutionCancelled);
  (await behind)();
  await expect(turns.take(false, stop.signal)).rejects.toThrow("waited for its turn");
  first();
  const last = await turns.take(true, new AbortController().signal);
  last();
});

test("A git command that waits for a running one ends as soon as it is called off", async () => {
  const workspace = new Workspace(workspaceWith({ ".git/HEAD": "ref: refs/heads/main\n" }));
  const [first, second] = [new AbortController(), new AbortController()];
  let tell = () => {};
  const began = new Promise<void>((resolve) => {
    tell = resolve;
  });
  const sleeping = workspace.run(
    "execute_command",
    { command: "python3", args: ["-c", "print(1, flush=True); import time; time.sleep(60)"], timeout: 60 },
    { signal: first.signal, onOutput: () => tell() },
  );
  await began;
  const waiting = workspace.run(
    "execute_command",
    { command: "git", args: ["status"], timeout: 60 },
    { signal: second.signal },
  );
  second.abort();
  await expect(waiting).rejects.toThrow("called off");
  first.abort();
  await expect(sleeping).rejects.toThrow(ExecutionCancelled);
  workspace.close();
});
