// A write to a protected name beside a command that runs: the command never gets hold of what was written.

import { readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { MAX_WAIT, WriteTurns } from "../../src/tools/turns.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { TABLES } from "../../src/tools/words.js";
import { FakeClock, settled } from "./fakes.js";
import { workspaceWith } from "./places.js";

describe("A write to a protected name", () => {
  const waitsAndWrites = `
import os, time
print('ready', flush=True)
while not os.path.exists('go'):
    time.sleep(0.01)
try:
    open('.envrc', 'w').write('of the command')
except OSError:
    print('kept off')
`;

  it.each([
    [".envrc", "a file"],
    [".envrc", "a link"],
    [".envrc", "missing"],
    ["here/.envrc", "a file"],
    ["shared/envrc", "a link"],
  ] as const)("beside a command waits for it, and the command cannot change it: %s, %s", async (path, there) => {
    const files = { "a file": { ".envrc": "before" }, "a link": { "shared/envrc": "before" } } as const;
    const root = workspaceWith(there === "missing" ? {} : files[there]);
    if (there === "a link") {
      symlinkSync("shared/envrc", join(root, ".envrc"));
    }
    symlinkSync(".", join(root, "here"));
    const workspace = new Workspace(root);
    let ready = () => {};
    const began = new Promise<void>((resolve) => (ready = resolve));
    const params = { command: "python3", args: ["-c", waitsAndWrites], timeout: 30 };
    const command = workspace.run("execute_command", params, { onOutput: () => ready() });
    await began;
    const writing = workspace.run("write_file", { path, content: "of the write", mode: "write" });
    await settled();
    expect(
      (await workspace.run("write_file", { path: "go", content: "", mode: "write" })).success,
      "others need not wait",
    ).toBe(true);
    expect(await command).toMatchObject({ stdout: "ready\nkept off\n" });
    expect((await writing).success).toBe(true);
    expect(readFileSync(join(root, ".envrc"), "utf8")).toBe("of the write");
    workspace.close();
  });

  it("that waited too long says what it waits for", async () => {
    const clock = new FakeClock();
    const turns = new WriteTurns(clock);
    let end = () => {};
    const command = turns.command(() => new Promise<void>((resolve) => (end = resolve)));
    const writing = turns.write(".vscode/settings.json", async () => "written");
    const told = expect(writing).rejects.toMatchObject({
      message:
        "'.vscode/settings.json' was not written: commands are still running, and while it is replaced they could change it.",
      hint: "Wait until they have ended, or cancel them.",
    });
    await settled();
    clock.advance(MAX_WAIT);
    await told;
    end();
    await command;
    expect(await turns.write(".vscode/settings.json", async () => "written")).toBe("written");
    expect(clock.timers.size).toBe(0);
  });

  it("is told what it waits for before its own time is up", () => {
    expect(MAX_WAIT + 15_000).toBeLessThan(TABLES.tools.write_file.timeout_seconds * 1000);
  });

  it("waits also where it is what a link led to when the command began", async () => {
    const clock = new FakeClock();
    const turns = new WriteTurns(clock);
    let end = () => {};
    const command = turns.command(() => new Promise<void>((resolve) => (end = resolve)), ["shared/envrc"]);
    const told = expect(turns.write("shared/envrc", async () => "written")).rejects.toThrow("still running");
    expect(await turns.write("shared/other", async () => "written")).toBe("written");
    clock.advance(MAX_WAIT);
    await told;
    end();
    await command;
  });

  it("that is called off while it waits leaves at once", async () => {
    const clock = new FakeClock();
    const turns = new WriteTurns(clock);
    let end = () => {};
    const command = turns.command(() => new Promise<void>((resolve) => (end = resolve)));
    const stop = new AbortController();
    const writing = turns.write(".envrc", async () => "written", [], stop.signal);
    const told = expect(writing).rejects.toThrow("called off");
    await settled();
    stop.abort();
    await told;
    expect(clock.timers.size).toBe(0);
    end();
    await command;
  });

  it("that has begun is waited for by commands, and no other is", async () => {
    const turns = new WriteTurns(new FakeClock());
    let end = () => {};
    const held = () => new Promise<void>((resolve) => (end = resolve));
    const other = turns.write("src/.envrc", held);
    expect(await turns.command(async () => "ran")).toBe("ran");
    end();
    await other;
    const writing = turns.write(".envrc", held);
    let ran = false;
    const command = turns.command(async () => {
      ran = true;
    });
    await settled();
    expect(ran).toBe(false);
    end();
    await Promise.all([writing, command]);
    expect(ran).toBe(true);
  });
});
