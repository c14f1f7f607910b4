import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Alerting, GATHER_MS, QUIET_MS } from "../src/alerting";
import { BrowserHost, iconAddress } from "../src/browser_host";
import type { Waiting } from "../src/host";

class Notes {
  static permission = "granted";
  static shown: { title: string; body: string; note: Notes }[] = [];
  static requestPermission = async () => Notes.permission;
  onclick: (() => void) | null = null;
  closed = false;
  constructor(title: string, options: { body: string }) {
    Notes.shown.push({ title, body: options.body, note: this });
  }
  close() {
    this.closed = true;
  }
}

class Sound {
  static played = 0;
  static resumed = 0;
  static allowed = true;
  currentTime = 0;
  destination = {};
  get state() {
    return Sound.allowed ? "running" : "suspended";
  }
  resume = () => {
    Sound.resumed += 1;
    return Sound.allowed ? Promise.resolve() : new Promise<void>(() => {});
  };
  createOscillator = () => ({
    frequency: { value: 0 },
    connect: (next: unknown) => next,
    start: () => (Sound.played += 1),
    stop() {},
  });
  createGain = () => ({
    gain: { setValueAtTime() {}, linearRampToValueAtTime() {}, exponentialRampToValueAtTime() {} },
    connect: (next: unknown) => next,
  });
}

let looks: boolean;
beforeEach(() => {
  vi.useFakeTimers();
  localStorage.clear();
  looks = false;
  Notes.permission = "granted";
  Notes.shown = [];
  Sound.played = Sound.resumed = 0;
  Sound.allowed = true;
  vi.stubGlobal("Notification", Notes);
  vi.stubGlobal("AudioContext", Sound);
  vi.spyOn(document, "hasFocus").mockImplementation(() => looks);
  vi.spyOn(window, "focus").mockImplementation(() => {});
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  vi.useRealTimers();
});

function waiting(...ids: string[]): Waiting {
  const headline = ids.length > 0 ? `Write ${ids.at(-1)}` : null;
  return { count: ids.length, headline, questions: ids.map((id) => ({ id, risk: "MEDIUM" })) };
}

async function made({ mayTell = true, on = true } = {}) {
  const kept = new Map<string, string>();
  const shows = vi.fn();
  const alerting = new Alerting({
    kept: {
      getItem: (key) => kept.get(key) ?? null,
      setItem: (key, value) => void kept.set(key, value),
      removeItem: (key) => void kept.delete(key),
    },
    mayTell: async () => mayTell,
    show: shows,
  });
  if (on) {
    await alerting.setNotifies(true);
    alerting.setSounds(true);
    await vi.advanceTimersByTimeAsync(0);
    Sound.played = 0;
  }
  return { alerting, shows };
}

const gathered = () => vi.advanceTimersByTimeAsync(GATHER_MS);
const said = () => Notes.shown.map(({ title, body }) => [title, body]);

test("without being turned on there is neither a notification nor a sound", async () => {
  const { alerting } = await made({ on: false });
  alerting.hear(waiting("a"));
  await gathered();
  expect([Notes.shown.length, Sound.played]).toEqual([0, 0]);
});

test("who looks elsewhere is told of one question with what it asks, and led to it", async () => {
  const { alerting, shows } = await made();
  alerting.hear(waiting("a"));
  await gathered();
  expect(said()).toEqual([["Byleave: 1 to review", "Medium risk: Write a"]]);
  expect(Sound.played).toBe(2);
  Notes.shown[0]?.note.onclick?.();
  expect(window.focus).toHaveBeenCalled();
  expect(shows).toHaveBeenCalledWith("a");
  expect(Notes.shown[0]?.note.closed).toBe(true);
});

test("what an agent wrote stays on one short line, with nothing hidden in it", async () => {
  const { alerting } = await made();
  alerting.hear({ ...waiting("a"), headline: `a\n\u202eb ${"c".repeat(500)}` });
  await gathered();
  const [, body] = said()[0] ?? [];
  expect(body).toMatch(/^Medium risk: a↵\\u\{202e\}b c+…$/);
  expect(body?.length).toBeLessThan(200);
});

test("of many that come together the number is told, once, and those that follow after a while", async () => {
  const { alerting, shows } = await made();
  const ids = Array.from({ length: 30 }, (_, number) => `q${number}`);
  for (let count = 1; count <= ids.length; count += 1) alerting.hear(waiting(...ids.slice(0, count)));
  await gathered();
  alerting.hear(waiting(...ids, "late"));
  alerting.hear(waiting(...ids, "late", "later"));
  await vi.advanceTimersByTimeAsync(QUIET_MS - 1);
  expect(said()).toEqual([["Byleave: 30 to review", "All new. Open Byleave to answer."]]);
  await vi.advanceTimersByTimeAsync(1);
  expect(said()[1]).toEqual(["Byleave: 32 to review", "2 new. Open Byleave to answer."]);
  expect(Notes.shown[0]?.note.closed).toBe(true);
  expect(Sound.played).toBe(4);
  Notes.shown[1]?.note.onclick?.();
  expect(shows).toHaveBeenCalledWith(null);
});

test("what was seen, answered meanwhile or told by another tab is not told here", async () => {
  const { alerting } = await made();
  looks = true;
  alerting.hear(waiting("seen"));
  looks = false;
  alerting.hear(waiting("seen"));
  await gathered();
  alerting.hear(waiting("seen", "quick"));
  alerting.hear(waiting("seen"));
  await gathered();
  const { alerting: other } = await made({ mayTell: false });
  other.hear(waiting("a"));
  await gathered();
  expect(Notes.shown).toEqual([]);
});

test("a notification goes when the person comes, and when nothing waits any more", async () => {
  const { alerting } = await made();
  alerting.hear(waiting("a"));
  await gathered();
  looks = true;
  window.dispatchEvent(new Event("focus"));
  expect(Notes.shown[0]?.note.closed).toBe(true);
  looks = false;
  alerting.hear(waiting());
  alerting.hear(waiting("b"));
  await vi.advanceTimersByTimeAsync(QUIET_MS);
  alerting.hear(waiting());
  expect(Notes.shown[1]?.note.closed).toBe(true);
});

test("a browser that says no, or nothing, or has none, is said with what to do", async () => {
  const { alerting } = await made();
  Notes.permission = "denied";
  expect(alerting.notifies()).toBe(false);
  expect(alerting.refusal()).toContain("set Notifications to Allow");
  expect(await alerting.setNotifies(true)).toContain("blocks notifications");
  Notes.permission = "default";
  expect(await alerting.setNotifies(true)).toContain("choose Allow");
  expect(await alerting.setNotifies(false)).toBeNull();
  expect(alerting.refusal()).toBeNull();
  vi.stubGlobal("Notification", undefined);
  Reflect.deleteProperty(window, "Notification");
  expect(await alerting.setNotifies(true)).toContain("no notifications");
  alerting.setSounds(false);
  expect(alerting.sounds()).toBe(false);
});

test("a browser that allows notifications and shows none to a page is believed the second time, and the sound still comes", async () => {
  const { alerting } = await made();
  vi.stubGlobal(
    "Notification",
    class {
      static permission = "granted";
      static requestPermission = async () => "granted";
      constructor() {
        throw new TypeError("Illegal constructor."); // as on phones
      }
    },
  );
  expect(alerting.refusal()).toBeNull();
  alerting.hear(waiting("a"));
  await gathered();
  expect(Sound.played).toBe(2);
  expect(alerting.notifies()).toBe(false);
  expect(alerting.refusal()).toContain("Turn on the sound");
  expect(await alerting.setNotifies(true)).toContain("Turn on the sound");
});

test("a sound that the browser lets not begin does not begin later, and a press makes ready for the next", async () => {
  Sound.allowed = false;
  const { alerting } = await made();
  alerting.hear(waiting("a"));
  await vi.advanceTimersByTimeAsync(1000);
  expect(Sound.played).toBe(0);
  const before = Sound.resumed;
  document.dispatchEvent(new Event("pointerdown"));
  expect(Sound.resumed).toBeGreaterThan(before);
});

test("the title and the icon say how many", () => {
  document.head.innerHTML = "";
  const host = new BrowserHost();
  host.waiting(waiting("a", "b"));
  expect(document.title).toBe("(2) Byleave");
  const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  expect(decodeURIComponent(icon?.href ?? "")).toContain(">2<");
  host.waiting(waiting());
  expect(document.title).toBe("Byleave");
  expect(icon?.href).toBe(iconAddress(0));
  expect(decodeURIComponent(iconAddress(12))).toContain("9+");
});
