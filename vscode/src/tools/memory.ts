// Keyed texts on the disk, as a log that is only added to and rewritten when it has grown: the journal's keeper. A line that
// was torn at the end was never relied upon; one that cannot be read in the middle keeps its key, so that what it was about
// counts as begun. One program at a time uses one directory.

import {
  closeSync,
  constants,
  fdatasync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { ConfigurationError, codeOf, osError } from "./errors.js";
import type { Memory } from "./ports.js";
import { repr } from "./words.js";

const COMPACT_BYTES = 32 * 1024 * 1024;
/** Taking a lock lasts no longer, in milliseconds. */
const TAKING = 5_000;
const KEY = /"k":"([^"\\]{1,300})"/;
const syncing = promisify(fdatasync);
const NOFOLLOW = constants.O_NOFOLLOW;

/** What another program left of a value that cannot be read any more. */
export const UNREADABLE = "";

export class FileMemory implements Memory {
  readonly #values = new Map<string, string>();
  readonly #path: string;
  readonly #lock: string;
  #file = -1;
  #size = 0;
  #compacted = 0;
  #busy = 0;
  #broken = false;

  constructor(private readonly directory: string) {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    this.#path = join(directory, "memory.jsonl");
    this.#lock = join(directory, "lock");
    takeLock(this.#lock);
    try {
      this.#load();
      this.#compact();
    } catch (error) {
      unlinkSync(this.#lock);
      throw error;
    }
  }

  keys(): Iterable<string> {
    return this.#values.keys();
  }

  read(key: string): string | undefined {
    return this.#values.get(key);
  }

  async write(key: string, value: string, durable: boolean): Promise<void> {
    this.#append(lineOf(key, value));
    this.#values.delete(key); // the newest is the last
    this.#values.set(key, value);
    if (durable) {
      this.#busy += 1;
      try {
        await syncing(this.#file);
      } finally {
        this.#busy -= 1;
      }
    }
  }

  async remove(key: string): Promise<void> {
    if (this.#values.delete(key)) {
      this.#append(`${JSON.stringify({ k: key })}\n`);
    }
  }

  close(): void {
    if (this.#file >= 0) {
      closeSync(this.#file);
      this.#file = -1;
      rmSync(this.#lock, { force: true }); // somebody may have cleaned up: no reason to leave the rest open
    }
  }

  #append(line: string): void {
    if (this.#broken || this.#file < 0) {
      throw osError("EIO");
    }
    const data = Buffer.from(line);
    try {
      if (writeSync(this.#file, data) !== data.length) {
        throw osError("ENOSPC");
      }
    } catch (error) {
      try {
        ftruncateSync(this.#file, this.#size);
      } catch {
        this.#broken = true; // a torn line in the middle could hide a call: nothing may be written behind it
      }
      throw error;
    }
    this.#size += data.length;
    if (this.#size - this.#compacted > COMPACT_BYTES && this.#busy === 0) {
      this.#tryCompact();
    }
  }

  /** The line is written: that there is no room to write all anew does not undo it. Tried again when it has grown more. */
  #tryCompact(): void {
    try {
      this.#compact();
    } catch {
      this.#compacted = this.#size;
    }
  }

  /** Write anew what still matters, whole or not at all. What is added from then on goes to the file that has the name. */
  #compact(): void {
    const draft = `${this.#path}.draft`;
    const content = Buffer.from([...this.#values].map(([key, value]) => lineOf(key, value)).join(""));
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_APPEND | NOFOLLOW;
    const directory = openSync(this.directory, constants.O_RDONLY);
    try {
      const fresh = openSync(draft, flags, 0o600);
      try {
        for (let at = 0; at < content.length; ) {
          at += writeSync(fresh, content, at);
        }
        fsyncSync(fresh);
        renameSync(draft, this.#path);
      } catch (error) {
        closeSync(fresh);
        unlinkSync(draft); // it would keep the room that is missing
        throw error;
      }
      if (this.#file >= 0) {
        closeSync(this.#file);
      }
      this.#file = fresh;
      fsyncSync(directory);
    } finally {
      closeSync(directory);
    }
    this.#size = content.length;
    this.#compacted = content.length;
  }

  #load(): void {
    let content: string;
    try {
      content = readFileSync(this.#path, "utf8");
    } catch (error) {
      if (codeOf(error) === "ENOENT") {
        return;
      }
      throw error;
    }
    const lines = content.split("\n");
    lines.pop(); // empty, or torn
    for (const [index, line] of lines.entries()) {
      const [key, value] = entryOf(line) ?? [KEY.exec(line)?.[1], UNREADABLE];
      if (key === undefined) {
        throw new ConfigurationError(
          `Line ${index + 1} of ${repr(this.#path)} cannot be read, so calls that ran may be missing from it.`,
          "move the file away when nothing of this project is still running on the server",
        );
      }
      this.#values.delete(key);
      if (value !== undefined) {
        this.#values.set(key, value);
      }
    }
  }
}

function lineOf(key: string, value: string): string {
  return `${JSON.stringify({ k: key, v: value })}\n`;
}

function entryOf(line: string): [key: string, value: string | undefined] | undefined {
  try {
    const { k, v } = JSON.parse(line) as { k?: unknown; v?: unknown };
    return typeof k === "string" && (v === undefined || typeof v === "string") ? [k, v] : undefined;
  } catch {
    return undefined;
  }
}

/** Who holds a lock: a number and when that process began, so that a number that is used again is told apart. */
function self(pid: number): string | undefined {
  try {
    const fields = (readFileSync(`/proc/${pid}/stat`, "latin1").split(")").at(-1) as string).trim().split(" ");
    return `${pid} ${fields[19]}`;
  } catch {
    try {
      process.kill(pid, 0);
      return process.platform === "linux" ? undefined : `${pid} ?`;
    } catch {
      return undefined;
    }
  }
}

/** Whether a file with our own text is there now; false when another one is. */
function isMade(path: string): boolean {
  let fd: number;
  try {
    fd = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | NOFOLLOW, 0o600);
  } catch (error) {
    if (codeOf(error) === "EEXIST") {
      return false;
    }
    throw error;
  }
  writeSync(fd, self(process.pid) ?? "");
  closeSync(fd);
  return true;
}

/** Whose lock it is; undefined when it is nobody's any more. One without a name is just being taken, unless it is old. */
function holderOf(path: string): string | undefined {
  try {
    const holder = readFileSync(path, "utf8");
    const young = Date.now() - statSync(path).mtimeMs < TAKING;
    return (holder === "" ? young : self(Number(holder.split(" ")[0])) === holder) ? holder : undefined;
  } catch {
    return undefined; // it is gone
  }
}

/** Two that find a lock left over must not each remove it: the second would remove the first one's own. */
function takeLock(path: string): void {
  const taking = `${path}.taking`;
  for (let tries = 0; tries < 5 && holderOf(path) === undefined; tries += 1) {
    if (isMade(taking)) {
      try {
        if (holderOf(path) === undefined) {
          rmSync(path, { force: true });
        }
        if (isMade(path)) {
          return;
        }
      } finally {
        rmSync(taking, { force: true });
      }
    } else if (holderOf(taking) !== undefined) {
      break;
    } else {
      rmSync(taking, { force: true });
    }
  }
  throw new ConfigurationError(
    "Another window already works on this folder for this project.",
    "close it first, or connect another folder",
  );
}
