// How much of a command's output is looked at: its beginning and its end. However much there is, this is bounded.

import type { OutputPiece } from "../state/model";
import { whole } from "./visible";

/** While it runs, and for the live view. */
export const KEPT_HEAD = 32_000;
export const KEPT_TAIL = 96_000;
/** For a result, which the server bounds already; this is for one that does not. */
export const WHOLE = 3_000_000;
export interface Kept {
  head: OutputPiece[];
  /** Characters left out between the two. */
  left: number;
  tail: OutputPiece[];
}

/** The beginning and the end of output, and how much lies between. */
export function ends(pieces: readonly OutputPiece[], head: number, tail: number): Kept {
  const total = pieces.reduce((sum, piece) => sum + piece.text.length, 0);
  if (total <= head + tail) return { head: [...pieces], left: 0, tail: [] };
  const first = upTo(pieces, head);
  const last = from(pieces, tail);
  const shown = [...first, ...last].reduce((sum, piece) => sum + piece.text.length, 0);
  return { head: first, left: total - shown, tail: last };
}

function upTo(pieces: readonly OutputPiece[], most: number): OutputPiece[] {
  const kept: OutputPiece[] = [];
  let room = most;
  for (const piece of pieces) {
    if (room <= 0) break;
    const text = piece.text.length <= room ? piece.text : piece.text.slice(0, whole(piece.text, room));
    kept.push({ ...piece, text });
    room -= piece.text.length;
  }
  return kept;
}

function from(pieces: readonly OutputPiece[], most: number): OutputPiece[] {
  const kept: OutputPiece[] = [];
  let room = most;
  for (let at = pieces.length - 1; at >= 0 && room > 0; at -= 1) {
    const piece = pieces[at] as OutputPiece;
    const text = piece.text.length <= room ? piece.text : piece.text.slice(whole(piece.text, piece.text.length - room));
    kept.unshift({ ...piece, text });
    room -= piece.text.length;
  }
  return kept;
}
