// How calls, outcomes and times read. Only makes text, all of it safe to show: what came from elsewhere passes visible().

import type { AnsweredFrom, ErrorType, ExecutionStatus, Grant } from "@protocol";
import { oneLine, shortened, visible } from "./visible";

const LONGEST_SUMMARY = 300;

type Params = Record<string, unknown>;

const VERBS: Record<string, string> = {
  read_file: "Read",
  write_file: "Write",
  list_directory: "List",
  search_files: "Search",
  execute_command: "Run",
  search_web: "Search the web",
};

/** What a tool does, as a verb; its name where it is none of ours. */
export function verb(toolName: string): string {
  return VERBS[toolName] ?? shortened(oneLine(toolName), 60);
}

// A word of a command line: as it is where that cannot be misread, else between quotes.
const word = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : JSON.stringify(text));

/** What a call does it to, on one line: the command line, the path, the words looked for. */
export function callSummary(toolName: string, params: Params): string {
  return shortened(oneLine(summary(toolName, params, LONGEST_SUMMARY)), LONGEST_SUMMARY);
}

/** All of it, for a person who decides. */
export function wholeSummary(toolName: string, params: Params): string {
  return oneLine(summary(toolName, params, Number.POSITIVE_INFINITY));
}

function summary(toolName: string, params: Params, most: number): string {
  const path = typeof params.path === "string" ? params.path : "";
  switch (toolName) {
    case "execute_command": {
      const args: unknown[] = Array.isArray(params.args) ? params.args : [];
      return [params.command, ...args].map((each) => word(shortened(String(each), most))).join(" ");
    }
    case "search_files":
      return `${word(String(params.pattern))} in ${path || "."}`;
    case "read_file": {
      const first = params.start_line;
      const last = params.end_line;
      if (typeof first !== "number" && typeof last !== "number") return path;
      return `${path}, lines ${Number(first ?? 1)} to ${typeof last === "number" ? last : "the last"}`;
    }
    case "write_file":
      return params.mode === "append" ? `${path} (at its end)` : path;
    case "list_directory":
      return `${path || "."}${params.recursive === true ? " and all below" : ""}`;
    case "search_web":
      return String(params.query ?? "");
    default:
      return path || (Object.keys(params).length === 0 ? "" : String(JSON.stringify(params)));
  }
}

const STATUS: Record<ExecutionStatus, string> = {
  pending: "starting…",
  awaiting_approval: "waiting for you",
  approved: "allowed, waiting for your machine…",
  executing: "running…",
  completed: "done",
  rejected: "denied",
  timeout: "nobody answered in time",
  failed: "failed",
};

const FAILURE: Partial<Record<ErrorType, string>> = {
  invalid: "not a valid call",
  refused: "refused",
  rejected: "denied",
  approval_timeout: "nobody answered in time",
  no_client: "no machine was connected",
  drifted: "changed since it was approved",
  cancelled: "stopped",
  interrupted: "interrupted",
  execution_timeout: "ran too long",
  tool_error: "failed",
  internal: "failed inside Byleave",
};

const ADVICE: Partial<Record<ErrorType, string>> = {
  refused: "The rules of this project never allow it. See Policy.",
  no_client: "Start byleave connect in the workspace, then ask the agent to try again.",
  drifted: "Nothing ran. The files changed after you approved; the agent has to ask again.",
  interrupted: "Check whether it took effect before you try again.",
};

/** How a call stands, with how long it took where it ran. */
export function outcome(
  status: ExecutionStatus,
  errorType: ErrorType | null,
  milliseconds: number | null | undefined,
): string {
  const said = (status === "failed" && errorType && FAILURE[errorType]) || STATUS[status] || String(status);
  if (typeof milliseconds !== "number") return said;
  if (status === "completed") return `${said} in ${duration(milliseconds)}`;
  const ran = status === "failed" && (errorType === "tool_error" || errorType === "execution_timeout");
  return ran ? `${said} after ${duration(milliseconds)}` : said;
}

/** What a person could do about a failure; null where the error itself says it all. */
export function advice(errorType: ErrorType | null): string | null {
  return (errorType && ADVICE[errorType]) ?? null;
}

const HINT = "\nhint: ";

/** An error in its two parts: what happened and what to do. */
export function saidOf(error: string): { what: string; hint: string | null } {
  const at = error.lastIndexOf(HINT);
  return at < 0 ? { what: error, hint: null } : { what: error.slice(0, at), hint: error.slice(at + HINT.length) };
}

/** Who or what let a call run; nothing for what is LOW, which nobody is asked about. */
export function letBy(actor: string | null, userId: string | null, grants: readonly Grant[]): string {
  const [kind = "", ...rest] = (actor ?? "").split(":");
  const raw = rest.join(":");
  const name = oneLine(raw);
  if (kind === "person") return `approved by ${raw === userId ? "you" : name}`;
  if (kind === "rule") return `allowed by rule ${name}`;
  if (kind === "mode") return `allowed by mode ${name}`;
  if (kind !== "grant") return "";
  const grant = grants.find((each) => each.id === raw);
  return grant ? `allowed by your grant: ${oneLine(grant.text)}` : `allowed by grant ${name}`;
}

/** Who denied a call and where, as far as that is known. */
export function deniedBy(actor: string | null, userId: string | null, from: AnsweredFrom | null = null): string {
  return actor === null ? "" : `by ${whoIs(actor, userId)}${from === null ? "" : `, ${answeredIn(from)}`}`;
}

/** Where a person answered. */
export function answeredIn(from: AnsweredFrom): string {
  return from === "page" ? "in a browser" : "in a terminal or editor";
}

const PROGRAM = "program";
const PROGRAM_WORDS = "a program with your token";

/** Who calls tools: an agent by its name. Programs of a person that are no agents share one id, which says little. */
export function asker(agentId: string | null | undefined): string {
  return agentId === PROGRAM ? PROGRAM_WORDS : agentId ? oneLine(agentId) : "an agent";
}

/** The same where a sentence goes on with it. */
export function theAsker(agentId: string | null | undefined): string {
  if (!agentId) return "the agent of the chat";
  return agentId === PROGRAM ? PROGRAM_WORDS : `the agent ${oneLine(agentId)}`;
}

/** A person's name out of `person:alice` or `user:alice`; "you" for oneself. */
export function whoIs(actor: string | null, userId: string | null): string {
  const [kind = "", ...rest] = (actor ?? "").split(":");
  const name = kind === "person" || kind === "user" ? rest.join(":") : (actor ?? "");
  return name === userId ? "you" : oneLine(name);
}

/** A span in the largest unit that says it well. */
export function span(seconds: number): string {
  const all = Math.max(0, Math.round(seconds));
  if (all >= 2 * DAY) return counted(Math.round(all / DAY), "day");
  for (const [unit, name] of [
    [3600, "hour"],
    [60, "minute"],
  ] as const) {
    if (all >= 2 * unit || all === unit) return counted(Math.round(all / unit), name);
  }
  return counted(all, "second");
}

/** How long something took, short: 412 ms, 3.2 s, 2 min 5 s. */
export function duration(milliseconds: number): string {
  const all = Math.max(0, milliseconds);
  if (all < 1000) return `${Math.round(all)} ms`;
  if (all < 59_950) return `${(all / 1000).toFixed(1)} s`;
  const seconds = Math.round(all / 1000);
  return `${Math.floor(seconds / 60)} min${seconds % 60 ? ` ${seconds % 60} s` : ""}`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** A moment in the person's own time: the time of day today, with the date before that. */
export function moment(when: string | number, today: number = Date.now()): string {
  const at = new Date(when);
  if (Number.isNaN(at.getTime())) return visible(String(when));
  const two = (value: number) => String(value).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  const now = new Date(today);
  if (at.toDateString() === now.toDateString()) return `${time}:${two(at.getSeconds())}`;
  const year = at.getFullYear() === now.getFullYear() ? "" : ` ${at.getFullYear()}`;
  return `${at.getDate()} ${MONTHS[at.getMonth()]}${year}, ${time}`;
}

const DAY = 86_400;

/** How long ago it was: `just now`, `2 min ago`; the moment itself after a week. */
export function ago(when: string | number, now: number): string {
  const seconds = Math.floor((now - new Date(when).getTime()) / 1000);
  if (!(seconds < 7 * DAY)) return moment(when, now);
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < DAY) return `${Math.round(seconds / 3600)} h ago`;
  return `${counted(Math.round(seconds / DAY), "day")} ago`;
}

/** A size as people read it. */
export function bytes(count: number): string {
  if (count < 1000) return counted(count, "byte");
  const units = ["kB", "MB", "GB", "TB"];
  let value = count / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** `1 line`, `2 lines`, `12,000 lines`. */
export function counted(count: number, noun: string): string {
  return `${thousands(count)} ${noun}${count === 1 ? "" : "s"}`;
}

export function thousands(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** What a run cost, as a decimal number of US dollars: list prices, so no more exact than a cent. */
export function dollars(amount: string): string {
  const value = Number(amount);
  return value >= 0.01 ? `about $${value.toFixed(2)}` : "under $0.01";
}
