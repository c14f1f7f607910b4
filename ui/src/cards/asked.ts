// What of a question stands where: its headline in two parts, what it runs, what a person must see before the answer, and
// what can wait under Details. It only sorts the server's words; all of it is safe to show.

import type { Finding, WriteChange } from "@protocol";
import type { Question } from "../state/model";
import { oneLine, shortened, visible } from "../text/visible";
import { duration, verb, wholeSummary } from "../text/words";
import { textOf } from "./reading";

const LONGEST_LINE = 2000;
/** What the file was when it was looked at, and what a change of it means: promises, told once under Details. */
const PROMISES = [
  /^There is no '.*' now; one that appears before it is written stops it\.$/,
  /^It (?:replaces|adds to) '.*' as it is now \(.*, sha256 .*\); a change before it is written stops it\.$/,
  /^It runs '.*' as it is now \(.*, sha256 .*\); a change before it runs stops it\./,
  /^The workspace has no .*; one that appears before it runs stops it\.$/,
];
/** Shown as a difference. */
const EDITED = /^Changed by .*\. The agent asked: /;
const REASONS_LEFT = /^and \d+ further reasons$/;

export interface Headline {
  verb: string;
  /** The command or the path, whole. */
  what: string;
}

/** `change` is null while it is not known, or cannot be. */
export function headline(question: Question, change: WriteChange | null = null): Headline {
  const { tool_name: tool, tool_params: params } = question;
  const named = tool === "execute_command" ? typeof params.command === "string" : wholeSummary(tool, params) !== "";
  if (!named) return { verb: "", what: visible(question.description.split("\n")[0] ?? "") };
  if (tool !== "write_file") return { verb: verb(tool), what: wholeSummary(tool, params) };
  return { verb: writes(question, change), what: oneLine(textOf(params.path) ?? "") };
}

/** The same as one text. */
export const headlineText = ({ verb, what }: Headline): string => (verb ? `${verb} ${what}` : what);

// Once a machine has looked, it is known whether there is a file.
function writes({ tool_params, inspection }: Question, change: WriteChange | null): string {
  if (tool_params.mode === "append") return "Append to";
  const before = change?.before_sha256 ?? inspection?.files.find(({ role }) => role === "replaces")?.sha256 ?? null;
  return before === null ? "Write" : before === "missing" ? "Create" : "Replace";
}

export interface Told {
  /** To be seen before the answer. */
  notes: string[];
  promises: string[];
}

/** The server's sentences, without the reasons, which have a place of their own. */
export function told({ description, findings, tool_params, edit }: Question): Told {
  const reasons = new Set(findings.map((finding) => finding.reason));
  const elsewhere = (line: string) =>
    reasons.has(line) ||
    REASONS_LEFT.test(line) ||
    (Boolean(edit) && EDITED.test(line)) ||
    (Boolean(tool_params.content) && line.startsWith("Content: "));
  const lines = description.split("\n").slice(1);
  const isPromise = (line: string) => PROMISES.some((form) => form.test(line));
  const shown = (line: string) => shortened(visible(line), LONGEST_LINE);
  const kept = lines.filter((line) => !elsewhere(line));
  return {
    notes: kept.filter((line) => !isPromise(line)).map(shown),
    promises: kept.filter(isPromise).map(shown),
  };
}

/** Findings that say more than the headline. That a text file is written, or what a command is for, is no news. */
export function warnings({ findings, tool_params }: Question): Finding[] {
  const first = Array.isArray(tool_params.args) ? String(tool_params.args[0]) : "";
  const isPlain = (rule: string) => {
    const [kind, name, subcommand, ...more] = rule.split(".");
    if (kind !== "commands") return rule === "write.text";
    return name !== undefined && more.length === 0 && (subcommand === undefined || subcommand === first);
  };
  return findings.filter(
    ({ level, rule, always_asks, instead }) =>
      level !== "LOW" && (level !== "MEDIUM" || always_asks || Boolean(instead) || !isPlain(rule)),
  );
}

/** How long a command may run: `up to 5 min`. */
export function timeLimit({ tool_name, tool_params }: Question): string | null {
  const seconds = tool_params.timeout;
  if (tool_name !== "execute_command" || typeof seconds !== "number") return null;
  return `up to ${seconds < 60 ? `${seconds} s` : duration(seconds * 1000)}`;
}

/** Parameters that neither the headline nor the facts below it say: nothing of a call is out of sight. */
export function unsaid(question: Question): Question["tool_params"] {
  const { tool_name: tool, tool_params: params } = question;
  const said = new Set<string>();
  if (tool === "write_file") {
    for (const name of ["path", "content", "content_size", "content_sha256"]) said.add(name);
    if (params.mode === "write" || params.mode === "append") said.add("mode");
  }
  if (tool === "execute_command") {
    said.add("command");
    if (params.args === undefined || Array.isArray(params.args)) said.add("args");
    if (timeLimit(question) !== null) said.add("timeout");
  }
  return Object.fromEntries(Object.entries(params).filter(([name, value]) => value !== null && !said.has(name)));
}

const LONGEST_SCRIPT = 300;
const MOST_SCRIPTS = 3;

/** What it runs: each file, and of package.json the lines of its scripts that run, which is what the machine shows of it. */
export function runs({ inspection }: Question): { path: string; script: string | null }[] {
  const files = (inspection?.files ?? []).filter(({ role, sha256 }) => role !== "replaces" && sha256 !== "missing");
  return files.map(({ path, text, shortened: part }) => ({
    path: oneLine(path),
    script: text && !part && /(^|\/)package\.json$/.test(path) ? scriptOf(text) : null,
  }));
}

function scriptOf(text: string): string | null {
  try {
    const lines = text.split("\n").filter(Boolean);
    const values = lines.flatMap((line) => Object.values(JSON.parse(`{${line.replace(/,$/, "")}}`)));
    // Of very many it is uncertain which run.
    if (values.length === 0 || values.length > MOST_SCRIPTS || !values.every((each) => typeof each === "string"))
      return null;
    return shortened(oneLine(values.join(" && ")), LONGEST_SCRIPT);
  } catch {
    return null; // all of it is shown anyway
  }
}

/** How old a file that runs is, where the server said so: `written by the agent 20 s ago`. */
export function ageOf(path: string, { description }: Question): string | null {
  const line = description.split("\n").find((each) => each.startsWith(`It runs '${path}' as it is now (`));
  return line ? visible(/ as it is now \((.*?), sha256 /.exec(line)?.[1] ?? "") || null : null;
}
