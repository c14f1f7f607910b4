// What is searched for or listed, as globs on names. Everything here comes from an agent: none of it may stand for more globs
// than a search bears. Nothing is opened or started here.

import { InvalidParameters } from "./errors.js";
import { bytesOf, GlobError, globFits } from "./globs.js";
import { repr } from "./words.js";

const MAX_BRACES = 64;

/** Globs on names without braces: `*.{ts,tsx}` gives two. A leading `**` with its slash says nothing here and is dropped. */
export function expandGlob(given: string | null): string[] {
  if (given === null) {
    return [];
  }
  const glob = given.replace(/^\*\*\//, "");
  if (glob.startsWith("!")) {
    throw new InvalidParameters(
      `The glob ${repr(glob)} would say what to leave out, and it can only say what to take.`,
      "Name what to take, such as '*.py'.",
    );
  }
  if (/[/\\]|[\p{C}\p{Zl}\p{Zp}]/u.test(glob)) {
    throw new InvalidParameters(
      `The glob ${repr(glob)} is for file names and cannot hold a slash.`,
      "Name the directory in 'path'.",
    );
  }
  const done = new Set<string>();
  const waiting = [glob];
  for (let current = waiting.pop(); current !== undefined; current = waiting.pop()) {
    const found = /\{([^{}]*)\}/.exec(current);
    if (found === null) {
      done.add(whole(current, glob));
    } else {
      const [before, after] = [current.slice(0, found.index), current.slice(found.index + found[0].length)];
      waiting.push(...(found[1] as string).split(",").map((part) => `${before}${part}${after}`));
    }
    if (done.size + waiting.length > MAX_BRACES) {
      throw new InvalidParameters(`The glob ${repr(glob.slice(0, 60))} stands for more than ${MAX_BRACES} others.`);
    }
  }
  return [...done].sort();
}

function whole(glob: string, given: string): string {
  try {
    globFits(bytesOf(glob), true);
  } catch (error) {
    if (error instanceof GlobError) {
      throw new InvalidParameters(`The glob ${repr(given)} cannot be read: ${error.message}.`);
    }
    throw error;
  }
  return glob;
}
