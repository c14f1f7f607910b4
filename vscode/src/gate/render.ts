// What people are shown: text with nothing hidden and nothing that moves a cursor, secrets masked. Characters that a
// screen obeys or that nobody sees come out as `\x1b` or `\u{202e}`; long padding is collapsed and said so; every argument
// has its own quotes.

import { createHash } from "node:crypto";
import { escaped, visible } from "./characters.js";
import { type Match, pattern } from "./patterns.js";
import { maskArguments, maskText, maskValue } from "./secrets.js";
import { first, last, length, occurrences, utf8Bytes } from "./strings.js";
import { numberOf } from "./tables.js";

type JsonObject = Readonly<Record<string, unknown>>;

const MAX_SHOWN_CONTENT = numberOf("render.MAX_SHOWN_CONTENT");
const EDGE = Math.floor(MAX_SHOWN_CONTENT / 2);
const CONTEXT = numberOf("render.CONTEXT");
const MASK_WHOLE = numberOf("render.MASK_WHOLE");
const PADDING = pattern("render.PADDING");
const PADDING_IN_LINES = pattern("render.PADDING_IN_LINES");
const UNSEEN = pattern("render.UNSEEN");
const EMPTY_LINES = pattern("render.EMPTY_LINES");
const REPEATED = pattern("render.REPEATED");
const LONG_RUN = pattern("render.LONG_RUN");
const SPELLED_OUT = pattern("render.SPELLED_OUT");
const HIDDEN_IN_LINES = pattern("render.HIDDEN_IN_LINES");

/** Text that shows all it holds and moves no cursor, on one line. */
export function safeText(given: string): string {
  let text = PADDING.sub(given, blanks);
  text = REPEATED.sub(text, (found) => `${escaped(found.groups.g1 ?? "")} [${length(found.text)} times] `);
  text = UNSEEN.sub(text, (found) => ` [${length(found.text)} blank or hidden characters] `);
  return visible(text);
}

/** As `safeText`, keeping line ends and tabs: for output and content. */
export function safeLines(given: string): string {
  let text = EMPTY_LINES.sub(given, (found) => `\n[${occurrences(found.text, "\n")} line ends]\n`);
  text = PADDING_IN_LINES.sub(text, blanks);
  return HIDDEN_IN_LINES.sub(text, (found) => escaped(found.text));
}

function blanks(found: Match): string {
  return ` [${length(found.text)} blanks] `;
}

/**
 * One argument between quotes, so that its ends are visible; secrets masked. Two different texts never look the same: a
 * backslash that was written is doubled, so that one alone says that something is spelled out.
 */
export function quote(text: string): string {
  const doubled = maskText(text).replaceAll("\\", "\\\\").replaceAll("'", "\\'");
  const counted = LONG_RUN.sub(doubled, (found) => `\\[${run(found.text)}]`);
  return `'${SPELLED_OUT.sub(counted, (found) => escaped(found.text))}'`;
}

function run(unseen: string): string {
  const [one = "", ...others] = unseen;
  if (others.every((other) => other === one)) {
    return one === " " ? `${length(unseen)} spaces` : `${length(unseen)} times ${escaped(one)}`;
  }
  // Of which kinds, and in which order, would be as long as the run itself.
  const digest = createHash("sha256").update(unseen, "utf8").digest("hex").slice(0, 16);
  return `${length(unseen)} blank or hidden characters, SHA-256 ${digest}`;
}

/** The whole call, nothing left out: every parameter, every argument, every line; secrets masked, safe to print. */
export function fullText(toolName: string, params: JsonObject): string {
  const lines = [safeText(maskText(toolName))];
  for (const [name, value] of Object.entries(maskedParams(toolName, params))) {
    const label = safeText(name);
    if (typeof value === "string" && value.includes("\n")) {
      const amount = `${counted(utf8Bytes(value), "byte")}, ${counted(lineCount(value), "line")}`;
      lines.push(
        `${label} (${amount}):`,
        ...safeLines(value)
          .split("\n")
          .map((line) => `  | ${line}`),
      );
    } else if (Array.isArray(value)) {
      lines.push(`${label} (${value.length}):`, ...value.map((item, at) => `  ${at + 1}: ${quote(String(item))}`));
    } else {
      lines.push(`${label}: ${typeof value === "string" ? quote(value) : safeText(plainValue(value))}`);
    }
  }
  return lines.join("\n");
}

function plainValue(value: unknown): string {
  return value === null ? "None" : value === true ? "True" : value === false ? "False" : String(value);
}

function lineCount(text: string): number {
  return text === "" ? 0 : occurrences(text, "\n") + (text.endsWith("\n") ? 0 : 1);
}

function counted(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** Parameters for logs: secrets masked, long content shortened and said so. */
export function shownParams(toolName: string, params: JsonObject): JsonObject {
  const { content, ...others } = params;
  if (toolName !== "write_file" || typeof content !== "string" || length(content) <= MAX_SHOWN_CONTENT) {
    return maskedParams(toolName, params);
  }
  return {
    ...maskedParams(toolName, others),
    content: shortened(content),
    content_size: utf8Bytes(content),
    content_sha256: createHash("sha256").update(content, "utf8").digest("hex"),
  };
}

function maskedParams(toolName: string, params: JsonObject): JsonObject {
  const masked = maskValue(params);
  if (typeof masked !== "object" || masked === null) {
    return { withheld: masked };
  }
  const { command, args } = params;
  if (toolName === "execute_command" && typeof command === "string" && Array.isArray(args) && args.length > 0) {
    // What an argument means depends on the command: `-p` of one is a port, of another a password.
    if (args.every((arg) => typeof arg === "string")) {
      return { ...masked, args: maskArguments([command, ...args]).slice(1) };
    }
  }
  return masked as JsonObject;
}

function shortened(content: string): string {
  const leftOut = `\n[… ${length(content) - MAX_SHOWN_CONTENT} characters left out …]\n`;
  if (length(content) <= MASK_WHOLE) {
    const masked = maskText(content);
    return length(masked) <= MAX_SHOWN_CONTENT ? masked : first(masked, EDGE) + leftOut + last(masked, EDGE);
  }
  const head = first(maskText(first(content, EDGE + CONTEXT)), EDGE);
  return head + leftOut + last(maskText(last(content, EDGE + CONTEXT)), EDGE);
}
