// Signing in by a one-time link: pasted, or opened from outside, where nothing may happen before a person has agreed.

import { beforeEach, describe, expect, test, vi } from "vitest";
import { Tokens } from "../../src/editor/secrets.js";
import { addressRemark, OpenedLinks, signIn } from "../../src/editor/sign_in.js";
import { realEngine } from "../engine/real_engine.js";
import { PATIENT } from "../waiting.js";
import { answers, codeMarks, ran, remarks, reset, Secrets, settings, shown } from "./fake_vscode.js";
import { SmallServer } from "./small_server.js";

let server: SmallServer;
let tokens: Tokens;
const { engine } = realEngine();
const ports = () => ({ tokens, engine });
const EXCHANGE = "POST /signin/exchange";

beforeEach(async () => {
  reset();
  server = await SmallServer.open();
  tokens = new Tokens(new Secrets() as never);
  settings.set("serverUrl", "http://127.0.0.1:1");
  const told = {
    token: "made.for.me",
    user_id: "alice",
    scopes: ["chat", "approve", "execute"],
    expires_in_seconds: 9,
  };
  server.routes.set(EXCHANGE, [200, told]);
  return async () => {
    await server.close();
    expect(codeMarks()).toEqual([]);
  };
});

/** An error as the server writes it. */
const problem = (detail: string, hint: string | null = null) => ({ title: "No", status: 400, detail, hint });
const link = (code = "good-code") => `${server.origin}/signin?code=${code}`;

describe("a link that is pasted", () => {
  test("instead of the address signs in with a token of the editor's own, kept for that server", async () => {
    answers.set("server's address", ` ${link()} `);
    expect(await signIn(ports())).toBe(true);
    expect(server.got).toMatchObject([
      { method: "POST", path: "/signin/exchange", token: "", body: { code: "good-code" } },
      { method: "GET", path: "/my/me", token: "Bearer made.for.me" },
    ]);
    expect(await tokens.read(server.origin)).toBe("made.for.me");
    expect(settings.get("serverUrl")).toBe(server.origin);
    expect(shown.at(-1)?.text).toBe(`Byleave: signed in to ${server.origin} as alice.`);
    expect(remarks).toEqual([null]);
  });

  test("instead of the token does the same, if it is for that server", async () => {
    answers.set("server's address", server.origin);
    answers.set("A token", link());
    expect(await signIn(ports())).toBe(true);
    expect(await tokens.read(server.origin)).toBe("made.for.me");
    answers.set("A token", "http://127.0.0.1:9/signin?code=x");
    server.got.length = 0;
    expect(await signIn(ports())).toBe(false);
    expect(remarks.at(-1)).toContain("This link is for http://127.0.0.1:9");
    expect(server.got).toEqual([]);
  });

  test.each<[number, unknown, string]>([
    [401, problem("This link was used already.", "Run `byleave link`."), 'used already. Run "byleave link".'],
    [429, problem("Too many."), "Too many."],
    [403, problem("Made by\na page."), "Made by"],
    [404, problem("There is nothing here."), "gives no token for a link (404)"],
    [200, { token: 7 }, "gives no token for a link (200)"],
    [502, "<html>", "gives no token for a link (502)"],
    [302, {}, "gives no token for a link (302)"],
  ])("and answered with %i says what to do and keeps nothing", async (status, body, words) => {
    server.routes.set(EXCHANGE, [status, body]);
    answers.set("server's address", link());
    expect(await signIn(ports())).toBe(false);
    expect(shown.at(-1)).toMatchObject({ kind: "error" });
    expect(shown.at(-1)?.text).toContain(words);
    expect(await tokens.read(server.origin)).toBeNull();
  });

  test("whose server is gone says so, and leads back", async () => {
    answers.set("server's address", "http://127.0.0.1:9/signin?code=x");
    answers.set("Nothing answers", "Sign in");
    expect(await signIn(ports())).toBe(false);
    expect(shown.at(-1)?.text).toContain("Nothing answers at http://127.0.0.1:9");
    expect(shown.at(-1)?.text).toContain("start it, then get a new link");
    await vi.waitFor(() => expect(ran.at(-1)).toEqual(["byleave.signIn"]), PATIENT);
  });

  test("gives a token that is tried before it is kept", async () => {
    server.routes.set("GET /my/me", [200, { user_id: "a", scopes: ["chat"] }]);
    answers.set("server's address", link());
    expect(await signIn(ports())).toBe(false);
    expect(await tokens.read(server.origin)).toBeNull();
  });

  test("over an open network is warned about", () => {
    expect(addressRemark("http://10.0.0.1/signin?code=x")).toMatchObject({ severity: 2 });
    expect(addressRemark("https://10.0.0.1/signin?code=x")).toBeNull();
    expect(addressRemark("http://127.0.0.1:1/signin?cod")).toContain("a whole sign-in link");
  });
});

describe("a link that was opened from outside", () => {
  const opened = (path: string, query: string) => ({ scheme: "vscode", path, query }) as never;
  const asked = () => shown.filter(({ kind }) => kind === "warning");
  const signedIn = vi.fn(async () => {});
  const handler = () => new OpenedLinks(ports(), signedIn);

  beforeEach(() => {
    signedIn.mockClear();
  });

  test("sends nothing before the person agreed to the server", async () => {
    await handler().handleUri(opened("/signin", `link=${link()}`));
    expect(server.got).toEqual([]);
    expect(asked()[0]).toMatchObject({
      text: `Sign in to the server ${server.origin}?`,
      items: ["Do not sign in", "Sign in"],
    });
    expect(asked()[0]?.detail).toContain("uses http://127.0.0.1:1 now");
    expect(signedIn).not.toHaveBeenCalled();
  });

  test("keeps nothing before the person agreed to the user", async () => {
    answers.set("Sign in to the server", "Sign in");
    await handler().handleUri(opened("/signin", `link=${encodeURIComponent(link())}`));
    expect(asked()[1]?.text).toBe(`Sign in to ${server.origin} as alice?`);
    expect(server.got.map(({ path }) => path)).toEqual(["/signin/exchange"]);
    expect(await tokens.read(server.origin)).toBeNull();
    expect(settings.get("serverUrl")).toBe("http://127.0.0.1:1");
    answers.set("as alice?", "Sign in");
    await handler().handleUri(opened("/signin", `link=${link()}`));
    expect(await tokens.read(server.origin)).toBe("made.for.me");
    expect(signedIn).toHaveBeenCalledTimes(1);
  });

  test("over an open network, or for the server there is, says that too", async () => {
    settings.set("serverUrl", "http://10.0.0.1");
    await handler().handleUri(opened("/signin", "link=http://10.0.0.1/signin?code=x"));
    expect(asked()[0]?.detail).toContain("unencrypted");
    expect(asked()[0]?.detail).not.toContain("would change");
  });

  test.each([
    ["/signin", ""],
    ["/signin", "link=https://evil.example/"],
    ["/other", "link=http://127.0.0.1/signin?code=x"],
    ["/signin", "link=http://user:pw@evil.example/signin?code=x"],
  ])("that is none (%s?%s) says what to do and asks nothing", async (path, query) => {
    await handler().handleUri(opened(path, query));
    expect(shown).toHaveLength(1);
    expect(shown[0]?.text).toContain("no sign-in link");
    expect(server.got).toEqual([]);
  });

  test("is one at a time", async () => {
    const one = handler();
    const first = one.handleUri(opened("/signin", `link=${link()}`));
    await one.handleUri(opened("/signin", `link=${link("other")}`));
    await first;
    expect(asked()).toHaveLength(1);
    await one.handleUri(opened("/signin", `link=${link("third")}`));
    expect(asked()).toHaveLength(2);
  });
});
