// Reading and writing by descriptor without holding up the editor.

import { fstatSync, fsync, read, type Stats, write } from "node:fs";
import { promisify } from "node:util";
import { osError, ToolFailure } from "./errors.js";
import { repr } from "./words.js";

const reading = promisify(read);
const writing = promisify(write);

export const fsyncAsync = promisify(fsync);

export async function readAsync(
  fd: number,
  into: Buffer,
  at: number,
  count: number,
  from: number | null,
): Promise<number> {
  return (await reading(fd, into, at, count, from)).bytesRead;
}

export async function writeAsync(fd: number, data: Buffer, at: number, count: number, to: number): Promise<number> {
  return (await writing(fd, data, at, count, to)).bytesWritten;
}

/** All bytes of an open file, as long as there are not too many. */
export async function readAll(fd: number, most: number, tooLarge: () => Error): Promise<Buffer> {
  const size = fstatSync(fd).size;
  if (size > most) {
    throw tooLarge();
  }
  // One byte more than its size: a short answer proves the end, and the cap holds while the file grows.
  const pieces: Buffer[] = [];
  let total = 0;
  for (let want = size + 1; ; want = 1 << 20) {
    const piece = Buffer.allocUnsafe(want);
    const count = await readAsync(fd, piece, 0, want, total);
    pieces.push(piece.subarray(0, count));
    total += count;
    if (total > most) {
      throw tooLarge();
    }
    if (count === 0 || total === size) {
      return pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
    }
  }
}

/** Only regular files are read: a FIFO blocks, a device never ends. */
export function refuseOddKind(info: Pick<Stats, "isFile" | "isDirectory" | "isFIFO" | "isSocket">, path: string): void {
  if (info.isFile()) {
    return;
  }
  if (info.isDirectory()) {
    throw osError("EISDIR");
  }
  const kind = info.isFIFO() ? "a FIFO" : info.isSocket() ? "a socket" : "a device";
  throw new ToolFailure(`${repr(path)} is ${kind}, not a regular file.`);
}
