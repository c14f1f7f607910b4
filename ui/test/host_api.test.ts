// @vitest-environment node
import { expect, test, vi } from "vitest";
import { Api, Problem, RESEND_MS } from "../src/api";
import { BearerHost } from "../src/bearer_host";
import type { Host } from "../src/host";

function asking(answer: { status: number; body?: unknown } | Error = { status: 200, body: {} }) {
  const request = vi.fn(async (_method: string, _path: string, _body?: unknown) => {
    if (answer instanceof Error) throw answer;
    return { status: answer.status, body: answer.body ?? null, serverTime: 5 };
  });
  return { request, host: { request } as unknown as Host };
}

const rule = { tool: "write_file", paths: ["src/**"] } as unknown as Parameters<Api["previewGrant"]>[1];

test("each route has its path, and ids never leave their place in it", async () => {
  const { request, host } = asking();
  const api = new Api(host);
  const tried: [Promise<unknown>, string][] = [
    [api.createProject("x"), "POST /my/projects"],
    [api.firstProject("x"), "POST /my/projects"],
    [api.runs("p", "s", 5), "GET /my/projects/p/chat/runs?session_id=s&limit=5"],
    [api.messages("p", "s", 5), "GET /my/projects/p/chat/messages?session_id=s&limit=5"],
    [api.messages("p", "s", 5, "m"), "GET /my/projects/p/chat/messages?session_id=s&limit=5&before=m"],
    [api.stopRun("p", "../r"), "POST /my/projects/p/chat/runs/..%2Fr/cancel"],
    [api.approve("p", "a/b", { decision: "approved" }), "POST /my/projects/p/approvals/a%2Fb/approve"],
    [api.reject("p", "a", "no"), "POST /my/projects/p/approvals/a/reject"],
    [api.whole("a"), "GET /my/approvals/a/whole"],
    [api.change("a"), "GET /my/approvals/a/change"],
    [api.history({ project_id: "p", tool_name: "" }), "GET /my/tools/history?project_id=p"],
    [api.execution("t"), "GET /my/tools/t"],
    [api.stopTool("t"), "POST /my/tools/t/cancel"],
    [api.undoPlan("t"), "GET /my/tools/t/undo"],
    [api.undo("t", { plan: "0" } as Parameters<Api["undo"]>[1]), "POST /my/tools/t/undo"],
    [api.revoke("g"), "POST /my/grants/g/revoke"],
    [api.previewGrant("p", rule), "POST /my/projects/p/grants/preview"],
    [api.tools("p"), "GET /my/projects/p/tools/available"],
    [api.check("p", { tool_name: "x" } as Parameters<Api["check"]>[1]), "POST /my/projects/p/check"],
    [api.policy("p"), "GET /my/projects/p/policy"],
    [api.audit("p", 9, 3), "GET /my/projects/p/audit?limit=9&before=3"],
    [api.verifyAudit("p"), "GET /my/projects/p/audit/verify"],
    [api.signInLink(), "POST /my/signin"],
  ];
  await Promise.all(tried.map(([asked]) => asked));
  expect(request.mock.calls.map(([method, path]) => `${method} ${path}`)).toEqual(tried.map(([, path]) => path));
  // A further project is made in any case; the first one only once, though another tab asks for it at the same moment.
  expect(request.mock.calls.slice(0, 2).map(([, , body]) => body)).toEqual([
    { name: "x" },
    { name: "x", if_none: true },
  ]);
});

test("what went wrong is told in the server's words, or says that it could not be reached", async () => {
  const out = vi.fn();
  const refused = new Api(
    asking({ status: 409, body: { detail: "Too late.", hint: "Look.", state: "approved" } }).host,
  );
  await expect(refused.me()).rejects.toMatchObject({ message: "Too late.", hint: "Look.", state: "approved" });
  await expect(new Api(asking({ status: 502, body: "<html>" }).host).me()).rejects.toThrow("The server answered 502.");
  await expect(new Api(asking(new Error("gone")).host).me()).rejects.toMatchObject({ status: 0 });
  await expect(new Api(asking({ status: 401 }).host, undefined, out).me()).rejects.toBeInstanceOf(Problem);
  expect(out).toHaveBeenCalledOnce();
});

test("a web page in the server's place is no answer to a decision", async () => {
  for (const body of [null, "<html>"]) {
    const answered = new Api(asking({ status: 200, body }).host).reject("p", "a", null);
    await expect(answered).rejects.toMatchObject({ message: "The server cannot be reached.", status: 0 });
  }
});

test("who looks at the chat in another page is not told to look after a server, nor that it is away when a token is missing", async () => {
  const away = { ...asking(new Error("gone")).host, kind: "embedded" } as Host;
  const error = await new Api(away).me().catch((each: unknown) => each);
  expect(error).toMatchObject({ message: "The server cannot be reached.", status: 0 });
  expect((error as Problem).hint).not.toContain("byleave");
  const token = () => Promise.reject(new Error("no session"));
  const untold = new BearerHost({ server: "http://127.0.0.1:1", token });
  await expect(new Api(untold).me()).rejects.toMatchObject({ message: expect.stringContaining("no token"), status: 0 });
});

test("what may be asked twice goes out again after a server failed; what may not goes once", async () => {
  vi.useFakeTimers();
  const { request, host } = asking({ status: 502 });
  const api = new Api(host);
  const sent = async (ask: () => Promise<unknown>) => {
    request.mockClear();
    const told = expect(ask()).rejects.toThrow("The server answered 502.");
    await vi.advanceTimersByTimeAsync(RESEND_MS[0] + RESEND_MS[1]);
    await told;
    return request.mock.calls.length;
  };
  expect(await sent(() => api.createProject("x"))).toBe(1);
  expect(await sent(() => api.undo("t", { plan: "0" } as Parameters<Api["undo"]>[1]))).toBe(1);
  expect(await sent(() => api.approve("p", "a", { decision: "approved" }))).toBe(1 + RESEND_MS.length);
  vi.useRealTimers();
});
