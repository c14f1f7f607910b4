// A machine: typed results, errors with hints, questions that are taken back.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import * as byleave from "../src/index.js";
import { approve, callsOf, recorded, reject, watch } from "./person.js";

const place = inject("place");
const { serverUrl, token, projectId } = place;
const machine = new byleave.Machine({ serverUrl, token, projectId });
let person: Awaited<ReturnType<typeof watch>>;

beforeAll(async () => {
  person = await watch();
});
afterAll(() => person.stop());

/** A server that answers every request as given. */
async function answering(status: number, body: string, headers: Record<string, string> = {}) {
  const requests: { path: string; headers: Record<string, unknown> }[] = [];
  const server = createServer((request, response) => {
    requests.push({ path: request.url ?? "", headers: request.headers });
    response.writeHead(status, headers).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, requests, [Symbol.asyncDispose]: async () => void server.close() };
}

test("each tool returns its typed result", async () => {
  expect((await machine.readFile("README.md", { startLine: 1, endLine: 1 })).content).toBe("hello\n");
  expect((await machine.listDir(".", { pattern: "README*" })).files.map((file) => file.name)).toEqual(["README.md"]);
  const found = await machine.searchFiles("HELLO", { caseSensitive: false, glob: "README.md", maxResults: 1 });
  expect(found.matches).toEqual([{ path: "README.md", line_number: 1, line: "hello" }]);
  expect((await machine.runCommand("pwd", [], { timeout: 5 })).exit_code).toBe(0);
  expect((await machine.tools()).total_count).toBe(6);
});

test("a write waits for the person and is done once with the same key", async () => {
  const options = { mode: "append", key: "one" } as const;
  const writing = machine.writeFile("once.txt", "x", options);
  await approve(await person.asked("once.txt"));
  expect((await writing).size).toBe(1);
  expect((await machine.writeFile("once.txt", "x", options)).size).toBe(1);
  expect(await callsOf("once.txt")).toBe(1);
});

test("a call that needs a person is told at once and can be waited for", async () => {
  const begun = await machine.start("write_file", { path: "later.txt", content: "x" });
  expect(begun.status).toBe("awaiting_approval");
  expect((await machine.wait(begun.tool_id, { timeoutMs: 0 })).status).toBe("awaiting_approval");
  await approve(await person.asked("later.txt"));
  expect((await machine.wait(begun.tool_id)).status).toBe("completed");
  expect(await machine.cancel(begun.tool_id)).toBe(false);
});

test.for([
  ["a path out of the workspace", () => machine.readFile("../outside"), byleave.RefusedError],
  ["a command that is not allowed", () => machine.runCommand("rm", ["-rf", "/"]), byleave.RefusedError],
  ["a missing file", () => machine.readFile("nothing.md"), byleave.ToolFailure],
  ["wrong parameters", () => machine.readFile("README.md", { startLine: -1 }), byleave.CallerError],
  ["a question that nobody answers", () => machine.runCommand("gcc", ["--version"]), byleave.ToolApprovalTimeout],
  ["a search without a provider", () => machine.searchWeb("byleave", { maxResults: 1 }), byleave.RefusedError],
] as const)("%s is an error with a name", async ([_, ask, kind]) => {
  const error = await ask().catch((error: unknown) => error);
  expect(error).toBeInstanceOf(kind);
  expect((error as byleave.ByleaveError).name).toBe(kind.name);
});

test("a rejection says why and what to do", async () => {
  const writing = machine.writeFile("rejected.txt", "x").catch((error: unknown) => error);
  await reject(await person.asked("rejected.txt"), "not today");
  const error = (await writing) as byleave.RejectedError;
  expect(error).toBeInstanceOf(byleave.RejectedError);
  expect(String(error)).toMatch(/not today[\s\S]*\nhint: the user said no/);
});

test("aborting a call takes its question back", async () => {
  const controller = new AbortController();
  const writing = machine.writeFile("aborted.txt", "x", { signal: controller.signal }).catch((error: unknown) => error);
  const question = await person.asked("aborted.txt");
  controller.abort(new Error("enough"));
  expect(await writing).toEqual(new Error("enough"));
  expect(await recorded(question.tool_id)).toMatchObject({ status: "failed", error_type: "cancelled" });
  await expect(machine.readFile("README.md", { signal: controller.signal })).rejects.toThrow("enough");
});

test("time that is over while a call begins takes its question back", async () => {
  const controller = new AbortController();
  const slow = new byleave.Machine({
    serverUrl,
    token,
    projectId,
    async fetch(...request) {
      const response = await fetch(...request);
      controller.abort(); // the server has it; the answer is on its way
      return response;
    },
  });
  await expect(slow.writeFile("early.txt", "x", { signal: controller.signal })).rejects.toThrow("aborted");
  const question = await person.asked("early.txt");
  await person.finished(question.tool_id);
  expect(await recorded(question.tool_id)).toMatchObject({ error_type: "cancelled" });
});

test("an agent's token approves nothing", async () => {
  const begun = await machine.start("write_file", { path: "own.txt", content: "x" });
  const url = `${serverUrl}/my/projects/${projectId}/approvals/${begun.approval_id}/approve`;
  const headers = { Authorization: `Bearer ${token}` };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify({ decision: "approved" }) });
  expect(answer.status).toBe(403);
  expect(await machine.cancel(begun.tool_id)).toBe(true);
});

test("what cannot be written as JSON is refused on the record", async () => {
  const response = await machine.execute("read_file", { path: 1n });
  expect(response).toMatchObject({ status: "failed", error_type: "invalid" });
  expect((await machine.execute("x".repeat(500), {})).error_type).toBe("invalid");
});

test("a wrong address is told at once", async () => {
  const error = await new byleave.Machine({ serverUrl: "http://127.0.0.1:9", token, projectId })
    .readFile("README.md")
    .catch((error: unknown) => error);
  expect(error).toBeInstanceOf(byleave.UnreachableError);
  expect((error as byleave.ByleaveError).hint).toContain("BYLEAVE_SERVER_URL");
});

test.for([
  ["a page", 200, "<html>", {}],
  ["an error page", 502, "<html>", {}],
  ["a redirect", 302, "", { Location: "http://127.0.0.1:9/" }],
  ["other JSON", 404, '{"message":"no"}', {}],
] as const)("%s of another program is told at once and sent no further", async ([_, status, body, headers]) => {
  await using other = await answering(status, body, headers);
  const lost = new byleave.Machine({ serverUrl: other.url, token, projectId });
  await expect(lost.readFile("README.md")).rejects.toBeInstanceOf(byleave.ConfigurationError);
  expect(other.requests).toHaveLength(1);
});

test("a server that was there is waited for, until patience ends", async () => {
  let away = 0;
  const patient = new byleave.Machine({
    serverUrl,
    token,
    projectId,
    fetch: (...request) => (away-- > 0 ? Promise.reject(new TypeError("fetch failed")) : fetch(...request)),
  });
  await patient.readFile("README.md");
  away = 2;
  expect((await patient.readFile("README.md")).content).toBe("hello\n");
  const hasty = new byleave.Machine({ serverUrl, token, projectId, patienceMs: 0, fetch: away503 });
  await expect(hasty.readFile("README.md")).rejects.toThrow("The server could not answer (503): Closing.");
});

const away503 = async () =>
  new Response(JSON.stringify({ title: "", status: 503, detail: "Closing." }), { status: 503 });

test("a proxy that answers for a server that was there is no wrong address", async () => {
  let proxied = false;
  const behind = new byleave.Machine({
    serverUrl,
    token,
    projectId,
    patienceMs: 0,
    fetch: async (...request) => (proxied ? new Response("<html>", { status: 502 }) : fetch(...request)),
  });
  await behind.readFile("README.md");
  proxied = true;
  await expect(behind.readFile("README.md")).rejects.toBeInstanceOf(byleave.UnreachableError);
});

test("a server that allows only short waits is asked for shorter ones", async () => {
  const waits: string[] = [];
  const strict = new byleave.Machine({
    serverUrl,
    token,
    projectId,
    async fetch(input, init) {
      const wait = new URL(String(input)).searchParams.get("wait");
      if (wait) waits.push(wait);
      if (Number(wait) > 20) return new Response(JSON.stringify({ detail: "`wait` is too long." }), { status: 400 });
      return fetch(input, init);
    },
  });
  const begun = await strict.start("write_file", { path: "short.txt", content: "x" });
  const waiting = strict.wait(begun.tool_id);
  await approve(await person.asked("short.txt"));
  expect((await waiting).status).toBe("completed");
  expect(waits).toEqual(["60", "30", "15"]);
});

test("an expired token and a foreign project are told with what to do", async () => {
  const late = new byleave.Machine({ serverUrl, token: place.expiredToken, projectId });
  await expect(late.readFile("README.md")).rejects.toBeInstanceOf(byleave.SignedOut);
  const lost = new byleave.Machine({ serverUrl, token, projectId: "proj_nothing" });
  await expect(lost.tools()).rejects.toBeInstanceOf(byleave.NotFound);
  await expect(machine.wait("exec_nothing")).rejects.toBeInstanceOf(byleave.NotFound);
});

test("what is missing is said before anything is sent", () => {
  expect(() => new byleave.Machine({ serverUrl, token })).toThrow(byleave.CallerError);
  expect(() => new byleave.Machine({ serverUrl, token: "", projectId })).toThrow(byleave.ConfigurationError);
  expect(() => new byleave.Machine({ serverUrl: "nowhere", token, projectId })).toThrow("not the address of a server");
});

test("address, token and project come from the environment", async () => {
  Object.assign(process.env, { BYLEAVE_SERVER_URL: serverUrl, BYLEAVE_TOKEN: token, BYLEAVE_PROJECT: projectId });
  try {
    expect((await new byleave.Machine().readFile("README.md")).content).toBe("hello\n");
  } finally {
    for (const name of ["BYLEAVE_SERVER_URL", "BYLEAVE_TOKEN", "BYLEAVE_PROJECT"]) delete process.env[name];
  }
});

test("the caller's trace is sent", async () => {
  await using server = await answering(200, '{"tool_id":"exec_1","status":"completed","result":{"content":""}}');
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const traced = new byleave.Machine({ serverUrl: server.url, token, projectId, traceparent: () => traceparent });
  await traced.readFile("README.md");
  expect(server.requests[0]?.headers.traceparent).toBe(traceparent);
});

test.for([
  ["write_file", "Their content differs from yours"],
  ["execute_command", 'As changed: {"path":"b.txt"}'],
] as const)("what the user changed in a call of %s is told", async ([tool_name, told]) => {
  const edit = { edited_by: "person:alice", asked: { path: "a.txt" } };
  const execution = { tool_id: "exec_1", tool_name, tool_params: { path: "b.txt" }, status: "completed", edit };
  await using server = await answering(200, JSON.stringify(execution));
  const changed = await new byleave.Machine({ serverUrl: server.url, token, projectId }).wait("exec_1");
  expect(changed.edited).toContain(told);
});
