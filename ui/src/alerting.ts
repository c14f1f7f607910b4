// How a person who looks elsewhere is told of questions: a desktop notification and a sound, each only where they turned
// it on. One for many that come together, never one for each. It decides nothing and says no more than the card does.

import { RISKS } from "./cards/Risk";
import type { Alerts, Waiting } from "./host";
import { inSight, onSight } from "./sight";
import { sound, unlockSound } from "./sound";
import type { Kept } from "./storage";
import { oneLine, shortened } from "./text/visible";

/** Questions that come so close together are told as one. */
export const GATHER_MS = 400;
/** So long after one nothing else is told; what came meanwhile is told then. */
export const QUIET_MS = 10_000;
const LONGEST = 160;

const NONE: Waiting = { count: 0, headline: null, questions: [] };
const BLOCKED =
  "This browser blocks notifications of this page. Press the sign left of the address, open the settings of the site, " +
  "set Notifications to Allow, and turn this on again.";
const UNABLE = "This browser shows no notifications of pages, though it allowed them. Turn on the sound instead.";
const UNDECIDED = "The browser was not told to allow notifications. Turn this on again and choose Allow when it asks.";

interface Around {
  kept: Pick<Kept, "getItem" | "setItem" | "removeItem">;
  /** Whether this tab is the one that tells: of several one is enough, and none while a person looks at one of them. */
  mayTell: () => Promise<boolean>;
  /** Takes the person to a question, or to all of them. */
  show: (approvalId: string | null) => void;
}

export class Alerting implements Alerts {
  readonly #around: Around;
  #waiting = NONE;
  /** Questions that were told, or were there while the person looked: of those that wait the others are new. */
  #known = new Set<string>();
  #timer: ReturnType<typeof setTimeout> | null = null;
  #quietUntil = Number.NEGATIVE_INFINITY;
  #note: Notification | null = null;
  /** Browsers of phones allow notifications, and refuse each one that a page makes. */
  #unable = false;

  constructor(around: Around) {
    this.#around = around;
    onSight(() => {
      if (!inSight()) return;
      this.#know();
      this.#note?.close();
    });
    // A browser lets a page sound only after a press on it: when a question comes it is too late to ask for that.
    unlockSound(() => this.sounds());
  }

  /** What waits is another now. */
  hear(waiting: Waiting): void {
    this.#waiting = waiting;
    if (waiting.count === 0) this.#note?.close();
    if (inSight()) this.#know();
    if (this.#news().length === 0 || this.#timer !== null) return;
    const pause = Math.max(GATHER_MS, this.#quietUntil - performance.now());
    this.#timer = setTimeout(() => void this.#tell(), pause);
  }

  notifies(): boolean {
    return this.#wanted() && permitted() && !this.#unable;
  }

  async setNotifies(on: boolean): Promise<string | null> {
    if (!on) {
      this.#around.kept.removeItem("notify");
      return null;
    }
    if (!("Notification" in window)) return "This browser has no notifications for this page.";
    if (this.#unable) return UNABLE;
    // Only ever asked for because the person just pressed the switch.
    const permission = await Notification.requestPermission();
    if (permission !== "granted") return permission === "denied" ? BLOCKED : UNDECIDED;
    this.#around.kept.setItem("notify", "on");
    return null;
  }

  refusal(): string | null {
    if (this.#unable) return UNABLE;
    return this.#wanted() && !permitted() ? BLOCKED : null;
  }

  sounds(): boolean {
    return this.#around.kept.getItem("sound") === "on";
  }

  setSounds(on: boolean): void {
    if (!on) {
      this.#around.kept.removeItem("sound");
      return;
    }
    this.#around.kept.setItem("sound", "on");
    // Once as a sample; it also tells the browser that a person wanted it.
    void sound();
  }

  #wanted(): boolean {
    return this.#around.kept.getItem("notify") === "on" && "Notification" in window;
  }

  #news(): string[] {
    return this.#waiting.questions.flatMap(({ id }) => (this.#known.has(id) ? [] : [id]));
  }

  /** Only of those that wait: what is over comes no more. */
  #know(): void {
    this.#known = new Set(this.#waiting.questions.map(({ id }) => id));
  }

  async #tell(): Promise<void> {
    const mayTell = await this.#around.mayTell();
    this.#timer = null;
    const news = this.#news();
    this.#know();
    // Answered meanwhile, or seen, or another tab says it.
    if (news.length === 0 || !mayTell || inSight()) return;
    this.#quietUntil = performance.now() + QUIET_MS;
    if (this.sounds()) void sound();
    if (this.notifies()) this.#notify(news);
  }

  #notify(news: readonly string[]): void {
    const { count, headline, questions } = this.#waiting;
    const newest = questions.at(-1);
    const alone = count === 1;
    // What an agent had a hand in is shown for one question only, on one line, as the card has it; of many the number.
    const words = alone
      ? `${newest ? RISKS[newest.risk] : ""}: ${shortened(oneLine(headline ?? ""), LONGEST)}`
      : `${news.length === count ? "All" : news.length} new. Open Byleave to answer.`;
    // One at a time: a newer one takes the place of the older, and is seen again.
    this.#note?.close();
    const title = `Byleave: ${count} to review`;
    const note = made(title, words);
    this.#note = note;
    this.#unable = note === null;
    if (note === null) return;
    note.onclick = () => {
      window.focus();
      note.close();
      this.#around.show(alone ? (newest?.id ?? null) : null);
    };
  }
}

function made(title: string, body: string): Notification | null {
  try {
    return new Notification(title, { body, tag: "byleave-waiting", dir: "ltr" });
  } catch {
    return null;
  }
}

function permitted(): boolean {
  return Notification.permission === "granted";
}
