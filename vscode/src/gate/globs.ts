// Patterns of paths: `*` and `?` within a name, `**` across directories, a bare name anywhere, `dir/` all below it. Rules
// come from files that others write, so matching takes time in proportion to pattern and path: no regular expression is
// made of them. Nothing here looks at a disk.

import { plainForm } from "./characters.js";
import { namesOf } from "./names.js";
import { MAX_NAME_BYTES } from "./paths.js";
import { length, startsWithAny, trimStart, withoutPrefix } from "./strings.js";
import { starFits } from "./wildcards.js";

/** One name as a careless file system compares it, and as it stands where that differs: `end` and `end.`. */
type Spellings = readonly string[];

const DEEP = "**";
const BELOW = [DEEP, "*"];

/** Whether a pattern fits a path from the workspace, spelled exactly so. */
export function pathFits(glob: string, path: string): boolean {
  return walk(parts(glob), path.split("/"), DEEP, nameFits);
}

/** As `pathFits`, for what tightens: case and look-alikes do not matter, and what lies below a fitting name fits too. */
export function pathFitsCarelessly(glob: string, path: string): boolean {
  const wanted = plainParts(glob);
  const names = spellings(path);
  return allFit(wanted, names) || allFit([...wanted, ...BELOW], names);
}

/** Whether a directory lies above what a pattern fits, so that looking through it may reach that. */
export function pathAbove(path: string, glob: string): boolean {
  const names = spellings(path);
  if (names.length === 1 && names[0]?.length === 1 && names[0][0] === ".") {
    return true;
  }
  for (const [index, part] of plainParts(glob).slice(0, names.length).entries()) {
    if (part === DEEP) {
      return true;
    }
    if (!spelledFits(part, names[index] as Spellings)) {
      return false;
    }
  }
  return true;
}

/** Whether a path is the very directory whose content a pattern is about: `secret` for `secret/**`. */
export function directoryOf(path: string, glob: string): boolean {
  const wanted = plainParts(glob);
  const below = wanted.length > 2 && wanted.at(-2) === DEEP && wanted.at(-1) === "*";
  return below && allFit(wanted.slice(0, -2), spellings(path));
}

/** The first names of paths, in each of the spellings that a careless look sees. */
export function firstNames(paths: Iterable<string>): Set<string> {
  return new Set([...paths].flatMap((path) => spellings(path)[0] as Spellings));
}

/** The first name of every path that fits; undefined when it may be any. */
export function firstFixed(glob: string): string | undefined {
  const [first = "*"] = plainParts(glob);
  return first.includes("*") || first.includes("?") ? undefined : first;
}

function spellings(path: string): Spellings[] {
  const careless = namesOf(path);
  const spelled = plainForm(path)
    .replaceAll("\\", "/")
    .split("/")
    .filter((part) => part !== "" && part !== ".");
  return careless.map((one, index) =>
    spelled.length === 0 || spelled[index] === one ? [one] : [one, spelled[index] as string],
  );
}

function plainParts(glob: string): string[] {
  return parts(plainForm(glob));
}

function parts(glob: string): string[] {
  const anchored = startsWithAny(glob, ["/", "./"]);
  const plain = trimStart(withoutPrefix(glob, "./"), "/");
  const names = plain.split("/").filter((part) => part !== "" && part !== ".");
  const bare = names.length === 1 && !anchored && names[0] !== DEEP;
  if (plain.endsWith("/")) {
    names.push(DEEP);
  }
  if (bare) {
    names.unshift(DEEP);
  }
  if (names.length > 1 && names.at(-1) === DEEP) {
    names.push("*"); // `dir/**` is what lies in the directory, never the directory itself
  }
  return names;
}

function allFit(wanted: readonly string[], names: readonly Spellings[]): boolean {
  return walk(wanted, names, DEEP, spelledFits);
}

function spelledFits(part: string, names: Spellings): boolean {
  return names.some((name) => nameFits(part, name));
}

function nameFits(part: string, name: string): boolean {
  if (!part.includes("*") && !part.includes("?")) {
    return part === name;
  }
  if (length(name) > MAX_NAME_BYTES) {
    return false; // no file is called that
  }
  if (part.includes("?")) {
    return walk(Array.from(part), Array.from(name), "*", (wanted, letter) => wanted === "?" || wanted === letter);
  }
  return starFits(part, name);
}

/** One pass with a step back to the last star only: what an earlier one took can stay as it is. */
function walk<T>(
  wanted: readonly string[],
  given: readonly T[],
  star: string,
  fits: (one: string, other: T) => boolean,
): boolean {
  let at = 0;
  let here = 0;
  let back: [number, number] | undefined;
  while (here < given.length) {
    const part = wanted[at];
    if (part === star) {
      back = [at, here];
      at += 1;
    } else if (part !== undefined && fits(part, given[here] as T)) {
      at += 1;
      here += 1;
    } else if (back !== undefined) {
      back = [back[0], back[1] + 1];
      [at, here] = [back[0] + 1, back[1]];
    } else {
      return false;
    }
  }
  while (wanted[at] === star) {
    at += 1;
  }
  return at === wanted.length;
}
