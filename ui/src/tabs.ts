// Tabs of one browser share its few connections to the server (six, for all of them together): a stream held by every tab
// would leave none for an answer. So one tab of those that want the same stream holds it and tells the others. When it
// goes, another takes its place from the last event it heard. Nothing is decided here, and nothing outlives the tabs.

import type { FeedListener, Frame } from "./host";
import { inSight, onSight } from "./sight";

/** So many events are kept for tabs that come in between. */
export const KEPT = 500;
/** How often a tab that is looked at asks whether the one that holds the stream is still alive. */
export const LOOK_MS = 20_000;
/** Without a sign of life by then, it is not: a tab can be frozen, and then holds the stream without a word. */
export const ANSWER_MS = 3_000;

/** Opens the stream from an event on; returns how to close it. */
export type Open = (last: string | null, listener: FeedListener) => () => void;

/** `term`: which holder of the stream speaks. A later one counts more: one that lost the stream may not know it yet. */
export type Told =
  /** Of one that wants to be told: where it stands. */
  | { type: "join"; from: string; last: number | null }
  /** To that one: where the stream stands, and what it has not heard; null when that is not known any more. */
  | { type: "welcome"; to: string; term: number; at: number | null; frames: Frame[] | null }
  /** The stream is open: everybody says where they stand. */
  | { type: "up"; term: number }
  /** `anew`: the server counts from the start, and what was heard before is of no use. */
  | { type: "frame"; term: number; frame: Frame; anew: boolean }
  | { type: "alive?" }
  | { type: "alive" };

/** The tabs of this browser that show this server, as far as a tab can know. */
export class Tabs {
  readonly #locks: LockManager | undefined;
  readonly #members = new Set<Member>();

  constructor() {
    // Where the page came over plain HTTP from another machine there are no locks: then every tab holds its own stream.
    this.#locks = typeof navigator === "undefined" ? undefined : navigator.locks;
  }

  listen(path: string, last: string | null, open: Open, listener: FeedListener): () => void {
    if (!this.#locks || typeof BroadcastChannel === "undefined") return open(last, listener);
    const member = new Member(this.#locks, path, last, open, listener, () => this.#members.delete(member));
    this.#members.add(member);
    member.start();
    return () => member.end();
  }

  /** Whether a person who looks elsewhere is to be told from here: this tab holds the stream, and nobody looks at one. */
  async tells(): Promise<boolean> {
    if (!this.#locks || this.#members.size === 0) return true;
    const mine = [...this.#members];
    if (!mine.some((member) => member.leads)) return false;
    const { held = [] } = await this.#locks.query().catch((): LockManagerSnapshot => ({}));
    const looked = new Set(held.map(({ name }) => name));
    return !mine.some((member) => looked.has(member.sightName));
  }
}

/** One listener of this tab among all that want the same stream. */
class Member {
  readonly sightName: string;
  readonly #locks: LockManager;
  readonly #name: string;
  readonly #self = crypto.getRandomValues(new Uint32Array(2)).join("-");
  readonly #open: Open;
  readonly #listener: FeedListener;
  readonly #gone: () => void;
  readonly #channel: BroadcastChannel;
  readonly #ends: (() => void)[] = [];
  #last: number | null;
  /** What was heard lately, in order, and after which event it begins; null where that is not known. */
  #recent: Frame[] = [];
  #base: number | null;
  #opened = false;
  #joined = false;
  #over = false;
  leads = false;
  #up = false;
  /** Of who holds the stream, as far as is known here. */
  #term = 0;
  /** Counts the requests for the lock: only the newest one matters. */
  #turn = 0;
  #waits: AbortController | null = null;
  #release: () => void = () => {};
  #close: () => void = () => {};
  #looks: () => void = () => {};
  #glance = 0;
  #doubt: ReturnType<typeof setTimeout> | null = null;

  constructor(
    locks: LockManager,
    path: string,
    last: string | null,
    open: Open,
    listener: FeedListener,
    gone: () => void,
  ) {
    this.#locks = locks;
    this.#name = `byleave stream ${path}`;
    this.sightName = `${this.#name} in sight`;
    this.#last = numberOf(last);
    this.#base = this.#last;
    this.#open = open;
    this.#listener = listener;
    this.#gone = gone;
    this.#channel = new BroadcastChannel(this.#name);
  }

  start(): void {
    this.#channel.onmessage = ({ data }: MessageEvent<Told>) => this.#hear(data);
    const hidden = () => this.#closed(0); // kept aside by the browser it must hold nothing; it listens again when it is back
    window.addEventListener("pagehide", hidden);
    const look = setInterval(() => document.visibilityState === "visible" && this.#ask(), LOOK_MS);
    this.#ends.push(
      () => window.removeEventListener("pagehide", hidden),
      () => clearInterval(look),
      onSight(() => this.#sight()),
    );
    this.#sight();
    this.#queue();
    this.#join();
  }

  end(): void {
    if (this.#over) return;
    this.#over = true;
    for (const end of this.#ends) end();
    this.#trusts();
    this.#waits?.abort();
    this.#close();
    this.#looks();
    this.#release();
    this.#channel.close();
    this.#gone();
  }

  #closed(status: number): void {
    if (this.#over) return;
    this.end();
    this.#listener.closed(status);
  }

  #tell(told: Told): void {
    if (!this.#over) this.#channel.postMessage(told);
  }

  /** Waits for the stream to be free; `steal`: takes it from one that does not answer. */
  #queue(steal = false): void {
    const turn = ++this.#turn;
    this.#waits?.abort();
    this.#waits = new AbortController();
    const options: LockOptions = steal ? { steal: true } : { signal: this.#waits.signal };
    this.#locks
      .request(this.#name, options, () => this.#lead())
      .catch((error: unknown) => {
        if (this.#over || turn !== this.#turn) return;
        // Another tab took it from us: it heard nothing of us for too long.
        if (error instanceof DOMException && error.name === "AbortError") this.#yield();
        // The browser denies locks to this page: asked again it would deny them again.
        else void this.#lead();
      });
  }

  #lead(): Promise<void> {
    if (this.#over) return Promise.resolve();
    this.#trusts();
    this.leads = true;
    this.#term = Math.max(this.#term + 1, Date.now());
    const asked = this.#last;
    let first = true;
    let close: (() => void) | null = null;
    let done = false;
    // It may answer before it returned how to close.
    this.#close = () => {
      done = true;
      close?.();
    };
    close = this.#open(asked === null ? null : String(asked), {
      open: () => !done && this.#isUp(),
      frame: (frame) => {
        if (done) return;
        const id = numberOf(frame.id);
        const anew = first && id !== null && asked !== null && id <= asked;
        first = false;
        this.#take(frame, anew);
        this.#tell({ type: "frame", term: this.#term, frame, anew });
      },
      closed: (status) => !done && this.#closed(status),
    });
    if (done) close();
    return new Promise((resolve) => {
      if (this.#over) resolve();
      this.#release = resolve;
    });
  }

  #isUp(): void {
    this.#up = true;
    // What came between the stream before and this one cannot be known.
    const missed = this.#opened && this.#last === null;
    this.#isOpen();
    if (missed) this.#listener.missed?.();
    this.#tell({ type: "up", term: this.#term });
  }

  #yield(): void {
    this.leads = this.#up = false;
    this.#term = 0; // who took it may have a clock that is behind ours
    this.#close();
    this.#queue();
    this.#join();
  }

  #isOpen(): void {
    if (this.#opened) return;
    this.#opened = true;
    this.#listener.open();
  }

  #join(): void {
    this.#joined = false;
    this.#tell({ type: "join", from: this.#self, last: this.#last });
  }

  #take(frame: Frame, anew: boolean): void {
    const id = numberOf(frame.id);
    if (anew) this.#startOver(id);
    else if (id !== null && this.#last !== null && id <= this.#last) return; // heard before
    this.#last = id ?? this.#last;
    this.#recent.push(frame);
    const dropped = this.#recent.length > KEPT ? this.#recent.shift() : undefined;
    if (dropped) this.#base = numberOf(dropped.id) ?? this.#base;
    this.#listener.frame(frame);
  }

  #startOver(from: number | null): void {
    this.#recent = [];
    this.#base = this.#last = from;
    this.#listener.missed?.();
  }

  #hear(told: Told): void {
    if (this.#over) return;
    if (told.type === "join" || told.type === "alive?") {
      if (this.leads) this.#answer(told);
      return;
    }
    if (this.leads) return; // two for a moment: who was there before hears of it soon
    this.#trusts();
    if (told.type === "alive") return;
    // Of one that lost it. One that opens the stream holds it, whatever its clock says.
    if (told.term < this.#term && told.type !== "up") return;
    const another = told.term > this.#term;
    this.#term = told.term;
    // What another told last, and what this one did, may leave a gap between them: it is asked from where we stand.
    if (told.type === "up" || (another && this.#joined)) this.#join();
    else if (told.type === "welcome") this.#welcomed(told);
    else if (this.#joined) this.#take(told.frame, told.anew);
  }

  #answer(told: Extract<Told, { type: "join" | "alive?" }>): void {
    if (told.type === "alive?") this.#tell({ type: "alive" });
    else if (this.#up) {
      const frames = this.#since(told.last);
      this.#tell({ type: "welcome", to: told.from, term: this.#term, at: this.#last, frames });
    }
  }

  /** What came after an event, as far as it is still known that this is all. */
  #since(last: number | null): Frame[] | null {
    if (last === null || last === this.#last) return [];
    const known = this.#base ?? numberOf(this.#recent[0]?.id ?? null);
    if (known === null || last < known) return null;
    return this.#recent.filter((frame) => (numberOf(frame.id) ?? 0) > last);
  }

  #welcomed({ to, at, frames }: Extract<Told, { type: "welcome" }>): void {
    if (to !== this.#self || this.#joined) return;
    this.#joined = true;
    // It was told by another before, but of nothing: what came in between cannot be known.
    const uncertain = this.#opened && this.#last === null;
    this.#isOpen();
    if (frames === null || uncertain) this.#startOver(at);
    else if (this.#last === null) this.#base = this.#last = at;
    for (const frame of frames ?? []) this.#take(frame, false);
  }

  /** Whoever holds the stream is asked for a sign of life. */
  #ask(): void {
    if (this.leads || this.#doubt !== null) return;
    this.#tell({ type: "alive?" });
    this.#doubt = setTimeout(() => {
      this.#doubt = null;
      this.#queue(true);
    }, ANSWER_MS);
  }

  #trusts(): void {
    if (this.#doubt !== null) clearTimeout(this.#doubt);
    this.#doubt = null;
  }

  /** A lock is what other tabs can see: held while the person looks at this one. */
  #sight(): void {
    if (document.visibilityState === "visible") this.#ask();
    const turn = ++this.#glance;
    this.#looks();
    this.#looks = () => {};
    if (!inSight()) return;
    const look = () => {
      if (this.#over || turn !== this.#glance) return;
      return new Promise<void>((resolve) => {
        this.#looks = resolve;
      });
    };
    // Where the browser denies it, the other tabs do not know that this one is looked at.
    this.#locks.request(this.sightName, { mode: "shared" }, look).catch(() => {});
  }
}

function numberOf(id: string | null): number | null {
  return id === null || !/^\d+$/.test(id) ? null : Number(id);
}
