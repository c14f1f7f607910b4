// What a command line would do, from its table. A line is LOW only when its command may be LOW and every argument is
// understood and harmless. Everything else rises, and is refused where a program would be named or a path leads out. It
// decides from argv and tables alone and never from the joined text.

import { judgeValue } from "./arguments.js";
import { LineJudge, ruleOf } from "./judging.js";
import { read } from "./options.js";
import { quoted } from "./paths.js";
import { Place } from "./place.js";
import { Unreadable } from "./reading.js";
import { partition, utf8Bytes } from "./strings.js";
import { type CommandTable, commandTable, type Level, listOf, mapOf, numberOf } from "./tables.js";
import type { Finding, Understood } from "./verdicts.js";

export const DEFAULT_COMMANDS = listOf("commands.DEFAULT_COMMANDS");
const ALIASES = mapOf<string>("commands.ALIASES");
const LONG_COMMAND_BYTES = numberOf("commands.LONG_COMMAND_BYTES");
const MAX_ARGUMENTS = numberOf("tools.MAX_ARGUMENTS");
const MAX_ARGUMENT_BYTES = numberOf("tools.MAX_ARGUMENT_BYTES");
const PRINTABLE = /^[ -~]{0,100}$/;

/** What the tables say of one command line. */
export interface CommandFindings {
  readonly findings: Finding[];
  readonly network: boolean;
  readonly understood: Understood | null;
}

/** The command under its own name. */
export function ownName(command: string): string {
  return ALIASES.get(command) ?? command;
}

/** Judges command lines for a list of allowed commands. */
export class CommandValidator {
  readonly allowed: ReadonlySet<string>;

  constructor(allowed: Iterable<string> = DEFAULT_COMMANDS) {
    this.allowed = new Set(allowed);
  }

  /** Findings for one line; never empty. */
  judge(command: string, args: readonly string[], workspace: string | null): CommandFindings {
    if (!this.allowed.has(command) && !this.allowed.has(ownName(command))) {
      return only(this.#notAllowed(command));
    }
    const tooMuch = checkAmount(command, args);
    if (tooMuch?.level === "REFUSE") {
      return only(tooMuch);
    }
    const table = commandTable(ownName(command)) ?? family(command);
    const judged = table === undefined ? withoutTable(command, args, workspace) : judgeTable(table, args, workspace);
    if (tooMuch !== undefined) {
      judged.findings.push(tooMuch);
    }
    return judged;
  }

  #notAllowed(command: string): Finding {
    return {
      level: "REFUSE",
      reason: `Command not allowed: ${PRINTABLE.test(command) ? command : quoted(command, 100)}`,
      rule: "commands.allowed",
      instead: `use one of: ${[...this.allowed].sort().join(", ")}`,
    };
  }
}

function only(finding: Finding): CommandFindings {
  return { findings: [finding], network: false, understood: null };
}

/** `mkfs.ext4` is as forbidden as `mkfs`, whatever the configuration allows. */
function family(command: string): CommandTable | undefined {
  const table = commandTable(partition(command, ".")[0]);
  return table?.level === "REFUSE" ? table : undefined;
}

/** Too many or too long arguments. */
function checkAmount(command: string, args: readonly string[]): Finding | undefined {
  if (args.length > MAX_ARGUMENTS) {
    return amount("REFUSE", `${args.length} arguments are more than ${MAX_ARGUMENTS}.`, "split the call");
  }
  const size = [command, ...args].reduce((sum, arg) => sum + utf8Bytes(arg) + 1, 0);
  if (size > MAX_ARGUMENT_BYTES) {
    return amount("REFUSE", `The arguments take ${size} bytes; at most ${MAX_ARGUMENT_BYTES} fit.`, "use a file");
  }
  return size > LONG_COMMAND_BYTES
    ? amount("MEDIUM", `The arguments take ${size} bytes: too long to be sure of.`)
    : undefined;
}

function amount(level: Level, reason: string, instead?: string): Finding {
  return { level, reason, rule: "commands.amount", instead };
}

/** A command allowed by configuration: nothing is known of it, so it is always HIGH. */
function withoutTable(command: string, args: readonly string[], workspace: string | null): CommandFindings {
  const nothing = { options: new Map(), longNames: [], modules: new Map(), subs: new Map() };
  const place = new Place({ name: command, does: "", level: "HIGH", style: "gnu", ...nothing }, workspace);
  const findings = [place.finding("HIGH", `Nothing is known of the arguments of ${quoted(command)}.`)];
  findings.push(...args.flatMap((arg) => judgeValue("loose", arg, place)));
  return { findings, network: false, understood: null };
}

/** Read and judge one command; what it cannot read is refused. */
function judgeTable(table: CommandTable, args: readonly string[], workspace: string | null): CommandFindings {
  try {
    const judge = new LineJudge(table, read(table, args), workspace);
    judge.run();
    if (judge.network) {
      judge.findings.push({ level: table.level, reason: "Uses the network.", rule: "commands.network" });
    }
    return { findings: judge.findings, network: judge.network, understood: judge.understood };
  } catch (error) {
    if (!(error instanceof Unreadable)) {
      throw error;
    }
    const reason = `The arguments of ${table.name} cannot be read: ${error.message}.`;
    return only({ level: "REFUSE", reason, rule: `${ruleOf(table)}.syntax` });
  }
}
