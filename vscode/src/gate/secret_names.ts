// Secrets known by the name before them: `API_TOKEN=…`, `"password": "…"`, `<password>…</password>`, `name:`/`value:`. A
// name alone does not make a secret: what stands behind one is masked when it looks like a value (a literal, a setting)
// and left alone when it looks like code, a type, prose or a placeholder.

import { type Match, pattern } from "./patterns.js";
import { MASK_PREFIX, PLACEHOLDER } from "./secret_formats.js";
import { length, rpartition, trim, trimEnd, trimStart } from "./strings.js";
import { listOf } from "./tables.js";

const WORDS = listOf("secret_names.WORDS");
const HITS = new Map(WORDS.map((word) => [word, pattern(`secret_names.hits.${word}`)]));
const FORMS = ["ASSIGNMENT", "PAIR", "ARGUMENT", "ELEMENT"].map((name) => pattern(`secret_names.${name}`));
const VALUE = pattern("secret_names.VALUE");
const ELEMENT_VALUE = pattern("secret_names.ELEMENT_VALUE");
const SETTING_VALUE = pattern("secret_names.SETTING_VALUE");
const BACKWARDS = pattern("secret_names.BACKWARDS");
const STRONG = pattern("secret_names.STRONG");
const UPPER = pattern("secret_names.UPPER");
const ABOUT = pattern("secret_names.ABOUT");
const PASSWORD = pattern("secret_names.PASSWORD");
const FREE_FORM = pattern("secret_names.FREE_FORM");
const DIGIT = pattern("secret_names.DIGIT");
const LETTER = pattern("secret_names.LETTER");
const REFERENCE = pattern("secret_names.REFERENCE");
const TYPE = pattern("secret_names.TYPE");
const CALL = pattern("secret_names.CALL");
const PLAIN_VALUE = pattern("secret_names.PLAIN_VALUE");
const NOT_A_PASSWORD = pattern("secret_names.NOT_A_PASSWORD");
const LINE_START = pattern("secret_names.LINE_START");
const VALUE_GROUPS = ["escaped", "double", "single", "back", "bare", "element", "setting"];
const KINDS = ["password", "token", "secret", "key", "credential"];
const ALPHANUMERIC = /^[\p{L}\p{N}_.-]$/u;
const LOWER_LETTERS = /^\p{Ll}+$/u;
const DIGITS = /^\p{Nd}+$/u;
const SPACE = /\s/u;

/** A telling name and how it is given a value. */
interface Named {
  readonly name: string;
  readonly begin: number;
  readonly end: number;
  readonly sign: string;
  /** `NAME=value`: settings and command lines. */
  readonly glued: boolean;
  readonly upper: boolean;
  readonly kind: string;
}

interface Found {
  readonly group: string;
  readonly value: string;
  readonly start: number;
  /** Where the whole of it ends, quotes too. */
  readonly end: number;
}

/** The text with values behind telling names masked; `lower` is the text in lower case, of the same length. */
export function maskNamed(text: string, lower: string): string {
  let result = "";
  let done = 0;
  for (const at of places(lower)) {
    const named = at < done ? undefined : namedAt(text, at);
    const found = named === undefined ? undefined : valueBehind(text, named);
    if (named === undefined || found === undefined || !isSecret(text, named, found)) {
      continue;
    }
    result += `${text.slice(done, found.start)}${MASK_PREFIX}${named.kind}]`;
    done = found.start + found.value.length;
  }
  return done === 0 ? text : result + text.slice(done);
}

/** Whether a field of this name holds a secret whatever its value looks like. */
export function tellingField(name: string): boolean {
  return STRONG.search(name) !== undefined;
}

/** Where telling words with a value stand, in order. */
function places(lower: string): number[] {
  const found = new Set<number>();
  for (const [word, hits] of HITS) {
    for (const hit of lower.includes(word) ? hits.all(lower) : []) {
      found.add(hit.start);
    }
  }
  return [...found].sort((one, other) => one - other);
}

/** The whole name at a telling word; undefined when nothing behind it would be taken for a secret. */
function namedAt(text: string, at: number): Named | undefined {
  let match: Match | undefined;
  for (const form of FORMS) {
    match ??= form.match(text, at);
  }
  if (match === undefined) {
    return undefined;
  }
  let begin = at;
  if (at > 0 && ALPHANUMERIC.test(text.charAt(at - 1))) {
    const before = Array.from(text.slice(Math.max(0, at - 64), at))
      .reverse()
      .join("");
    begin = at - (BACKWARDS.match(before)?.end ?? 0);
  }
  const name = text.slice(begin, match.span("close"));
  const sign = match.groups.sign ?? "";
  const before = text.slice(Math.max(0, begin - 12), begin);
  if (
    !isTelling(name) ||
    (sign === ">" && !/[<:]$/.test(before)) ||
    (sign === "," && !trimEnd(before, "\"' ").endsWith("("))
  ) {
    return undefined;
  }
  const glued = sign === "=" && !match.groups.left && !match.groups.right;
  const lower = match.text.toLowerCase();
  const kind = KINDS.find((word) => lower.includes(word)) ?? "password";
  return { name, begin, end: match.end, sign, glued, upper: isUpper(name), kind };
}

/** What stands behind a name, if it may be a value at all. */
function valueBehind(text: string, named: Named): Found | undefined {
  const at = named.end;
  if (PLACEHOLDER.match(text, at)) {
    return undefined;
  }
  if (named.sign === ">") {
    return found(ELEMENT_VALUE.match(text, at));
  }
  if (named.glued && named.upper && !CALL.match(text, at)) {
    // A line of settings: the value is all that follows, whatever characters it holds.
    const before = text.slice(Math.max(0, named.begin - 40), named.begin);
    const setting = SETTING_VALUE.match(text, at);
    if (setting !== undefined && (before === "" || LINE_START.search(before))) {
      return found(setting);
    }
  }
  return found(VALUE.match(text, at));
}

function found(match: Match | undefined): Found | undefined {
  const group = VALUE_GROUPS.find((name) => match?.groups[name] !== undefined);
  if (match === undefined || group === undefined) {
    return undefined;
  }
  return { group, value: match.groups[group] ?? "", start: match.span(group), end: match.end };
}

function isTelling(name: string): boolean {
  return !ABOUT.search(name) && (isUpper(name) || tellingField(name));
}

function isUpper(name: string): boolean {
  return UPPER.fits(rpartition(trimStart(name, ".-_"), ".")[2]);
}

/** Whether a value behind a telling name is a secret, rather than code about one. */
function isSecret(text: string, named: Named, { group, value, end }: Found): boolean {
  const password = PASSWORD.search(named.name) !== undefined;
  if (length(value) < 4 || PLACEHOLDER.match(value) || value === "VALUE" || value === "value") {
    return false;
  }
  if (!tellingField(named.name) && !DIGIT.search(value)) {
    return false; // `META_KEY = "some/name"`
  }
  const quoted = group !== "bare" && group !== "setting";
  if (named.upper && named.glued && password && quoted) {
    return true; // a setting: what looks like prose or a number there is a password all the same
  }
  if (PLAIN_VALUE.fits(value)) {
    return password && DIGITS.test(value) && value.length >= 6;
  }
  if (group === "setting") {
    return !isVariable(value) && (length(value) >= 6 || !REFERENCE.fits(value));
  }
  return quoted ? quotedSecret(named.name, value, password) : bareSecret(text, named, value, end, password);
}

function quotedSecret(name: string, value: string, password: boolean): boolean {
  if (SPACE.test(value)) {
    return false;
  }
  if (password) {
    return (length(value) >= 6 || FREE_FORM.search(name) !== undefined) && !NOT_A_PASSWORD.fits(value.toLowerCase());
  }
  return length(value) >= 8 && hasVariety(value);
}

function bareSecret(text: string, named: Named, value: string, end: number, password: boolean): boolean {
  const after = text.charAt(end);
  if (after !== "" && "([{".includes(after)) {
    return false; // a call or an index: code
  }
  const reference = REFERENCE.fits(value);
  if (named.glued) {
    if (reference && (after === "," || after === ")" || isVariable(value))) {
      return false; // `name=name,` is a keyword argument
    }
    return (named.upper && length(value) >= 6) || !reference || (password && !value.includes("."));
  }
  if (password && ["", "\n", "\r"].includes(after) && plainPassword(text, named, value)) {
    return true;
  }
  return !reference && !TYPE.fits(value) && length(value) >= 6 && hasVariety(value);
}

/** `self.token`, or `token,` on a line of arguments. */
function isVariable(value: string): boolean {
  const bare = trimEnd(value, ",)");
  return REFERENCE.fits(bare) && (bare.includes(".") || bare !== value);
}

/** `password: correcthorse` on a line of its own, as in YAML; a type or a variable is not one. */
function plainPassword(text: string, named: Named, value: string): boolean {
  const before = text.slice(Math.max(0, named.begin - 40), named.begin);
  const bare = trim(rpartition(before, "\n")[2], " -\t\"'") === "";
  const alone = bare && (before.length === named.begin || before.includes("\n"));
  const ordinary = NOT_A_PASSWORD.fits(value) || WORDS.some((word) => value.includes(word));
  return alone && named.sign === ":" && length(value) >= 8 && LOWER_LETTERS.test(value) && !ordinary;
}

/** Digits among letters, or letters of both cases and some length: not an ordinary word. */
function hasVariety(value: string): boolean {
  const letters = LETTER.search(value) !== undefined;
  if (letters && DIGIT.search(value)) {
    return true;
  }
  return length(value) >= 16 && letters && value.toLowerCase() !== value && value.toUpperCase() !== value;
}
