// A typed line to the words of a command. Quotes group and a backslash takes the next character as it is; nothing is
// expanded, because no shell is involved anywhere. What cannot be split for certain is refused, never guessed.

export type Split = { words: string[]; problem: null } | { words: null; problem: string };

interface Reading {
  words: string[];
  /** The word being read; null between words. */
  word: string | null;
  quote: "'" | '"' | null;
  openedAt: number;
}

export function splitLine(line: string): Split {
  const reading: Reading = { words: [], word: null, quote: null, openedAt: 0 };
  for (let at = 0; at < line.length; at += 1) {
    const taken = take(reading, line, at);
    if (taken === null) return refuse("A backslash at the end has nothing to take as it is. Remove it, or double it.");
    at += taken;
  }
  if (reading.quote !== null) {
    const opened = line.slice(reading.openedAt, reading.openedAt + 12);
    return refuse(`The quote that opens at ${opened}… is never closed. Close it, or put a backslash before it.`);
  }
  if (reading.word !== null) reading.words.push(reading.word);
  return { words: reading.words, problem: null };
}

const refuse = (problem: string): Split => ({ words: null, problem });

/** Reads one character; answers how many further ones it took with it, or null when one is missing. */
function take(reading: Reading, line: string, at: number): number | null {
  const mark = line.charAt(at);
  if (mark === "\\" && reading.quote !== "'") {
    const next = line.charAt(at + 1);
    if (next === "") return null;
    // Between double quotes a backslash is itself, except before what would end them or itself.
    const kept = reading.quote === '"' && next !== '"' && next !== "\\" ? mark + next : next;
    reading.word = (reading.word ?? "") + kept;
    return 1;
  }
  if (reading.quote !== null) {
    if (mark === reading.quote) reading.quote = null;
    else reading.word += mark;
  } else if (mark === "'" || mark === '"') {
    reading.quote = mark;
    reading.openedAt = at;
    reading.word ??= "";
  } else if (/\s/.test(mark)) {
    if (reading.word !== null) reading.words.push(reading.word);
    reading.word = null;
  } else {
    reading.word = (reading.word ?? "") + mark;
  }
  return 0;
}

const SHELL = /^(\||\|\||&&|&|;|>|>>|<|<<|2>|2>&1)$|[;&|]$|\$\(|^\$\w|`|^~/;

/** Words a shell would have done something with; here they are handed over as they stand. */
export function shellWords(words: string[]): string[] {
  return words.slice(1).filter((word) => SHELL.test(word));
}
