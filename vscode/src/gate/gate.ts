// One call in, one verdict out. Validates (does the tool exist, do the parameters fit, path, command, sizes) and assesses
// (LOW, MEDIUM, HIGH) in one pass, because a verdict is the strictest of its findings. Pure: the same call gives the same
// verdict as on the server, from the same tables. It never throws; what it cannot judge it refuses.

import { hiddenIn } from "./characters.js";
import { CommandValidator, DEFAULT_COMMANDS } from "./commands.js";
import { secretName } from "./names.js";
import { half, invalid, type Params, TOOL_HINT, toolName, validated } from "./parameters.js";
import { checkPath, climbsOut, quoted } from "./paths.js";
import { pattern } from "./patterns.js";
import { NO_POLICY, type Policy } from "./policy.js";
import { assessWrite } from "./risk.js";
import { callOf } from "./rules.js";
import { runs } from "./scripts.js";
import { halfCharacter, occurrences, trim, utf8Bytes } from "./strings.js";
import { type Level, numberOf } from "./tables.js";
import { alwaysAsks, type Finding, type Verdict, verdictOf } from "./verdicts.js";

const MAX_FILE_BYTES = numberOf("tools.MAX_FILE_BYTES");
const MAX_GLOB_BRACES = numberOf("sizes.MAX_GLOB_BRACES");
const GLOB_PIECES = pattern("gate.GLOB_PIECES");

/** The gate's answer: the call as it was understood, and the verdict. */
export interface Judgement {
  /** The canonical name; as given when there is no such tool. */
  readonly toolName: string;
  /** Validated, with defaults filled in; null when malformed. */
  readonly params: Params | null;
  readonly verdict: Verdict;
}

export interface GateRules {
  readonly allowedCommands?: Iterable<string>;
  /** The owner's rules: may turn on further commands, tighten, and waive questions of risk. */
  readonly policy?: Policy;
}

export interface Circumstances {
  /** The workspace's absolute path. */
  readonly workspace: string | null;
  /** Whether commands run in a sandbox here; left out: they do. */
  readonly isolated?: boolean;
}

const NO_SANDBOX: Finding = {
  level: "MEDIUM",
  reason: "There is no sandbox on this machine, so nothing runs without asking.",
  rule: "gate.isolation",
  alwaysAsks: true,
};

/** Judges calls by a set of rules. */
export class Gate {
  readonly policy: Policy;
  readonly commands: CommandValidator;
  readonly #tools: ReadonlyMap<string, (params: Params, workspace: string | null) => Verdict>;

  constructor(rules: GateRules = {}) {
    this.policy = rules.policy ?? NO_POLICY;
    this.commands = new CommandValidator([...(rules.allowedCommands ?? DEFAULT_COMMANDS), ...this.policy.commands]);
    this.#tools = new Map([
      ["read_file", readFile],
      ["write_file", writeFile],
      ["execute_command", (params: Params, workspace: string | null) => this.#executeCommand(params, workspace)],
      ["list_directory", listDirectory],
      ["search_files", searchFiles],
      ["search_web", searchWeb],
    ]);
  }

  /** What one call may do. */
  judge(name: unknown, params: unknown, { workspace, isolated = true }: Circumstances): Judgement {
    let judgement: Judgement;
    try {
      judgement = this.#judge(name, params, workspace);
    } catch (error) {
      // The boundary: a fault of ours must refuse, never let pass.
      const kind = error instanceof Error ? error.name : "unknown";
      return malformed(shownName(name), invalid(`The call could not be judged (${kind}).`, "gate.fault"));
    }
    const { verdict } = judgement;
    if (isolated || verdict.level === "REFUSE") {
      return judgement;
    }
    const raised: Verdict =
      verdict.level === "LOW"
        ? { ...verdict, level: "MEDIUM", findings: [NO_SANDBOX, ...verdict.findings] }
        : { ...verdict, findings: [...verdict.findings, NO_SANDBOX], waivedBy: null };
    return { ...judgement, verdict: raised };
  }

  #judge(given: unknown, values: unknown, workspace: string | null): Judgement {
    if (typeof given !== "string") {
      return malformed("", invalid("The name of the tool is not a text.", "tools.unknown", TOOL_HINT));
    }
    if (halfCharacter(given)) {
      return malformed(shownName(given), half("`tool_name`"));
    }
    const name = toolName(given);
    const judge = name === undefined ? undefined : this.#tools.get(name);
    if (name === undefined || judge === undefined) {
      const wrong = invalid(`Unknown tool: ${quoted(given, 100)}`, "tools.unknown", TOOL_HINT);
      return malformed(shownName(given), wrong);
    }
    const checked = validated(name, values);
    if ("wrong" in checked) {
      return malformed(name, checked.wrong);
    }
    const { params } = checked;
    const verdict = judge(params, workspace);
    return { toolName: name, params, verdict: this.#under(name, params, verdict, workspace) };
  }

  #executeCommand(params: Params, workspace: string | null): Verdict {
    const command = textIn(params, "command");
    const args = params.args as readonly string[];
    const { findings, network, understood } = this.commands.judge(command, args, workspace);
    const refused = findings.some((finding) => finding.level === "REFUSE");
    const files = refused ? [] : runs(command, args, understood, workspace);
    return verdictOf(findings, { network, understood, runs: files });
  }

  /** The verdict with what the owner's rules add: findings, or the waiving of a question that only risk asks. */
  #under(name: string, params: Params, verdict: Verdict, workspace: string | null): Verdict {
    if (!this.policy.hasRules || verdict.level === "REFUSE") {
      return verdict;
    }
    const opinion = this.policy.judge(callOf(name, params, verdict.understood, workspace));
    if (opinion.findings.length > 0) {
      // Before the gate's own of the same level: what the owner wrote says most.
      const { level, findings, errorType } = verdictOf([...opinion.findings, ...verdict.findings]);
      return { ...verdict, level, findings, errorType, runs: level === "REFUSE" ? [] : verdict.runs };
    }
    if (opinion.allow === undefined || verdict.level === "LOW" || alwaysAsks(verdict)) {
      return verdict;
    }
    return { ...verdict, waivedBy: opinion.allow.label };
  }
}

function textIn(params: Params, field: string): string {
  return params[field] as string;
}

function readFile(params: Params, workspace: string | null): Verdict {
  const { relative, refusal } = checkPath(textIn(params, "path"), workspace);
  if (refusal !== undefined) {
    return verdictOf([refusal]);
  }
  const { start_line: start, end_line: end } = params;
  if (typeof start === "number" && typeof end === "number" && end < start) {
    const reason = "Parameter 'end_line' of read_file lies before 'start_line'.";
    return verdictOf([invalid(reason, "tools.params")], { errorType: "invalid" });
  }
  return secretName(relative)
    ? fixed("MEDIUM", "Reads a file that usually holds secrets.", "names.secret", true)
    : fixed("LOW", "Reads a file of the workspace.", "tools.read_file");
}

function writeFile(params: Params, workspace: string | null): Verdict {
  const { relative, refusal } = checkPath(textIn(params, "path"), workspace, true);
  const content = textIn(params, "content");
  if (utf8Bytes(content) > MAX_FILE_BYTES) {
    const reason = `Parameter 'content' of write_file is larger than ${MAX_FILE_BYTES / 1024 ** 2} MB.`;
    return verdictOf([invalid(reason, "sizes.content")], { errorType: "invalid" });
  }
  return verdictOf(refusal === undefined ? assessWrite(relative, content) : [refusal]);
}

function listDirectory(params: Params, workspace: string | null): Verdict {
  const refusal =
    checkPath(textIn(params, "path"), workspace).refusal ?? checkGlob(textIn(params, "pattern"), "pattern");
  return refusal === undefined
    ? fixed("LOW", "Lists a directory of the workspace.", "tools.list_directory")
    : verdictOf([refusal]);
}

function searchFiles(params: Params, workspace: string | null): Verdict {
  const { relative, refusal } = checkPath(textIn(params, "path"), workspace);
  const glob = params.glob as string | null;
  const refused = refusal ?? (glob === null ? undefined : checkGlob(glob, "glob"));
  if (refused !== undefined) {
    return verdictOf([refused]);
  }
  return secretName(relative) || (glob !== null && (secretName(glob) || secretName(trim(glob, "*"))))
    ? fixed("MEDIUM", "Searches a file that usually holds secrets.", "names.secret", true)
    : fixed("LOW", "Searches files of the workspace.", "tools.search_files");
}

function searchWeb(params: Params): Verdict {
  if (hiddenIn(textIn(params, "query")) !== undefined) {
    const reason = "Parameter 'query' of search_web holds an invisible character.";
    return verdictOf([invalid(reason, "tools.params")], { errorType: "invalid" });
  }
  return { ...fixed("MEDIUM", "Sends the query to a search service outside.", "tools.search_web"), network: true };
}

function checkGlob(glob: string, field: string): Finding | undefined {
  const reason = wrongGlob(glob);
  if (reason === undefined) {
    return undefined;
  }
  const instead = "give a simple glob such as *.py";
  return { level: "REFUSE", reason: `The ${field} ${quoted(glob)} ${reason}`, rule: `paths.${field}`, instead };
}

function wrongGlob(glob: string): string | undefined {
  if (hiddenIn(glob) !== undefined || glob.includes("\\")) {
    return "holds an invisible character or a backslash.";
  }
  if (glob.startsWith("/") || climbsOut(glob) || GLOB_PIECES.split(glob).includes("..")) {
    return "leads out of the workspace.";
  }
  const wide = occurrences(glob, "{") > MAX_GLOB_BRACES || occurrences(glob, "**") > MAX_GLOB_BRACES;
  return wide ? "has too many alternatives." : undefined;
}

function fixed(level: Level, reason: string, rule: string, asks = false): Verdict {
  return verdictOf([{ level, reason, rule, alwaysAsks: asks }]);
}

function malformed(name: string, finding: Finding): Judgement {
  return { toolName: name, params: null, verdict: verdictOf([finding], { errorType: "invalid" }) };
}

function shownName(name: unknown): string {
  return typeof name === "string" ? quoted(name, 100).slice(1, -1) : "";
}
