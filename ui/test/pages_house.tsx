// A house for the pages in tests: a host that answers with JSON as the server would, values to answer with, and a way to
// show a page and look at it again with another state.

import type {
  AgentInfo,
  AuditEntry,
  CheckAnswer,
  Execution,
  Grant,
  Machine,
  Session,
  ToolInfo,
  UndoPlan,
} from "@protocol";
import { act, render, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import axe from "axe-core";
import { expect, vi } from "vitest";
import { Api } from "../src/api";
import type { Route } from "../src/app/route";
import type { Answer, Host } from "../src/host";
import { Pages } from "../src/pages/Pages";
import type { PageProps } from "../src/pages/props";
import { EMPTY, type Question, type State, type ToolCall } from "../src/state/model";
import { withRealStyles } from "./quick_styles";

// Names and roles are slow to compute here, and the machine may be busy.
vi.setConfig({ testTimeout: 30_000 });

export interface Asked {
  method: string;
  path: string;
  query: URLSearchParams;
  body: unknown;
}

type Reply = (asked: Asked) => Answer | Promise<Answer>;

export const told = (body: unknown, status = 200): Answer => ({ status, body, serverTime: null });
export const refused = (status: number, detail: string, hint?: string, state?: string): Answer =>
  told({ detail, hint, state }, status);

export class FakeHost implements Host {
  readonly kind = "browser";
  readonly asked: Asked[] = [];
  readonly #replies = new Map<string, Reply>();

  /** Answers this path from now on. */
  on(method: "GET" | "POST", path: string, reply: Reply | object): this {
    this.#replies.set(`${method} ${path}`, typeof reply === "function" ? (reply as Reply) : () => told(reply));
    return this;
  }

  async request(method: "GET" | "POST", address: string, body?: unknown): Promise<Answer> {
    const { pathname: path, searchParams: query } = new URL(address, "http://server");
    const asked = { method, path, query, body };
    this.asked.push(asked);
    const reply = this.#replies.get(`${method} ${path}`);
    return reply ? reply(asked) : refused(404, `Nothing at ${path}.`);
  }

  /** What was asked of a path, in order. */
  of(path: string): Asked[] {
    return this.asked.filter((each) => each.path === path);
  }

  feed = () => () => {};
  waiting = () => {};
  recall = () => null;
  remember = () => {};
}

export const PROJECT = "proj_1";
export const SESSION = "sess_1";

export function stateOf(part: Partial<State> = {}): State {
  return {
    ...EMPTY,
    link: "up",
    me: { user_id: "alice", scopes: ["chat", "approve"], version: "1.0", chat: true },
    projectId: PROJECT,
    sessionId: SESSION,
    ...part,
  };
}

export interface Shown {
  host: FakeHost;
  go: ReturnType<typeof vi.fn<(route: Route) => void>>;
  container: HTMLElement;
  /** The same page after the state changed. */
  heard: (part: Partial<State>) => void;
  /** Another route with the same state. */
  move: (route: Route) => Promise<void>;
}

export async function showPage(
  route: Route,
  host: FakeHost,
  part: Partial<State> = {},
  manage?: PageProps["manage"],
): Promise<Shown> {
  const go = vi.fn<(route: Route) => void>();
  const api = new Api(host);
  const page = (state: State, where = route) => (
    <Pages route={where} state={state} api={api} host={host} go={go} {...(manage && { manage })} />
  );
  const shown = render(page(stateOf(part)));
  await act(async () => {});
  return {
    host,
    go,
    container: shown.container,
    heard: (next) => shown.rerender(page(stateOf({ ...part, ...next }))),
    move: (where) => act(async () => shown.rerender(page(stateOf(part), where))),
  };
}

/** Chooses a value of a list by its words, as a person would. */
export async function choose(label: string | RegExp, option: string): Promise<void> {
  await userEvent.click(screen.getByRole("combobox", { name: label }));
  await userEvent.click(await screen.findByRole("option", { name: option }));
}

/** Puts text into a field, where it stands. */
export async function write(field: Element, text: string): Promise<void> {
  await userEvent.click(field);
  await userEvent.paste(text);
}

/** Colours and sizes are for a real browser; names, roles and structure are checked here. */
export async function expectAccessible(container: HTMLElement): Promise<void> {
  const found = await withRealStyles(() =>
    axe.run(container, {
      resultTypes: ["violations"],
      rules: { "color-contrast": { enabled: false }, region: { enabled: false } },
    }),
  );
  expect(found.violations.map((each) => `${each.id}: ${each.nodes[0]?.html}`)).toEqual([]);
}

export const at = (minute: number) => new Date(Date.UTC(2026, 4, 1, 10, minute)).toISOString();

export function execution(part: Partial<Execution> = {}): Execution {
  return {
    tool_id: "exec_1",
    user_id: "alice",
    project_id: PROJECT,
    session_id: SESSION,
    run_id: "run_1",
    agent_id: "chat",
    mode: "sandbox",
    approval_id: null,
    client_id: "laptop",
    tool_name: "read_file",
    tool_params: { path: "README.md" },
    digest: "d".repeat(64),
    result: null,
    risk_level: "LOW",
    requires_approval: false,
    reasons: ["Reading a file changes nothing."],
    approved_by: "risk:LOW",
    decision: null,
    edit: null,
    status: "completed",
    error: null,
    error_type: null,
    execution_time_ms: 12,
    created_at: at(0),
    approved_at: at(0),
    started_at: null,
    completed_at: at(0),
    ...part,
  };
}

export function toolCall(part: Partial<ToolCall> = {}): ToolCall {
  return {
    kind: "tool",
    id: "exec_9",
    toolName: "read_file",
    params: { path: "new.md" },
    riskLevel: "LOW",
    status: "completed",
    sessionId: SESSION,
    runId: null,
    output: [],
    result: null,
    resultShortened: false,
    error: null,
    errorType: null,
    milliseconds: 5,
    approvedBy: "risk:LOW",
    deniedBy: null,
    at: Date.parse(at(30)),
    undone: null,
    ...part,
  };
}

export function question(part: Partial<Question> = {}): Question {
  return {
    id: "appr_1",
    user_id: "alice",
    project_id: PROJECT,
    session_id: SESSION,
    agent_id: null,
    tool_ids: ["exec_8"],
    tool_name: "write_file",
    tool_params: {},
    digest: "d",
    risk_level: "MEDIUM",
    findings: [],
    network: false,
    description: "",
    inspection: null,
    suggestions: [],
    edit: null,
    status: "pending",
    timeout_seconds: 300,
    created_at: at(40),
    deadline: at(45),
    decided_at: null,
    decided_by: null,
    reason: null,
    scope: null,
    grant_id: null,
    decided_from: null,
    ...part,
  };
}

export function session(part: Partial<Session> = {}): Session {
  return { session_id: SESSION, project_id: PROJECT, title: "Read the readme", created_at: at(0), ...part };
}

export function grant(part: Partial<Grant> = {}): Grant {
  return {
    id: "grant_1",
    user_id: "alice",
    project_id: PROJECT,
    session_id: SESSION,
    agent_id: null,
    scope: "class",
    rule: { tool: "execute_command", command: ["git", "status"], exact: false, paths: [], files: {} },
    text: "commands that begin with git status",
    status: "active",
    approval_id: "appr_1",
    uses: 0,
    max_uses: null,
    created_at: at(0),
    created_by: "person:alice",
    expires_at: new Date(Date.now() + 3_600_000).toISOString(),
    revoked_at: null,
    revoked_by: null,
    ...part,
  };
}

export const machine = (part: Partial<Machine> = {}): Machine => ({
  client_id: "laptop",
  workspace: "demo",
  isolation: "bwrap",
  next: true,
  editor: null,
  ...part,
});

export const agent = (part: Partial<AgentInfo> = {}): AgentInfo => ({
  name: "chat",
  description: "Works on what you write.",
  model: "offline",
  models: ["offline"],
  mode: "sandbox",
  widest_mode: "full",
  tools: ["read_file", "write_file"],
  ...part,
});

export function undoPlan(part: Partial<UndoPlan> = {}): UndoPlan {
  return {
    tool_id: "exec_1",
    plan: "a".repeat(64),
    files: [{ path: "a.txt", kind: "change", before: "new\n", after: "old\n" }],
    total_files: 1,
    ...part,
  };
}

export function auditEntry(part: Partial<AuditEntry> = {}): AuditEntry {
  return {
    seq: 3,
    at: at(3),
    actor: "person:alice",
    action: "grant_revoked",
    tool_id: "exec_1",
    approval_id: "appr_1",
    detail: { grant: "grant_1", uses: 2 },
    previous_hash: "b".repeat(64),
    hash: "c".repeat(64),
    ...part,
  };
}

export function checkAnswer(part: Partial<CheckAnswer> = {}): CheckAnswer {
  return {
    verdict: "MEDIUM",
    decision: "asks",
    because: "git status is MEDIUM.",
    findings: [
      {
        level: "MEDIUM",
        reason: "git status shows state.",
        rule: "commands.git.status",
        instead: null,
        always_asks: false,
      },
    ],
    decided_by: "commands.git.status",
    layer: null,
    always_asks: false,
    network: false,
    runs: [],
    description: "Run git status",
    understood: null,
    timeout_seconds: 300,
    ...part,
  };
}

export const TOOLS: ToolInfo[] = [
  tool("read_file", {
    properties: {
      path: { type: "string", description: "Path inside the workspace." },
      start_line: { anyOf: [{ type: "integer" }, { type: "null" }], default: null, description: "First line." },
    },
    required: ["path"],
  }),
  tool("write_file", {
    properties: {
      path: { type: "string" },
      content: { type: "string", description: "The text to write." },
      mode: { enum: ["write", "append"], default: "write", type: "string" },
    },
    required: ["path", "content"],
  }),
  tool("execute_command", { properties: { command: { type: "string" } }, required: ["command"] }),
  tool("search_files", {
    properties: {
      pattern: { type: "string" },
      case_sensitive: { type: "boolean", default: true },
      regex: { type: "boolean", default: false },
      max_results: { type: "integer", default: 1000 },
    },
    required: ["pattern"],
  }),
];

function tool(name: string, parameters: Record<string, unknown>): ToolInfo {
  return { name, description: name, parameters, requires_approval: true, risk_level: "LOW", timeout_seconds: 30 };
}
