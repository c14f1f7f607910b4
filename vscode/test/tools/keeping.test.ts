// What outlasts the program and what is sent until it arrives: memory, journal, outbox, approvals, cache, live output.

import { appendFileSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { ApprovalDesk, type DeskParts } from "../../src/tools/approvals.js";
import { ReadCache } from "../../src/tools/cache.js";
import {
  CallerError,
  ConfigurationError,
  ConflictError,
  NotFound,
  RefusedError,
  UnreachableError,
} from "../../src/tools/errors.js";
import { Journal } from "../../src/tools/journal.js";
import { LiveOutput } from "../../src/tools/live_output.js";
import { FileMemory } from "../../src/tools/memory.js";
import { Outbox } from "../../src/tools/outbox.js";
import { WaitingSignals } from "../../src/tools/waiting.js";
import {
  FakeClock,
  FakeLink,
  FakeLog,
  FakeMemory,
  FakePrompt,
  PROJECT,
  question,
  settled,
  signal,
  until,
} from "./fakes.js";
import { temporary, workspaceWith } from "./places.js";

describe("Memory on the disk", () => {
  it("is there again after a restart, newest last, without what was removed", async () => {
    const directory = temporary();
    const memory = new FileMemory(directory);
    await memory.write("a", "1", true);
    await memory.write("b", "2", false);
    await memory.write("a", "3", false);
    await memory.remove("b");
    await memory.remove("unknown");
    memory.close();
    memory.close();
    const again = new FileMemory(directory);
    expect([...again.keys()]).toEqual(["a"]);
    expect(again.read("a")).toBe("3");
    await again.write("c", "x".repeat(20 * 1024 * 1024), false);
    await again.write("c", "y".repeat(20 * 1024 * 1024), false); // grown enough to be written anew
    expect(readFileSync(join(directory, "memory.jsonl")).length).toBeLessThan(30 * 1024 * 1024);
    again.close();
    await expect(again.write("d", "", false)).rejects.toThrow("EIO");
  });

  it("is used by one program at a time, and a lock that was left is taken over", () => {
    const directory = temporary();
    const memory = new FileMemory(directory);
    expect(() => new FileMemory(directory)).toThrow("Another window already works");
    memory.close();
    writeFileSync(join(directory, "lock"), "999999999 1");
    new FileMemory(directory).close();
  });

  it("forgets a torn last line, keeps the key of one it cannot read, and refuses what could hide a call", () => {
    const directory = temporary();
    const file = join(directory, "memory.jsonl");
    writeFileSync(file, '{"k":"a","v":"1"}\n{"k":"b","v":\n{"k":"c","v":"tor');
    const memory = new FileMemory(directory);
    expect([...memory.keys()].map((key) => [key, memory.read(key)])).toEqual([
      ["a", "1"],
      ["b", ""],
    ]);
    memory.close();
    appendFileSync(file, "nonsense\n");
    expect(() => new FileMemory(directory)).toThrow(ConfigurationError);
    writeFileSync(file, '{"k":1}\n');
    expect(() => new FileMemory(directory)).toThrow("Line 1");
    expect(() => new FileMemory(join(file, "below"))).toThrow("ENOTDIR");
  });
});

describe("The journal", () => {
  it("counts what it cannot read as begun, and forgets the oldest that are over", async () => {
    const [memory, log] = [new FakeMemory(), new FakeLog()];
    memory.values.set("call:torn", "").set("call:odd", '{"step":"done"}').set("other", "x");
    for (let number = 0; number < 20_001; number += 1) {
      memory.values.set(`call:${number}`, '{"step":"over"}');
    }
    const journal = await Journal.open(memory, log);
    expect(journal.unsent).toEqual(["torn", "odd"]);
    expect(journal.knows("0")).toBe(true);
    await journal.accepted("torn");
    expect(journal.knows("0")).toBe(false);
    expect(journal.knows("20000")).toBe(true);
    expect(journal.report("odd")).toContain("interrupted");
    memory.broken = true;
    await journal.accepted("odd");
    await journal.done("odd", "{}", false);
    expect(log.lines.filter((line) => line.level === "error")).toHaveLength(2);
  });
});

describe("The outbox", () => {
  async function outboxWith(): Promise<{
    outbox: Outbox;
    link: FakeLink;
    clock: FakeClock;
    journal: Journal;
    log: FakeLog;
  }> {
    const [link, clock, log] = [new FakeLink(), new FakeClock(), new FakeLog()];
    const journal = await Journal.open(new FakeMemory(), log, clock);
    const outbox = new Outbox({ link, projectId: PROJECT, journal, tries: 3, clock, log });
    await journal.done("one", '{"status":"completed"}', false);
    return { outbox, link, clock, journal, log };
  }

  it("sends three times, then keeps, and sends again by itself", async () => {
    const { clock, journal, link, outbox } = await outboxWith();
    link.fail("postResult", ...[1, 2, 3].map(() => new UnreachableError("gone")));
    const sending = outbox.send("one");
    expect(await outbox.send("one")).toBe(false);
    expect(outbox.settled("one")).toBe(false);
    for (let round = 0; round < 3; round += 1) {
      await settled();
      clock.advance(1_000);
    }
    expect(await sending).toBe(false);
    expect(journal.unsent).toEqual(["one"]);
    clock.advance(15_000);
    await settled();
    expect(link.results).toHaveLength(1);
    expect(journal.unsent).toEqual([]);
    expect(await outbox.send("one")).toBe(true);
  });

  it("forgets what the server no longer wants, and keeps what a person must mend", async () => {
    for (const error of [new NotFound("unknown"), new ConflictError("over", "COMPLETED")]) {
      const { journal, link, outbox } = await outboxWith();
      link.fail("postResult", error);
      expect(await outbox.send("one")).toBe(true);
      expect(journal.unsent).toEqual([]);
    }
    const { journal, link, outbox } = await outboxWith();
    link.fail("postResult", new RefusedError("no scope"));
    await journal.done("two", "{}", false);
    await outbox.resend();
    expect(journal.unsent).toEqual(["one", "two"]);
    outbox.close();
    expect(await outbox.send("one")).toBe(false);
    link.fail("postResult", new TypeError("a fault"));
  });

  it("replaces once what the server cannot read", async () => {
    const { journal, link, outbox } = await outboxWith();
    link.fail("postResult", new CallerError("too odd"));
    expect(await outbox.send("one")).toBe(true);
    expect(link.results[0]?.body).toMatchObject({ status: "failed", error_type: "internal" });
    await journal.done("two", "{}", false);
    link.fail("postResult", new CallerError("odd"), new CallerError("still odd"));
    expect(await outbox.send("two")).toBe(true);
    expect(link.results).toHaveLength(1);
  });
});

describe("The approval desk", () => {
  function deskWith(parts: Partial<DeskParts> = {}) {
    const [link, clock, log, prompt] = [new FakeLink(), new FakeClock(), new FakeLog(), new FakePrompt()];
    const onChange = vi.fn();
    const base = { link, projectId: PROJECT, prompt, timeoutSeconds: 300, tries: 2, clock, log, onChange };
    return { desk: new ApprovalDesk({ ...base, ...parts }), link, clock, log, prompt, onChange };
  }

  it("drops a question when its time is up; HIGH has twice as long; nothing is posted", async () => {
    const { clock, desk, link, log, onChange } = deskWith();
    desk.request(question({ timeout_seconds: 600 }));
    desk.request(question({ timeout_seconds: 600, risk_level: "HIGH" }));
    clock.advance(300_000);
    expect(desk.pending).toHaveLength(1);
    clock.advance(300_000);
    expect(desk.history.map((past) => past.status)).toEqual(["timeout", "timeout"]);
    expect(log.said("approval timed out")).toBe(2);
    expect(link.decisions).toEqual([]);
    expect(onChange).toHaveBeenCalledTimes(4);
  });

  it("asks one at a time and in order, never twice, and not what is over", async () => {
    const { desk, link, prompt } = deskWith();
    const [one, two] = [question(), question({ tool_name: "write_file" })];
    desk.request(one);
    desk.request(one);
    desk.request(two);
    await settled();
    expect(prompt.questions).toHaveLength(1);
    expect(await prompt.questions[0]?.whole()).toBe("all of it");
    prompt.answer({ allow: false, reason: "not now" });
    await settled();
    expect(link.decisions).toMatchObject([{ method: "reject", reason: "not now" }]);
    expect(prompt.questions[1]?.change).toBeDefined();
    await prompt.questions[1]?.change?.();
    prompt.answer(undefined);
    await settled();
    expect(desk.pending).toEqual([two]);
    desk.request(one);
    expect(desk.pending).toEqual([two]);
    expect(await desk.answer(two.approval_id, { allow: true, scope: "once" })).toBe(true);
    expect(await desk.answer(two.approval_id, { allow: true })).toBe(false);
    expect(prompt.said).toEqual(["Denied by you.", "Allowed by you."]);
  });

  it("keeps an answer that does not get through, and posts it on the next connection", async () => {
    const { clock, desk, link, prompt } = deskWith();
    desk.request(question());
    link.fail("approve", new UnreachableError("gone"), new UnreachableError("gone"));
    await settled();
    prompt.answer({ allow: true });
    await settled();
    clock.advance(5_000);
    await settled();
    expect(prompt.said.at(-1)).toMatch(/your answer is sent when it can/);
    await desk.resend();
    expect(desk.history[0]?.status).toBe("approved");
  });

  it("says when somebody was faster, when it is over, and when it was not taken", async () => {
    const { desk, link, prompt } = deskWith();
    const ask = async (error: Error, terms?: object) => {
      const event = question();
      desk.request(event);
      link.fail("approve", error);
      const wait = settled();
      await wait;
      await desk.answer(event.approval_id, { allow: true, ...(terms ? { terms } : {}) });
      await settled();
      return event.approval_id;
    };
    await ask(new ConflictError("person:bob refused it.", "REJECTED"));
    await ask(new ConflictError("It is over.", "unheard of"));
    await ask(new CallerError("wrong"));
    expect(desk.history.map((past) => past.status)).toEqual(["rejected", "cancelled", "cancelled"]);
    expect(prompt.said).toContain("Your answer came too late: bob refused it.");
    const kept = await ask(new CallerError("too wide", "narrow it"), { max_uses: 1 });
    const other = await ask(new RefusedError("no scope"));
    expect(desk.pending.map((one) => one.approval_id)).toEqual([kept, other]);
    expect(prompt.said.at(-1)).toBe("Your answer was not taken: no scope");
    await ask(new TypeError("a fault"));
    expect(prompt.said.at(-1)).toContain("TypeError");
  });

  it("takes the server's list as the truth", () => {
    const { desk } = deskWith({ prompt: undefined });
    const gone = question();
    desk.request(gone);
    const { approval_id, timestamp, tool_id, ...rest } = question();
    const waiting = { ...rest, id: approval_id, project_id: PROJECT, tool_ids: [tool_id], created_at: timestamp };
    const more = {
      user_id: "u",
      status: "pending",
      decided_at: null,
      decided_by: null,
      reason: null,
      scope: null,
      grant_id: null,
    };
    const list = [
      { ...waiting, ...more },
      { ...waiting, ...more, id: "elsewhere", project_id: "project_2" },
      { ...waiting, ...more, id: "empty", tool_ids: [] },
    ];
    desk.settle(list as never, desk.pending);
    expect(desk.pending.map((event) => event.approval_id)).toEqual([approval_id, "empty"]);
    expect(desk.history).toMatchObject([{ approvalId: gone.approval_id, status: "cancelled" }]);
    desk.close();
    expect(desk.pending).toEqual([]);
  });

  it("tells when the question could not be put", async () => {
    const { desk, log, prompt } = deskWith();
    prompt.ask = () => Promise.reject(new Error("no window"));
    desk.request(question());
    await settled();
    expect(log.said("the question could not be put")).toBe(1);
  });
});

describe("The read cache", () => {
  const result = (content: string) => ({
    ...{ success: true, error: null, content, encoding: "utf-8", size: content.length },
    ...{ start_line: null, end_line: null, total_lines: 1 },
  });
  const read = (path: string) => ({ path, start_line: null, end_line: null });

  it("knows a file as long as it is the same, for a while, and keeps no secrets", () => {
    const root = workspaceWith({ "a.txt": "x", ".env": "S=1", "d/b.txt": "y" });
    const clock = new FakeClock();
    const cache = new ReadCache(root, 300, clock, 100);
    const put = (path: string, content = "x") => cache.put(cache.before(read(path)), result(content));
    put("a.txt");
    expect(cache.get(read("a.txt"))).toBeUndefined(); // changed too shortly ago
    clock.advance(10_000);
    put("a.txt");
    expect(cache.get(read("a.txt"))).toMatchObject({ content: "x" });
    put(".env");
    put("../a.txt");
    put("missing");
    cache.put(undefined, result(""));
    expect([".env", "../a.txt", "missing"].map((path) => cache.get(read(path)))).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    const stale = cache.before(read("d/b.txt"));
    cache.forget("d");
    cache.put(stale, result("y"));
    expect(cache.get(read("d/b.txt"))).toBeUndefined();
    put("d/b.txt", "y".repeat(2_000_000));
    expect(cache.get(read("d/b.txt"))).toBeUndefined();
    put("d/b.txt", "y".repeat(25));
    expect(cache.get(read("a.txt"))).toBeUndefined(); // pushed out
    cache.forget("d");
    expect(cache.get(read("d/b.txt"))).toBeUndefined();
    put("a.txt");
    utimesSync(join(root, "a.txt"), 1, 1);
    expect(cache.get(read("a.txt"))).toBeUndefined();
    put("a.txt");
    clock.advance(301_000);
    expect(cache.get(read("a.txt"))).toBeUndefined();
    put("a.txt");
    cache.forget();
    expect(cache.get(read("a.txt"))).toBeUndefined();
  });
});

describe("Live output", () => {
  it("is gathered, masked, in order, and ends with the rest", async () => {
    const [link, clock, log] = [new FakeLink(), new FakeClock(), new FakeLog()];
    const live = new LiveOutput(link, PROJECT, "exec", clock, log);
    live.take("stdout", "one\n");
    live.take("stdout", "two\n");
    live.take("stderr", "bad\nhalf");
    live.take("stdout", "");
    await settled();
    clock.advance(100);
    await until(() => link.outputs.length === 2);
    expect(link.outputs.map((one) => one.body)).toEqual([
      { stream: "stdout", text: "one\ntwo\n", sequence: 0 },
      { stream: "stderr", text: "bad\n", sequence: 1 },
    ]);
    link.fail("postOutput", new UnreachableError("gone"));
    live.take("stdout", "lost\n");
    await live.stop();
    live.take("stdout", "too late\n");
    expect(link.outputs.at(-1)?.body).toMatchObject({ stream: "stderr", text: "half" });
    expect(log.said("output not relayed")).toBe(1);
  });

  it("of a short command is left to its result", async () => {
    const [link, clock] = [new FakeLink(), new FakeClock()];
    const live = new LiveOutput(link, PROJECT, "exec", clock, new FakeLog());
    live.take("stdout", "quick\n");
    await live.stop();
    await settled();
    expect(link.outputs).toEqual([]);
  });
});

it("Signals that wait are bounded by what they hold", () => {
  const queue = new WaitingSignals(10, 50);
  const big = signal("write_file", { content: "x".repeat(30) });
  queue.add(big);
  expect(() => queue.add(signal("write_file", { content: "x".repeat(30) }))).toThrow("bytes wait");
  expect(queue.take("unknown")).toBeUndefined();
  expect(queue.next()).toBe(big);
  expect(queue.next()).toBeUndefined();
});
