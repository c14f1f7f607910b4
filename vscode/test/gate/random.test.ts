// A comparison at large, on request: `python scripts/vectors.py --random SEED FILE`, then BYLEAVE_VECTORS=FILE vitest run.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  type Calls,
  compareCalls,
  comparePaths,
  comparePolicies,
  compareTexts,
  type Differences,
} from "./comparing.js";

const FILE = process.env.BYLEAVE_VECTORS;

describe.skipIf(FILE === undefined)("other calls and texts than the committed ones", () => {
  const vectors = FILE === undefined ? {} : JSON.parse(readFileSync(FILE, "utf8"));

  function report(name: string, { compared, other, weaker }: Differences): void {
    console.log(`${name}: ${compared} compared, ${weaker.length} weaker, ${other.length} otherwise`);
    console.log(other.slice(0, 20).join("\n"));
    expect(weaker.slice(0, 20)).toEqual([]);
  }

  test.each(["generated", "calls"])("%s", (name) => report(name, compareCalls(vectors[name] as Calls)));
  test("policies", () => report("policies", comparePolicies(vectors.policies, "/home/user/ws")));
  test("texts", () => report("texts", compareTexts(vectors.texts)));
  test("paths", () => report("paths", comparePaths(vectors.paths)));
});
