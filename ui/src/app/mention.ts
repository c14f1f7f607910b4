// Naming a file of the workspace in a message: where an @ begins a name, what is sought, and the text once one is chosen.
// Pure. A chosen name is only text; a directory goes on being completed.

import type { OfferedFile } from "@protocol";

export interface Token {
  /** Where the @ stands. */
  start: number;
  end: number;
  query: string;
}

const LONGEST = 200;
/** Before it there is a blank, or nothing: an address with an @ in it names no file. */
const BEFORE = /[\s([{"'`]/;

/** The name being typed at the caret; null if none is. */
export function tokenAt(text: string, caret: number): Token | null {
  const start = text.lastIndexOf("@", caret - 1);
  if (start < 0 || start >= caret || caret - start > LONGEST) return null;
  if (start > 0 && !BEFORE.test(text[start - 1] ?? "")) return null;
  const query = text.slice(start + 1, caret);
  return /\s/.test(query) ? null : { start, end: caret, query };
}

/** The text with a chosen file in it, and where the caret goes. */
export function chosen(text: string, token: Token, file: OfferedFile): { text: string; caret: number } {
  const path = file.type === "directory" ? `${file.path.replace(/\/$/, "")}/` : file.path;
  const blank = /\s/.test(path);
  const after = text.slice(token.end);
  if (file.type === "directory" && !blank) {
    const put = `${text.slice(0, token.start)}@${path}`;
    return { text: put + after, caret: put.length };
  }
  // A blank ends a name, so one that holds a blank is quoted.
  const put = `${text.slice(0, token.start)}${blank ? `"${path}"` : path}${/^\s/.test(after) ? "" : " "}`;
  return { text: put + after, caret: put.length };
}
