// Text as Python counts, cuts and joins it: by whole characters, not by halves of them. The tables and limits were made
// there, so a length or a prefix must mean the same here. Nothing here decides anything.

const HALVES = /[\ud800-\udfff]/;
const SPACE = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SPACES_AROUND = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "gu");
const SPACES = new RegExp(`[${SPACE}]+`, "u");
// biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII is meant
const ASCII = /^[\x00-\x7f]*$/;
const LONE = /\p{Surrogate}/u;

/** How many characters a text has. */
export function length(text: string): number {
  if (!HALVES.test(text)) {
    return text.length;
  }
  let count = 0;
  for (const _ of text) {
    count += 1;
  }
  return count;
}

/** The first so many characters. */
export function first(text: string, count: number): string {
  if (text.length <= count) {
    return text;
  }
  return HALVES.test(text) ? Array.from(text).slice(0, count).join("") : text.slice(0, count);
}

/** The last so many characters. */
export function last(text: string, count: number): string {
  if (text.length <= count) {
    return text;
  }
  return HALVES.test(text) ? Array.from(text).slice(-count).join("") : text.slice(-count);
}

/** Before the separator, the separator, and what follows; all of it before when there is none. */
export function partition(text: string, separator: string): [string, string, string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, "", ""] : [text.slice(0, at), separator, text.slice(at + separator.length)];
}

/** As `partition`, at the last separator; all of it behind when there is none. */
export function rpartition(text: string, separator: string): [string, string, string] {
  const at = text.lastIndexOf(separator);
  return at < 0 ? ["", "", text] : [text.slice(0, at), separator, text.slice(at + separator.length)];
}

/** Without any of these characters at its beginning. */
export function trimStart(text: string, characters: string): string {
  let at = 0;
  while (at < text.length && characters.includes(text.charAt(at))) {
    at += 1;
  }
  return text.slice(at);
}

/** Without any of these characters at its end. */
export function trimEnd(text: string, characters: string): string {
  let end = text.length;
  while (end > 0 && characters.includes(text.charAt(end - 1))) {
    end -= 1;
  }
  return text.slice(0, end);
}

/** Without any of these characters at either end. */
export function trim(text: string, characters: string): string {
  return trimEnd(trimStart(text, characters), characters);
}

/** Without white space at either end. */
export function strip(text: string): string {
  return text.replace(SPACES_AROUND, "");
}

/** The words of a text. */
export function words(text: string): string[] {
  return text.split(SPACES).filter((word) => word !== "");
}

export function withoutPrefix(text: string, prefix: string): string {
  return text.startsWith(prefix) ? text.slice(prefix.length) : text;
}

export function withoutSuffix(text: string, suffix: string): string {
  return suffix !== "" && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
}

export function startsWithAny(text: string, prefixes: Iterable<string>): boolean {
  for (const prefix of prefixes) {
    if (text.startsWith(prefix)) {
      return true;
    }
  }
  return false;
}

export function endsWithAny(text: string, suffixes: Iterable<string>): boolean {
  for (const suffix of suffixes) {
    if (text.endsWith(suffix)) {
      return true;
    }
  }
  return false;
}

/** How often a piece stands in a text. */
export function occurrences(text: string, piece: string): number {
  return text.split(piece).length - 1;
}

export function isAscii(text: string): boolean {
  return ASCII.test(text);
}

/** Whether it holds half a character, so that no encoding can write it. */
export function halfCharacter(text: string): boolean {
  return HALVES.test(text) && LONE.test(text);
}

export function utf8Bytes(text: string): number {
  return Buffer.byteLength(text, "utf8");
}

/** A path without `.`, empty names and the `..` that can be taken away by spelling. */
export function normalPath(path: string): string {
  if (path === "") {
    return ".";
  }
  const root = path.startsWith("//") && !path.startsWith("///") ? "//" : path.startsWith("/") ? "/" : "";
  const kept: string[] = [];
  for (const name of path.split("/")) {
    if (name === "" || name === ".") {
      continue;
    }
    if (name !== ".." || (root === "" && kept.length === 0) || kept.at(-1) === "..") {
      kept.push(name);
    } else if (kept.length > 0) {
      kept.pop();
    }
  }
  return root + kept.join("/") || ".";
}

/** One path behind another; an absolute one stands for itself. */
export function joinPath(directory: string, path: string): string {
  if (path.startsWith("/")) {
    return path;
  }
  return directory === "" || directory.endsWith("/") ? directory + path : `${directory}/${path}`;
}

/** Each text once, in order. */
export function once(texts: Iterable<string>): string[] {
  return [...new Set(texts)];
}
