// What has no one spelling has no digest, so nobody can have approved it.

import { expect, test } from "vitest";
import { callDigest, canonicalJson, NotCanonical } from "../../src/protocol/digests.js";

test.each([1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, undefined, 1n, () => 1, Symbol("x")])(
  "%s has no digest",
  (value) => {
    expect(() => callDigest("read_file", { value }, "prj_1")).toThrow(NotCanonical);
  },
);

test("a value nested beyond reason has no digest", () => {
  let value: unknown = 1;
  for (let depth = 0; depth < 300; depth += 1) {
    value = [value];
  }
  expect(() => canonicalJson(value)).toThrow(NotCanonical);
});

test("keys are sorted by their characters, not by halves of them", () => {
  expect(canonicalJson({ "😀": 1, "\uff5e": 2, ab: 3, a: 4 })).toBe('{"a":4,"ab":3,"\\uff5e":2,"\\ud83d\\ude00":1}');
});
