// The search where ripgrep has no walls to run in, made to be run in a thread that can be ended: an expression may take for
// ever. Walks by directory descriptors from the one it is given and follows no link. Globs, ignore rules and expressions
// mean what they mean to ripgrep; an expression that would mean something else here is refused.

import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, readSync, type Stats } from "node:fs";
import { bytesOf, globFits, type Ignore, ignoreRules, isIgnored } from "./globs.js";

export const MAX_FILE = 32 * 1024 * 1024;
export const MAX_DEPTH = 64;
export const MAX_IGNORE = 1 << 20;
const BLOCK = 1 << 16;
const NOFOLLOW = constants.O_NOFOLLOW | constants.O_NONBLOCK;
const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | NOFOLLOW;
const FILE = constants.O_RDONLY | NOFOLLOW;
const IS_LINUX = process.platform === "linux";

/** What to search for, and where. */
export interface Work {
  /** A name for the open place. */
  readonly base: string;
  readonly isFile: boolean;
  /** .gitignore files above the place, with what leads from each to it. */
  readonly above: readonly { readonly content: string; readonly add: string }[];
  readonly pattern: string;
  readonly regex: boolean;
  readonly caseSensitive: boolean;
  readonly globs: readonly string[];
  readonly maxCount: number;
}

export type FoundLines = readonly (readonly [line: number, text: string])[];

/** An expression only one of the two searches knows. */
export class PatternError extends Error {}

const TOKEN =
  /(?<escape>\\.)|(?<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?<group>\((?:\?(?::|P<\w+>)?)?)|(?<count>\{\d+(?:,\d*)?\}|[*+?])(?<more>[+*])?|(?<dot>\.)|(?<brace>[{}])|(?<other>.)/gsu;
const [WORD, SPACE] = ["\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}", "\\p{White_Space}"];
const ESCAPES: Readonly<Record<string, string>> = {
  "\\z": "$",
  "\\A": "^",
  "\\d": "\\p{Nd}",
  "\\D": "\\P{Nd}",
  "\\w": `[${WORD}]`,
  "\\W": `[^${WORD}]`,
  "\\s": `[${SPACE}]`,
  "\\S": `[^${SPACE}]`,
  "\\b": "\\b",
  "\\B": "\\B",
  "\\t": "\\t",
};

/** The pattern in JavaScript's spelling; PatternError for one that means something else there, or nothing. */
export function expressionOf(pattern: string): string {
  let made = "";
  for (const { 0: text, groups = {} } of pattern.matchAll(TOKEN)) {
    if (groups.escape !== undefined) {
      made += escapeOf(text);
    } else if (groups.set !== undefined) {
      made += setOf(text);
    } else if (groups.group?.endsWith("?") || groups.more !== undefined || groups.brace !== undefined) {
      throw new PatternError("look-around, backreferences and the like are not supported");
    } else {
      made += groups.dot !== undefined ? "[^\\n\\ufffd]" : text.replace("(?P<", "(?<");
    }
  }
  return made;
}

function escapeOf(text: string): string {
  const known = ESCAPES[text];
  if (known !== undefined) {
    return known;
  }
  if (/^\\[A-Za-z0-9]/.test(text)) {
    throw new PatternError(`${text} is not supported`);
  }
  return /[\^$\\.*+?()[\]{}|/-]/.test(text[1] as string) ? `\\x${hex(text.charCodeAt(1))}` : (text[1] as string);
}

function setOf(text: string): string {
  if (/\\[^\]\\^\-dwst.[$*+?(){}|/]/.test(text) || /\[\[|&&|--|~~/.test(text) || text === "[^]" || text === "[]") {
    throw new PatternError(`${text} is not supported`);
  }
  const inside = text.slice(1, -1).replace(/^(\^?)\]/, "$1\\]");
  return `[${inside
    .replace(/\\d/g, "\\p{Nd}")
    .replace(/\\w/g, WORD)
    .replace(/\\s/g, SPACE)
    .replace(/^\^/, "^\\ufffd")
    .replace(/(?<!\\)\[/g, "\\[")}]`;
}

function hex(code: number): string {
  return code.toString(16).padStart(2, "0");
}

/** One search: each file with its matching lines, in the order of names. */
export class Scan {
  readonly #expression: RegExp;
  readonly #globs: readonly ((bytes: string) => boolean)[];
  readonly #hidden: boolean;

  constructor(private readonly work: Work) {
    const source = work.regex ? expressionOf(work.pattern) : literal(work.pattern);
    try {
      this.#expression = new RegExp(source, work.caseSensitive ? "u" : "iu");
    } catch (error) {
      throw new PatternError((error as Error).message);
    }
    this.#globs = work.globs.map((glob) => globFits(bytesOf(glob), true));
    this.#hidden = work.globs.some((glob) => glob.startsWith("."));
  }

  *run(): Generator<readonly [path: string, lines: FoundLines]> {
    if (this.work.isFile) {
      yield* this.#file(this.work.base, "file");
      return;
    }
    const above = this.work.above.map(({ add, content }) => {
      return { rules: ignoreRules(Buffer.from(content, "base64")), strip: "", add: bytesOf(add) };
    });
    yield* this.#directory(this.work.base, "", above, 0);
  }

  *#directory(
    base: string,
    prefix: string,
    given: readonly Ignore[],
    depth: number,
  ): Generator<readonly [string, FoundLines]> {
    let ignores = given;
    const entries = quietly(() => readdirSync(base, { withFileTypes: true, encoding: "buffer" })) ?? [];
    const found = entries
      .map((entry) => ({ name: entry.name.toString("latin1"), isDirectory: entry.isDirectory() }))
      .sort((one, other) => (one.name < other.name ? -1 : 1));
    const names = new Set(found.map(({ name }) => name));
    if (names.has(".git")) {
      ignores = []; // a repository of its own
    }
    if (names.has(".gitignore")) {
      const rules = ignoreRules(readSmall(`${base}/.gitignore`));
      ignores = [...ignores, { rules, strip: prefix, add: "" }];
    }
    for (const { isDirectory, name } of found) {
      const path = prefix + name;
      if (!this.#named(name, isDirectory) || isIgnored(path, isDirectory, ignores)) {
        continue;
      }
      const utf8 = Buffer.from(name, "latin1").toString("utf8");
      const fd = quietly(() => openSync(`${base}/${utf8}`, isDirectory ? DIRECTORY : FILE));
      if (fd === undefined) {
        continue; // a link, no permission, or gone
      }
      try {
        const below = IS_LINUX ? `/proc/self/fd/${fd}` : `${base}/${utf8}`;
        if (!isDirectory) {
          yield* this.#file(below, Buffer.from(path, "latin1").toString("utf8"), fd);
        } else if (depth < MAX_DEPTH && mayEnter(fstatSync(fd))) {
          yield* this.#directory(below, `${path}/`, ignores, depth + 1);
        }
      } finally {
        closeSync(fd);
      }
    }
  }

  #named(name: string, isDirectory: boolean): boolean {
    if (name.startsWith(".") && (isDirectory || !this.#hidden)) {
      return false;
    }
    return isDirectory || this.#globs.length === 0 || this.#globs.some((fits) => fits(name));
  }

  /** Matching lines of an open file; none of one that is no text. */
  *#file(name: string, path: string, fd?: number): Generator<readonly [string, FoundLines]> {
    const own = fd ?? openSync(name, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const info = fstatSync(own);
      if (!info.isFile() || !mayRead(info) || info.size > MAX_FILE) {
        return;
      }
      const text = decoded(readFileSync(own));
      const lines = text.split("\n");
      if (lines.at(-1) === "") {
        lines.pop();
      }
      const found: [number, string][] = [];
      let seen = 0;
      for (const [index, line] of lines.entries()) {
        seen += line.length + 1;
        if (this.#expression.test(line.replace(/\r+$/, ""))) {
          found.push([index + 1, line]);
          if (found.length === this.work.maxCount) {
            break;
          }
        }
      }
      // ripgrep looks no further than the block it has read.
      const looked = found.length === this.work.maxCount ? Math.ceil(seen / BLOCK) * BLOCK : text.length;
      if (found.length > 0 && !text.slice(0, looked).includes("\0")) {
        yield [path, found];
      }
    } finally {
      if (fd === undefined) {
        closeSync(own);
      }
    }
  }
}

function literal(text: string): string {
  return text.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&");
}

function decoded(data: Buffer): string {
  const mark = data.toString("latin1", 0, 2);
  if (mark === "\xff\xfe" || mark === "\xfe\xff") {
    return new TextDecoder(mark === "\xff\xfe" ? "utf-16le" : "utf-16be").decode(data);
  }
  return new TextDecoder("utf-8").decode(data);
}

// What nobody may read or enter, root may not either, as in ripgrep's walls.
function mayRead({ mode }: Stats): boolean {
  return (mode & 0o444) !== 0;
}

function mayEnter(info: Stats): boolean {
  return mayRead(info) && (info.mode & 0o111) !== 0;
}

function readSmall(path: string): Buffer {
  const fd = quietly(() => openSync(path, FILE));
  if (fd === undefined) {
    return Buffer.alloc(0);
  }
  try {
    return fstatSync(fd).isFile() ? readRules(fd) : Buffer.alloc(0);
  } finally {
    closeSync(fd);
  }
}

/** The beginning of a .gitignore, in whole lines: half a rule may be one that ignores everything. */
export function readRules(fd: number): Buffer {
  const buffer = Buffer.allocUnsafe(MAX_IGNORE);
  let size = 0;
  for (let count = -1; count !== 0 && size < MAX_IGNORE; size += count) {
    count = readSync(fd, buffer, size, MAX_IGNORE - size, size);
  }
  return buffer.subarray(0, size < MAX_IGNORE ? size : buffer.lastIndexOf("\n") + 1);
}

function quietly<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch {
    return undefined;
  }
}
