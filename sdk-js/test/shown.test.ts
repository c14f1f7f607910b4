// What a model is shown, and which calls are the same.
import { expect, test } from "vitest";
import { ByleaveError, errorOf, ToolFailure } from "../src/errors.js";
import type { ToolResponse } from "../src/protocol.js";
import { callKey, textOf } from "../src/shown.js";

const base = {
  tool_id: "exec_1",
  tool_name: "read_file",
  approval_id: null,
  error: null,
  error_type: null,
  hint: null,
  edited: null,
};
const response = (fields: Partial<ToolResponse>): ToolResponse => ({
  ...base,
  status: "failed",
  result: null,
  ...fields,
});

test("a picture is left out and said to be", () => {
  const text = textOf(response({ status: "completed", result: { content: "x".repeat(200_000), encoding: "base64" } }));
  expect(text).toContain("cannot be shown here");
  expect(text.length).toBeLessThan(100_000);
});

test("a list is cut until it fits, and what never fits is said to be too long", () => {
  const files = Array.from({ length: 1000 }, (_, index) => ({ name: `${index}`, path: "p".repeat(300) }));
  const listed = JSON.parse(textOf(response({ status: "completed", result: { files } }))) as { files: object[] };
  expect(listed.files.length).toBeLessThan(1000);
  const endless = Object.fromEntries(files.map((_, index) => [`key${index}`.repeat(20), "x".repeat(100)]));
  expect(textOf(response({ status: "completed", result: endless }))).toMatch(/too long to show/);
  expect(textOf(response({ status: "completed" }))).toBe("{}");
});

test("a failure says why, what to do, and what there was of a result", () => {
  const text = textOf(response({ error: "It ran too long.", hint: "do less", result: { stdout: "half" } }));
  expect(text).toBe('It ran too long.\nhint: do less\n{"stdout":"half"}');
  expect(textOf(response({}))).toBe("The call ended as failed.");
  expect(textOf(response({ edited: "The user changed it." }))).toContain("The user changed it.");
  expect(textOf(response({ status: "completed", edited: "Changed.", result: { size: 1 } }))).toBe(
    '{"changed_by_user":"Changed.","size":1}',
  );
  expect(textOf(response({ error_type: "no_client", error: "No machine." }))).toContain("hint: no machine of the user");
});

test("an error has the name of its kind", () => {
  expect(errorOf(response({ error_type: "tool_error", error: "No such file." }))).toEqual(
    new ToolFailure("No such file."),
  );
  const plain = errorOf(response({}));
  expect([plain.name, String(plain)]).toEqual(["ByleaveError", "ByleaveError: The call ended as failed."]);
  expect(plain).toBeInstanceOf(ByleaveError);
});

test("a call is the same whatever the order of its parameters, in its conversation only", async () => {
  const key = await callKey("t", "1", "write_file", { path: "a", nested: { one: 1, two: [2] } });
  expect(await callKey("t", "1", "write_file", { nested: { two: [2], one: 1 }, path: "a" })).toBe(key);
  expect(await callKey("u", "1", "write_file", { path: "a", nested: { one: 1, two: [2] } })).not.toBe(key);
  expect(await callKey("t", "1", "write_file", { path: "b", nested: { one: 1, two: [2] } })).not.toBe(key);
  expect(await callKey(undefined, "1", "write_file", {})).toBeUndefined();
  expect(await callKey("t", undefined, "write_file", {})).toBeUndefined();
});
