// A rule on one line, as one would type it, and back. What is read back is exactly what was written: a line with
// characters that cannot be seen, or with an open quote, is no rule.

import type { GrantRule } from "@protocol";
import { visible } from "../text/visible";

const plain = (word: string) => (/^[^\s'"\\]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

/** The line of a rule; null where it has none that could be edited. */
export function ruleLine(rule: GrantRule): string | null {
  if (rule.tool === "execute_command") {
    return [...(rule.command ?? []).map(plain), ...(rule.exact ? [] : ["..."])].join(" ");
  }
  return rule.paths?.length ? rule.paths.map(plain).join(" ") : null;
}

/** The rule with what an edited line says. Throws with the reason where it says nothing usable. */
export function readRule(line: string, rule: GrantRule): GrantRule {
  if (ruleLine(rule) === null) return rule;
  if (visible(line) !== line) throw new Error("The line holds characters that cannot be seen.");
  const words = split(line);
  if (words.length === 0) throw new Error("A rule needs at least one word.");
  if (rule.tool !== "execute_command") return { ...rule, paths: words };
  const open = ["...", "…"].includes(words[words.length - 1] as string);
  return { ...rule, command: open ? words.slice(0, -1) : words, exact: !open };
}

function split(line: string): string[] {
  const words: string[] = [];
  let word: string | null = null;
  for (const [piece] of line.matchAll(/'[^']*'|"[^"]*"|[^\s'"]+|\s+|['"]/g)) {
    if (/^\s/.test(piece)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (piece === "'" || piece === '"') {
      throw new Error("A quotation mark is not closed.");
    } else {
      word = (word ?? "") + (/^['"]/.test(piece) ? piece.slice(1, -1) : piece);
    }
  }
  if (word !== null) words.push(word);
  return words;
}
