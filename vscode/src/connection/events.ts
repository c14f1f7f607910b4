// What comes over the feed, looked at before it is believed: an event whose fields are not what they must be is none. Only
// what this client acts on is looked into; what is shown to people is passed on as it came.

import type { ExecutionSignal, FeedEvent } from "@protocol";

type Kind = FeedEvent["kind"];
type Check = "text" | "text?" | "object" | "list" | "flag" | "number" | "time";

const COMMON: Readonly<Record<string, Check>> = { timestamp: "time" };
const SIGNAL: Readonly<Record<string, Check>> = {
  tool_id: "text",
  tool_name: "text",
  tool_params: "object",
  digest: "text",
  approval_id: "text?",
  approved_by: "text",
  bound: "object",
  mode: "text",
  network: "flag",
  deadline: "time",
  client_id: "text",
};
const KNOWN: Readonly<Partial<Record<Kind, Readonly<Record<string, Check>>>>> = {
  "tool.execution_signal": SIGNAL,
  "tool.cancel_signal": { tool_id: "text", client_id: "text" },
  "tool.result_ack": { tool_id: "text", status: "text" },
  "tool.inspection_request": { tool_id: "text", tool_name: "text", tool_params: "object", client_id: "text" },
  "tool.undo_request": { request_id: "text", tool_id: "text", client_id: "text", deadline: "time" },
  "tool.approval_request": {
    approval_id: "text",
    tool_id: "text",
    tool_name: "text",
    risk_level: "text",
    timeout_seconds: "number",
    digest: "text",
    deadline: "time",
    findings: "list",
    tool_params: "object",
  },
  "tool.approval_decided": { approval_id: "text", status: "text", decided_by: "text?" },
};
const SHOWN: ReadonlySet<string> = new Set<Kind>([
  "tool.undone",
  "project.machines",
  "grant.changed",
  "tool.started",
  "tool.finished",
  "tool.output",
  "chat.message",
  "chat.text",
  "chat.run",
  "chat.usage",
  "chat.error",
]);

const CHECKS: Readonly<Record<Check, (value: unknown) => boolean>> = {
  text: (value) => typeof value === "string",
  "text?": (value) => value === null || typeof value === "string",
  object: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  list: (value) => Array.isArray(value),
  flag: (value) => typeof value === "boolean",
  number: (value) => typeof value === "number",
  time: (value) => typeof value === "string" && !Number.isNaN(Date.parse(value)),
};

/** Whether a value is an event of this kind that can be acted on. */
export function isFeedEvent(value: unknown, kind: string): value is FeedEvent {
  const event = value as Record<string, unknown>;
  if (!CHECKS.object(value) || event.kind !== kind) {
    return false;
  }
  const fields = KNOWN[kind as Kind];
  if (fields === undefined) {
    return SHOWN.has(kind);
  }
  const fits = Object.entries({ ...COMMON, ...fields }).every(([name, check]) => CHECKS[check](event[name]));
  return fits && (kind !== "tool.execution_signal" || boundFits(event as unknown as ExecutionSignal));
}

function boundFits({ bound }: ExecutionSignal): boolean {
  return Object.values(bound).every((digest) => typeof digest === "string");
}
