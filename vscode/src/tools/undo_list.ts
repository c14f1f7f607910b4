// What calls changed, as it is written down: one entry for a call or an undo, with each path before and after. An entry is
// on the disk before the write it tells of takes its name, and an undo is written before its first step and confirmed after
// its last. Entries that are too old go, and the oldest where there is too much, never the newest.

import type { Memory } from "./ports.js";
import { type Change, type State, stateIn } from "./undo_states.js";
import type { ContentStore } from "./undo_store.js";

const PREFIX = "undo:";
const DAY = 24 * 3600 * 1000;
/** About what one change takes on the list. */
const CHANGE_BYTES = 400;
/** A sweep leaves some room, so that the next call does not sweep again. */
const FULL = 0.9;

export interface Entry {
  /** The call's tool id, or the id of an undo. */
  readonly id: string;
  readonly toolName: string;
  readonly summary: string;
  /** In milliseconds since 1970. */
  readonly at: number;
  readonly changes: readonly (readonly [path: string, before: State | null, after: State | null])[];
  readonly notes: readonly string[];
  /** Other calls that ran at the same time. */
  readonly together: readonly string[];
  /** For an undo: the call it takes back. */
  readonly undoes: string | null;
  /** False: it has begun, and nothing more is known. */
  readonly done: boolean;
}

/** The entries of one workspace, oldest first. */
export class UndoList {
  constructor(private readonly memory: Memory) {}

  entries(): Entry[] {
    return [...this.memory.keys()].flatMap((key) => {
      const entry = key.startsWith(PREFIX) ? entryIn(this.memory.read(key)) : undefined;
      return entry === undefined ? [] : [entry];
    });
  }

  get(id: string): Entry | undefined {
    return entryIn(this.memory.read(PREFIX + id));
  }

  /** On the disk when this resolves. */
  put(entry: Entry): Promise<void> {
    return this.memory.write(PREFIX + entry.id, JSON.stringify(entry), true);
  }

  remove(id: string): Promise<void> {
    return this.memory.remove(PREFIX + id);
  }

  /** Which entry took each of them back; an undo that was itself undone does not count. */
  undoneBy(entries: readonly Entry[]): Map<string, string> {
    const undone = new Map<string, string>();
    for (const { done, id, undoes } of entries) {
      if (undoes !== null && done) {
        undone.set(undoes, id);
      }
    }
    for (const { id } of entries.toReversed()) {
      const by = undone.get(id);
      if (by !== undefined && undone.has(by)) {
        undone.delete(id);
      }
    }
    return undone;
  }

  /** Forget what is too old, or the oldest where there is too much; and the contents nobody needs then. */
  async sweep(store: ContentStore, now: number, days: number, maxBytes: number): Promise<void> {
    const entries = this.entries();
    const kept = new Set<string>();
    const needed = new Set<string>();
    let room = maxBytes * FULL;
    for (const entry of entries.toReversed()) {
      const fresh = digestsOf(entry).filter((digest) => !needed.has(digest));
      room -= fresh.reduce((sum, digest) => sum + store.sizeOf(digest), CHANGE_BYTES * entry.changes.length);
      if (entry.at < now - days * DAY || (room < 0 && kept.size > 0)) {
        break;
      }
      kept.add(entry.id);
      for (const digest of fresh) {
        needed.add(digest);
      }
    }
    const gone = entries.filter(({ id }) => !kept.has(id));
    for (const { id } of gone) {
      await this.remove(id);
    }
    // What looks have kept besides saves reading it again, as long as there is plenty of room.
    if (gone.length > 0 || !store.roomFor(maxBytes / 2)) {
      await store.sweep(needed);
    }
  }
}

function digestsOf({ changes }: Entry): string[] {
  const states = changes.flatMap(([, before, after]) => [before, after]);
  return states.flatMap((state) => (state?.digest ? [state.digest] : []));
}

/** An entry as it was written; undefined where it makes no sense. */
function entryIn(text: string | undefined): Entry | undefined {
  try {
    const entry = JSON.parse(text ?? "") as Entry;
    const whole =
      typeof entry.id === "string" &&
      typeof entry.at === "number" &&
      typeof entry.done === "boolean" &&
      entry.changes.every(([path, before, after]) => {
        const inside = !path.split("/").some((part) => ["", ".", ".."].includes(part));
        return inside && stateIn(before) !== undefined && stateIn(after) !== undefined;
      });
    return whole ? entry : undefined;
  } catch {
    return undefined;
  }
}

/** A call may change thousands of paths, and each may be looked for: by name, not one after the other. */
const BY_PATH = new WeakMap<Entry, ReadonlyMap<string, Change>>();

/** The change of one path in an entry. */
export function changeOf(entry: Entry, path: string): Change | undefined {
  const known = BY_PATH.get(entry) ?? new Map(entry.changes.map(([name, before, after]) => [name, [before, after]]));
  BY_PATH.set(entry, known);
  return known.get(path);
}
