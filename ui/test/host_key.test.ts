import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { BrowserHost } from "../src/browser_host";
import { keepsKeys, PAGE_KEY, PageKey } from "../src/page_key";

const fetching = vi.fn<typeof fetch>();
beforeEach(() => {
  vi.stubGlobal("fetch", fetching);
  localStorage.clear();
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  fetching.mockReset();
  localStorage.clear();
});

/** What the answer to a sign-in link does, in this tab or another. */
function signIn(key: string, user = "alice") {
  localStorage.setItem(PAGE_KEY, `${key} ${user}`);
}

/** A tab's key, and how that tab alone is told of a change: hosts of other tests listen to the same window. */
function tab(anew: () => void) {
  const adding = vi.spyOn(window, "addEventListener");
  const key = new PageKey(anew);
  const listener = adding.mock.lastCall?.[1] as (event: StorageEvent) => void;
  adding.mockRestore();
  return { key, told: (name = PAGE_KEY) => listener(new StorageEvent("storage", { key: name })) };
}

const sent = () => fetching.mock.calls.map(([, options]) => new Headers(options?.headers).get("Byleave-Page-Key"));

describe("the key of the page", () => {
  test("a tab never acts in another's name, and is read anew when somebody else signs in", () => {
    signIn("one");
    const anew = vi.fn();
    const { key, told } = tab(anew);
    signIn("two", "bob");
    expect(key.headers()).toEqual({});
    location.hash = "#/chat/sess_1";
    told("other");
    expect(anew).not.toHaveBeenCalled();
    told();
    expect(anew).toHaveBeenCalledOnce();
    expect(location.hash).toBe("");
    expect(key.refused("one")).toBe(false);
    expect(anew).toHaveBeenCalledTimes(2); // also when nobody told it
  });

  test("a tab that is signed out comes back when the person signs in elsewhere, and one that is not stays as it is", () => {
    signIn("one");
    const anew = vi.fn();
    const { key, told } = tab(anew);
    signIn("two");
    told();
    expect(anew).not.toHaveBeenCalled();
    expect(key.headers()).toEqual({ "Byleave-Page-Key": "two" });
    localStorage.removeItem(PAGE_KEY); // signed out in another tab
    told();
    signIn("three");
    told();
    expect(anew).toHaveBeenCalledOnce();
    const out = vi.fn();
    const refused = tab(out);
    refused.key.refused("three");
    signIn("four");
    refused.told();
    expect(out).toHaveBeenCalledOnce();
  });

  test("every request and the feed carry the key as it is now", async () => {
    signIn("one", "a person of two words");
    const host = new BrowserHost();
    fetching.mockImplementation(async () => new Response("{}"));
    await host.request("GET", "/my/me");
    signIn("two", "a person of two words");
    await host.request("POST", "/my/x");
    host.feed("/feed", null, { open: () => {}, frame: () => {}, closed: () => {} });
    await vi.waitFor(() => expect(sent()).toEqual(["one", "two", "two"]));
  });

  test("a request that crossed sign-ins in other tabs is made again with their keys, and with each once", async () => {
    signIn("one");
    const host = new BrowserHost();
    const next = ["two", "three"];
    fetching.mockImplementation(async () => {
      signIn(next.shift() ?? "three");
      return new Response("{}", { status: 401 });
    });
    expect((await host.request("GET", "/my/me")).status).toBe(401);
    expect(sent()).toEqual(["one", "two", "three"]);
    next.push("five");
    const closed = vi.fn();
    signIn("four");
    host.feed("/feed", null, { open: () => {}, frame: () => {}, closed });
    await vi.waitFor(() => expect(closed).toHaveBeenCalledWith(0)); // it is opened again
  });

  test("a refusal with the key that there is, is one", async () => {
    signIn("one");
    const host = new BrowserHost();
    fetching.mockImplementation(async () => new Response("{}", { status: 401 }));
    expect((await host.request("GET", "/my/me")).status).toBe(401);
    const closed = vi.fn();
    host.feed("/feed", null, { open: () => {}, frame: () => {}, closed });
    await vi.waitFor(() => expect(closed).toHaveBeenCalledWith(401));
    expect(sent()).toEqual(["one", "one"]);
  });

  test("signing out sends the key and keeps it no longer", async () => {
    signIn("one");
    fetching.mockImplementation(async () => new Response(null, { status: 204 }));
    await new BrowserHost().signOut();
    expect(sent()).toEqual(["one"]);
    expect(localStorage.getItem(PAGE_KEY)).toBeNull();
  });

  test("a page that comes back from where the browser had put it aside shows nothing of who left meanwhile", () => {
    signIn("one");
    const adding = vi.spyOn(window, "addEventListener");
    const host = new BrowserHost();
    const shows = adding.mock.calls.find(([name]) => name === "pageshow")?.[1] as (event: Event) => void;
    adding.mockRestore();
    const back = (persisted: boolean) => shows(Object.assign(new Event("pageshow"), { persisted }));
    const out = vi.fn();
    host.onSignedOut = out;
    back(true);
    localStorage.removeItem(PAGE_KEY);
    back(false); // loaded, not brought back
    expect(out).not.toHaveBeenCalled();
    back(true);
    expect(out).toHaveBeenCalledOnce();
  });

  test("one that finds somebody else there then is read anew, and one that nobody was signed in to has nothing to hide", () => {
    const anew = vi.fn();
    expect(tab(anew).key.hasLeft()).toBe(false);
    signIn("one");
    const { key } = tab(anew);
    expect(key.hasLeft()).toBe(false);
    signIn("two", "bob");
    expect(key.hasLeft()).toBe(true);
    expect(anew).toHaveBeenCalledOnce();
  });

  test("where the browser keeps nothing there is no key, and that is known", async () => {
    expect(keepsKeys()).toBe(true);
    for (const name of ["getItem", "setItem", "removeItem"] as const) {
      vi.spyOn(Storage.prototype, name).mockImplementation(() => {
        throw new Error("blocked");
      });
    }
    expect(keepsKeys()).toBe(false);
    const key = new PageKey();
    expect(key.headers()).toEqual({});
    key.forget();
    expect(key.refused(null)).toBe(false);
  });
});
