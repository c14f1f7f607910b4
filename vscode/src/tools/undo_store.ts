// Where what was there before is kept: contents by their SHA-256, many to a file, outside the workspace and for its owner's
// eyes alone. A record that was torn by a crash is passed over, and contents are read back against their digest, so that
// what a power cut spoiled counts as lost. One program at a time uses one directory: the journal's lock sees to it. This
// module knows no workspace's files and restores nothing.

import { createHash, randomBytes } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { osError } from "./errors.js";
import { fsyncAsync, readAsync, writeAsync } from "./io.js";
import { quietly } from "./replacing.js";

const CHUNK = 1 << 20;
/** Before each content: its digest and its size. */
const HEAD = 40;
const NAME = /^bundle-[0-9a-f]{16}$/;
const CREATE = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const READ = constants.O_RDONLY | constants.O_NOFOLLOW;
/** A sweep writes anew what is used to less than this part. */
const WORTH_KEEPING = 0.8;

interface Place {
  readonly bundle: string;
  readonly offset: number;
  readonly size: number;
}

/** Contents by digest, up to a number of bytes. */
export class ContentStore {
  readonly #known = new Map<string, Place>();
  readonly #ends = new Map<string, number>();
  #own: { readonly name: string; readonly fd: number; end: number; synced: number } | undefined;
  /** One at a time: records must not run into each other. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly directory: string,
    private readonly maxBytes: number,
  ) {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    for (const name of readdirSync(directory).filter((one) => NAME.test(one))) {
      this.#learn(name);
    }
  }

  /** Bytes kept. */
  get size(): number {
    return [...this.#ends.values()].reduce((sum, end) => sum + end, 0);
  }

  has(digest: string): boolean {
    return this.#known.has(digest);
  }

  sizeOf(digest: string): number {
    const place = this.#known.get(digest);
    return place === undefined ? 0 : place.size + HEAD;
  }

  roomFor(size: number): boolean {
    return this.size + size <= this.maxBytes;
  }

  /**
   * Keep what an open file holds, and say its digest; on the disk after `sync`. Rejects where it is larger than `most`, and
   * where there is no room for it: `bound` is how many bytes may be kept in all.
   */
  putFile(fd: number, most: number, bound = this.maxBytes): Promise<string> {
    return this.#alone(async () => {
      try {
        return await this.#put(fd, most, bound);
      } finally {
        this.#takeBack();
      }
    });
  }

  /** Keep many small contents at one go: `work` is given what keeps one and says its digest. */
  batch<T>(work: (put: (data: Buffer) => string) => T): Promise<T> {
    return this.#alone(async () => {
      try {
        return work((data) => this.#keep(data, this.maxBytes));
      } finally {
        this.#takeBack();
      }
    });
  }

  /** Remove what was begun after the last whole record. */
  #takeBack(): void {
    const own = this.#own;
    if (own !== undefined) {
      quietly(() => ftruncateSync(own.fd, own.end));
    }
  }

  /** Resolves when all that was put is on the disk. */
  sync(): Promise<void> {
    return this.#alone(async () => {
      const own = this.#own;
      if (own !== undefined && own.synced < own.end) {
        const { end } = own;
        await fsyncAsync(own.fd);
        own.synced = end;
      }
    });
  }

  /** The bytes, when they are there and still what they were. */
  async read(digest: string): Promise<Buffer | undefined> {
    const place = this.#known.get(digest);
    if (place === undefined) {
      return undefined;
    }
    let fd: number;
    try {
      fd = openSync(join(this.directory, place.bundle), READ);
    } catch {
      return undefined;
    }
    try {
      const data = Buffer.alloc(place.size);
      for (let at = 0; at < place.size; ) {
        const count = await readAsync(fd, data, at, place.size - at, place.offset + at);
        if (count === 0) {
          return undefined;
        }
        at += count;
      }
      return createHash("sha256").update(data).digest("hex") === digest ? data : undefined;
    } finally {
      closeSync(fd);
    }
  }

  /** Remove all but these. */
  sweep(wanted: ReadonlySet<string>): Promise<void> {
    return this.#alone(async () => {
      try {
        await this.#sweep(wanted);
      } finally {
        this.#takeBack();
      }
    });
  }

  close(): void {
    if (this.#own !== undefined) {
      closeSync(this.#own.fd);
      this.#own = undefined;
    }
  }

  #alone<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work);
    this.#turn = mine.catch(() => {});
    return mine;
  }

  #learn(name: string): void {
    const fd = openSync(join(this.directory, name), READ);
    try {
      const { size } = fstatSync(fd);
      const head = Buffer.alloc(HEAD);
      let at = 0;
      while (at + HEAD <= size && readSync(fd, head, 0, HEAD, at) === HEAD) {
        const length = Number(head.readBigUInt64LE(32));
        const offset = at + HEAD;
        if (offset + length > size || head.subarray(0, 32).every((byte) => byte === 0)) {
          break; // torn, or never finished
        }
        const digest = head.toString("hex", 0, 32);
        if (!this.#known.has(digest)) {
          this.#known.set(digest, { bundle: name, offset, size: length });
        }
        at = offset + length;
      }
      this.#ends.set(name, at);
    } finally {
      closeSync(fd);
    }
  }

  async #put(source: number, most: number, bound: number): Promise<string> {
    const size = fstatSync(source).size;
    if (size > most) {
      throw osError("EFBIG");
    }
    if (size <= CHUNK) {
      const data = Buffer.allocUnsafe(size + 1);
      const count = await readAsync(source, data, 0, size + 1, 0);
      if (count === size && size <= most) {
        return this.#keep(data.subarray(0, size), bound);
      }
    }
    this.#checkRoom(size, bound);
    return this.#copy(source, most);
  }

  /** Keep some bytes, unless they are kept. */
  #keep(data: Buffer, bound: number): string {
    const sum = createHash("sha256").update(data).digest();
    const name = sum.toString("hex");
    if (!this.#known.has(name)) {
      this.#checkRoom(data.length, bound);
      const own = this.#bundle();
      writeNow(own.fd, Buffer.concat([headOf(sum, data.length), data]), own.end);
      this.#taken(name, data.length);
    }
    return name;
  }

  /** A large file, or one that is being written to, piece by piece. */
  async #copy(source: number, most: number): Promise<string> {
    const own = this.#bundle();
    const start = own.end + HEAD;
    const digest = createHash("sha256");
    const buffer = Buffer.allocUnsafe(CHUNK);
    let copied = 0;
    for (;;) {
      const count = await readAsync(source, buffer, 0, CHUNK, copied);
      if (count === 0) {
        break;
      }
      if (copied + count > most) {
        throw osError("EFBIG");
      }
      digest.update(buffer.subarray(0, count));
      await writeAll(own.fd, buffer.subarray(0, count), start + copied);
      copied += count;
    }
    const sum = digest.digest();
    const name = sum.toString("hex");
    if (!this.#known.has(name)) {
      await writeAll(own.fd, headOf(sum, copied), own.end); // last: a record without one is not read
      this.#taken(name, copied);
    }
    return name;
  }

  #checkRoom(size: number, bound: number): void {
    if (this.size + size + HEAD > bound) {
      throw osError("ENOSPC");
    }
  }

  /** What was written at the end of our bundle is a record now. */
  #taken(name: string, size: number): void {
    const own = this.#bundle();
    this.#known.set(name, { bundle: own.name, offset: own.end + HEAD, size });
    own.end += HEAD + size;
    this.#ends.set(own.name, own.end);
  }

  #bundle() {
    if (this.#own === undefined) {
      const name = `bundle-${randomBytes(8).toString("hex")}`;
      this.#own = { name, fd: openSync(join(this.directory, name), CREATE, 0o600), end: 0, synced: 0 };
      this.#ends.set(name, 0);
    }
    return this.#own;
  }

  async #sweep(wanted: ReadonlySet<string>): Promise<void> {
    const live = new Map<string, string[]>();
    for (const [digest, { bundle }] of this.#known) {
      if (wanted.has(digest)) {
        live.set(bundle, [...(live.get(bundle) ?? []), digest]);
      } else {
        this.#known.delete(digest);
      }
    }
    const used = (name: string) => (live.get(name) ?? []).reduce((sum, digest) => sum + this.sizeOf(digest), 0);
    const again = [...this.#ends]
      .filter(([name, end]) => end === 0 || used(name) < end * WORTH_KEEPING)
      .map(([name]) => name);
    if (again.length === 0) {
      return;
    }
    this.close();
    for (const digest of again.flatMap((name) => live.get(name) ?? [])) {
      await this.#move(digest);
    }
    const own = this.#own as { readonly fd: number } | undefined;
    if (own !== undefined) {
      fsyncSync(own.fd); // before what it was copied from goes
    }
    for (const name of again) {
      this.#ends.delete(name);
      quietly(() => unlinkSync(join(this.directory, name)));
    }
  }

  /** Write one content into the new bundle; what can no longer be read is forgotten. */
  async #move(digest: string): Promise<void> {
    const data = await this.read(digest);
    if (data === undefined) {
      this.#known.delete(digest);
      return;
    }
    const own = this.#bundle();
    await writeAll(own.fd, Buffer.concat([headOf(Buffer.from(digest, "hex"), data.length), data]), own.end);
    this.#taken(digest, data.length);
  }
}

function headOf(sum: Buffer, size: number): Buffer {
  const head = Buffer.alloc(HEAD);
  sum.copy(head);
  head.writeBigUInt64LE(BigInt(size), 32);
  return head;
}

function writeNow(fd: number, data: Buffer, to: number): void {
  for (let at = 0; at < data.length; ) {
    at += writeSync(fd, data, at, data.length - at, to + at);
  }
}

async function writeAll(fd: number, data: Buffer, to: number): Promise<void> {
  for (let at = 0; at < data.length; ) {
    at += await writeAsync(fd, data, at, data.length - at, to + at);
  }
}
