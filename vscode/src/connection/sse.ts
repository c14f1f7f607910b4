// Server-sent events from bytes, as they come: chunks may cut anywhere, lines end in \n, \r\n or \r, `id` stays as the last
// one seen, as the standard has it. A frame larger than the largest call may be is refused instead of kept.

import { UnreachableError } from "../tools/errors.js";

const MAX_FRAME = 512 * 1024 * 1024;

/** One event as it came. */
export interface Frame {
  readonly id: string | undefined;
  readonly event: string;
  readonly data: string;
}

/** Turns chunks into frames. */
export class FrameReader {
  readonly #decoder = new TextDecoder("utf-8");
  #lines: string[] = [];
  #rest: string[] = [];
  #size = 0;
  #id: string | undefined;
  #afterReturn = false;

  constructor(private readonly maxFrame = MAX_FRAME) {}

  /** All frames that are whole now. */
  feed(chunk: Uint8Array): Frame[] {
    let text = this.#decoder.decode(chunk, { stream: true });
    if (this.#afterReturn && text.startsWith("\n")) {
      text = text.slice(1); // the second half of one line end
    }
    this.#afterReturn = text === "" ? this.#afterReturn : text.endsWith("\r");
    const frames: Frame[] = [];
    const pieces = text.split(/\r\n|\n|\r/);
    for (const [index, piece] of pieces.entries()) {
      this.#rest.push(piece);
      this.#size += piece.length;
      if (index < pieces.length - 1) {
        const frame = this.#line(this.#rest.join(""));
        this.#rest = [];
        if (frame !== undefined) {
          frames.push(frame);
        }
      }
    }
    if (this.#size > this.maxFrame) {
      throw new UnreachableError(`The server sent an event larger than ${this.maxFrame} bytes.`);
    }
    return frames;
  }

  #line(line: string): Frame | undefined {
    if (line !== "") {
      this.#lines.push(line);
      return undefined;
    }
    const lines = this.#lines;
    this.#lines = [];
    this.#size = 0;
    return this.#frame(lines);
  }

  #frame(lines: readonly string[]): Frame | undefined {
    let event = "message";
    const data: string[] = [];
    for (const line of lines) {
      const at = line.indexOf(":");
      const name = at < 0 ? line : line.slice(0, at);
      const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
      if (name === "data") {
        data.push(value);
      } else if (name === "event") {
        event = value;
      } else if (name === "id") {
        this.#id = value;
      }
    }
    return data.length > 0 ? { id: this.#id, event, data: data.join("\n") } : undefined;
  }
}
