// Text from elsewhere in numbered lines. However long it is, what stands in the document is bounded: pages of lines, and
// long lines by their head and tail. It never shows a character that hides.

import { type ReactNode, useState } from "react";
import { visible, whole } from "./visible";
import { counted, thousands } from "./words";

export const PAGE_LINES = 1000;
const FIRST_LINES = 200;
const LONGEST_LINE = 3000;
const HEAD = 2000;
const TAIL = 400;
const MORE = 20_000;

interface LinesProps {
  text: string;
  /** The number of its first line; null for no numbers. */
  start?: number | null;
  /** What it is, for those who cannot see it. */
  label: string;
  /** So many lines are shown before one asks for more. */
  first?: number;
}

/** A block of text, a page of lines at a time. */
export function Lines({ text, start = 1, label, first = FIRST_LINES }: LinesProps) {
  const [from, setFrom] = useState(0);
  const [size, setSize] = useState(first);
  const total = countLines(text);
  const shown = someLines(text, from, size);
  const numbers = start === null ? undefined : start + from;
  // Another page is another block, seen from its top.
  return (
    <div className="text-block">
      <pre key={from} {...block(label)} data-numbered={start === null ? undefined : ""}>
        {shown.map((line, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a line is known by its place
          <Line key={from + index} number={numbers === undefined ? undefined : numbers + index}>
            {long(line)}
          </Line>
        ))}
      </pre>
      <Pager
        total={total}
        from={from}
        size={size}
        grow={() => setSize(PAGE_LINES)}
        move={(to) => {
          setSize(PAGE_LINES);
          setFrom(to);
        }}
      />
    </div>
  );
}

/** A block of lines. One that follows its end scrolls by itself, and is reached with the keyboard. */
export function block(label: string, follows = false) {
  const named = { role: "group", "aria-label": label, className: "text-lines" };
  return follows ? { ...scrollable(label), className: "text-lines text-follows" } : named;
}

/** What scrolls must be reachable with the keyboard, and say what it is. */
export function scrollable(label: string) {
  return { role: "group", tabIndex: 0, "aria-label": label };
}

/** One line of a block. Its number is no text: it is neither copied nor mistaken for content. */
export function Line({ number, children }: { number: number | undefined; children: ReactNode }) {
  return (
    <div className="text-line" data-number={number}>
      {children}
      {"\n"}
    </div>
  );
}

/** A line as it is where it is short; by its head and tail where it is long. */
export function long(text: string): ReactNode {
  return text.length <= LONGEST_LINE ? visible(text) : <LongText text={text} />;
}

/** A line by its head and tail; more of it when asked for. */
function LongText({ text }: { text: string }) {
  const [head, setHead] = useState(HEAD);
  if (head + TAIL >= text.length) return visible(text);
  const cut = whole(text, head);
  const rest = whole(text, text.length - TAIL);
  return (
    <>
      {visible(text.slice(0, cut))}
      <button type="button" className="text-more" onClick={() => setHead(head + MORE)} title="Show more of this line">
        … {thousands(rest - cut)} characters …
      </button>
      {visible(text.slice(rest))}
    </>
  );
}

interface PagerProps {
  total: number;
  from: number;
  size: number;
  /** What is counted. */
  noun?: string;
  /** How many there are on a page. */
  page?: number;
  /** From the first few to a whole page, where it begins with a few. */
  grow?: () => void;
  move: (from: number) => void;
}

/** Which part is shown, and the way to the others. Nothing where everything is. */
export function Pager({ total, from, size, noun = "line", page = PAGE_LINES, grow, move }: PagerProps) {
  if (total <= size && from === 0) return null;
  const last = Math.min(total, from + size);
  return (
    <div className="text-pager">
      <span>
        {thousands(from + 1)}–{thousands(last)} of {counted(total, noun)}
      </span>
      {from > 0 && (
        <button type="button" onClick={() => move(Math.max(0, from - page))}>
          Show those before
        </button>
      )}
      {last < total && (
        <button type="button" onClick={() => (size < page ? grow?.() : move(from + page))}>
          {size < page ? "Show more" : "Show those after"}
        </button>
      )}
    </div>
  );
}

/** How many lines a text has; a newline at its end opens no further one. */
export function countLines(text: string): number {
  let count = 0;
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) count += 1;
  return text.endsWith("\n") ? count : count + 1;
}

/** Some lines of a text, without splitting the rest of it. */
export function someLines(text: string, from: number, count: number): string[] {
  let at = 0;
  for (let skipped = 0; skipped < from; skipped += 1) {
    const end = text.indexOf("\n", at);
    if (end === -1) return [];
    at = end + 1;
  }
  const found: string[] = [];
  while (found.length < count && (at < text.length || found.length + from === 0)) {
    const end = text.indexOf("\n", at);
    found.push(text.slice(at, end === -1 ? text.length : end));
    if (end === -1) break;
    at = end + 1;
  }
  return found;
}
