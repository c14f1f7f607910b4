// Masks a text that comes in pieces, so that a secret which straddles two of them is not passed on in halves. A line is
// held back until it ends, a private key until its last line; a line without end leaves in parts. What already left is
// remembered for a while: it may say what the next line means. Memory is bounded.

import { maskText, WITHHELD } from "./secrets.js";
import { numberOf, textOf } from "./tables.js";

const MAX_HELD = numberOf("streams.MAX_HELD");
const REMEMBERED = numberOf("streams.REMEMBERED");
const LONGEST_SECRET = numberOf("streams.LONGEST_SECRET");
const TRIES = numberOf("streams.TRIES");
const KEY_BEGINS = textOf("streams.KEY_BEGINS");
const KEY_ENDS = textOf("streams.KEY_ENDS");

/** One stream of text: `feed` gives what may leave, masked; `end` gives the rest. */
export class MaskedStream {
  #held = "";
  #before = "";

  /** How many characters wait for the end of their line. */
  get held(): number {
    return this.#held.length;
  }

  /** Take a piece; gives back, masked, what can no longer be part of a secret to come. */
  feed(piece: string): string {
    const text = this.#held + piece;
    let at = endOfLines(text);
    if (text.length - at > MAX_HELD) {
      at = safeCut(text);
    }
    this.#held = text.slice(at);
    return this.#passOn(text.slice(0, at));
  }

  /** No more comes: the rest, masked. */
  end(): string {
    const text = this.#held;
    this.#held = "";
    return this.#passOn(text);
  }

  /** Forget what is held: its end will never be known. */
  drop(): void {
    this.#held = "";
  }

  #passOn(text: string): string {
    if (text === "") {
      return "";
    }
    const before = this.#before;
    this.#before = (before + text).slice(-REMEMBERED);
    const whole = maskText(before + text);
    const known = maskText(before);
    if (whole === WITHHELD || known === WITHHELD) {
      return `${WITHHELD}\n`;
    }
    // What came before is there to explain; when masking changed it, the new text has to speak for itself.
    return whole.startsWith(known) ? whole.slice(known.length) : maskText(text);
  }
}

/** Where the last whole line ends; a private key counts as one line, from its first to its last. */
function endOfLines(text: string): number {
  let at = text.lastIndexOf("\n") + 1;
  for (;;) {
    const whole = text.slice(0, at);
    const key = whole.lastIndexOf(KEY_BEGINS);
    if (key < 0 || whole.indexOf(KEY_ENDS, key) >= 0) {
      return at;
    }
    at = text.slice(0, key).lastIndexOf("\n") + 1;
  }
}

/** Where an endless line may be cut: at a blank on both sides of which masking sees what it sees in the whole. */
function safeCut(text: string): number {
  let at = text.length - LONGEST_SECRET;
  for (let tries = 0; tries < TRIES; tries += 1) {
    const until = text.slice(0, at);
    at = Math.max(...Array.from(" \t\n,;", (blank) => until.lastIndexOf(blank)));
    if (at <= text.length - 2 * LONGEST_SECRET) {
      break;
    }
    const left = text.slice(at - LONGEST_SECRET, at);
    const right = text.slice(at, at + LONGEST_SECRET);
    if (maskText(left) + maskText(right) === maskText(left + right)) {
      return at;
    }
  }
  // Nothing but one long word: no known secret is that long.
  return text.length - LONGEST_SECRET;
}
