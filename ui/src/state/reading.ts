// Reads the server's record into the store: the open conversation, backwards as far as the person goes, and what stands
// around it. What could not be read because the server was not there is read again after a while; the rest is said.

import type { Session } from "@protocol";
import { type Api, passing } from "../api";
import { Again, told } from "./again";
import { RecordReader } from "./record";
import type { Store } from "./store";

/** More than these never wait in one session: the oldest open one is among them. */
const RUNS = 20;

export class Reading {
  readonly #api: Api;
  readonly #store: Store;
  readonly #complain: (error: unknown) => void;
  readonly #again = new Again();
  readonly #againOlder = new Again();
  #reader: RecordReader | null = null;
  /** What was asked for last: an answer to what was asked before it may come later, and says less. */
  #newest: RecordReader | null = null;
  #approvalsAsked = 0;
  #ended = false;

  constructor(api: Api, store: Store, complain: (error: unknown) => void) {
    this.#api = api;
    this.#store = store;
    this.#complain = complain;
  }

  /** Another project or another conversation is open: nothing of the one before is read any more. */
  turn(sameProject: boolean): void {
    this.#reader = null;
    this.#againOlder.reset();
    if (!sameProject) this.#again.reset();
  }

  end(): void {
    this.#ended = true;
    this.turn(false);
  }

  /** Reads at once what could not be read. */
  readonly tryAgain = (): void => this.#again.now();

  /** The newest of a conversation that is open. False when it has to be read again. */
  async session(projectId: string, sessionId: string): Promise<boolean> {
    const store = this.#store;
    const reader = new RecordReader(this.#api, projectId, sessionId);
    this.#newest = reader;
    const asked = store.get().runId;
    return store.holding(async () => {
      try {
        const [{ entries, more }, runs] = await Promise.all([
          reader.older(),
          // Without them the conversation is read all the same; that somebody works is then seen when they go on.
          this.#api.runs(projectId, sessionId, RUNS).catch(() => null),
          this.#loadApprovals(projectId),
        ]);
        if (this.#newest !== reader) return true;
        this.#reader = store.get().sessionId === sessionId ? reader : this.#reader;
        store.do({ type: "record", sessionId, entries, older: more, fresh: true });
        if (runs) store.do({ type: "runs", sessionId, runs: runs.runs, asked });
        return true;
      } catch (error) {
        // Of what is no longer open nobody needs to know.
        const now = store.get();
        if (now.projectId !== projectId || now.sessionId !== sessionId) return true;
        store.do({ type: "record-failed", sessionId });
        return this.#failed(projectId, error);
      }
    });
  }

  /** `asked`: the person wants it now; else it waits for its turn after a failure. */
  async older(asked: boolean): Promise<void> {
    const store = this.#store;
    const { sessionId, older, loadingOlder, olderTrouble } = store.get();
    const reader = this.#reader;
    if (!reader || !older || loadingOlder || sessionId === null || (olderTrouble !== null && !asked)) return;
    store.do({ type: "loading-older", on: true });
    try {
      const { entries, more } = await reader.older();
      if (this.#reader !== reader) return;
      this.#againOlder.reset();
      store.do({ type: "record", sessionId, entries, older: more, fresh: false });
    } catch (error) {
      if (this.#reader !== reader) return;
      store.do({ type: "older-failed", trouble: told(error) });
      if (passing(error)) this.#againOlder.later(() => void this.older(true));
    }
  }

  async around(projectId: string): Promise<boolean> {
    const store = this.#store;
    const api = this.#api;
    const here = () => store.get().projectId === projectId;
    const parts = [
      api.grants(projectId).then(({ grants }) => here() && store.do({ type: "grants", grants })),
      api.machines(projectId).then(({ machines }) => here() && store.do({ type: "machines", machines })),
      api.agents(projectId).then(({ agents }) => here() && store.do({ type: "agents", agents })),
    ];
    const read = await Promise.all(parts.map((part) => this.#part(projectId, part)));
    return read.every(Boolean);
  }

  approvals(projectId: string): Promise<boolean> {
    return this.#part(projectId, this.#loadApprovals(projectId));
  }

  /** Null when they have to be read again. */
  async sessions(projectId: string): Promise<Session[] | null> {
    let found: Session[] | null = null;
    const read = this.#api.sessions(projectId).then(({ sessions }) => {
      found = sessions;
      if (this.#store.get().projectId === projectId) this.#store.do({ type: "sessions", sessions });
    });
    return (await this.#part(projectId, read)) ? (found ?? []) : null;
  }

  /** Everything once more: events may have been missed, or something could not be read. */
  async everything(projectId: string): Promise<void> {
    const { sessionId } = this.#store.get();
    if (this.#ended || this.#store.get().projectId !== projectId) return;
    if (sessionId !== null) {
      this.#store.do({ type: "opening", sessionId });
      this.turn(true);
    }
    const parts = await this.#store.holding(() =>
      Promise.all([
        this.around(projectId),
        this.sessions(projectId),
        sessionId === null ? this.approvals(projectId) : this.session(projectId, sessionId),
      ]),
    );
    if (!parts.every(Boolean)) return;
    this.#again.reset();
    this.#store.do({ type: "trouble", trouble: null });
  }

  async #loadApprovals(projectId: string): Promise<void> {
    const turn = ++this.#approvalsAsked;
    const { approvals } = await this.#api.approvals(projectId);
    const here = this.#store.get().projectId === projectId && turn === this.#approvalsAsked;
    if (here) this.#store.do({ type: "approvals", approvals });
  }

  async #part(projectId: string, work: Promise<unknown>): Promise<boolean> {
    try {
      await work;
      return true;
    } catch (error) {
      return this.#failed(projectId, error);
    }
  }

  /** Where it may pass it is tried again; else it is said, and stays empty. */
  #failed(projectId: string, error: unknown): boolean {
    if (!passing(error) || this.#ended || this.#store.get().projectId !== projectId) {
      this.#complain(error);
      return true;
    }
    this.#store.do({ type: "trouble", trouble: told(error) });
    this.#again.later(() => void this.everything(projectId));
    return false;
  }
}
