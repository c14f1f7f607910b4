// What the file system adds to a reading command that the gate let pass by its spelling alone. The gate cannot see links.
// Here, before a reading command starts, each name it was given is resolved as the file tools resolve theirs: a link out of
// the workspace is refused to all; to those that show content also a link that hides a secret's own name, and a pipe or
// device that would never end. A search or comparison of whole directories leaves out files that hold secrets by name.

import { fstatSync } from "node:fs";
import { CommandValidator, checkPath, secretGlobs, secretName } from "../gate/index.js";
import { commandTable } from "../gate/tables.js";
import { refuseHiddenSecret } from "./disguises.js";
import { onlyOs } from "./errors.js";
import { subcommandAt } from "./git_words.js";
import { refuseOddKind } from "./io.js";
import { O_PATH, type PathValidator } from "./PathValidator.js";
import { pathError } from "./path_errors.js";
import { TABLES } from "./words.js";

const SHOW_CONTENT = new Set(TABLES.show_content);
const LIST_NAMES = new Set(TABLES.list_names);
const NOT_NAMES = new Set(TABLES.not_names);
const GIVE_PATTERN = new Set(["-e", "-f", "--regexp", "--file"]);
const SHOWS_DIFFS = new Set(["diff", "log", "show"]);

interface Name {
  readonly name: string;
  readonly ofOption: boolean;
}

/** Refuse names behind which the file system has something else than their spelling says. */
export function checkOperands(paths: PathValidator, command: string, args: readonly string[]): void {
  if (SHOW_CONTENT.has(command) || LIST_NAMES.has(command)) {
    for (const { name, ofOption } of names(command, args)) {
      // The value of an option is opened even by a command that only lists, such as find -samefile.
      check(paths, name, ofOption || SHOW_CONTENT.has(command));
    }
  }
}

/** What of the arguments could be a name, as the gate reads them. */
function names(command: string, args: readonly string[]): Name[] {
  const table = commandTable(command);
  const { understood } = new CommandValidator([command]).judge(command, args, null);
  if (understood === null || table === undefined) {
    return args.map((name) => ({ name, ofOption: true })); // unreadable, and so refused; were it not, every word counts
  }
  const found: Name[] = [];
  for (const [spelled, value] of understood.options) {
    const option = table.options.get(spelled);
    if (value && (option === undefined || !NOT_NAMES.has(option.kind ?? ""))) {
      found.push({ name: value, ofOption: true });
    }
  }
  const given = understood.options.some(([spelled]) => table.first_given_by?.includes(spelled));
  const kinds = (table.operands ?? []).slice(given ? 1 : 0);
  understood.operands.forEach((name, index) => {
    if (!NOT_NAMES.has(kinds[index] ?? "")) {
      found.push({ name, ofOption: false });
    }
  });
  return found;
}

function check(paths: PathValidator, name: string, opened: boolean): void {
  if (name === "" || checkPath(name, paths.root).refusal !== undefined) {
    return; // not a name of ours: a pattern, or something the gate has judged
  }
  let relative: string;
  try {
    relative = paths.relative(name);
  } catch {
    return; // no path here may be spelled so: the command says that there is none
  }
  try {
    paths.with(relative, O_PATH, ({ fd, real }) => {
      const info = fstatSync(fd);
      if (opened && !info.isDirectory()) {
        refuseOddKind(info, name);
      }
      if (opened) {
        refuseHiddenSecret(relative, real);
      }
    });
  } catch (error) {
    onlyOs(error);
    if (error.code === "EXDEV" || error.code === "ELOOP") {
      throw pathError(name, error);
    }
    // nothing of that name: the command says so itself
  }
}

/** The arguments with what keeps a command from running or reading more than it says. */
export function safeArguments(command: string, args: readonly string[]): readonly string[] {
  switch (command) {
    case "git":
      return [...TABLES.git_safety, ...withoutPrograms(args)];
    case "zip":
      return ["-y", ...args]; // store links as links; following them packs what lies outside
    case "grep":
      return withoutSecrets(args);
    case "diff": {
      const { directories, files } = secretGlobs();
      return ["--no-dereference", ...[...files, ...directories].map((glob) => `--exclude=${glob}`), ...args];
    }
    default:
      return args;
  }
}

/** Put `--no-ext-diff --no-textconv` right after the subcommand that takes them. */
function withoutPrograms(args: readonly string[]): readonly string[] {
  const at = subcommandAt(args);
  return SHOWS_DIFFS.has(args[at] ?? "")
    ? [...args.slice(0, at + 1), "--no-ext-diff", "--no-textconv", ...args.slice(at + 1)]
    : args;
}

/** The arguments of grep; a recursive one leaves out files that hold secrets by their name. */
function withoutSecrets(args: readonly string[]): readonly string[] {
  const { understood } = new CommandValidator(["grep"]).judge("grep", args, null);
  if (understood === null) {
    return args;
  }
  const { operands, options } = understood;
  const recursive = options.some(
    ([spelled, value]) =>
      spelled === "-r" || spelled === "-R" || /^--(?:rec|deref)/.test(spelled) || value === "recurse",
  );
  const wanted = options.flatMap(([spelled, value]) => (spelled.startsWith("--inc") ? [value ?? ""] : []));
  const files = options.some(([spelled]) => GIVE_PATTERN.has(spelled)) ? operands : operands.slice(1);
  const named = [...files, ...wanted, ...wanted.map((glob) => glob.replace(/^\*+|\*+$/g, ""))];
  if (!recursive || named.some((name) => secretName(name))) {
    return args;
  }
  const globs = secretGlobs();
  const leftOut = [
    ...globs.files.map((glob) => `--exclude=${glob}`),
    ...globs.directories.map((glob) => `--exclude-dir=${glob}`),
    // Of contradicting globs the last wins; with an --include of its own it asked for less.
    ...(wanted.length === 0 ? globs.harmless.map((glob) => `--include=${glob}`) : []),
  ];
  // Last, so that no --include of the call overrules them; before a `--`, behind which there are no options.
  return args.includes("--") ? [...leftOut, ...args] : [...args, ...leftOut];
}
