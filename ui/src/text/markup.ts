// Limits that hold before any Markdown is parsed: a parser of Markdown is slow on long or deeply nested text, and a
// message is written by whoever likes. It only measures and cuts.

import { whole } from "./visible";

/** Shown at first; and at most, as Markdown. */
export const FIRST_CHARACTERS = 20_000;
export const MOST_CHARACTERS = 100_000;

const LONGEST_BLOCK = 4000;
const MOST_LINES = 150;
const MOST_MARKERS = 12;
const WIDEST_INDENT = 32;
const MOST_MARKS = 300;

/** Whether one block is so long, so deeply nested or so full of marks that parsing it could take long. */
export function isHeavy(block: string): boolean {
  if (block.length > LONGEST_BLOCK) return true;
  const all = block.split("\n");
  return all.length > MOST_LINES || all.some(nested) || marks(block) > MOST_MARKS;
}

// `> - > 1. …`: the containers a line opens one inside the other.
const CONTAINERS = /^(?:[ \t]*(?:>|[-+*](?=[ \t])|\d{1,9}[.)](?=[ \t])))+/;

function nested(line: string): boolean {
  const words = line.trimStart();
  if (line.length - words.length > WIDEST_INDENT && /^[-+*>\d]/.test(words)) return true;
  const opened = CONTAINERS.exec(line)?.[0] ?? "";
  return opened.replace(/[ \t\d]/g, "").length > MOST_MARKERS;
}

// Brackets, emphasis, code and angles open something that is looked for to the end of the block.
function marks(block: string): number {
  let count = 0;
  for (const character of block) if ("[]*_~`<!&|".includes(character)) count += character === "|" ? 0.25 : 1;
  return count;
}

/** The beginning of a text, whole lines where there are any. */
export function beginning(text: string, most: number): string {
  if (text.length <= most) return text;
  const end = text.lastIndexOf("\n", most);
  return text.slice(0, end > most / 2 ? end : whole(text, most));
}
