// The client that executes, as the editor starts it: real files, a real sandbox where there is one, a small server.

import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ChangedFiles } from "../../src/editor/changes.js";
import { Differences } from "../../src/editor/diffs.js";
import { executingIn } from "../../src/editor/executing.js";
import type { Executing } from "../../src/host/executing.js";
import { callDigest } from "../../src/protocol/digests.js";
import { NO_LOG } from "../../src/tools/ports.js";
import { NO_WEB } from "../../src/tools/web.js";
import { BY_ALICE, PATIENT, signal } from "../tools/fakes.js";
import { reset, settings, shown } from "./fake_vscode.js";
import { SmallServer } from "./small_server.js";

let root: string;
let server: SmallServer;
let executing: Executing | null = null;

beforeEach(async () => {
  reset();
  root = await mkdtemp(join(tmpdir(), "byleave-executing-"));
  await mkdir(join(root, "ws"));
  server = await SmallServer.open();
  server.routes.set("PUT /my/projects/p/policy", [204, ""]);
});

afterEach(async () => {
  await executing?.dispose();
  executing = null;
  await server.close();
  await rm(root, { recursive: true });
});

async function start(changed: () => void = () => {}): Promise<Executing> {
  const starting = executingIn(
    {
      storage: join(root, "storage"),
      scanWorker: join(root, "none.cjs"),
      web: async () => NO_WEB,
      changes: new ChangedFiles(new Differences()),
    },
    NO_LOG,
  );
  executing = await starting({
    access: { origin: server.origin, token: "secret" },
    projectId: "p",
    folder: join(root, "ws"),
    changed,
  });
  return executing;
}

describe("the executing client", () => {
  test("connects as a client of the folder, says what holds its commands, and ends", async () => {
    settings.set("sandbox", "none");
    const changed = vi.fn();
    const made = await start(changed);
    await server.until(() => server.streams.length === 1);
    await vi.waitFor(() => expect(made.state).toEqual({ connected: true, isolation: "none", ended: null }), PATIENT);
    expect(changed).toHaveBeenCalled();
    const stream = server.got.find(({ path }) => path.includes("/chat/stream"));
    expect(stream?.token).toBe("Bearer secret");
    expect(new URL(stream?.path ?? "", server.origin).searchParams.get("workspace")).toBe(join(root, "ws"));
    expect(await readdir(join(root, "ws"))).toEqual([]);
    await made.dispose();
    expect(made.state.connected).toBe(false);
  });

  test("says in the editor what was undone because the server asked", async () => {
    server.routes.set("POST /my/projects/p/tools/exec_1/result", [200, { tool_id: "exec_1", status: "COMPLETED" }]);
    server.routes.set("POST /my/projects/p/tools/exec_1/undo-report", [204, ""]);
    await start();
    await server.until(() => server.streams.length === 1);
    const stream = server.got.find(({ path }) => path.includes("/chat/stream"));
    const client_id = String(new URL(stream?.path ?? "", server.origin).searchParams.get("client"));
    const params = { path: "a.txt", content: "new" };
    const digest = callDigest("write_file", params, "p", {});
    server.send(1, { ...signal("write_file", params, { ...BY_ALICE, client_id, tool_id: "exec_1", digest }) });
    const posts = (end: string) => server.got.filter(({ path }) => path.endsWith(end));
    await server.until(() => posts("/result").length === 1);
    expect(posts("/result")[0]?.body).toMatchObject({ result: { success: true } });
    const undo = { kind: "tool.undo_request", tool_id: "exec_1", client_id, session_id: "s", partial: false };
    const times = { timestamp: new Date().toISOString(), deadline: new Date(Date.now() + 60_000).toISOString() };
    server.send(2, { ...undo, ...times, request_id: "r1", plan: null });
    await server.until(() => posts("/undo-report").length === 1);
    const told = posts("/undo-report")[0]?.body as { plan: { plan: string } } | undefined;
    server.send(3, { ...undo, ...times, request_id: "r2", plan: told?.plan.plan });
    await server.until(() => posts("/undo-report").length === 2);
    expect(shown).toMatchObject([
      { text: "Byleave: Undone, as asked in the chat or on the page: a.txt.", items: ["Bring It Back"] },
    ]);
    expect(await readdir(join(root, "ws"))).toEqual([]);
  });

  test("that is refused for good says why", async () => {
    server.streamStatus = 403;
    const made = await start();
    await vi.waitFor(() => expect(made.state.ended).toContain("No such thing."), PATIENT);
  });

  test("that is signed out leaves the word to the watch", async () => {
    server.streamStatus = 401;
    const made = await start();
    await server.until(() => server.got.some(({ path }) => path.includes("/chat/stream")));
    await made.dispose();
    expect(made.state).toMatchObject({ connected: false, ended: null });
  });
});
