// What of a question stands where: its headline in two parts, what it runs, what a person must see before the answer, and
// what can wait under Details. It only sorts the server's words; all of it is safe to show.

import type { Finding, WriteChange } from "@protocol";
import type { Question } from "../state/model";
import { oneLine, shortened, visible } from "../text/visible";
import { duration, moment, verb, wholeSummary } from "../text/words";
import { textOf } from "./reading";

const LONGEST_LINE = 2000;
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

/** What must be seen before the answer, beside the findings: the server's sentences below the call itself. Of an edit the
 * first one tells, which is shown as a difference. */
export function notes({ description, edit }: Question): string[] {
  return description
    .split("\n")
    .slice(edit ? 2 : 1)
    .map((line) => shortened(visible(line), LONGEST_LINE));
}

/** Whether it takes a second press: high risk, or a red sentence of the server's that the risk level does not say. */
export function isGrave(question: Question): boolean {
  return question.risk_level === "HIGH" || notes(question).length > 0 || Boolean(question.inspection?.problem);
}

/** What the answer is bound to, and what a change of it means; null where no machine has looked. */
export function promise({ inspection, created_at, tool_name }: Question): string | null {
  const files = inspection?.files ?? [];
  const [first] = files;
  if (!first) return null;
  const when = `at ${moment(created_at).replace(/(:\d\d):\d\d$/, "$1")}`;
  if (tool_name !== "write_file") return `Compared with the files ${when}. If one changes first, nothing runs.`;
  if (first.sha256 === "missing") return `New file: there was none ${when}. Cancelled if it appears first.`;
  return `Compared with the file ${when}. If it changes before this runs, nothing is written.`;
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
  if (tool === "read_file") for (const name of ["path", "start_line", "end_line"]) said.add(name);
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
