// Values for tests of cards: a question, a call, a host and a server that answers what a test says.

import type { WriteChange } from "@protocol";
import { vi } from "vitest";
import type { Api } from "../src/api";
import type { Host } from "../src/host";
import type { Question, ToolCall } from "../src/state/model";

export const NOW = Date.parse("2026-01-01T12:00:00.000Z");

export function question(more: Partial<Question> = {}): Question {
  return {
    id: "appr_1",
    user_id: "alice",
    project_id: "proj_1",
    session_id: "sess_1",
    agent_id: "chat",
    tool_ids: ["exec_1"],
    tool_name: "execute_command",
    tool_params: { command: "git", args: ["commit", "-m", "hello"] },
    digest: "d".repeat(64),
    risk_level: "MEDIUM",
    findings: [
      { level: "MEDIUM", reason: "It records changes.", rule: "commands.git", instead: null, always_asks: false },
    ],
    network: false,
    description: "Run git commit -m hello",
    inspection: null,
    suggestions: [
      {
        rule: { tool: "execute_command", command: ["git", "commit"], exact: false },
        text: "git commit with anything",
        widest: "any git commit",
      },
      { rule: { tool: "execute_command", command: ["git"], exact: false }, text: "every git", widest: "any git" },
    ],
    edit: null,
    status: "pending",
    timeout_seconds: 300,
    created_at: "2026-01-01T12:00:00.000Z",
    deadline: "2026-01-01T12:05:00.000Z",
    decided_at: null,
    decided_by: null,
    reason: null,
    scope: null,
    grant_id: null,
    decided_from: null,
    ...more,
  };
}

export function call(more: Partial<ToolCall> = {}): ToolCall {
  return {
    kind: "tool",
    id: "exec_1",
    toolName: "read_file",
    params: { path: "src/app.ts" },
    riskLevel: "LOW",
    status: "completed",
    sessionId: "sess_1",
    runId: null,
    output: [],
    result: null,
    resultShortened: false,
    error: null,
    errorType: null,
    milliseconds: 12,
    approvedBy: "risk:LOW",
    deniedBy: null,
    at: NOW,
    undone: null,
    ...more,
  };
}

export function host(more: Partial<Host> = {}): Host {
  return {
    kind: "browser",
    request: vi.fn(),
    feed: vi.fn(),
    waiting: vi.fn(),
    recall: vi.fn(() => null),
    remember: vi.fn(),
    ...more,
  };
}

/** An Api of which a test gives the functions it expects to be called; any other call fails the test. */
export function api(functions: Partial<Record<keyof Api, unknown>> = {}): Api {
  return functions as unknown as Api;
}

export function writeChange(more: Partial<WriteChange> = {}): WriteChange {
  return {
    approval_id: "appr_1",
    digest: "d".repeat(64),
    change: { path: "a.txt", kind: "change", before: "one\ntwo\n", after: "one\nthree\n" },
    before_sha256: "a".repeat(64),
    before_size: 8,
    seen_at: "2026-01-01T12:00:00.000Z",
    asked: null,
    ...more,
  };
}

/** The button with these words. Roles are slow to compute in documents as large as some of these. */
export function button(words: string | RegExp, within: ParentNode = document): HTMLButtonElement {
  const found = buttons(words, within)[0];
  if (!found) throw new Error(`There is no button ${String(words)}.`);
  return found;
}

export function buttons(words: string | RegExp, within: ParentNode = document): HTMLButtonElement[] {
  return [...within.querySelectorAll("button")].filter((each) => {
    const said = (each.textContent ?? "").trim();
    return typeof words === "string" ? said === words : words.test(said);
  });
}
