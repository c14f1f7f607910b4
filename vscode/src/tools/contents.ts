// What a file's bytes are: text in some encoding, a picture or PDF, or something an agent has no use for. Pure: bytes in, a
// value out. It never guesses silently: the encoding that was used is named, and bytes that are no text and no picture
// are refused rather than replaced.

import { ToolFailure } from "./errors.js";
import { repr } from "./words.js";

// Recognised by their first bytes, so that a renamed program does not pass as a picture.
const SIGNATURES = ["%PDF-", "\x89PNG\r\n\x1a\n", "\xff\xd8\xff", "GIF87a", "GIF89a", "\0\0\x01\0", "II*\0", "MM\0*"];
const BOMS = [
  ["\xef\xbb\xbf", "utf-8-sig"],
  ["\xff\xfe\0\0", "utf-32"],
  ["\0\0\xfe\xff", "utf-32"],
  ["\xff\xfe", "utf-16"],
  ["\xfe\xff", "utf-16"],
] as const;
const CP1252 = "€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ";
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A file's content as text, and how its bytes were read. */
export interface Content {
  readonly text: string;
  readonly encoding: string;
}

function startsWith(data: Buffer, mark: string): boolean {
  return data.toString("latin1", 0, mark.length) === mark;
}

/** Text with the encoding it was read in; base64 for PDFs and pictures; refused otherwise. */
export function readContent(data: Buffer, path: string): Content {
  if (!data.includes(0) && !startsWith(data, "\xef\xbb\xbf")) {
    const text = decoded(UTF8, data);
    if (text !== undefined) {
      return startsWith(data, "%PDF-") ? asBase64(data) : { text, encoding: "utf-8" };
    }
  }
  if (isPicture(data)) {
    return asBase64(data);
  }
  const content = byMark(data) ?? eightBit(data);
  if (content === undefined) {
    throw new ToolFailure(
      `${repr(path)} is a binary file.`,
      "Only text, PDFs and pictures can be read; a command may look at others.",
    );
  }
  return content;
}

function decoded(decoder: TextDecoder, data: Buffer): string | undefined {
  try {
    return decoder.decode(data);
  } catch {
    return undefined;
  }
}

function asBase64(data: Buffer): Content {
  return { text: data.toString("base64"), encoding: "base64" };
}

function isPicture(data: Buffer): boolean {
  const part = (from: number, to: number) => data.toString("latin1", from, to);
  return (
    SIGNATURES.some((mark) => startsWith(data, mark)) ||
    // "BM" alone may begin a text; in a picture nothing but NUL comes after its size.
    (part(0, 2) === "BM" && part(6, 10) === "\0\0\0\0") ||
    (part(0, 4) === "RIFF" && part(8, 12) === "WEBP") ||
    part(4, 8) === "ftyp"
  );
}

/** Whether a file that begins so is text of two or four bytes a character. */
export function isWide(head: Buffer): boolean {
  return ["\xff\xfe", "\xfe\xff", "\0\0\xfe\xff"].some((mark) => startsWith(head, mark));
}

function byMark(data: Buffer): Content | undefined {
  const found = BOMS.find(([mark]) => startsWith(data, mark));
  if (found === undefined) {
    return undefined;
  }
  const [mark, encoding] = found;
  const rest = data.subarray(mark.length);
  const text =
    encoding === "utf-8-sig" ? decoded(UTF8, rest) : encoding === "utf-16" ? utf16(rest, mark) : utf32(rest, mark);
  return text === undefined ? undefined : { text, encoding };
}

function utf16(data: Buffer, mark: string): string | undefined {
  const name = mark === "\xff\xfe" ? "utf-16le" : "utf-16be";
  return decoded(new TextDecoder(name, { fatal: true, ignoreBOM: true }), data);
}

function utf32(data: Buffer, mark: string): string | undefined {
  if (data.length % 4 !== 0) {
    return undefined;
  }
  const pieces: string[] = [];
  for (let at = 0; at < data.length; at += 4) {
    const point = mark.startsWith("\xff") ? data.readUInt32LE(at) : data.readUInt32BE(at);
    if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) {
      return undefined;
    }
    pieces.push(String.fromCodePoint(point));
  }
  return pieces.join("");
}

function eightBit(data: Buffer): Content | undefined {
  let [ours, unknown] = [false, false];
  for (const byte of data) {
    // Bytes that no text in an 8-bit encoding holds.
    if ((byte < 32 && byte !== 27 && (byte < 8 || byte > 13 || byte === 11)) || byte === 127) {
      return undefined;
    }
    ours ||= byte >= 0x80 && byte < 0xa0;
    unknown ||= byte === 0x81 || byte === 0x8d || byte === 0x8f || byte === 0x90 || byte === 0x9d;
  }
  const plain = data.toString("latin1");
  // Where both agree it is the simpler one.
  return !ours || unknown
    ? { text: plain, encoding: "latin-1" }
    : {
        text: plain.replace(/[\x80-\x9f]/g, (byte) => CP1252[byte.charCodeAt(0) - 0x80] as string),
        encoding: "cp1252",
      };
}

/** Lines as an editor counts them: a last line without its newline counts too. */
export function countLines(text: string): number {
  let count = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) {
    count += 1;
  }
  return count + (text !== "" && !text.endsWith("\n") ? 1 : 0);
}

/** Some lines of a text, counted from 1; `last` is what was there, not what was asked for. */
export interface LineRange {
  readonly text: string;
  readonly first: number;
  readonly last: number;
  readonly total: number;
}

/** Lines `first` to `last`. Only a newline ends a line; U+2028 and form feeds do not. */
export function cutLines(text: string, first: number, wanted: number | null): LineRange {
  const total = countLines(text);
  const last = wanted === null ? total : Math.min(wanted, total);
  if (first > Math.max(total, 1)) {
    return { text: "", first, last, total };
  }
  const start = behindLines(text, first - 1, 0);
  return { text: text.slice(start, behindLines(text, Math.max(last - first + 1, 0), start)), first, last, total };
}

/** Where the line begins that comes so many lines after one; the end of the text where there is none. */
function behindLines(text: string, count: number, from: number): number {
  let at = from;
  for (let left = count; left > 0; left -= 1) {
    at = text.indexOf("\n", at) + 1;
    if (at === 0) {
      return text.length;
    }
  }
  return at;
}
