// The digest that ties an approval to exactly what was shown. The server computed it from the parameters it holds, the
// client computes it again from those it was signalled: canonical JSON, sorted keys, no spaces. What JSON cannot say the
// same way twice is refused rather than guessed: then nobody can have approved it.

import { createHash } from "node:crypto";

/** The value has no one spelling, so it has no digest. */
export class NotCanonical extends Error {
  override readonly name = "NotCanonical";
}

const MAX_DEPTH = 200;
const NAMED: ReadonlyMap<string, string> = new Map([
  ['"', '\\"'],
  ["\\", "\\\\"],
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"],
  ["\f", "\\f"],
  ["\b", "\\b"],
]);

/** One spelling for one meaning. */
export function canonicalJson(value: unknown, depth = 0): string {
  if (depth > MAX_DEPTH) {
    throw new NotCanonical("The value is nested too deeply.");
  }
  switch (typeof value) {
    case "string":
      return canonicalText(value);
    case "boolean":
      return String(value);
    case "number":
      // A fraction is written differently by different programs; no parameter is one.
      if (!Number.isSafeInteger(value)) {
        throw new NotCanonical(`The number ${value} has no one spelling.`);
      }
      return String(value);
    case "object":
      break;
    default:
      throw new NotCanonical(`JSON has no ${typeof value}.`);
  }
  if (value === null) {
    return "null";
  }
  if (Array.isArray(value)) {
    return `[${value.map((item) => canonicalJson(item, depth + 1)).join(",")}]`;
  }
  const entries = Object.entries(value as object).sort(([one], [other]) => byCharacter(one, other));
  return `{${entries.map(([key, item]) => `${canonicalText(key)}:${canonicalJson(item, depth + 1)}`).join(",")}}`;
}

function canonicalText(text: string): string {
  const shown = text.replace(/[^ !#-[\]-~]/g, (unit) => {
    return NAMED.get(unit) ?? `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
  return `"${shown}"`;
}

/** By code points, as Python sorts: halves of characters would sort before some that come first. */
function byCharacter(one: string, other: string): number {
  const [left, right] = [Array.from(one), Array.from(other)];
  for (let at = 0; at < Math.min(left.length, right.length); at += 1) {
    const difference = (left[at]?.codePointAt(0) ?? 0) - (right[at]?.codePointAt(0) ?? 0);
    if (difference !== 0) {
      return difference;
    }
  }
  return left.length - right.length;
}

/** Digest of one call. `bound` holds what else was shown, such as the digests of scripts that would run. */
export function callDigest(
  toolName: string,
  toolParams: Readonly<Record<string, unknown>>,
  projectId: string,
  bound: Readonly<Record<string, unknown>> = {},
): string {
  const value = { tool: toolName, params: toolParams, project: projectId, bound };
  return createHash("sha256").update(canonicalJson(value), "ascii").digest("hex");
}
