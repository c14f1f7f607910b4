// What the editor keeps of questions and executions: each method of the handler, with the clock in the test's hands.

import type { ApprovalDecided, ApprovalRequest, ApprovalRequested, ClientResult, ExecutionStarted } from "@protocol";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Asked, ToolHandler } from "../../src/tools/ToolHandler.js";
import { decided, question } from "../editor/small_server.js";
import { Lines } from "../engine/real_engine.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function desk(approvalTimeoutMs = 300_000) {
  const told: string[] = [];
  const log = new Lines();
  const changed = vi.fn();
  const handler = new ToolHandler(
    {
      ask: ({ id }) => void told.push(`ask ${id}`),
      over: ({ id }, status) => void told.push(`over ${id} ${status}`),
    },
    {
      started: ({ tool_id }) => void told.push(`started ${tool_id}`),
      output: ({ text }) => void told.push(`output ${text}`),
      ended: ({ status }) => void told.push(`ended ${status}`),
    },
    log,
    { approvalTimeoutMs },
    changed,
  );
  const ask = (id: string, more: Record<string, unknown> = {}) =>
    handler.handleToolApprovalRequest(question(id, more) as unknown as ApprovalRequested);
  const decide = (id: string, status = "approved") =>
    handler.handleToolApprovalDecided(decided(id, status) as unknown as ApprovalDecided);
  return { handler, told, log, changed, ask, decide };
}

const ids = (questions: readonly Asked[]) => questions.map(({ id }) => id);
const listed = (id: string, more: object = {}) =>
  ({ ...question(id), id, status: "pending", ...more }) as unknown as ApprovalRequest;

describe("questions", () => {
  test("are put to the person with all that they need, oldest first, and counted", () => {
    const { handler, told, log, changed, ask } = desk();
    const findings = [
      { level: "HIGH", reason: "It deletes." },
      { level: "LOW", reason: "It reads." },
    ];
    ask("a", { findings, network: true });
    ask("b", { inspection: { files: [{}], problem: null } });
    ask("c", { inspection: { files: [], problem: "Nobody could look." } });
    expect(told).toEqual(["ask a", "ask b", "ask c"]);
    expect(handler.pendingApprovals[0]).toEqual({
      id: "a",
      toolName: "execute_command",
      params: { command: "npm", args: ["test"] },
      risk: "MEDIUM",
      description: "Run npm test",
      reasons: ["It deletes."],
      network: true,
      digest: "digest of a",
      calls: 1,
      inspected: false,
    });
    expect(handler.pendingApprovals.map(({ inspected }) => inspected)).toEqual([false, true, true]);
    expect([handler.isWaiting("a"), handler.isWaiting("z")]).toEqual([true, false]);
    expect(changed).toHaveBeenCalledTimes(3);
    expect(log.lines).toContain('info question {"id":"a","tool":"execute_command","risk":"MEDIUM"}');
  });

  test("that are repeated, or were answered before they came, are not asked", () => {
    const { handler, told, ask, decide } = desk();
    ask("a");
    ask("a");
    decide("a");
    ask("a");
    decide("b", "rejected");
    decide("b", "rejected");
    ask("b");
    expect(told).toEqual(["ask a", "over a approved"]);
    expect(handler.pendingApprovals).toEqual([]);
    expect(handler.approvalHistory).toMatchObject([
      { approvalId: "a", toolName: "execute_command", status: "approved", decidedBy: "person:bob" },
      { approvalId: "b", toolName: "", status: "rejected" },
    ]);
  });

  test("can be put once more without being counted again", () => {
    const { handler, told, ask } = desk();
    ask("a");
    handler.requestUserApproval(handler.pendingApprovals[0] as Asked);
    expect(told).toEqual(["ask a", "ask a"]);
    expect(handler.pendingApprovals).toHaveLength(1);
  });

  test("are over when their time is, HIGH after twice as long", () => {
    const { handler, told, ask } = desk(60_000);
    ask("medium");
    ask("high", { risk_level: "HIGH" });
    vi.advanceTimersByTime(59_999);
    expect(ids(handler.pendingApprovals)).toEqual(["medium", "high"]);
    vi.advanceTimersByTime(1);
    expect(ids(handler.pendingApprovals)).toEqual(["high"]);
    vi.advanceTimersByTime(60_000);
    expect(handler.pendingApprovals).toEqual([]);
    expect(told.slice(2)).toEqual(["over medium timeout", "over high timeout"]);
    expect(handler.approvalHistory.map(({ status, decidedBy }) => [status, decidedBy])).toEqual([
      ["timeout", null],
      ["timeout", null],
    ]);
  });

  test("wait no longer than the server does", () => {
    const { handler, ask } = desk();
    ask("a", { timeout_seconds: 10 });
    vi.advanceTimersByTime(10_000);
    expect(handler.isWaiting("a")).toBe(false);
  });

  test("that are answered have no timer any more", () => {
    const { ask, decide } = desk();
    ask("a");
    expect(vi.getTimerCount()).toBe(1);
    decide("a");
    expect(vi.getTimerCount()).toBe(0);
  });

  test("are settled by the server's list: of those known before, what is not on it is over", () => {
    const { handler, told, ask } = desk();
    ask("gone");
    ask("stays");
    const known = handler.pendingApprovals;
    ask("came meanwhile");
    handler.settleApprovals([listed("stays"), listed("new"), listed("answered", { status: "approved" })], known);
    expect(ids(handler.pendingApprovals)).toEqual(["stays", "came meanwhile", "new"]);
    expect(told.slice(3)).toEqual(["over gone cancelled", "ask new"]);
  });
});

const started = (tool_id: string, approved_by = "person:alice"): ExecutionStarted => ({
  tool_id,
  tool_name: "execute_command",
  tool_params: {},
  approved_by,
  timestamp: "2026-01-01T00:00:00.000Z",
});
const ended = (tool_id: string, more: Partial<ClientResult> = {}): ClientResult => ({
  tool_id,
  tool_name: "execute_command",
  status: "success",
  result: null,
  error: null,
  error_type: null,
  duration_ms: 12,
  timestamp: "2026-01-01T00:00:01.000Z",
  ...more,
});
const printed = (tool_id: string) => ({ tool_id, stream: "stdout", text: "hello" }) as const;

describe("executions", () => {
  test("are active while they run, and history afterwards", () => {
    const { handler, told, changed } = desk();
    handler.handleToolExecutionSignal(started("one"));
    handler.handleToolExecutionSignal(started("two", "risk:LOW"));
    handler.handleToolOutput(printed("one"));
    expect(handler.activeExecutions).toMatchObject([
      { toolId: "one", toolName: "execute_command", status: "running", endTime: null, userApproved: true },
      { toolId: "two", userApproved: false },
    ]);
    handler.handleToolEnded(ended("one"));
    handler.handleToolEnded(ended("two", { status: "timeout", error: "It took too long." }));
    expect(handler.activeExecutions).toEqual([]);
    expect(handler.history).toMatchObject([
      { toolId: "one", status: "success", durationMs: 12, endTime: "2026-01-01T00:00:01.000Z", error: null },
      { toolId: "two", status: "timeout", error: "It took too long.", acknowledged: false },
    ]);
    expect(told).toEqual(["started one", "started two", "output hello", "ended success", "ended timeout"]);
    expect(changed).toHaveBeenCalledTimes(4);
  });

  test("that never began here are nobody's", () => {
    const { handler, told } = desk();
    handler.handleToolOutput(printed("x"));
    handler.handleToolEnded(ended("x", { status: "error", error: "Refused." }));
    expect([told, handler.history]).toEqual([[], []]);
  });

  test("are marked once the server has their result, the latest of that name", () => {
    const { handler, log } = desk();
    for (const id of ["one", "two", "one"]) {
      handler.handleToolExecutionSignal(started(id));
      handler.handleToolEnded(ended(id));
    }
    handler.handleToolResultAck({ tool_id: "one", status: "completed" });
    handler.handleToolResultAck({ tool_id: "never heard of", status: "completed" });
    expect(handler.history.map(({ acknowledged }) => acknowledged)).toEqual([false, false, true]);
    expect(log.lines.at(-1)).toContain("result acknowledged");
  });

  test("are interrupted when the engine ends by itself", () => {
    const { handler, changed } = desk();
    handler.handleToolExecutionSignal(started("one"));
    handler.handleEngineGone();
    expect(handler.activeExecutions).toEqual([]);
    expect(handler.history).toMatchObject([
      { toolId: "one", status: "interrupted", error: "The engine ended while this ran." },
    ]);
    expect(changed).toHaveBeenCalledTimes(2);
    handler.handleToolEnded(ended("one"));
    expect(handler.history).toHaveLength(1);
  });
});

test("histories are bounded, and what is given away cannot be changed", () => {
  const { handler, ask, decide } = desk();
  for (let at = 0; at < 250; at++) {
    ask(`a${at}`);
    decide(`a${at}`);
    handler.handleToolExecutionSignal(started(`t${at}`));
    handler.handleToolEnded(ended(`t${at}`));
  }
  expect([handler.approvalHistory.length, handler.history.length]).toEqual([200, 200]);
  expect([handler.approvalHistory[0]?.approvalId, handler.history[0]?.toolId]).toEqual(["a50", "t50"]);
  (handler.history as unknown[]).length = 0;
  (handler.approvalHistory as unknown[]).length = 0;
  expect([handler.approvalHistory.length, handler.history.length]).toEqual([200, 200]);
});

test("at the end questions close unanswered, timers are cleared, and nothing begins any more", () => {
  const { handler, told, ask } = desk();
  ask("a");
  handler.handleToolExecutionSignal(started("one"));
  handler.dispose();
  handler.dispose();
  expect(vi.getTimerCount()).toBe(0);
  ask("b");
  handler.handleToolExecutionSignal(started("two"));
  expect(told).toEqual(["ask a", "started one", "over a rejected"]);
  expect([handler.pendingApprovals, handler.activeExecutions]).toEqual([[], []]);
  expect(handler.approvalHistory).toMatchObject([{ approvalId: "a", decidedBy: "the editor closed" }]);
});

test("nobody need listen for changes", () => {
  const quiet = new ToolHandler({ ask() {}, over() {} }, { started() {}, output() {}, ended() {} }, new Lines(), {
    approvalTimeoutMs: 1000,
  });
  quiet.handleToolApprovalRequest(question("a") as unknown as ApprovalRequested);
  expect(quiet.isWaiting("a")).toBe(true);
  quiet.dispose();
});
