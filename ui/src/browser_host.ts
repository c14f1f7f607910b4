// The chat in a browser tab of the server's own page: signed in by the cookie, on the same origin. Tells what waits by
// the title, the icon, and, only where the person turned them on and only when the page is not in sight, by a desktop
// notification and a sound.

import { ask, readFeed, type Way } from "./fetching";
import type { Alerts, Answer, FeedListener, Host, Waiting } from "./host";
import { Tabs } from "./tabs";

const SAME_ORIGIN: Way = { base: "", credentials: "same-origin", headers: async () => ({}) };
const PREFIX = "assent.";

export class BrowserHost implements Host {
  readonly kind = "browser";
  readonly #store = storage();
  readonly #tabs = new Tabs();
  #told: Waiting = { count: 0, headline: null };
  #sounds: AudioContext | null = null;

  request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    return ask(SAME_ORIGIN, method, path, body);
  }

  feed(path: string, lastEventId: string | null, listener: FeedListener): () => void {
    return this.#tabs.listen((heard) => readFeed(SAME_ORIGIN, path, lastEventId, heard), listener);
  }

  waiting(waiting: Waiting): void {
    const before = this.#told;
    this.#told = waiting;
    document.title = waiting.count > 0 ? `(${waiting.count}) Assent` : "Assent";
    drawIcon(waiting.count);
    const news =
      waiting.count > before.count || (waiting.count === before.count && waiting.headline !== before.headline);
    if (waiting.count > 0 && news && !inSight()) this.#alert(waiting);
  }

  recall(key: string): string | null {
    return this.#store.getItem(PREFIX + key);
  }

  remember(key: string, value: string | null): void {
    if (value === null) this.#store.removeItem(PREFIX + key);
    else this.#store.setItem(PREFIX + key, value);
  }

  async signOut(): Promise<void> {
    await this.request("POST", "/signout", {});
  }

  readonly alerts: Alerts = {
    notifies: () => this.recall("notify") === "on" && "Notification" in window && Notification.permission === "granted",
    setNotifies: async (on) => {
      if (!on) {
        this.remember("notify", null);
        return null;
      }
      if (!("Notification" in window)) return "This browser has no notifications.";
      // Only ever asked for because the person just pressed the switch.
      const permission = await Notification.requestPermission();
      if (permission !== "granted") return "The browser does not allow notifications here: see its site settings.";
      this.remember("notify", "on");
      return null;
    },
    sounds: () => this.recall("sound") === "on",
    setSounds: (on) => {
      this.remember("sound", on ? "on" : null);
      // Once as a sample; it also tells the browser that a person wanted it.
      if (on) this.#play();
    },
  };

  #alert(waiting: Waiting): void {
    if (this.alerts.sounds()) this.#play();
    if (!this.alerts.notifies()) return;
    const title = waiting.count === 1 ? "Assent: one question waits" : `Assent: ${waiting.count} questions wait`;
    // One at a time: a newer one takes the place of the older.
    const note = new Notification(title, { body: waiting.headline ?? "", tag: "assent-waiting" });
    note.onclick = () => {
      window.focus();
      note.close();
    };
  }

  /** Two soft tones, made here: no file, no request. */
  #play(): void {
    if (!("AudioContext" in window)) return;
    this.#sounds ??= new AudioContext();
    const context = this.#sounds;
    void context.resume();
    [660, 880].forEach((pitch, index) => {
      const start = context.currentTime + index * 0.16;
      const tone = context.createOscillator();
      const loudness = context.createGain();
      tone.frequency.value = pitch;
      loudness.gain.setValueAtTime(0, start);
      loudness.gain.linearRampToValueAtTime(0.12, start + 0.02);
      loudness.gain.exponentialRampToValueAtTime(0.001, start + 0.3);
      tone.connect(loudness).connect(context.destination);
      tone.start(start);
      tone.stop(start + 0.32);
    });
  }
}

function inSight(): boolean {
  return document.visibilityState === "visible" && document.hasFocus();
}

/** The icon with how many wait, drawn as a picture in its own address. */
export function iconAddress(count: number): string {
  const badge =
    count > 0
      ? `<circle cx="22" cy="22" r="10" fill="#c8321f"/><text x="22" y="27" font-family="sans-serif" font-size="14" font-weight="700" text-anchor="middle" fill="#fff">${count > 9 ? "9+" : count}</text>`
      : "";
  const mark = `<rect width="32" height="32" rx="7" fill="#1d5fae"/><path d="M8 17l5.5 5.5L24 11" fill="none" stroke="#fff" stroke-width="4" stroke-linecap="round" stroke-linejoin="round"/>`;
  const picture = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${mark}${badge}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(picture)}`;
}

function drawIcon(count: number): void {
  let link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  if (!link) {
    link = document.createElement("link");
    link.rel = "icon";
    document.head.append(link);
  }
  const address = iconAddress(count);
  if (link.href !== address) link.href = address;
}

type Kept = Pick<Storage, "getItem" | "setItem" | "removeItem">;

/** The browser's storage, or the memory of this page where the browser gives none or it is full. */
export function storage(): Kept {
  const memory = new Map<string, string>();
  return {
    getItem: (key) => memory.get(key) ?? attempt(() => localStorage.getItem(key)),
    setItem: (key, value) => {
      const kept = attempt(() => {
        localStorage.setItem(key, value);
        return true;
      });
      if (kept) memory.delete(key);
      else memory.set(key, value);
    },
    removeItem: (key) => {
      memory.delete(key);
      attempt(() => localStorage.removeItem(key));
    },
  };
}

function attempt<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null; // Storage is switched off or full: what is remembered is a convenience.
  }
}
