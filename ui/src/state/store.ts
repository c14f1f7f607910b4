// Holds what the chat knows and tells who looks at it. Events are held back while the record they belong to is loading,
// and text that streams is taken in a few times a second, so that a fast agent does not keep the page busy.

import type { FeedEvent } from "@protocol";
import { useSyncExternalStore } from "react";
import { type AppState, EMPTY } from "./model";
import { type Action, reduce } from "./reduce";

/** How long text may wait to be shown. */
export const GATHER_MS = 60;

export class Store {
  #state: AppState = EMPTY;
  readonly #listeners = new Set<() => void>();
  #holding = 0;
  #held: FeedEvent[] = [];
  #gathered: FeedEvent[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;
  /** Called after each event was taken in. */
  onEvent: (event: FeedEvent, state: AppState) => void = () => {};

  readonly get = (): AppState => this.#state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly do = (action: Action): void => {
    this.#flush();
    this.#set(reduce(this.#state, action));
  };

  hear(event: FeedEvent): void {
    if (this.#holding > 0) this.#held.push(event);
    else if (event.kind === "chat.text" || event.kind === "tool.output") this.#gather(event);
    else this.#take(event);
  }

  /** Holds events back until what they belong to is known. */
  async holding<T>(work: () => Promise<T>): Promise<T> {
    this.#holding += 1;
    try {
      return await work();
    } finally {
      this.#holding -= 1;
      if (this.#holding === 0) for (const event of this.#held.splice(0)) this.hear(event);
    }
  }

  /** Another project: what its feed told is of no use any more. */
  forget(): void {
    this.#held = [];
    this.#gathered = [];
  }

  #take(event: FeedEvent): void {
    this.do({ type: "event", event });
    this.onEvent(event, this.#state);
  }

  #gather(event: FeedEvent): void {
    this.#gathered.push(event);
    this.#timer ??= setTimeout(() => this.#flush(), GATHER_MS);
  }

  #flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#gathered.length === 0) return;
    const events = joined(this.#gathered.splice(0));
    this.#set(events.reduce((state, event) => reduce(state, { type: "event", event }), this.#state));
  }

  #set(state: AppState): void {
    if (state === this.#state) return;
    this.#state = state;
    for (const listener of this.#listeners) listener();
  }
}

/** Neighbouring pieces of one text as one: a thousand small ones cost as much as one large. */
export function joined(events: readonly FeedEvent[]): FeedEvent[] {
  const result: FeedEvent[] = [];
  for (const event of events) {
    const last = result.at(-1);
    if (event.kind === "chat.text" && last?.kind === "chat.text" && last.run_id === event.run_id) {
      result[result.length - 1] = { ...last, text: last.text + event.text };
    } else if (
      event.kind === "tool.output" &&
      last?.kind === "tool.output" &&
      last.tool_id === event.tool_id &&
      last.stream === event.stream
    ) {
      result[result.length - 1] = { ...last, text: last.text + event.text };
    } else {
      result.push(event);
    }
  }
  return result;
}

export function useStore<T>(store: Store, select: (state: AppState) => T): T {
  return useSyncExternalStore(store.subscribe, () => select(store.get()));
}
