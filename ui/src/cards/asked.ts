// The server's words of a question, put to where they belong: what would happen, and what else is to be known before the
// answer. Only leaves out what stands elsewhere on the same card; all of it is safe to show.

import type { WriteChange } from "@protocol";
import type { Question } from "../state/model";
import { shortened, visible } from "../text/visible";

const LONGEST_LINE = 2000;
const EITHER_WAY = ", replacing the file if there is one: ";
const ABSENT = /^There is no '.*' now; one that appears before it is written stops it\.$/;
const PRESENT =
  /^It (?:replaces|adds to) '.*' as it is now \((.*), sha256 .*\); a change before it is written stops it\.$/;

export interface Asked {
  headline: string;
  /** Without reasons and content, which have places of their own, and without what a difference says itself. */
  lines: string[];
}

/** `change` is null while it is not known, or cannot be: then the server's sentences about the file are all there is. */
export function asked(question: Question, change: WriteChange | null): Asked {
  const reasons = new Set(question.findings.map((finding) => finding.reason));
  const content = question.tool_params.content;
  const below = (line: string) =>
    reasons.has(line) ||
    (Boolean(content) && line.startsWith("Content: ")) ||
    (change !== null && change.before_sha256 !== null && (ABSENT.test(line) || PRESENT.test(line)));
  const [first = "", ...rest] = question.description.split("\n");
  const shown = (line: string) => shortened(visible(line), LONGEST_LINE);
  return { headline: shown(headline(first, change)), lines: rest.filter((line) => !below(line)).map(shown) };
}

// Once a machine has looked, it is known whether there is a file. The last place counts: a path may hold such words.
function headline(first: string, change: WriteChange | null): string {
  const at = first.lastIndexOf(EITHER_WAY);
  if (!first.startsWith("Write ") || at < 0 || !change || change.before_sha256 === null) return first;
  const path = first.slice("Write ".length, at);
  const does = change.before_sha256 === "missing" ? "Write a new file" : "Replace";
  return `${does} ${path}: ${first.slice(at + EITHER_WAY.length)}`;
}

/** How large and how old what would be replaced is: `8 bytes, written by the agent 2 minutes ago`. */
export function seenBefore(question: Question): string | null {
  for (const line of question.description.split("\n")) {
    const found = PRESENT.exec(line)?.[1];
    if (found) return visible(found);
  }
  return null;
}
