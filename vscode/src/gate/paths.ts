// Paths, by syntax alone: does this spelling stay inside the workspace, and is it a name we accept? Nothing here looks at
// a disk; PathValidator asks the real file system again. What is refused here is refused whatever lies there.

import { escaped, hiddenIn, LOOKALIKE_SLASHES, plainForm, visible } from "./characters.js";
import { pattern } from "./patterns.js";
import { maskText } from "./secrets.js";
import {
  endsWithAny,
  first,
  isAscii,
  length,
  occurrences,
  startsWithAny,
  trimEnd,
  trimStart,
  utf8Bytes,
} from "./strings.js";
import { listOf, numberOf, textOf } from "./tables.js";
import type { Finding } from "./verdicts.js";

export const MAX_NAME_BYTES = numberOf("paths.MAX_NAME_BYTES");
export const MAX_PATH_BYTES = numberOf("paths.MAX_PATH_BYTES");
export const RELATIVE_HINT = textOf("paths.RELATIVE_HINT");
const SYSTEM_PREFIXES = listOf("paths.SYSTEM_DIRECTORIES").map((directory) => `${directory}/`);
const URL_FORM = pattern("paths.URL");
const DRIVE = pattern("paths.DRIVE");
const DEVICE = pattern("paths.DEVICE");
const DEVICE_FILE = pattern("paths.DEVICE_FILE");
const SHORT_NAME = pattern("paths.SHORT_NAME");

/** What the syntax of a path says. */
export interface PathFinding {
  /** Relative to the workspace, as written otherwise: `..` is left to the file system, links may stand before it. */
  readonly relative: string;
  readonly refusal: Finding | undefined;
}

/** Judge one path. `writes` adds the rules for names that would be made. */
export function checkPath(path: string, workspace: string | null, writes = false): PathFinding {
  const { relative, refusal } = locate(path, workspace);
  return { relative, refusal: refusal ?? checkNames(relative) ?? (writes ? checkNewName(relative) : undefined) };
}

function locate(path: string, workspace: string | null): PathFinding {
  if (path === "") {
    return refused(path, "empty", "A path is empty.", RELATIVE_HINT);
  }
  const hidden = hiddenIn(path);
  if (hidden !== undefined) {
    return refused(path, "characters", `${quoted(path)} holds the invisible character ${escaped(hidden)}.`);
  }
  if (path.includes("\\")) {
    return refused(path, "backslash", `${quoted(path)} holds a backslash.`, "separate names with /");
  }
  if (path.includes(":") && (DRIVE.match(path) || URL_FORM.match(path) || path.includes(":$"))) {
    return refused(path, "form", `${quoted(path)} is a URL, drive or stream, not a path.`, RELATIVE_HINT);
  }
  if (!path.startsWith("/")) {
    return { relative: path, refusal: undefined };
  }
  const root = trimEnd(workspace ?? "", "/");
  if (root === "" || !(path === root || path.startsWith(`${root}/`))) {
    return refused(path, "outside", `${quoted(path)} is outside the workspace.`, RELATIVE_HINT);
  }
  if (startsWithAny(`${path}/`, SYSTEM_PREFIXES)) {
    return refused(path, "system", `${quoted(path)} is a system file.`);
  }
  return { relative: trimStart(path.slice(root.length), "/") || ".", refusal: undefined };
}

function checkNames(relative: string): Finding | undefined {
  if (!isAscii(relative)) {
    if (LOOKALIKE_SLASHES.search(relative)) {
      return finding("separator", `${quoted(relative)} holds a character that only looks like a separator.`);
    }
    const plain = plainForm(relative);
    const climbs = ups(plain.split("/").map((name) => name.trim())) !== ups(relative.split("/"));
    if (occurrences(plain, "/") !== occurrences(relative, "/") || climbs) {
      return finding("separator", `${quoted(relative)} holds characters that only look like dots or separators.`);
    }
  }
  if (tooLong(relative)) {
    return finding("length", `A name in ${quoted(relative)} is longer than a file system takes.`);
  }
  if (climbsOut(relative)) {
    return finding("outside", `${quoted(relative)} leads out of the workspace.`, RELATIVE_HINT);
  }
  const name = relative.slice(relative.lastIndexOf("/") + 1);
  if (name.length <= 8 && DEVICE.fits(name)) {
    return finding("device", `${quoted(name)} is the name of a device.`);
  }
  return undefined;
}

function ups(names: string[]): number {
  return names.filter((name) => name === "..").length;
}

/** Whether the spelling passes above its start at any point, also when it comes back. */
export function climbsOut(relative: string): boolean {
  let depth = 0;
  for (const name of relative.split("/")) {
    if (name !== "" && /^ *\.\. *$/.test(name)) {
      depth -= 1;
      if (depth < 0 || name !== "..") {
        return true;
      }
    } else if (name !== "" && name !== ".") {
      depth += 1;
    }
  }
  return false;
}

function tooLong(relative: string): boolean {
  return utf8Bytes(relative) >= MAX_PATH_BYTES || relative.split("/").some((name) => utf8Bytes(name) > MAX_NAME_BYTES);
}

/** Names that would be made must mean the same on every system. */
function checkNewName(relative: string): Finding | undefined {
  const names = relative.split("/").filter((name) => name !== "" && name !== "." && name !== "..");
  if (names.length === 0 || endsWithAny(relative, ["/", "/.", "/.."])) {
    return finding("directory", `${quoted(relative)} names a directory, not a file.`);
  }
  for (const name of names) {
    if (name.includes(":")) {
      return finding("stream", `${quoted(name)} holds a colon, which names a stream on some systems.`);
    }
    if (name.endsWith(" ") || name.endsWith(".")) {
      return finding("trailing", `${quoted(name)} ends with a dot or space, which some systems drop.`);
    }
    if (DEVICE_FILE.fits(name)) {
      return finding("device", `${quoted(name)} is the name of a device on some systems.`);
    }
    if (name.includes("~") && SHORT_NAME.fits(name)) {
      return finding("short-name", `${quoted(name)} is a short name that may stand for another file.`);
    }
  }
  return undefined;
}

/** A name inside a sentence: quoted, visible, of bearable length, without secrets. Reasons are recorded. */
export function quoted(text: string, limit = 120): string {
  const masked = maskText(first(text, MAX_PATH_BYTES));
  const shown = visible(first(masked, limit));
  return length(masked) <= limit ? `'${shown}'` : `'${shown}…'`;
}

function finding(rule: string, reason: string, instead?: string): Finding {
  return { level: "REFUSE", reason, rule: `paths.${rule}`, instead };
}

function refused(path: string, rule: string, reason: string, instead?: string): PathFinding {
  return { relative: path, refusal: finding(rule, reason, instead) };
}
