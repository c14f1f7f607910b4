import type { PushDevice } from "@protocol";
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Api } from "../src/api";
import { App } from "../src/app/App";
import { PushSettings } from "../src/app/PushSettings";
import { SignedOut } from "../src/app/SignedOut";
import { BrowserHost } from "../src/browser_host";
import { keepPush, pushRefusal } from "../src/push";
import * as sample from "./state_samples";
import { TableHost } from "./state_samples";

vi.mock("virtua", () => ({ Virtualizer: () => null }));

const KEY = "BAEC";
const phone = { id: "device_1", name: "Chrome on Android", service: "push.example.com", created_at: "", sent_at: null };

/** A browser's subscription; `made` is the one there is. */
class Browser {
  made: { key: string } | null = null;
  ended = 0;
  readonly worker = {
    pushManager: {
      subscribe: async ({ applicationServerKey }: { applicationServerKey: string }) => {
        this.made = { key: applicationServerKey };
        return this.subscription();
      },
      getSubscription: async () => (this.made ? this.subscription() : null),
    },
  };
  readonly container = Object.assign(new EventTarget(), {
    register: vi.fn(async () => this.worker),
    ready: Promise.resolve(this.worker),
    getRegistration: async () => this.worker,
  });

  subscription() {
    const bytes = Uint8Array.from(atob(this.made?.key ?? ""), (letter) => letter.charCodeAt(0));
    return {
      toJSON: () => ({ endpoint: "https://push.example.com/1", keys: { p256dh: "p", auth: "a" } }),
      options: { applicationServerKey: bytes.buffer },
      unsubscribe: async () => {
        this.ended += 1;
        this.made = null;
        return true;
      },
    };
  }
}

let browser: Browser;

beforeEach(() => {
  browser = new Browser();
  Element.prototype.scrollIntoView = () => {};
  location.hash = "";
  vi.stubGlobal("isSecureContext", true);
  vi.stubGlobal("PushManager", class {});
  vi.stubGlobal("Notification", { permission: "granted", requestPermission: async () => "granted" });
  Object.defineProperty(navigator, "serviceWorker", { value: browser.container, configurable: true });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  Reflect.deleteProperty(navigator, "serviceWorker");
});

/** A server that keeps a list of devices. */
function serving(devices: PushDevice[] = [], webhook = false): TableHost {
  const list = [...devices];
  return new TableHost(
    {
      "GET /my/notices": () => ({ after_seconds: 20, webhook, push_key: KEY, devices: [...list] }),
      "POST /my/notices/devices": () => {
        list.push(phone);
        return phone;
      },
      "POST /my/notices/devices/device_1/remove": () => list.pop(),
      "POST /my/notices/test": { outcomes: [{ to: phone.name, delivered: true, detail: null }] },
    },
    "browser",
  );
}

function opened(host: TableHost) {
  render(<PushSettings api={new Api(host)} host={host} />);
  return userEvent.setup({ delay: null });
}
const here = () => screen.getByRole<HTMLInputElement>("checkbox", { name: "Notify this device" });

describe("push messages in the settings", () => {
  test("they are turned on, tried and turned off for this device", async () => {
    const host = serving();
    const user = opened(host);
    await waitFor(() => expect(here().disabled).toBe(false));
    expect(screen.getByText("Sent when something has waited 20 seconds without an answer.")).toBeTruthy();
    expect(screen.queryByRole("button")).toBeNull();
    await user.click(here());
    await waitFor(() => expect(here().checked).toBe(true));
    expect(browser.container.register).toHaveBeenCalledWith("/page/sw.js", { scope: "/" });
    expect(browser.made).toEqual({ key: KEY });
    expect(host.asked.find(({ path }) => path === "/my/notices/devices")?.body).toEqual({
      endpoint: "https://push.example.com/1",
      p256dh: "p",
      auth: "a",
    });
    await user.click(screen.getByRole("button", { name: "Send a test" }));
    expect((await screen.findByRole("status")).textContent).toBe("Chrome on Android: sent.");
    await user.click(here());
    await waitFor(() => expect(here().checked).toBe(false));
    expect(browser.ended).toBe(1);
    expect(host.kept.has("push")).toBe(false);
  });

  test("another device is removed, and a failure of the test is said", async () => {
    const host = serving([phone], true);
    const failed = { outcomes: [{ to: "webhook", delivered: false, detail: "It answered with status 500." }] };
    host.table["POST /my/notices/test"] = failed;
    const user = opened(host);
    await screen.findByText(/, and to this server's webhook\./);
    expect(here().checked).toBe(false);
    await user.click(screen.getByRole("button", { name: "Send a test" }));
    expect((await screen.findByRole("status")).textContent).toBe("webhook: It answered with status 500.");
    await user.click(screen.getByRole("button", { name: "Remove Chrome on Android" }));
    await waitFor(() => expect(screen.queryByText("Chrome on Android")).toBeNull());
    expect(browser.ended).toBe(0);
  });

  test("a browser that blocks them, or that cannot reach its push service, says so", async () => {
    vi.stubGlobal("Notification", { requestPermission: async () => "denied" });
    const user = opened(serving());
    await waitFor(() => expect(here().disabled).toBe(false));
    await user.click(here());
    expect((await screen.findByRole("status")).textContent).toContain("This browser blocks notifications");
    vi.stubGlobal("Notification", { requestPermission: async () => "granted" });
    browser.worker.pushManager.subscribe = async () => {
      throw new Error("Registration failed - push service error");
    };
    await user.click(here());
    await screen.findByText("Registration failed - push service error");
    expect(here().checked).toBe(false);
  });

  test("what keeps a browser from it is said instead", async () => {
    expect(pushRefusal()).toBeNull();
    vi.stubGlobal("isSecureContext", false);
    expect(pushRefusal()).toContain("needs https");
    opened(serving());
    await screen.findByText(/this page came over plain http/);
    expect(here().disabled).toBe(true);
    vi.unstubAllGlobals();
    vi.stubGlobal("isSecureContext", true);
    expect(pushRefusal()).toBe("This browser takes no push messages.");
    vi.spyOn(navigator, "userAgent", "get").mockReturnValue("Mozilla/5.0 (iPhone)");
    expect(pushRefusal()).toContain("Add to Home Screen");
  });
});

describe("at the page's start", () => {
  const kept = async (host: TableHost, made: string | null) => {
    host.kept.set("push", phone.id);
    browser.made = made === null ? null : { key: made };
    await keepPush(host, new Api(host));
  };

  test("a subscription that the server still lists stays", async () => {
    const host = serving([phone]);
    await kept(host, KEY);
    expect([browser.ended, host.kept.get("push")]).toEqual([0, phone.id]);
  });

  test("one that was removed elsewhere, or is another person's, ends", async () => {
    const host = serving([]);
    await kept(host, KEY);
    expect([browser.ended, host.kept.has("push")]).toEqual([1, false]);
  });

  test("one for another key of the server is made anew", async () => {
    const host = serving([phone]);
    await kept(host, "AQID");
    expect([browser.ended, browser.made, host.kept.get("push")]).toEqual([1, { key: KEY }, phone.id]);
  });

  test("nothing is asked where it is off", async () => {
    const host = serving([phone]);
    await keepPush(host, new Api(host));
    expect(host.asked).toEqual([]);
  });
});

describe("a link to a question", () => {
  const question = (id: string, project_id = "p", session_id: string | null = "s") =>
    sample.approval(id, 1, { project_id, session_id });

  test("it is shown in its project, and the address goes on from there", async () => {
    const other = { project_id: "q", name: "other", created_at: sample.at(0) };
    const host = serving();
    const asked = [question("appr_1"), question("appr_2", "q", "t")];
    const of = (project: string) => asked.filter(({ project_id }) => project_id === project);
    Object.assign(host.table, {
      "GET /my/projects": { projects: [{ ...other, project_id: "p", name: "demo" }, other], total_count: 2 },
      "GET /my/approvals": (_: unknown, path: string) => {
        const project = new URL(path, "http://x").searchParams.get("project_id");
        const approvals = project === null ? asked : of(project);
        return { approvals, total_count: approvals.length };
      },
      "GET /my/projects/q/chat/sessions": { sessions: [], total_count: 0 },
      "GET /my/projects/q/chat/messages": { messages: [], total_count: 0, more: false },
      "GET /my/projects/q/chat/runs": { runs: [], total_count: 0 },
      "GET /my/projects/q/agents": { agents: [sample.agent], total_count: 1 },
      "GET /my/projects/q/machines": { machines: [], total_count: 0 },
    });
    location.hash = "#/review/appr_2";
    render(<App host={host} />);
    await waitFor(() => expect(document.querySelector('[data-approval="appr_2"]')).toBeTruthy());
    expect(document.querySelector(".app-title-project")?.textContent).toBe("other");
    await waitFor(() => expect(location.hash).toBe("#/chat/t"));
  });

  test("one that waits no more is said to be over", async () => {
    const host = serving();
    location.hash = "#/review/appr_9";
    render(<App host={host} />);
    await screen.findByText("This request was answered already, or it expired.");
    await waitFor(() => expect(location.hash).toBe("#/chat/s"));
  });

  test("a tap on a notification changes the address of the page that is open, to places of ours only", async () => {
    new BrowserHost();
    const tap = (data: unknown) => browser.container.dispatchEvent(new MessageEvent("message", { data }));
    tap({ show: "#/review/appr_1" });
    expect(location.hash).toBe("#/review/appr_1");
    for (const data of [{ show: "https://evil.test/" }, { show: 7 }, null, "x"]) tap(data);
    expect(location.hash).toBe("#/review/appr_1");
  });
});

test("a link is pasted where there is no address bar", async () => {
  const assign = vi.fn();
  vi.stubGlobal("location", { ...location, assign });
  render(<SignedOut kind="browser" />);
  const field = screen.getByRole("textbox", { name: "Sign-in link" });
  for (const typed of [" https://b.example/signin?code=a_b-1 ", "a_b-1"]) {
    fireEvent.change(field, { target: { value: typed } });
    await act(async () => fireEvent.submit(field));
    expect(assign).toHaveBeenLastCalledWith("/signin?code=a_b-1");
  }
  fireEvent.change(field, { target: { value: "javascript:alert(1)" } });
  fireEvent.submit(field);
  expect(assign).toHaveBeenLastCalledWith("/signin?code=javascript%3Aalert(1)");
});
