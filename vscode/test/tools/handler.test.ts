// What the handler does with the server's events, on real files and in the real sandbox.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Gate, Policy, parsePolicy } from "../../src/gate/index.js";
import { ConflictError, NotFound, UnreachableError } from "../../src/tools/errors.js";
import { Journal } from "../../src/tools/journal.js";
import { type Clock, DEFAULT_SETTINGS, SYSTEM_CLOCK, type ToolSettings } from "../../src/tools/ports.js";
import { type HandlerParts, ToolHandler } from "../../src/tools/ToolHandler.js";
import { Workspace } from "../../src/tools/Workspace.js";
import {
  BY_ALICE,
  CLIENT,
  FakeClock,
  FakeLink,
  FakeLog,
  FakeMemory,
  FakePrompt,
  inspectionOf,
  PROJECT,
  question,
  settled,
  signal,
  until,
} from "./fakes.js";
import { workspaceWith } from "./places.js";

const OLD = new Date(Date.now() - 60_000).toISOString();

let root: string;
let link: FakeLink;
let log: FakeLog;
let memory: FakeMemory;
let prompt: FakePrompt;
let changes = 0;
const open: ToolHandler[] = [];

interface Wanted {
  readonly settings?: Partial<ToolSettings>;
  readonly clock?: Clock;
  readonly policy?: Policy;
  readonly workspace?: Workspace;
  readonly parts?: Partial<HandlerParts>;
}

async function handlerWith(wanted: Wanted = {}): Promise<ToolHandler> {
  const settings = { ...DEFAULT_SETTINGS, ...wanted.settings };
  const policy = wanted.policy ?? new Policy();
  const clock = wanted.clock ?? SYSTEM_CLOCK;
  const workspace = wanted.workspace ?? new Workspace(root, { settings, policy, clock });
  const handler = new ToolHandler({
    projectId: PROJECT,
    clientId: CLIENT,
    workspace,
    gate: new Gate({ policy }),
    journal: await Journal.open(memory, log, clock),
    link,
    prompt,
    log,
    clock,
    onChange: () => (changes += 1),
    ...wanted.parts,
  });
  open.push(handler);
  return handler;
}

async function ended(toolId: string): Promise<Record<string, unknown>> {
  await until(() => link.results.some((one) => one.toolId === toolId));
  return link.results.find((one) => one.toolId === toolId)?.body as Record<string, unknown>;
}

beforeEach(() => {
  root = workspaceWith({ "a.txt": "one\ntwo\n", "run.py": "print('ran')\n", "secret/key.txt": "x\n" });
  [link, log, memory, prompt, changes] = [new FakeLink(), new FakeLog(), new FakeMemory(), new FakePrompt(), 0];
});

afterEach(async () => {
  await Promise.all(open.splice(0).map((handler) => handler.dispose()));
});

describe("An execution signal", () => {
  it("is executed and reported, and kept in the history", async () => {
    const handler = await handlerWith();
    const event = signal("read_file", { path: "a.txt" });
    handler.handleToolExecutionSignal(event);
    expect(handler.activeExecutions.map((one) => one.event)).toEqual([event]);
    const report = await ended(event.tool_id);
    expect(report).toMatchObject({ status: "completed", result: { success: true, content: "one\ntwo\n" } });
    expect(handler.history).toMatchObject([{ tool_id: event.tool_id, status: "success", error: null }]);
    expect(handler.activeExecutions).toEqual([]);
    expect(changes).toBeGreaterThan(0);
    expect(log.said("done")).toBe(1);
    expect(log.said("timing")).toBe(1);
  });

  it("for another client is ignored", async () => {
    const handler = await handlerWith();
    handler.handleToolExecutionSignal(signal("read_file", { path: "a.txt" }, { client_id: "client_2" }));
    await settled();
    expect(link.results).toEqual([]);
    expect(log.said("signal for another client ignored")).toBe(1);
  });

  it("that is repeated does not run again, and its report is sent again while the server lacks it", async () => {
    const clock = new FakeClock();
    const handler = await handlerWith({ clock, settings: { postTries: 1 } });
    const event = signal("read_file", { path: "a.txt" });
    link.fail("postResult", new UnreachableError("gone"));
    handler.handleToolExecutionSignal(event);
    await until(() => log.said("result kept for the next connection") === 1);
    handler.handleToolExecutionSignal(event);
    await ended(event.tool_id);
    handler.handleToolExecutionSignal(event);
    await settled();
    expect(link.results).toHaveLength(1);
    expect(handler.history).toHaveLength(1);
  });

  it("of a call that acted before the editor was restarted never runs again, and is told as interrupted", async () => {
    const event = signal("write_file", { path: "b.txt", content: "x" }, BY_ALICE);
    await memory.write(`call:${event.tool_id}`, JSON.stringify({ step: "acting" }));
    const handler = await handlerWith();
    handler.handleToolExecutionSignal(event);
    expect(await ended(event.tool_id)).toMatchObject({ status: "failed", error_type: "interrupted" });
    expect(() => readFileSync(join(root, "b.txt"))).toThrow();
  });

  it("for a tool nobody has is refused by name", async () => {
    const handler = await handlerWith();
    const event = signal("format_disk", {});
    handler.handleToolExecutionSignal(event);
    expect(await ended(event.tool_id)).toMatchObject({
      error_type: "invalid",
      error: expect.stringMatching(/no tool 'format_disk'/),
    });
  });

  it("that cannot be understood is reported once and never run", async () => {
    const handler = await handlerWith();
    handler.handleUnreadableSignal("exec_x");
    handler.handleUnreadableSignal("exec_x");
    expect(await ended("exec_x")).toMatchObject({ status: "failed", error_type: "invalid" });
    expect(handler.history).toHaveLength(1);
  });

  it("without the approval it needed is not run", async () => {
    const handler = await handlerWith();
    const event = signal("write_file", { path: "b.txt", content: "x" });
    handler.handleToolExecutionSignal(event);
    expect(await ended(event.tool_id)).toMatchObject({
      error_type: "refused",
      error: expect.stringMatching(/needed approval and has none/),
    });
    expect(handler.history[0]).toMatchObject({ status: "error", error_type: "refused" });
  });

  it("with another digest than its parameters have is drift", async () => {
    const handler = await handlerWith();
    const event = signal("read_file", { path: "a.txt" }, { digest: "0".repeat(64) });
    handler.handleToolExecutionSignal(event);
    expect(await ended(event.tool_id)).toMatchObject({ error_type: "drifted" });
  });

  it("whose time is up is not run", async () => {
    const handler = await handlerWith();
    handler.setServerTime(Date.now() + 3_600_000);
    expect(handler.serverAhead).toBeGreaterThan(3_000_000);
    const event = signal("read_file", { path: "a.txt" });
    handler.handleToolExecutionSignal(event);
    expect(await ended(event.tool_id)).toMatchObject({ error_type: "execution_timeout" });
    expect(handler.history[0]?.status).toBe("timeout");
  });

  it("that is old is run only when the server still wants it", async () => {
    const handler = await handlerWith();
    link.status = "COMPLETED";
    const over = signal("write_file", { path: "b.txt", content: "x" }, { ...BY_ALICE, timestamp: OLD });
    handler.handleToolExecutionSignal(over);
    expect(await ended(over.tool_id)).toMatchObject({ error_type: "cancelled" });
    link.fail("getTool", new NotFound("unknown"));
    const unknown = signal("write_file", { path: "b.txt", content: "x" }, { ...BY_ALICE, timestamp: OLD });
    handler.handleToolExecutionSignal(unknown);
    expect(await ended(unknown.tool_id)).toMatchObject({ error_type: "cancelled" });
    link.fail("getTool", new UnreachableError("gone"));
    const wanted = signal("write_file", { path: "b.txt", content: "x" }, { ...BY_ALICE, timestamp: OLD });
    handler.handleToolExecutionSignal(wanted);
    expect(await ended(wanted.tool_id)).toMatchObject({ status: "completed" });
    link.fail("getTool", new TypeError("a fault"));
    const faulty = signal("write_file", { path: "b.txt", content: "x" }, { ...BY_ALICE, timestamp: OLD });
    handler.handleToolExecutionSignal(faulty);
    expect(await ended(faulty.tool_id)).toMatchObject({
      error_type: "internal",
      error: expect.stringMatching(/TypeError/),
    });
  });

  it("that the journal cannot write down is not run", async () => {
    const handler = await handlerWith();
    memory.broken = true;
    const event = signal("write_file", { path: "b.txt", content: "x" }, BY_ALICE);
    handler.handleToolExecutionSignal(event);
    await until(() => handler.history.length === 1);
    expect(handler.history[0]).toMatchObject({ error_type: "tool_error", error: expect.stringMatching(/journal/) });
    expect(() => readFileSync(join(root, "b.txt"))).toThrow();
  });

  it("that fails in a way nobody foresaw is reported all the same", async () => {
    const workspace = new Workspace(root);
    workspace.run = () => Promise.reject("nothing an error should be");
    const handler = await handlerWith({ workspace });
    const event = signal("read_file", { path: "a.txt" });
    handler.handleToolExecutionSignal(event);
    expect(await ended(event.tool_id)).toMatchObject({
      error_type: "internal",
      error: expect.stringMatching(/client failed with string/),
    });
    expect(log.said("failed unexpectedly")).toBe(1);
  });

  it("of a tool that does not end is given up after its time", async () => {
    const clock = new FakeClock();
    const workspace = new Workspace(root);
    workspace.run = (_tool, _params, run) =>
      new Promise((_, reject) => run?.signal?.addEventListener("abort", () => reject(new Error("ended"))));
    const handler = await handlerWith({ workspace, clock });
    const event = signal("read_file", { path: "a.txt" });
    handler.handleToolExecutionSignal(event);
    await until(() => log.said("executing") === 1);
    await settled();
    clock.advance(45_000);
    expect(await ended(event.tool_id)).toMatchObject({
      error_type: "execution_timeout",
      error: expect.stringMatching(/45 s/),
    });
  });
});

describe("Rules of this machine", () => {
  const policy = new Policy([
    parsePolicy('[[rule]]\naction = "deny"\npaths = ["secret/**"]\n', "user", "policy.toml", true),
  ]);

  it("refuse what they deny, also behind a link", async () => {
    const { symlinkSync } = await import("node:fs");
    symlinkSync("secret/key.txt", join(root, "plain.txt"));
    const handler = await handlerWith({ policy });
    for (const path of ["secret/key.txt", "plain.txt"]) {
      const event = signal("read_file", { path });
      handler.handleToolExecutionSignal(event);
      expect(await ended(event.tool_id)).toMatchObject({ error_type: "refused" });
    }
    const fine = signal("read_file", { path: "a.txt" });
    handler.handleToolExecutionSignal(fine);
    expect(await ended(fine.tool_id)).toMatchObject({ status: "completed" });
  });

  it("permit no mode but theirs", async () => {
    const narrow = new Policy([parsePolicy('mode = "sandbox"\n', "user", "policy.toml", true)]);
    const handler = await handlerWith({ policy: narrow });
    const event = signal("write_file", { path: "b.txt", content: "x" }, { approved_by: "mode:full", mode: "full" });
    handler.handleToolExecutionSignal(event);
    expect(await ended(event.tool_id)).toMatchObject({ error: expect.stringMatching(/no mode but sandbox/) });
  });
});

describe("Places and order", () => {
  function slow(): { workspace: Workspace; release: ((value: unknown) => void)[]; order: string[] } {
    const workspace = new Workspace(root);
    const release: ((value: unknown) => void)[] = [];
    const order: string[] = [];
    workspace.run = async (_tool, params, run) => {
      order.push(String(params.path));
      await new Promise((resolve) => {
        release.push(resolve);
        run?.signal?.addEventListener("abort", resolve);
      });
      run?.signal?.throwIfAborted();
      return { success: true, error: null };
    };
    return { workspace, release, order };
  }

  it("three run at once, the rest wait in order", async () => {
    const { order, release, workspace } = slow();
    const handler = await handlerWith({ workspace });
    const events = ["1", "2", "3", "4", "5"].map((path) => signal("list_directory", { path }));
    for (const event of events) {
      handler.handleToolExecutionSignal(event);
    }
    await until(() => order.length === 3);
    expect(handler.queued.map((one) => one.tool_id)).toEqual(events.slice(3).map((one) => one.tool_id));
    release[0]?.(undefined);
    await until(() => order.length === 4);
    release[1]?.(undefined);
    await until(() => order.length === 5);
    expect(order).toEqual(["1", "2", "3", "4", "5"]);
    for (const end of release) {
      end(undefined);
    }
    await until(() => link.results.length === 5);
  });

  it("a queue that is full refuses by name", async () => {
    const { order, workspace } = slow();
    const limited = { ...DEFAULT_SETTINGS, concurrency: 1, queueLimit: 1 };
    Object.defineProperty(workspace, "settings", { value: limited });
    const handler = await handlerWith({ workspace });
    const events = ["1", "2", "3"].map((path) => signal("list_directory", { path }));
    for (const event of events) {
      handler.handleToolExecutionSignal(event);
    }
    await until(() => order.length === 1);
    expect(await ended(events[2]?.tool_id as string)).toMatchObject({
      error: expect.stringMatching(/wait on this machine already/),
    });
  });

  it("what waits or runs can be called off, and says so", async () => {
    const { order, workspace } = slow();
    Object.defineProperty(workspace, "settings", { value: { ...DEFAULT_SETTINGS, concurrency: 1 } });
    const handler = await handlerWith({ workspace });
    const [running, waiting] = ["1", "2"].map((path) => signal("list_directory", { path })) as [never, never];
    handler.handleToolExecutionSignal(running);
    handler.handleToolExecutionSignal(waiting);
    await until(() => order.length === 1);
    const off = (event: { tool_id: string }, client_id = CLIENT) =>
      handler.handleToolCancelSignal({
        timestamp: OLD,
        kind: "tool.cancel_signal",
        tool_id: event.tool_id,
        client_id,
        session_id: "s",
      });
    off(running, "client_2");
    off(waiting);
    off(running);
    off({ tool_id: "unknown" });
    expect(await ended((waiting as { tool_id: string }).tool_id)).toMatchObject({ error_type: "cancelled" });
    expect(await ended((running as { tool_id: string }).tool_id)).toMatchObject({ error_type: "cancelled" });
    expect(order).toEqual(["1"]);
    expect(handler.history.map((one) => one.status)).toEqual(["cancelled", "cancelled"]);
  });

  it("what is called off between the check and the run does not run", async () => {
    const handler = await handlerWith();
    const event = signal("write_file", { path: "b.txt", content: "x" }, BY_ALICE);
    const write = memory.write.bind(memory);
    memory.write = async (key, value) => {
      handler.activeExecutions[0]?.stop.abort(new ConflictError("called off", ""));
      await write(key, value);
    };
    handler.handleToolExecutionSignal(event);
    await until(() => handler.history.length === 1);
    expect(() => readFileSync(join(root, "b.txt"))).toThrow();
  });
});

describe("Commands and writes", () => {
  it("a command runs in the sandbox, its output comes while it runs, and it is bound to what was shown", async () => {
    const handler = await handlerWith();
    const { createHash } = await import("node:crypto");
    const bound = { "run.py": createHash("sha256").update("print('ran')\n").digest("hex") };
    const params = { command: "python", args: ["run.py"], timeout: 30 };
    const event = signal("execute_command", params, { ...BY_ALICE, bound });
    handler.handleToolExecutionSignal(event);
    const report = await ended(event.tool_id);
    expect(report).toMatchObject({ status: "completed", result: { stdout: "ran\n", isolation: { backend: "bwrap" } } });
    const unbound = signal("execute_command", params, BY_ALICE);
    handler.handleToolExecutionSignal(unbound);
    expect(await ended(unbound.tool_id)).toMatchObject({
      error_type: "drifted",
      error: expect.stringMatching(/'run.py'/),
    });
    const lost = signal("execute_command", params, { ...BY_ALICE, bound: { "run.py": "0".repeat(64) } });
    handler.handleToolExecutionSignal(lost);
    expect(await ended(lost.tool_id)).toMatchObject({ error_type: "drifted" });
  });

  it("what nobody here can do is said, with the network granted or not", async () => {
    const handler = await handlerWith();
    for (const network of [true, false]) {
      const event = signal("search_web", { query: "x" }, { ...BY_ALICE, network });
      handler.handleToolExecutionSignal(event);
      expect(await ended(event.tool_id)).toMatchObject({ error: expect.stringMatching(/No web search provider/) });
    }
  });

  it("a command that runs too long is ended, with what it said until then", async () => {
    const handler = await handlerWith();
    const params = {
      command: "python",
      args: ["-c", "import time; print('x', flush=True); time.sleep(60)"],
      timeout: 1,
    };
    const event = signal("execute_command", params, BY_ALICE);
    handler.handleToolExecutionSignal(event);
    const report = await ended(event.tool_id);
    expect(report).toMatchObject({ error_type: "execution_timeout", result: { stdout: "x\n", exit_code: null } });
    expect(link.outputs.map((one) => one.body.text).join("")).toBe("x\n");
  });

  it("a write is done once approved, says that it cannot be undone, and ends what the cache knew", async () => {
    const { utimesSync } = await import("node:fs");
    utimesSync(join(root, "a.txt"), 1_600_000_000, 1_600_000_000);
    const clock = new FakeClock();
    clock.advance(60_000); // the file is as new as this test; it counts as settled
    const handler = await handlerWith({ clock });
    const read = async () => {
      const event = signal("read_file", { path: "a.txt" });
      handler.handleToolExecutionSignal(event);
      return (await ended(event.tool_id)).result as { content: string };
    };
    await read();
    await read();
    expect(log.said("answered from memory")).toBe(1);
    handler.forgetReads();
    await read();
    expect(log.said("answered from memory")).toBe(1);
    const write = signal("write_file", { path: "a.txt", content: "new\n" }, BY_ALICE);
    handler.handleToolExecutionSignal(write);
    const report = await ended(write.tool_id);
    expect(report).toMatchObject({
      result: { path: "a.txt", size: 4, warnings: [expect.stringMatching(/cannot be undone/)] },
    });
    expect((await read()).content).toBe("new\n");
    const shown = log.lines.find((line) => line.message === "executing" && "content" in Object(line.fields?.params));
    expect(shown?.fields?.params).toMatchObject({ content: "(left out)" });
  });

  it("without a cache every read reads", async () => {
    const handler = await handlerWith({ settings: { cacheEnabled: false } });
    for (const tool of ["read_file", "write_file"]) {
      const event = signal(tool, { path: "a.txt", ...(tool === "read_file" ? {} : { content: "y" }) }, BY_ALICE);
      handler.handleToolExecutionSignal(event);
      expect(await ended(event.tool_id)).toMatchObject({ status: "completed" });
    }
    handler.forgetReads();
    expect(log.said("answered from memory")).toBe(0);
  });
});

describe("Questions and acknowledgements", () => {
  it("a question is asked and its answer posted with the digest that was shown", async () => {
    const handler = await handlerWith();
    const event = question();
    handler.handleToolApprovalRequest(event);
    expect(handler.pendingApprovals).toEqual([event]);
    await settled();
    prompt.answer({ allow: true });
    await settled();
    expect(link.decisions).toMatchObject([{ method: "approve", id: event.approval_id, digest: event.digest }]);
    expect(handler.approvalHistory).toMatchObject([{ approvalId: event.approval_id, status: "approved" }]);
  });

  it("a question that is answered elsewhere is closed here", async () => {
    const handler = await handlerWith();
    const event = question();
    handler.handleToolApprovalRequest(event);
    handler.handleToolApprovalDecided({
      timestamp: OLD,
      kind: "tool.approval_decided",
      approval_id: event.approval_id,
      tool_ids: [event.tool_id],
      status: "rejected",
      decided_by: "person:bob",
      reason: null,
      session_id: null,
      scope: null,
      grant_id: null,
      decided_from: null,
    });
    expect(handler.pendingApprovals).toEqual([]);
    expect(prompt.questions[0]?.closed.reason).toBe("Denied by bob.");
  });

  it("an inspection is answered with what stands there now; another client's is not", async () => {
    const handler = await handlerWith();
    const event = inspectionOf("write_file", { path: "a.txt", content: "new" });
    handler.handleToolInspectionRequest({ ...event, client_id: "client_2" });
    handler.handleToolInspectionRequest(event);
    await until(() => link.inspections.length === 1);
    const [file] = (link.inspections[0]?.body.files ?? []) as Record<string, unknown>[];
    expect(file).toMatchObject({ path: "a.txt", role: "replaces", text: "one\ntwo\n", size: 8 });
  });

  it("an acknowledgement ends what is kept, and nothing else", async () => {
    const clock = new FakeClock();
    const handler = await handlerWith({ clock, settings: { postTries: 1 } });
    const event = signal("read_file", { path: "a.txt" });
    link.fail("postResult", new UnreachableError("gone"));
    handler.handleToolExecutionSignal(event);
    await until(() => log.said("result kept for the next connection") === 1);
    const ack = (status: "EXECUTING" | "COMPLETED") =>
      handler.handleToolResultAck({
        timestamp: OLD,
        kind: "tool.result_ack",
        tool_id: event.tool_id,
        status,
        session_id: "s",
      });
    ack("EXECUTING");
    expect(log.said("result acknowledged")).toBe(0);
    await settled();
    ack("COMPLETED");
    expect(log.said("result acknowledged")).toBe(1);
    ack("COMPLETED");
    expect(log.said("acknowledgement of nothing open")).toBe(2);
  });
});

describe("Closing", () => {
  it("ends processes, empties the queue, refuses what is asked, and clears every timer", async () => {
    const clock = new FakeClock();
    const handler = await handlerWith({ clock, settings: { concurrency: 1 } });
    const params = { command: "python", args: ["-c", "import time; time.sleep(60)"], timeout: 60 };
    const running = signal("execute_command", params, BY_ALICE);
    const waiting = signal("read_file", { path: "a.txt" });
    handler.handleToolExecutionSignal(running);
    handler.handleToolExecutionSignal(waiting);
    handler.handleToolApprovalRequest(question());
    await until(() => log.said("executing") === 1);
    await settled(100);
    await handler.dispose();
    await handler.dispose();
    expect(handler.history.map((one) => one.status)).toEqual(["cancelled", "cancelled"]);
    expect(handler.approvalHistory[0]).toMatchObject({ status: "rejected", decidedBy: "the client closed" });
    expect(prompt.questions[0]?.closed.aborted).toBe(true);
    expect(clock.timers.size).toBe(0);
    expect(link.decisions).toEqual([]);
    expect(memory.closed).toBe(true);
    handler.handleToolExecutionSignal(signal("read_file", { path: "a.txt" }));
    handler.handleUnreadableSignal("exec_late");
    handler.handleToolApprovalRequest(question());
    handler.handleToolInspectionRequest(inspectionOf("write_file", { path: "a.txt", content: "" }));
    expect(handler.activeExecutions).toEqual([]);
    expect(handler.pendingApprovals).toEqual([]);
  });

  it("waits a moment for the last reports, then leaves them to the journal", async () => {
    const clock = new FakeClock();
    const handler = await handlerWith({ clock, parts: { prompt: undefined, log: undefined, onChange: undefined } });
    link.postResult = () => new Promise(() => {});
    const event = signal("read_file", { path: "a.txt" });
    handler.handleToolExecutionSignal(event);
    await until(() => handler.history.length === 1);
    await settled();
    const closing = handler.dispose();
    await settled();
    clock.advance(2_000);
    await closing;
    expect([...memory.values.values()].some((value) => value.includes('"done"'))).toBe(true);
  });

  it("with the system's clock when none is given", async () => {
    const handler = await handlerWith({ parts: { clock: undefined } });
    expect(handler.serverAhead).toBe(0);
    await handler.dispose();
  });

  it("tells of work that failed in a way nobody foresaw", async () => {
    const handler = await handlerWith();
    link.fail("postResult", new TypeError("a fault of ours"));
    handler.handleToolExecutionSignal(signal("read_file", { path: "a.txt" }));
    await until(() => log.said("failed unexpectedly") === 1);
  });
});
