// Small words the tools share: names inside sentences, moments, and the tables that are made from the Python side. The
// forms are the Python client's, so that an agent reads the same sentence from both.

import { hiddenIn } from "../gate/index.js";
import data from "./tables.json" with { type: "json" };

export const TABLES = data;

export type ToolName = keyof typeof data.tools;

export function isTool(name: string): name is ToolName {
  return Object.hasOwn(data.tools, name);
}

const QUIET = /^[ !#-&(-[\]-~]*$/;
const UNPRINTABLE = /[\p{C}\p{Z}]/u;
const SEEN = /^[ -~]*$/;
// Control, format (bidi, zero-width), surrogate, line and paragraph separators: a name must be what it looks like.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;
const NAMED: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

/** A text inside a sentence, quoted as Python's repr does it. */
export function repr(text: string): string {
  if (QUIET.test(text)) {
    return `'${text}'`;
  }
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  let made = "";
  for (const character of text) {
    if (character === mark) {
      made += `\\${mark}`;
    } else {
      made += NAMED[character] ?? (character !== " " && UNPRINTABLE.test(character) ? escaped(character) : character);
    }
  }
  return `${mark}${made}${mark}`;
}

function escaped(character: string): string {
  const point = character.codePointAt(0) as number;
  const [sign, width] = point < 0x100 ? ["x", 2] : point < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${sign}${point.toString(16).padStart(width as number, "0")}`;
}

/** A name that is safe to print: what cannot be seen becomes an escape. */
export function visibleName(name: string): string {
  return SEEN.test(name) ? name : Array.from(name, (one) => (isUnseen(one) ? escaped(one) : one)).join("");
}

/** Whether a character cannot be seen. The gate knows some more that have no form of their own, such as fillers. */
export function isUnseen(character: string): boolean {
  return UNSEEN.test(character) || hiddenIn(character) !== undefined;
}

/** The first characters of a text, never half of one. */
export function firstCharacters(text: string, count: number): string {
  return text.length <= count
    ? text
    : Array.from(text.slice(0, 2 * count))
        .slice(0, count)
        .join("");
}

/** A moment as it is written everywhere. */
export function timestamp(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

/** The bytes of a name as text: what is no UTF-8 becomes an escape. */
export function visibleBytes(name: Buffer): string {
  const text = name.toString("utf8");
  if (Buffer.from(text).equals(name)) {
    return visibleName(text);
  }
  let made = "";
  for (let at = 0; at < name.length; ) {
    const size = [1, 2, 3, 4].find((count) => isWhole(name.subarray(at, at + count), count));
    made += size === undefined ? `\\x${(name[at] as number).toString(16).padStart(2, "0")}` : "";
    made += size === undefined ? "" : visibleName(name.subarray(at, at + size).toString("utf8"));
    at += size ?? 1;
  }
  return made;
}

function isWhole(bytes: Buffer, count: number): boolean {
  return bytes.length === count && !bytes.toString("utf8").includes("\ufffd");
}

/** What happened, and what to do as a sentence after it. */
export function withWhatToDo(message: string, hint: string | null): string {
  if (!hint) {
    return message;
  }
  return `${message} ${hint[0]?.toUpperCase()}${hint.slice(1)}${/[.?!…]$/.test(hint) ? "" : "."}`;
}
