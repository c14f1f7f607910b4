// Characters that a person cannot see or that a screen obeys, and what a careless reader takes a text for. Paths may not
// hold them; everything shown to a person has them as visible escapes.

import { pattern } from "./patterns.js";
import { halfCharacter, isAscii } from "./strings.js";
import { CASEFOLD } from "./tables.js";

const HIDDEN = pattern("characters.HIDDEN");
const HIDDEN_IN_PROSE = pattern("characters.TEXT_HIDDEN");
const SURROGATE = pattern("characters.SURROGATE");
export const LOOKALIKE_SLASHES = pattern("characters.LOOKALIKE_SLASHES");

/** The first hidden character, if there is one. */
export function hiddenIn(text: string): string | undefined {
  return HIDDEN.search(text)?.text;
}

/** As `hiddenIn`, for text in which tabs and line ends are ordinary. */
export function hiddenInProse(text: string): string | undefined {
  return HIDDEN_IN_PROSE.search(text)?.text;
}

/** The text with U+FFFD for each half of a character. */
export function wholeCharacters(text: string): string {
  return halfCharacter(text) ? SURROGATE.sub(text, () => "\ufffd") : text;
}

/** How a hidden character is shown: `\x1b`, `\u{202e}`. */
export function escaped(character: string): string {
  const named = { "\t": "\\t", "\n": "\\n", "\r": "\\r" }[character];
  if (named !== undefined) {
    return named;
  }
  const point = character.codePointAt(0) ?? 0;
  return point < 0x100 ? `\\x${point.toString(16).padStart(2, "0")}` : `\\u{${point.toString(16)}}`;
}

/** The text with every hidden character made visible. */
export function visible(text: string): string {
  return HIDDEN.sub(text, (match) => escaped(match.text));
}

/** What a careless reader or file system would take the text for: compatibility forms folded, case dropped. */
export function plainForm(text: string): string {
  if (isAscii(text)) {
    return text.toLowerCase();
  }
  let folded = "";
  for (const character of text.normalize("NFKC")) {
    folded += CASEFOLD.get(character) ?? character.toLowerCase();
  }
  return folded;
}
