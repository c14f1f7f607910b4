// How the owner's rules see a call: its words, options, and everything in it that could be a path. Leniently, because a
// rule that tightens must meet a call under any spelling; what is strict about it says so.

import { ownName } from "./commands.js";
import { firstNames } from "./globs.js";
import type { Params } from "./parameters.js";
import { checkPath } from "./paths.js";
import { pattern } from "./patterns.js";
import { reachOf } from "./reach.js";
import { joinPath, length, normalPath, once, partition, rpartition, trimEnd, trimStart } from "./strings.js";
import { commandTable, numberOf, setOf } from "./tables.js";
import type { Understood } from "./verdicts.js";

export const FILE_TOOLS = setOf("rules.FILE_TOOLS");
const MAX_MENTIONS = numberOf("rules.MAX_MENTIONS");
const MAX_PIECES = numberOf("rules.MAX_PIECES");
const MAX_MENTION_CHARACTERS = numberOf("rules.MAX_MENTION_CHARACTERS");
const CHANGES_DIRECTORY = setOf("rules.CHANGES_DIRECTORY");
const INNER = pattern("rules.INNER");
const BROKEN = pattern("rules.BROKEN");
const CLUSTER = /^-([A-Za-z]{2,})/;

/** One call as rules see it. */
export interface Call {
  readonly tool: string;
  /** The command and its arguments as they will run; an alias under its own name's. */
  readonly argv: readonly string[];
  /** Leniently: the command, its subcommands and operands, without the options between them. */
  readonly words: readonly string[];
  /** Every option as it was spelled, clusters taken apart. */
  readonly options: readonly string[];
  /** The path of a file tool, without `.` and `..`; null where that is not certain. */
  readonly path: string | null;
  /** Everything that could be a path, from the workspace. */
  readonly mentions: readonly string[];
  /** The line with clusters and glued values taken apart. */
  readonly spelled: readonly string[];
  /** Pieces of longer texts that could be paths. */
  readonly hints: readonly string[];
  /** Directories the call may look through. */
  readonly reach: readonly string[];
  /** The first names of mentions and hints. */
  readonly firsts: ReadonlySet<string>;
  /** Whether a table understood the arguments. */
  readonly read: boolean;
  /** Whether its subcommand is not known: it may be another name for any of them. */
  readonly doubtful: boolean;
  /** The same call under another name: `python -m pip list` is `pip list` too. */
  readonly also: Call | null;
}

/** A call of which nothing but the tool is looked at. */
export function bareCall(tool: string): Call {
  const nothing = { argv: [], words: [], options: [], path: null, mentions: [], spelled: [], hints: [], reach: [] };
  return { tool, ...nothing, firsts: new Set(), read: false, doubtful: false, also: null };
}

/** How many names of files there are to compare. */
export function namesIn(call: Call): number {
  return [...call.mentions, ...call.hints].reduce((sum, text) => sum + text.split("/").length, 0);
}

/** As much of it as may be looked at; what is left out may be anything, so it then may reach everything. */
export function cut(call: Call, most: number): Call {
  const kept: string[] = [];
  let names = most;
  for (const mention of call.mentions) {
    names -= mention.split("/").length;
    if (names < 0) {
      break;
    }
    kept.push(mention);
  }
  return { ...call, mentions: kept, hints: [], reach: ["."], firsts: firstNames(kept) };
}

/** Look at a validated call. */
export function callOf(tool: string, params: Params, understood: Understood | null, workspace: string | null): Call {
  if (tool === "execute_command") {
    return commandCall(params.command as string, params.args as readonly string[], understood, workspace);
  }
  const found = FILE_TOOLS.has(tool) ? checkPath(params.path as string, workspace) : undefined;
  if (found === undefined || found.refusal !== undefined) {
    return bareCall(tool);
  }
  const plain = normalPath(found.relative);
  // `a/../b` may lead elsewhere when `a` is a link, so it is certain for nobody.
  const certain = !found.relative.split("/").includes("..");
  const mentions = [plain];
  let reach: string[] = [];
  if (tool === "search_files" || tool === "list_directory") {
    const glob = (tool === "search_files" ? params.glob : params.pattern) as string | null;
    const walks = tool === "search_files" || params.recursive || glob?.includes("/") || glob?.includes("**");
    if (glob) {
      mentions.push(normalPath(joinPath(plain, glob)));
    }
    reach = walks ? [top(found.relative, workspace)] : [];
  }
  const hints = certain ? [] : behindParents(found.relative);
  const firsts = firstNames([...mentions, ...hints]);
  return { ...bareCall(tool), path: certain ? plain : null, mentions, hints, reach, firsts };
}

function commandCall(
  command: string,
  args: readonly string[],
  understood: Understood | null,
  workspace: string | null,
): Call {
  const name = ownName(command);
  const seen = new Seen(name);
  if (understood === null) {
    seen.words.push(...args.filter((arg) => !arg.startsWith("-")));
  } else {
    seen.read(understood, args);
  }
  // What the table did not understand counts as it stands, and a cluster letter by letter.
  seen.options.push(...args.filter((arg) => arg.startsWith("-")).map((arg) => partition(arg, "=")[0]));
  seen.options.push(...args.flatMap((arg) => Array.from(CLUSTER.exec(arg)?.[1] ?? "", (letter) => `-${letter}`)));
  const [mentions, crowded] = few(mentionsIn(seen, args, workspace));
  const [hints, tooCrowded] = few(hintsIn(args, workspace));
  const options = once(seen.options);
  const subs = commandTable(name)?.subs;
  const reach = crowded || tooCrowded ? ["."] : reachOf(name, options, seen.operands, mentions, understood);
  return {
    tool: "execute_command",
    argv: [name, ...args],
    words: seen.words.map((word) => (word.startsWith("/") ? mention(word, workspace) : word)),
    options,
    path: null,
    mentions,
    spelled: seen.spelled,
    hints,
    reach: reach.map((one) => top(one, workspace)),
    firsts: firstNames([...mentions, ...hints]),
    read: understood !== null,
    doubtful: subs !== undefined && subs.size > 0 && seen.words.length > 1 && !subs.has(seen.words[1] as string),
    also: seen.module ? commandCall(seen.module, behindModule(args), null, workspace) : null,
  };
}

/** What a table's reading of a line amounts to. */
class Seen {
  readonly words: string[];
  readonly spelled: string[];
  readonly options: string[] = [];
  readonly values: string[] = [];
  /** Directories the command changes to first. */
  readonly bases: string[] = [];
  operands: readonly string[] = [];
  /** What `python -m` runs. */
  module: string | null = null;

  constructor(command: string) {
    this.words = [command];
    this.spelled = [command];
  }

  read(understood: Understood, args: readonly string[]): void {
    for (let reading: Understood | undefined = understood; reading !== undefined; reading = reading.subcommand) {
      this.#options(reading);
      this.operands = reading.operands;
      const kept = reading.subcommand === undefined ? this.operands : this.operands.slice(0, 1);
      this.words.push(...kept);
      this.spelled.push(...kept);
    }
    // What follows the script of an interpreter is the script's, and no part of the reading.
    const script = this.words.length === 2 ? args.indexOf(this.words[1] as string) : -1;
    if (script >= 0) {
      this.words.push(...args.slice(script + 1));
    }
  }

  #options(reading: Understood): void {
    for (const [spelled, value] of reading.options) {
      this.options.push(spelled);
      this.spelled.push(spelled);
      if (value === null) {
        continue;
      }
      this.values.push(value);
      this.spelled.push(value);
      if (CHANGES_DIRECTORY.has(spelled)) {
        this.bases.push(value);
      }
      if (spelled === "-m" && this.words[0] === "python") {
        this.#module(value);
      }
    }
  }

  /** `python -m a.b` runs a/b.py, or whatever the package `a` makes of it. */
  #module(name: string): void {
    this.module = partition(name, ".")[0];
    const path = name.replaceAll(".", "/");
    this.values.push(path, `${path}.py`);
    this.spelled.push("-m", this.module);
  }
}

function* mentionsIn(seen: Seen, args: readonly string[], workspace: string | null): Generator<string> {
  for (const text of [...seen.words.slice(1), ...seen.values, ...args]) {
    const pieces = [text, ...INNER.split(text).slice(1)];
    if (text.startsWith("-") && !text.startsWith("--")) {
      pieces.push(Array.from(text).slice(2).join("")); // a value glued to an option nobody knows
    }
    for (const piece of pieces) {
      const mentioned = mention(piece, workspace);
      yield mentioned;
      if (piece !== "") {
        yield* seen.bases.map((base) => normalPath(joinPath(base, mentioned)));
      }
    }
  }
}

function* hintsIn(args: readonly string[], workspace: string | null): Generator<string> {
  for (const arg of args) {
    for (const piece of BROKEN.split(arg)) {
      yield mention(piece, workspace);
      yield* behindParents(piece);
    }
  }
}

/** Where `a/../b` may lead when `a` is a link: to `b`, from some directory. */
function behindParents(path: string): string[] {
  return path.split("/").includes("..") ? [normalPath(rpartition(path, "../")[2] || ".")] : [];
}

/** A directory that is looked through. Behind a link `..` may be any. */
function top(path: string, workspace: string | null): string {
  return path.split("/").includes("..") ? "." : mention(path, workspace);
}

/** What follows `-m module`, or `-Xmmodule`. */
function behindModule(args: readonly string[]): readonly string[] {
  const at = args.findIndex((arg) => arg.startsWith("-") && arg.includes("m"));
  if (at < 0) {
    return [];
  }
  return args.slice(args[at]?.endsWith("m") ? at + 2 : at + 1);
}

function mention(text: string, workspace: string | null): string {
  let below = text;
  const root = trimEnd(workspace ?? "", "/");
  if (workspace && (text === workspace || text.startsWith(`${root}/`))) {
    below = trimStart(text.slice(root.length), "/") || ".";
  }
  return below === "" ? "" : normalPath(below);
}

/** Each once; and whether there were too many to look at. */
function few(texts: Iterable<string>): [string[], boolean] {
  const kept = new Set<string>();
  let characters = 0;
  let number = 0;
  for (const text of texts) {
    if (number > MAX_PIECES) {
      return [[...kept], true];
    }
    number += 1;
    if (text !== "" && !kept.has(text)) {
      characters += length(text);
      if (characters > MAX_MENTION_CHARACTERS || kept.size >= MAX_MENTIONS) {
        return [[...kept], true];
      }
      kept.add(text);
    }
  }
  return [[...kept], false];
}
