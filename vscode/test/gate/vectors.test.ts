// The shared vectors: what the Python gate made of calls, rules, texts and paths, the TypeScript one makes of them too.
// Never weaker; and where it is stricter or says it otherwise, that is listed here with its count.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { fullText, maskValue, shownParams } from "../../src/gate/index.js";
import { callDigest, canonicalJson } from "../../src/protocol/digests.js";
import { type Calls, compareCalls, comparePaths, comparePolicies, compareTexts, type PolicyCase } from "./comparing.js";

function vectors<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), "utf8")) as T;
}

describe("the same verdict as the Python gate", () => {
  test.each(["lines", "generated", "odd", "calls", "unisolated"])("for the calls of %s.json", (name) => {
    const { compared, other, weaker } = compareCalls(vectors<Calls>(name));
    expect(weaker).toEqual([]);
    expect(other).toEqual([]);
    expect(compared).toBeGreaterThanOrEqual(name === "odd" || name === "unisolated" ? 100 : 1500);
  });

  test("or a stricter one, for the kinds listed in scripts/vector_inputs.py and no others", () => {
    const { compared, other, weaker } = compareCalls(vectors<Calls>("stricter"));
    expect(weaker).toEqual([]);
    expect([compared, other.length]).toEqual([6, 6]);
  });

  test("under owners' rules, and for rules that cannot be read", () => {
    const { compared, other, weaker } = comparePolicies(vectors<PolicyCase[]>("policies"), "/home/user/ws");
    expect(weaker).toEqual([]);
    expect(other).toEqual([]);
    expect(compared).toBeGreaterThan(1500);
  });
});

test("texts are shown and masked as Python shows and masks them", () => {
  const { compared, other } = compareTexts(vectors("texts"));
  expect(other).toEqual([]);
  expect(compared).toBeGreaterThan(1000);
});

test("paths, names and patterns of paths are judged as Python judges them", () => {
  const { compared, other } = comparePaths(vectors("paths"));
  expect(other).toEqual([]);
  expect(compared).toBeGreaterThan(1200);
});

test("digests are those of the server, byte for byte", () => {
  type Digested = { tool: string; params: Record<string, unknown>; project: string; bound: Record<string, unknown> };
  for (const [value, canonical, digest] of vectors<[Digested, string, string][]>("digests")) {
    expect(canonicalJson(value)).toBe(canonical);
    expect(callDigest(value.tool, value.params, value.project, value.bound)).toBe(digest);
  }
});

test("whole calls are shown and logged as Python shows and logs them", () => {
  const kept = (value: unknown) => {
    const text = canonicalJson(value);
    return text.length < 2000 ? value : `sha256:${createHash("sha256").update(text, "ascii").digest("hex")}`;
  };
  type Shown = [string, Record<string, unknown>, unknown, unknown, unknown];
  for (const [name, params, shown, full, masked] of vectors<Shown[]>("shown")) {
    expect(kept(shownParams(name, params))).toEqual(shown);
    expect(kept(fullText(name, params))).toEqual(full);
    expect(kept(maskValue(params))).toEqual(masked);
  }
});
