// How a git command line is read where it decides what of the workspace git may change. Git starts programs that the
// settings of a repository name. So git gets no more than its subcommand needs: one that only reads gets all read-only, and
// only those that make a repository may make one. What cannot be read for certain counts as a command that writes.

import { existsSync, lstatSync, realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { TABLES } from "./words.js";

const VALUE_OPTIONS = new Set(TABLES.git_value_options);
const READS = new Set(TABLES.git_reads);
const MAKES = new Set(TABLES.git_makes);
const READERS = new Set(TABLES.readers);

/** Where the subcommand stands among the arguments of git; their number when there is none. */
export function subcommandAt(args: readonly string[]): number {
  let position = 0;
  while (args[position]?.startsWith("-")) {
    position += VALUE_OPTIONS.has(args[position] as string) ? 2 : 1;
  }
  return Math.min(position, args.length);
}

function subcommand(args: readonly string[]): string {
  return args[subcommandAt(args)] ?? "";
}

/** Whether it is what this subcommand is for. */
export function makesRepository(args: readonly string[]): boolean {
  return MAKES.has(subcommand(args));
}

/** Whether a command can do its work without writing to the workspace. */
export function onlyReads([program, ...args]: readonly string[]): boolean {
  if (basename(program ?? "") === "git") {
    // `--output` begins so, however it is shortened.
    return READS.has(subcommand(args)) && !args.some((argument) => argument.startsWith("--ou"));
  }
  return startsNothing([program ?? "", ...args]);
}

/** Whether a command only reads and never starts another program. */
export function startsNothing([program, ...args]: readonly string[]): boolean {
  const name = basename(program ?? "");
  if (name === "find") {
    return !args.some((argument) => TABLES.find_writes.some((word) => argument.startsWith(word)));
  }
  return READERS.has(name);
}

/** Whether the repository it works in is another than the workspace's own, by -C or --git-dir. */
export function worksInAnother(root: string, args: readonly string[]): boolean {
  let place = root;
  let named: string | undefined;
  const options = args.slice(0, subcommandAt(args))[Symbol.iterator]();
  for (const option of options) {
    if (option === "-C") {
      place = resolve(place, options.next().value ?? "");
    } else if (option === "--git-dir") {
      named = options.next().value;
    } else if (option.startsWith("--git-dir=")) {
      named = option.slice("--git-dir=".length);
    } else if (VALUE_OPTIONS.has(option)) {
      options.next();
    }
  }
  if (named !== undefined) {
    return real(resolve(place, named)) !== join(root, ".git");
  }
  for (let way = real(place); `${way}/`.startsWith(`${root}/`) && way !== root; way = dirname(way)) {
    if (lstatSync(join(way, ".git"), { throwIfNoEntry: false }) !== undefined) {
      return true;
    }
  }
  return false;
}

function real(path: string): string {
  return existsSync(path) ? realpathSync(path) : path;
}
