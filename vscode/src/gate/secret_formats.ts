// Secrets known by their form or by the place they stand in: provider keys, headers, URLs, key blocks, command lines. The
// forms are the tables'. Each has a needle, a plain text that must occur before its pattern is tried.

import { type Match, pattern, patternOf } from "./patterns.js";
import { FORMATS, type Format, numberOf, textOf } from "./tables.js";

export const MASK_PREFIX = textOf("secret_formats.MASK_PREFIX");
/** What people write where a secret will stand. */
export const PLACEHOLDER = pattern("secret_formats.PLACEHOLDER");
/** An option whose value is a secret, spelled alone. */
export const OPTION_NAME = pattern("secret_formats.OPTION_NAME");
const SHORTEST_KEY = numberOf("secret_formats.SHORTEST_KEY");
const REACH = numberOf("secret_formats.REACH");
const SIGNS = ["", "_", "-", "."];
const RUNS = new Map(["_", "-", "."].map((sign) => [sign, pattern(`secret_formats.RUNS${sign}`)]));
const KEYS = SIGNS.map((sign) => FORMATS.filter((form) => form.where === "key" && (form.sign ?? "") === sign));
const PLACES = FORMATS.filter((form) => form.where === "place");
const WORDS = FORMATS.filter((form) => form.where === "word");

/** The text without secrets that are known by their form; `lower` is the text in lower case. */
export function maskFormats(text: string, lower: string): string {
  let masked = text;
  if (text.length >= SHORTEST_KEY) {
    for (const [index, forms] of KEYS.entries()) {
      const around = partsWith(text, SIGNS[index] as string);
      for (const form of around === "" ? [] : forms) {
        masked = around.includes(form.needle) ? mask(form, masked) : masked;
      }
    }
  }
  for (const form of PLACES) {
    masked = text.includes(form.needle) && lower.includes(form.also ?? "") ? mask(form, masked) : masked;
  }
  for (const form of WORDS) {
    masked = lower.includes(form.needle) && lower.includes(form.also ?? "") ? mask(form, masked) : masked;
  }
  return masked;
}

function mask(form: Format, text: string): string {
  const shown = `${MASK_PREFIX}${form.kind}]`;
  return patternOf(form.pattern).sub(text, (match) => (form.part ? withoutPart(match, shown) : shown));
}

function withoutPart(match: Match, shown: string): string {
  const part = match.groups.g1 ?? "";
  if (PLACEHOLDER.match(part)) {
    return match.text;
  }
  const at = match.span("g1");
  return match.text.slice(0, at - match.start) + shown + match.text.slice(at - match.start + part.length);
}

/** The parts of a text in which prefixes with this sign may stand. */
function partsWith(text: string, sign: string): string {
  const runs = RUNS.get(sign);
  if (runs === undefined) {
    return text;
  }
  if (!text.includes(sign)) {
    return "";
  }
  return Array.from(runs.all(text), (run) => text.slice(Math.max(0, run.start - REACH), run.end + 4)).join("\n");
}
