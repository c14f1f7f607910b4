// Output of a command: decoded as it comes, kept within a bound, passed on while it runs. Memory is constant whatever a
// command prints: each stream keeps its beginning and its end, counts the rest and drops it. The bound is on the text that
// leaves here (UTF-8, undecodable bytes replaced), both streams together.

export type StreamName = "stdout" | "stderr";
export type OnOutput = (stream: StreamName, text: string) => void;

const MARKER_BYTES = 64;

/** The beginning and the end of one stream, at most `limit` bytes of each. */
class KeptStream {
  #head = Buffer.alloc(0);
  #tail = Buffer.alloc(0);
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  total = 0;

  constructor(private readonly limit: number) {}

  /** Take some bytes; gives back the text they complete. */
  feed(data: Buffer, final: boolean): string {
    const text = this.#decoder.decode(data, { stream: !final });
    if (text !== "") {
      this.#keep(Buffer.from(text));
    }
    return text;
  }

  #keep(data: Buffer): void {
    this.total += data.length;
    const room = Math.max(this.limit - this.#head.length, 0);
    if (room > 0) {
      this.#head = Buffer.concat([this.#head, data.subarray(0, room)]);
    }
    if (data.length > room) {
      this.#tail = Buffer.concat([this.#tail, data.subarray(room)]);
    }
    if (this.#tail.length > 2 * this.limit) {
      this.#tail = Buffer.from(this.#tail.subarray(-this.limit));
    }
  }

  /** What was kept, in at most `budget` bytes; says how much was left out of the middle. */
  text(budget: number): string {
    const [head, tail] = [this.#head, this.#tail];
    if (this.total <= budget && this.total === head.length + tail.length) {
      return Buffer.concat([head, tail]).toString("utf8");
    }
    const half = Math.floor(Math.max(budget - MARKER_BYTES, 0) / 2);
    const end = tail.length >= half ? tail : Buffer.concat([head, tail]);
    const first = whole(head.subarray(0, half));
    const last = whole(end.subarray(end.length - half));
    const leftOut = this.total - Buffer.byteLength(first) - Buffer.byteLength(last);
    return `${first}\n[... ${leftOut} bytes left out ...]\n${last}`;
  }
}

/** Text without the pieces of characters that a cut left at its ends. */
function whole(data: Buffer): string {
  let [start, end] = [0, data.length];
  while (start < Math.min(3, end) && isInside(data[start])) {
    start += 1;
  }
  for (let back = 1; back <= Math.min(3, end - start); back += 1) {
    const byte = data[end - back] as number;
    if (!isInside(byte)) {
      const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
      end = size > back ? end - back : end;
      break;
    }
  }
  return data.toString("utf8", start, end);
}

function isInside(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

export interface Captured {
  readonly stdout: string;
  readonly stderr: string;
  readonly truncated: boolean;
}

/** Takes what a process says. */
export interface Keeper {
  feed(stream: StreamName, data: Buffer, final?: boolean): void;
  /** What it complained of, in short. */
  said(): string;
}

/** Both streams of one command under one bound. */
export class OutputKeeper implements Keeper {
  readonly #streams: Readonly<Record<StreamName, KeptStream>>;
  #passedOn = 0;

  constructor(
    private readonly limit: number,
    private readonly onOutput?: OnOutput,
  ) {
    this.#streams = { stdout: new KeptStream(limit), stderr: new KeptStream(limit) };
  }

  feed(stream: StreamName, data: Buffer, final = false): void {
    const text = this.#streams[stream].feed(data, final);
    if (text === "" || this.onOutput === undefined || this.#passedOn > this.limit) {
      return;
    }
    this.#passedOn += text.length;
    const shown = this.#passedOn > this.limit ? "[... more output follows; the result will hold its end ...]\n" : text;
    this.onOutput(stream, shown);
  }

  said(): string {
    return this.captured().stderr.trim().slice(0, 300);
  }

  /** What is kept; a short stream is kept whole while a long one is cut. */
  captured(): Captured {
    const { stdout, stderr } = this.#streams;
    const truncated = stdout.total + stderr.total > this.limit;
    const [short, long] = stdout.total <= stderr.total ? [stdout, stderr] : [stderr, stdout];
    const small = truncated ? Math.min(short.total, Math.floor(this.limit / 2)) : short.total;
    const text = (stream: KeptStream) => stream.text(stream === long ? this.limit - small : small);
    return { stdout: text(stdout), stderr: text(stderr), truncated };
  }
}
