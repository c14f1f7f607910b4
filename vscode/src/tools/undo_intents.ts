// Undos this client began because the server asked, written down before the first step and struck out when the server knows
// how they ended. A client that is killed in between finds here, when it starts again, what it still owes the record. How an
// undo ended is not kept here: the list of changes says.

import type { Memory } from "./ports.js";

const PREFIX = "undoing:";

/** An undo that is about to begin. */
export interface UndoIntent {
  readonly requestId: string;
  readonly toolId: string;
  /** The digest of the plan that is carried out. */
  readonly plan: string;
  /** In milliseconds since 1970. */
  readonly at: number;
}

/** The intents of one client. */
export class UndoIntents {
  /** Those of a client that stopped before it could say how they ended, by request. */
  readonly left = new Map<string, UndoIntent>();

  constructor(private readonly memory: Memory) {
    for (const key of [...memory.keys()].filter((one) => one.startsWith(PREFIX))) {
      const intent = intentIn(key.slice(PREFIX.length), memory.read(key));
      if (intent === undefined) {
        this.drop(key.slice(PREFIX.length));
      } else {
        this.left.set(intent.requestId, intent);
      }
    }
  }

  /** On the disk when this resolves. Rejects as the disk does: then nothing may begin. */
  keep(requestId: string, toolId: string, plan: string, at: number): Promise<void> {
    return this.memory.write(PREFIX + requestId, JSON.stringify({ toolId, plan, at }), true);
  }

  has(requestId: string): boolean {
    return this.memory.read(PREFIX + requestId) !== undefined;
  }

  /** The server knows, or never will. */
  drop(requestId: string): void {
    this.left.delete(requestId);
    // Where that fails it is found again at the next start, and told once more: that does no harm.
    this.memory.remove(PREFIX + requestId).catch(() => {});
  }
}

/** An intent as it was written; undefined where it makes no sense. */
function intentIn(requestId: string, text: string | undefined): UndoIntent | undefined {
  try {
    const { at, plan, toolId } = JSON.parse(String(text)) as Record<string, unknown>;
    const whole = typeof toolId === "string" && typeof plan === "string" && typeof at === "number";
    return whole ? { requestId, toolId, plan, at } : undefined;
  } catch {
    return undefined;
  }
}
