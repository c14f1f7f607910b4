// What `read_file` said a moment ago, as long as the file is provably the same: device, inode, size, change and modification
// times are what they were before and after the read that is remembered. Files changed in the last seconds are not
// remembered at all: clocks of file systems are coarse. Files that usually hold secrets are never kept, and a path with `..`
// is never looked up. The gate has judged the call before anything here is asked.

import { statSync } from "node:fs";
import { posix } from "node:path";
import type { ReadFileResult } from "@protocol";
import { type Params, secretName } from "../gate/index.js";
import type { Clock } from "./ports.js";

const MAX_BYTES = 32 * 1024 * 1024;
const MAX_ENTRY_BYTES = 1024 * 1024;
const SETTLED = 2_000;

interface Entry {
  readonly path: string;
  readonly result: ReadFileResult;
  readonly identity: string;
  readonly until: number;
  readonly size: number;
}

/** What must still hold after a read for its result to be remembered. */
export interface Reading {
  readonly key: string;
  readonly path: string;
  readonly identity: string;
  readonly generation: number;
}

/** Answers repeated reads from memory. */
export class ReadCache {
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;
  #generation = 0;

  constructor(
    private readonly root: string,
    private readonly seconds: number,
    private readonly clock: Clock,
    private readonly maxBytes = MAX_BYTES,
  ) {}

  /** The remembered answer, if the file is still the one that was read. */
  get(params: Params): ReadFileResult | undefined {
    const key = this.#key(params);
    const entry = key === undefined ? undefined : this.#entries.get(key);
    if (key === undefined || entry === undefined) {
      return undefined;
    }
    this.#drop(key);
    if (entry.until < this.clock.monotonic() || entry.identity !== identityOf(entry.path)) {
      return undefined;
    }
    this.#keep(key, entry);
    return entry.result;
  }

  /** To be asked before a read; undefined when its result cannot be remembered. */
  before(params: Params): Reading | undefined {
    const key = this.#key(params);
    const path = this.#absolute(String(params.path));
    const identity = key === undefined ? undefined : identityOf(path);
    return key === undefined || identity === undefined
      ? undefined
      : { key, path, identity, generation: this.#generation };
  }

  /** Remember a result, unless the file changed while it was read or too shortly before. */
  put(reading: Reading | undefined, result: ReadFileResult): void {
    if (reading === undefined || reading.generation !== this.#generation) {
      return;
    }
    const { identity, key, path } = reading;
    const size = 4 * result.content.length;
    const [modified, changed] = identity
      .split(" ")
      .slice(3)
      .map((ns) => Number(BigInt(ns) / 1_000_000n)) as [number, number];
    const settled = this.clock.now() - Math.max(modified, changed) >= SETTLED;
    if (size > MAX_ENTRY_BYTES || !settled || identityOf(path) !== identity) {
      return;
    }
    this.#drop(key);
    this.#keep(key, { path, result, identity, size, until: this.clock.monotonic() + this.seconds * 1000 });
    for (const oldest of this.#entries.keys()) {
      if (this.#bytes <= this.maxBytes) {
        break;
      }
      this.#drop(oldest);
    }
  }

  /** End what is known of a path and all below it; without one, everything. */
  forget(path?: unknown): void {
    this.#generation += 1;
    const target = typeof path === "string" && !climbs(path) ? this.#absolute(path) : undefined;
    for (const [key, entry] of [...this.#entries]) {
      if (target === undefined || entry.path === target || entry.path.startsWith(`${target}/`)) {
        this.#drop(key);
      }
    }
  }

  /** Under which name a read is known; undefined when it may not be. */
  #key(params: Params): string | undefined {
    const { end_line, path, start_line } = params;
    if (typeof path !== "string" || climbs(path)) {
      return undefined;
    }
    const absolute = this.#absolute(path);
    return secretName(posix.relative(this.root, absolute))
      ? undefined
      : JSON.stringify([absolute, start_line, end_line]);
  }

  #absolute(path: string): string {
    return posix.resolve(this.root, path);
  }

  #keep(key: string, entry: Entry): void {
    this.#entries.set(key, entry);
    this.#bytes += entry.size;
  }

  #drop(key: string): void {
    this.#bytes -= this.#entries.get(key)?.size ?? 0;
    this.#entries.delete(key);
  }
}

/** Whether the path holds a `..`: behind a link it leads elsewhere than its spelling says. */
function climbs(path: string): boolean {
  return path.split("/").includes("..");
}

function identityOf(path: string): string | undefined {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  return found && [found.dev, found.ino, found.size, found.mtimeNs, found.ctimeNs].join(" ");
}
