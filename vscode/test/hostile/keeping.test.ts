// What must not be lost or run twice when the disk is full or another window wants the same folder, and approvals that
// are none.

import { mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Verdict } from "../../src/gate/index.js";
import { hasApproval } from "../../src/tools/checks.js";
import { Journal } from "../../src/tools/journal.js";
import { FileMemory } from "../../src/tools/memory.js";
import { Outbox } from "../../src/tools/outbox.js";
import { FakeClock, FakeLink, FakeLog, FakeMemory, PROJECT, signal } from "../tools/fakes.js";
import { temporary } from "../tools/places.js";

describe("A full disk", () => {
  it("costs a report its safety across a crash, not the report", async () => {
    const [memory, link, clock, log] = [new FakeMemory(), new FakeLink(), new FakeClock(), new FakeLog()];
    const journal = await Journal.open(memory, log, clock);
    const outbox = new Outbox({ link, projectId: PROJECT, journal, tries: 3, clock, log });
    await journal.acting("one", true);
    memory.broken = true;
    await journal.done("one", '{"status":"completed"}', true);
    expect(journal.unsent).toEqual(["one"]);
    await outbox.send("one");
    expect(link.results).toEqual([{ toolId: "one", body: { status: "completed" } }]);
    expect(journal.unsent).toEqual([]);
    expect(journal.knows("one")).toBe(true);
  });

  it("on which the journal cannot be written anew still takes what fits", async () => {
    const directory = temporary();
    const memory = new FileMemory(directory);
    mkdirSync(join(directory, "memory.jsonl.draft"));
    for (let count = 0; count < 34; count += 1) {
      await memory.write("large", "x".repeat(1024 * 1024), false);
    }
    await memory.write("call:one", "acting", true);
    expect(memory.read("call:one")).toBe("acting");
    expect(readFileSync(join(directory, "memory.jsonl"), "utf8")).toContain("call:one");
    memory.close();
  });
});

describe("The lock of a folder", () => {
  it("that somebody is just taking is left to them, and one that was left empty is not kept for ever", () => {
    const directory = temporary();
    const lock = join(directory, "lock");
    writeFileSync(lock, "");
    expect(() => new FileMemory(directory)).toThrow("Another window");
    utimesSync(lock, 1, 1);
    new FileMemory(directory).close();
  });

  it("that somebody removed keeps nothing from being closed", () => {
    const directory = temporary();
    const memory = new FileMemory(directory);
    rmSync(join(directory, "lock"));
    expect(() => memory.close()).not.toThrow();
  });

  it("that is left over is taken by one alone", () => {
    const directory = temporary();
    writeFileSync(join(directory, "lock"), "999999999 1");
    writeFileSync(join(directory, "lock.taking"), "");
    expect(() => new FileMemory(directory)).toThrow("Another window");
    utimesSync(join(directory, "lock.taking"), 1, 1);
    new FileMemory(directory).close();
  });
});

describe("An approval", () => {
  it.each(["grantx", "personx", "rulex", "grant", "person", ""])("by %j is none", (approved_by) => {
    const event = signal("write_file", { path: "a", content: "" }, { approved_by, approval_id: "approval_1" });
    const verdict = { level: "MEDIUM", findings: [], waivedBy: "r" } as unknown as Verdict;
    expect(hasApproval(event, verdict)).toBe(false);
  });
});
