// Text from elsewhere, made safe to look at: whatever a screen obeys or nobody sees becomes an escape. It never returns a
// control, a bidi mark or a character without width, and it never makes more than it was given to show.

// The same classes as the server and the terminal use. Newline and tab stay: they are layout.
const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: controls are what it looks for
  // biome-ignore lint/suspicious/noMisleadingCharacterClass: each is looked for by itself
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

// In prose, joiners and selectors belong to words and emoji. What reorders beyond its paragraph, or cannot be seen at
// all, does not.
const HIDDEN_IN_PROSE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: controls are what it looks for
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2060-\u2064\u206a-\u206f\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

// Blanks that are not the keyboard's: one in a name or a word makes it look like another.
const BLANKS = /[\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]/g;

// No language puts so many marks on one letter; a tower of them paints over the lines around it.
const TOWER = /\p{M}(?<=\p{M}{9})/gu;

function escaped(found: string): string {
  return `\\u{${(found.codePointAt(0) ?? 0).toString(16)}}`;
}

/** Text with nothing hidden in it; newline and tab stay as they are. */
export function visible(text: string): string {
  return String(text).replace(HIDDEN, escaped).replace(TOWER, escaped);
}

// A line end and a tab on one line. Not as `\n` and `\t`: a name may have been written with these. Nor by signs that are
// in the text already: those are spelled out.
const LINE_END = "↵";
const TAB = "⇥";

/** The same on one line: newline and tab have a sign, and every blank that is not the keyboard's is spelled out. */
export function oneLine(text: string): string {
  return visible(text)
    .replace(/[↵⇥]/g, escaped)
    .replace(/[\n\t]/g, (found) => (found === "\n" ? LINE_END : TAB))
    .replace(BLANKS, escaped);
}

const PLAIN: Record<string, string> = { "\n": "\\n", "\t": "\\t" };

/** The same in pieces, every second one an escape: one that was made here must not look like one that was written so. */
export function pieces(text: string): string[] {
  const made = new RegExp(`((?:${HIDDEN.source})|${BLANKS.source}|[\\n\\t])`, "u");
  return text.split(made).map((piece) => PLAIN[piece] ?? visible(piece).replace(BLANKS, escaped));
}

/** Words of a conversation: controls and overrides are shown, joiners and selectors keep their meaning. */
export function prose(text: string): string {
  return text.replace(/\r\n?/g, "\n").replace(HIDDEN_IN_PROSE, escaped).replace(TOWER, escaped);
}

/** The lines of a text; a newline at its end opens no further one. */
export function lines(text: string): string[] {
  const all = text.split("\n");
  if (all.length > 1 && all[all.length - 1] === "") all.pop();
  return all;
}

/** The first characters of a text, with what was left out said. */
export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, whole(text, most - 1))}…`;
}

/** A place to cut at or before `at` that leaves no half of a character. */
export function whole(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
}
