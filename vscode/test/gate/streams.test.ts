// Output in pieces: long lines, keys that never end, and masking that fails.

import { expect, test, vi } from "vitest";
import { MaskedStream, maskText, maskValue, shownParams, WITHHELD } from "../../src/gate/index.js";
import { Pattern } from "../../src/gate/patterns.js";

const TOKEN = `ghp_${"a1B2c3D4e5".repeat(4)}`;

test("a line without end leaves in parts, and no secret in halves", () => {
  const stream = new MaskedStream();
  let out = "";
  for (let count = 0; count < 40; count += 1) {
    out += stream.feed(`${"word ".repeat(600)}${TOKEN} `);
    expect(stream.held).toBeLessThan(80 * 1024);
  }
  expect(out.length).toBeGreaterThan(20_000);
  out += stream.end();
  expect(out).not.toContain(TOKEN.slice(0, 12));
  expect(out.split("[masked:github-token]")).toHaveLength(41);
});

test("one endless word is cut, too", () => {
  const stream = new MaskedStream();
  expect(stream.feed("x".repeat(70 * 1024)).length).toBe(66 * 1024);
  expect(stream.end().length).toBe(4096);
});

test("a private key is held back until its last line", () => {
  const stream = new MaskedStream();
  const body = `${"QUJDRA+/".repeat(8)}\n`;
  expect(stream.feed(`first\n-----BEGIN RSA PRIVATE KEY-----\n${body}`)).toBe("first\n");
  expect(stream.feed(`${body}-----END RSA PRIVATE KEY-----\nlast\n`)).not.toContain("QUJDRA");
});

test("what is dropped never leaves", () => {
  const stream = new MaskedStream();
  expect([stream.feed("half of a line"), stream.held]).toEqual(["", 14]);
  stream.drop();
  expect([stream.end(), stream.held]).toEqual(["", 0]);
});

test("a line is understood by the one before it", () => {
  const stream = new MaskedStream();
  stream.feed("machine example.org\nlogin me\n");
  expect(stream.feed("password hunter2horse\n")).toBe("password [masked:netrc-password]\n");
});

test("when masking fails, the text is withheld", () => {
  const broken = vi.spyOn(Pattern.prototype, "search").mockImplementation(() => {
    throw new RangeError("too much");
  });
  try {
    expect(maskText("password=hunter2")).toBe(WITHHELD);
    expect(maskValue({ a: "password=hunter2" })).toBe(WITHHELD);
    expect(shownParams("read_file", { path: "password=hunter2" })).toEqual({ withheld: WITHHELD });
    const stream = new MaskedStream();
    expect(stream.feed("password=hunter2\n")).toBe(`${WITHHELD}\n`);
  } finally {
    broken.mockRestore();
  }
});

test("a value nested beyond reason is withheld", () => {
  let value: unknown = "x";
  for (let depth = 0; depth < 300; depth += 1) {
    value = [value];
  }
  expect(JSON.stringify(maskValue(value))).toContain("masked:withheld");
});

test("content too long to mask whole is masked where it is shown", () => {
  const content = `API_TOKEN=${TOKEN}\n${"line of text\n".repeat(25_000)}API_TOKEN=${TOKEN}\n`;
  const shown = shownParams("write_file", { path: "a", content });
  expect(shown.content_size).toBe(content.length);
  expect(String(shown.content).length).toBeLessThan(17_000);
  expect(String(shown.content)).not.toContain(TOKEN.slice(0, 12));
});
