// The difference of two texts as rows to show. Every line keeps how it ended (newline, carriage return, nothing), so that
// nothing that changes can look the same. Work is bounded whatever the texts are: what is alike at both ends is taken off
// first, and what is too long or too different is shown as removed and added, unmatched.

import { diffArrays, diffWordsWithSpace } from "diff";
import { whole } from "../text/visible";

const MOST_LINES = 20_000;
const MOST_CHARACTERS = 1_048_576;
const MOST_EDITS = 1500;
const MOST_MILLISECONDS = 400;
const LONGEST_WORDED = 1000;
const MOST_WORDED = 400;
const MOST_WORD_EDITS = 120;
const CONTEXT = 3;

/** A part of a line; `changed` where it differs from its partner. */
export interface Part {
  text: string;
  changed: boolean;
}

export interface Side {
  number: number;
  parts: Part[];
  /** Whether a newline ends it; only the last line of a text may have none. */
  ended: boolean;
}

export type Row =
  | { kind: "same"; before: Side; after: Side }
  | { kind: "changed"; before: Side; after: Side }
  | { kind: "removed"; before: Side }
  | { kind: "added"; after: Side };

export interface Difference {
  /** Runs of rows; a run of unchanged ones beyond the context is folded. */
  runs: { folded: boolean; rows: Row[] }[];
  added: number;
  removed: number;
  /** Why the lines were not matched up, or not all are here; null where all is well. */
  note: string | null;
}

export function difference(before: string, after: string): Difference {
  const cut = limited(before, after);
  const rows = cut.rows ?? pairs(tokens(cut.before), tokens(cut.after));
  return { ...counts(rows.rows), runs: folded(rows.rows), note: cut.note ?? rows.note };
}

interface Rows {
  rows: Row[];
  note: string | null;
}

/** A text cut to its head and tail where it is enormous. The parts are shown and not compared: their places are lost. */
function limited(
  before: string,
  after: string,
): { before: string; after: string; rows: Rows | null; note: string | null } {
  const small = before.length <= MOST_CHARACTERS && after.length <= MOST_CHARACTERS;
  if (small) return { before, after, rows: null, note: null };
  const rows = [...unmatched(ends(before), "removed"), ...unmatched(ends(after), "added")];
  const note = "It is too long to be compared here: the beginning and the end of each side are shown.";
  return { before, after, rows: { rows, note }, note };
}

interface Numbered {
  line: string;
  number: number;
}

const ENDS = 32 * 1024;

function ends(text: string): Numbered[] {
  const numbered = (part: string, first: number) =>
    tokens(part).map((line, index) => ({ line, number: first + index }));
  if (text.length <= 2 * ENDS) return numbered(text, 1);
  const start = text.indexOf("\n", text.length - ENDS) + 1 || text.length - ENDS;
  let skipped = 1;
  for (let at = text.indexOf("\n"); at !== -1 && at < start; at = text.indexOf("\n", at + 1)) skipped += 1;
  return [...numbered(text.slice(0, ENDS), 1), ...numbered(text.slice(start), skipped)];
}

function unmatched(sides: Numbered[], kind: "removed" | "added"): Row[] {
  return sides.map(({ line, number }) =>
    kind === "removed" ? { kind, before: side(line, number) } : { kind, after: side(line, number) },
  );
}

/** Lines with their newline; the last one may have none. */
function tokens(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function side(line: string, number: number, parts?: Part[]): Side {
  const ended = line.endsWith("\n");
  return { number, ended, parts: parts ?? [{ text: ended ? line.slice(0, -1) : line, changed: false }] };
}

function pairs(before: string[], after: string[]): Rows {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  while (
    tail < before.length - head &&
    tail < after.length - head &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  )
    tail += 1;
  const rows: Row[] = [];
  const same = (line: string, index: number, other: number) =>
    rows.push({ kind: "same", before: side(line, index + 1), after: side(line, other + 1) });
  for (let index = 0; index < head; index += 1) same(before[index] as string, index, index);
  const note = middle(rows, before.slice(head, before.length - tail), after.slice(head, after.length - tail), head);
  for (let left = tail; left > 0; left -= 1) {
    same(before[before.length - left] as string, before.length - left, after.length - left);
  }
  return { rows, note };
}

function middle(rows: Row[], before: string[], after: string[], head: number): string | null {
  const long = before.length + after.length > MOST_LINES;
  const found = long ? undefined : diffArrays(before, after, { maxEditLength: MOST_EDITS, timeout: MOST_MILLISECONDS });
  const changes = found ?? [
    { value: before, added: false, removed: true },
    { value: after, added: true, removed: false },
  ];
  let left = head;
  let right = head;
  let worded = 0;
  for (let at = 0; at < changes.length; at += 1) {
    const change = changes[at];
    const next = changes[at + 1];
    if (!change) break;
    if (!change.added && !change.removed) {
      for (const line of change.value) {
        left += 1;
        right += 1;
        rows.push({ kind: "same", before: side(line, left), after: side(line, right) });
      }
      continue;
    }
    const gone = change.removed ? change.value : [];
    const come = change.removed ? (next?.added ? next.value : []) : change.value;
    if (change.removed && next?.added) at += 1;
    const partners = found ? Math.min(gone.length, come.length) : 0;
    for (let index = 0; index < partners; index += 1) {
      const [old, young] = [gone[index] as string, come[index] as string];
      const words =
        Math.max(old.length, young.length) > LONGEST_WORDED + 1 ? edges(old, young) : wordsOf(worded, old, young);
      worded += 1;
      rows.push({
        kind: "changed",
        before: side(old, left + index + 1, words?.before),
        after: side(young, right + index + 1, words?.after),
      });
    }
    rows.push(...unmatched(numbered(gone, partners, left), "removed"));
    rows.push(...unmatched(numbered(come, partners, right), "added"));
    left += gone.length;
    right += come.length;
  }
  if (found || before.length === 0 || after.length === 0) return null;
  return "The two are too long or too different to match up line by line: the old lines are shown, then the new ones.";
}

const numbered = (lines: string[], from: number, offset: number): Numbered[] =>
  lines.slice(from).map((line, index) => ({ line, number: offset + from + index + 1 }));

const wordsOf = (count: number, before: string, after: string) =>
  count < MOST_WORDED ? intraline(before, after) : null;

/** Of long lines all between what they begin and end with alike: what changes must not hide in the middle of them. */
function edges(before: string, after: string): { before: Part[]; after: Part[] } {
  const [old, young] = [before.replace(/\n$/, ""), after.replace(/\n$/, "")];
  const most = Math.min(old.length, young.length);
  let head = 0;
  while (head < most && old[head] === young[head]) head += 1;
  head = Math.min(whole(old, head), whole(young, head));
  let tail = 0;
  while (tail < most - head && old[old.length - 1 - tail] === young[young.length - 1 - tail]) tail += 1;
  if (tail > 0 && whole(old, old.length - tail) !== old.length - tail) tail -= 1;
  const parts = (text: string): Part[] =>
    [
      { text: text.slice(0, head), changed: false },
      { text: text.slice(head, text.length - tail), changed: true },
      { text: text.slice(text.length - tail), changed: false },
    ].filter((part) => part.text !== "");
  return { before: parts(old), after: parts(young) };
}

/** Which words of a changed line changed; null where marking them would say nothing or cost too much. */
function intraline(before: string, after: string): { before: Part[]; after: Part[] } | null {
  const [old, young] = [before.replace(/\n$/, ""), after.replace(/\n$/, "")];
  if (old === young) return null;
  const changes = diffWordsWithSpace(old, young, { maxEditLength: MOST_WORD_EDITS });
  if (!changes) return null;
  const alike = changes.reduce((sum, each) => (each.added || each.removed ? sum : sum + each.value.trim().length), 0);
  if (alike * 4 < Math.max(old.trim().length, young.trim().length)) return null;
  const parts = (skip: "added" | "removed") =>
    changes.filter((each) => !each[skip]).map((each) => ({ text: each.value, changed: each.added || each.removed }));
  return { before: parts("added"), after: parts("removed") };
}

function counts(rows: Row[]): { added: number; removed: number } {
  let added = 0;
  let removed = 0;
  for (const { kind } of rows) {
    if (kind === "added" || kind === "changed") added += 1;
    if (kind === "removed" || kind === "changed") removed += 1;
  }
  return { added, removed };
}

/** Unchanged rows further than the context from a change are folded, where that saves any. */
function folded(rows: Row[]): Difference["runs"] {
  const runs: Difference["runs"] = [];
  let at = 0;
  while (at < rows.length) {
    const start = at;
    const same = rows[at]?.kind === "same";
    while (at < rows.length && (rows[at]?.kind === "same") === same) at += 1;
    if (!same) {
      runs.push({ folded: false, rows: rows.slice(start, at) });
      continue;
    }
    const from = start === 0 ? start : start + CONTEXT;
    const to = at === rows.length ? at : at - CONTEXT;
    if (to - from <= 2) {
      runs.push({ folded: false, rows: rows.slice(start, at) });
      continue;
    }
    if (from > start) runs.push({ folded: false, rows: rows.slice(start, from) });
    runs.push({ folded: true, rows: rows.slice(from, to) });
    if (at > to) runs.push({ folded: false, rows: rows.slice(to, at) });
  }
  return runs;
}
