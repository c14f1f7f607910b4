// The record of one session, read backwards: messages and calls are two lists of the server, each with its own pages. An
// entry is given out only when nothing newer can come from the other list any more, so that the order is never wrong.

import type { Api } from "../api";
import { fromExecution, fromMessage } from "./entries";
import type { ChatEntry, Entry, ToolCall } from "./model";

export const PAGE = 60;

export interface Older {
  entries: Entry[];
  /** Whether there is still more. */
  more: boolean;
}

/** One of the two lists: what was fetched and not given out yet, newest last, and how to go on. */
interface Source<T extends Entry> {
  held: T[];
  /** Where its pages reach back to. */
  reach: number;
  more: boolean;
}

export class RecordReader {
  readonly #api: Api;
  readonly #project: string;
  readonly #session: string;
  readonly #messages: Source<ChatEntry> = { held: [], reach: Number.POSITIVE_INFINITY, more: true };
  readonly #calls: Source<ToolCall> = { held: [], reach: Number.POSITIVE_INFINITY, more: true };
  #before: string | undefined;
  #cursor: string | undefined;

  constructor(api: Api, project: string, session: string) {
    this.#api = api;
    this.#project = project;
    this.#session = session;
  }

  /** The next older entries, in any order. */
  async older(): Promise<Older> {
    for (;;) {
      await this.#fetch();
      const entries = this.#release();
      const more = this.#messages.more || this.#calls.more;
      if (entries.length > 0 || !more) return { entries, more };
    }
  }

  async #fetch(): Promise<void> {
    const [messages, calls] = [this.#messages, this.#calls];
    // The list that reaches back less is what holds the other one up; at the start it is both.
    const work: Promise<void>[] = [];
    if (messages.more && (!calls.more || messages.reach >= calls.reach)) work.push(this.#fetchMessages());
    if (calls.more && (!messages.more || calls.reach >= messages.reach)) work.push(this.#fetchCalls());
    await Promise.all(work);
  }

  async #fetchMessages(): Promise<void> {
    const page = await this.#api.messages(this.#project, this.#session, PAGE, this.#before);
    const first = page.messages[0];
    if (first) this.#before = first.message_id;
    took(this.#messages, page.messages.map(fromMessage), Boolean(page.more) && first !== undefined);
  }

  async #fetchCalls(): Promise<void> {
    const page = await this.#api.history({
      project_id: this.#project,
      session_id: this.#session,
      cursor: this.#cursor,
      limit: PAGE,
    });
    this.#cursor = page.next_cursor ?? undefined;
    took(this.#calls, page.executions.map(fromExecution), page.next_cursor !== null && page.executions.length > 0);
  }

  #release(): Entry[] {
    const from = Math.max(
      this.#messages.more ? this.#messages.reach : Number.NEGATIVE_INFINITY,
      this.#calls.more ? this.#calls.reach : Number.NEGATIVE_INFINITY,
    );
    return [...release(this.#messages, from), ...release(this.#calls, from)];
  }
}

function took<T extends Entry>(source: Source<T>, entries: T[], more: boolean): void {
  source.held.push(...entries);
  source.more = more;
  for (const entry of entries) source.reach = Math.min(source.reach, entry.at);
}

function release<T extends Entry>(source: Source<T>, from: number): T[] {
  const given = source.held.filter((entry) => entry.at >= from);
  source.held = source.held.filter((entry) => entry.at < from);
  return given;
}
