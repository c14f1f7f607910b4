// A command's output while it runs: gathered for a moment, in whole lines, masked, up to a limit. A convenience: sent once,
// never waited for, because the result holds it all. A line is held back until it ends, because half a secret does not look
// like one. The server masks again.

import { MaskedStream } from "../gate/index.js";
import { kindOf } from "./errors.js";
import type { Link } from "./link.js";
import type { StreamName } from "./output.js";
import { type Clock, type Log, sleep } from "./ports.js";

const COALESCE = 100;
const MAX_PIECE = 16 * 1024;
const MAX_LIVE = 1024 * 1024;

export class LiveOutput {
  readonly #streams = new Map<StreamName, MaskedStream>();
  readonly #ended = new AbortController();
  #waiting: [StreamName, string][] = [];
  #left = MAX_LIVE;
  #sequence = 0;
  #relaying: Promise<void> | undefined;

  constructor(
    private readonly link: Link,
    private readonly projectId: string,
    private readonly toolId: string,
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  readonly take = (stream: StreamName, text: string): void => {
    const piece = text.slice(0, this.#left);
    if (piece === "" || this.#ended.signal.aborted) {
      return;
    }
    this.#left -= piece.length;
    this.#waiting.push([stream, piece]);
    this.#relaying ??= this.#relay();
  };

  /** The command ended: resolves when the rest is sent, where some was seen; else its result says it all. */
  async stop(): Promise<void> {
    this.#ended.abort();
    if (this.#sequence > 0) {
      await this.#relaying;
      await this.#send([...this.#streams].map(([name, stream]) => [name, stream.end()]));
    }
  }

  async #relay(): Promise<void> {
    while (this.#waiting.length > 0) {
      await sleep(this.clock, COALESCE, this.#ended.signal);
      if (this.#ended.signal.aborted && this.#sequence === 0) {
        break;
      }
      const waiting = this.#waiting.splice(0);
      await this.#send(waiting.map(([name, text]) => [name, this.#stream(name).feed(text)]));
    }
    this.#relaying = undefined;
  }

  #stream(name: StreamName): MaskedStream {
    const stream = this.#streams.get(name) ?? new MaskedStream();
    this.#streams.set(name, stream);
    return stream;
  }

  async #send(ripe: readonly (readonly [StreamName, string])[]): Promise<void> {
    for (const [stream, text] of joined(ripe)) {
      for (let at = 0; at < text.length; at += MAX_PIECE) {
        const sequence = this.#sequence;
        this.#sequence += 1;
        try {
          const chunk = { stream, text: text.slice(at, at + MAX_PIECE), sequence };
          await this.link.postOutput(this.projectId, this.toolId, chunk);
        } catch (error) {
          const name = kindOf(error);
          this.log.debug("output not relayed", { tool_id: this.toolId, error: name });
        }
      }
    }
  }
}

/** Neighbours of one stream joined. */
function joined(pieces: readonly (readonly [StreamName, string])[]): [StreamName, string][] {
  const made: [StreamName, string][] = [];
  for (const [stream, text] of pieces) {
    const last = made.at(-1);
    if (last?.[0] === stream) {
      last[1] += text;
    } else {
      made.push([stream, text]);
    }
  }
  return made;
}
