// The client that executes, as the editor starts it: real files, a real sandbox where there is one, a small server.

import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ChangedFiles } from "../../src/editor/changes.js";
import { Differences } from "../../src/editor/diffs.js";
import { executingIn } from "../../src/editor/executing.js";
import type { Executing } from "../../src/host/executing.js";
import { NO_LOG } from "../../src/tools/ports.js";
import { NO_WEB } from "../../src/tools/web.js";
import { reset, settings } from "./fake_vscode.js";
import { SmallServer } from "./small_server.js";

let root: string;
let server: SmallServer;
let executing: Executing | null = null;

beforeEach(async () => {
  reset();
  root = await mkdtemp(join(tmpdir(), "assent-executing-"));
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
    await vi.waitFor(() => expect(made.state).toEqual({ connected: true, isolation: "none", ended: null }));
    expect(changed).toHaveBeenCalled();
    const stream = server.got.find(({ path }) => path.includes("/chat/stream"));
    expect(stream?.token).toBe("Bearer secret");
    expect(new URL(stream?.path ?? "", server.origin).searchParams.get("workspace")).toBe(join(root, "ws"));
    expect(await readdir(join(root, "ws"))).toEqual([]);
    await made.dispose();
    expect(made.state.connected).toBe(false);
  });

  test("that is refused for good says why", async () => {
    server.streamStatus = 403;
    const made = await start();
    await vi.waitFor(() => expect(made.state.ended).toContain("No such thing."));
  });

  test("that is signed out leaves the word to the watch", async () => {
    server.streamStatus = 401;
    const made = await start();
    await server.until(() => server.got.some(({ path }) => path.includes("/chat/stream")));
    await made.dispose();
    expect(made.state).toMatchObject({ connected: false, ended: null });
  });
});
