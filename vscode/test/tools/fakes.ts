// Stand-ins for what is not on this machine: a clock that moves when it is told, a server that answers as it is told, and
// somebody who answers questions. Everything else in the tests is real.

import type {
  ApprovalRequested,
  ApprovalStatus,
  DecisionAnswer,
  ExecutionSignal,
  InspectionRequested,
} from "@protocol";
import { callDigest } from "../../src/protocol/digests.js";
import type { Link } from "../../src/tools/link.js";
import type { Answer, Clock, Fields, Log, Memory, Prompt, Question, Timer } from "../../src/tools/ports.js";

export const PROJECT = "project_1";
export const CLIENT = "client_1";

interface Due {
  readonly at: number;
  readonly act: () => void;
}

/** A clock that moves only by `advance`; or, `real`, one whose timers never come. */
export class FakeClock implements Clock {
  #now = 0;
  readonly start = Date.now();
  readonly timers = new Set<Due>();

  now(): number {
    return this.start + this.#now;
  }

  monotonic(): number {
    return this.#now;
  }

  after(milliseconds: number, act: () => void): Timer {
    const due = { at: this.#now + milliseconds, act };
    this.timers.add(due);
    return { cancel: () => this.timers.delete(due) };
  }

  advance(milliseconds: number): void {
    const until = this.#now + milliseconds;
    for (;;) {
      const [next] = [...this.timers].filter(({ at }) => at <= until).sort((one, other) => one.at - other.at);
      if (next === undefined) {
        break;
      }
      this.timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.act();
    }
    this.#now = until;
  }
}

/** Lets everything that is ready happen. */
export async function settled(rounds = 30): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    await new Promise(setImmediate);
  }
}

/** For `vi.waitFor`, whose own second is too short for real files on a busy machine. */
export const PATIENT = { timeout: 20_000 };

/** Waits for something that real files or processes bring about. */
export async function until(holds: () => boolean, seconds = 10): Promise<void> {
  const end = performance.now() + seconds * 1000;
  while (!holds()) {
    if (performance.now() > end) {
      throw new Error("It did not come about in time.");
    }
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

export class FakeLog implements Log {
  readonly lines: { readonly level: string; readonly message: string; readonly fields: Fields | undefined }[] = [];

  debug = (message: string, fields?: Fields) => this.#add("debug", message, fields);
  info = (message: string, fields?: Fields) => this.#add("info", message, fields);
  warn = (message: string, fields?: Fields) => this.#add("warn", message, fields);
  error = (message: string, fields?: Fields) => this.#add("error", message, fields);

  #add(level: string, message: string, fields?: Fields): void {
    this.lines.push({ level, message, fields });
  }

  said(message: string): number {
    return this.lines.filter((line) => line.message === message).length;
  }
}

export class FakeMemory implements Memory {
  readonly values = new Map<string, string>();
  broken = false;
  closed = false;

  keys(): Iterable<string> {
    return this.values.keys();
  }

  read(key: string): string | undefined {
    return this.values.get(key);
  }

  async write(key: string, value: string): Promise<void> {
    if (this.broken) {
      throw Object.assign(new Error("no space"), { code: "ENOSPC" });
    }
    this.values.delete(key);
    this.values.set(key, value);
  }

  async remove(key: string): Promise<void> {
    this.values.delete(key);
  }

  close(): void {
    this.closed = true;
  }
}

type Told = { readonly toolId: string; readonly body: Record<string, unknown> };

/** A server: `fail` makes the next calls of a method reject, one error each. */
export class FakeLink implements Link {
  readonly results: Told[] = [];
  readonly outputs: Told[] = [];
  readonly inspections: Told[] = [];
  readonly decisions: Record<string, unknown>[] = [];
  readonly undone: Told[] = [];
  readonly failures = new Map<string, Error[]>();
  status: "EXECUTING" | "COMPLETED" = "EXECUTING";
  asked = 0;

  fail(method: string, ...errors: Error[]): void {
    this.failures.set(method, errors);
  }

  #answer<T>(method: string, value: T): Promise<T> {
    const error = this.failures.get(method)?.shift();
    return error === undefined ? Promise.resolve(value) : Promise.reject(error);
  }

  async postResult(_project: string, toolId: string, report: string): Promise<void> {
    await this.#answer("postResult", undefined);
    this.results.push({ toolId, body: JSON.parse(report) });
  }

  async postOutput(_project: string, toolId: string, chunk: object): Promise<void> {
    await this.#answer("postOutput", undefined);
    this.outputs.push({ toolId, body: { ...chunk } });
  }

  async postInspection(_project: string, toolId: string, inspection: object): Promise<void> {
    await this.#answer("postInspection", undefined);
    this.inspections.push({ toolId, body: { ...inspection } });
  }

  async postUndoReport(_project: string, toolId: string, report: object): Promise<void> {
    await this.#answer("postUndoReport", undefined);
    this.undone.push({ toolId, body: { ...report } });
  }

  async getTool(): Promise<{ status: "EXECUTING" | "COMPLETED" }> {
    this.asked += 1;
    return this.#answer("getTool", { status: this.status });
  }

  approve(_project: string, approvalId: string, body: object): Promise<DecisionAnswer> {
    return this.#decide("approve", approvalId, { ...body }, "approved");
  }

  reject(_project: string, approvalId: string, body: object): Promise<DecisionAnswer> {
    return this.#decide("reject", approvalId, { ...body }, "rejected");
  }

  async #decide(method: string, id: string, body: object, status: ApprovalStatus): Promise<DecisionAnswer> {
    await this.#answer(method, undefined);
    this.decisions.push({ method, id, ...body });
    return { success: true, approval_id: id, status, message: "", grant_id: null, released: [] };
  }

  wholeCall(approvalId: string): Promise<{ approval_id: string; text: string }> {
    return this.#answer("wholeCall", { approval_id: approvalId, text: "all of it" });
  }

  change(): Promise<never> {
    return this.#answer("change", undefined as never);
  }
}

/** Somebody at the machine, who answers when the test says so. */
export class FakePrompt implements Prompt {
  readonly questions: Question[] = [];
  readonly said: string[] = [];
  readonly #answers: ((answer: Answer | undefined) => void)[] = [];

  ask(question: Question): Promise<Answer | undefined> {
    this.questions.push(question);
    return new Promise((resolve) => {
      this.#answers.push(resolve);
      question.closed.addEventListener("abort", () => resolve(undefined));
    });
  }

  answer(answer: Answer | undefined): void {
    this.#answers.at(-1)?.(answer);
  }

  say(sentence: string): void {
    this.said.push(sentence);
  }
}

let count = 0;

/** A signal as the server would send it; `given` overrules. The digest is right unless it is given. */
export function signal(
  tool: string,
  params: Record<string, unknown>,
  given: Partial<ExecutionSignal> = {},
): ExecutionSignal {
  count += 1;
  const bound = given.bound ?? {};
  return {
    timestamp: new Date().toISOString(),
    kind: "tool.execution_signal",
    tool_id: `exec_${count}`,
    tool_name: tool,
    tool_params: params,
    digest: callDigest(tool, params, PROJECT, bound),
    risk_level: "LOW",
    approval_id: null,
    approved_by: "risk:LOW",
    bound,
    mode: "sandbox",
    network: false,
    deadline: new Date(Date.now() + 600_000).toISOString(),
    client_id: CLIENT,
    session_id: "session_1",
    traceparent: null,
    ...given,
  };
}

export const BY_ALICE = { approved_by: "person:alice", approval_id: "approval_1" };

export function question(given: Partial<ApprovalRequested> = {}): ApprovalRequested {
  count += 1;
  return {
    timestamp: new Date().toISOString(),
    kind: "tool.approval_request",
    approval_id: `approval_${count}`,
    tool_id: `exec_${count}`,
    tool_name: "execute_command",
    risk_level: "MEDIUM",
    timeout_seconds: 300,
    description: "Runs a command.",
    tool_params: {},
    findings: [],
    network: false,
    digest: "d".repeat(64),
    deadline: new Date(Date.now() + 900_000).toISOString(),
    session_id: null,
    agent_id: null,
    inspection: null,
    suggestions: [],
    ...given,
  };
}

export function inspectionOf(tool: string, params: Record<string, unknown>): InspectionRequested {
  count += 1;
  return {
    timestamp: new Date().toISOString(),
    kind: "tool.inspection_request",
    tool_id: `exec_${count}`,
    tool_name: tool,
    tool_params: params,
    client_id: CLIENT,
    session_id: "session_1",
  };
}
