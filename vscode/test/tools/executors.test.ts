// The editor's own hands, through the real engine, on real files and with real commands.

import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CommandExecutor, FileSystemExecutor, PathValidator } from "../../src/tools/executors.js";
import { SmallServer } from "../editor/small_server.js";
import { realEngine } from "../engine/real_engine.js";

const { engine, folder } = realEngine();
const files = new FileSystemExecutor(engine);
const commands = new CommandExecutor(engine);
const paths = new PathValidator(engine);
let server: SmallServer;
let root: string;

beforeAll(async () => {
  server = await SmallServer.open();
  root = folder("ws");
  mkdirSync(join(root, "src"));
  writeFileSync(join(root, "a.txt"), "one\n");
  writeFileSync(join(root, "src/b.ts"), "two\n");
  writeFileSync(join(root, "..", "outside.txt"), "secret");
  symlinkSync("../outside.txt", join(root, "link"));
  symlinkSync("src/b.ts", join(root, "inside"));
  await engine.start();
  await engine.useServer({ server_url: server.origin, token: "t" });
  await engine.connect({ project_id: "p", workspace: root, settings: {} });
});

afterAll(() => server.close());

describe("files", () => {
  test("are read, written, appended to and listed", async () => {
    expect(await files.executeReadFile("a.txt")).toMatchObject({ success: true, content: "one\n" });
    expect(await files.executeWriteFile("new/c.txt", "x")).toMatchObject({ success: true });
    expect(await files.executeWriteFile("new/c.txt", "y", "append")).toMatchObject({ success: true });
    expect(readFileSync(join(root, "new/c.txt"), "utf8")).toBe("xy");
    const all = JSON.stringify(await files.executeListDirectory(".", true, "*.ts"));
    expect(all).toContain("b.ts");
    expect(all).not.toContain("a.txt");
    expect(JSON.stringify(await files.executeListDirectory("."))).not.toContain("b.ts");
  });

  test("outside the folder are out of reach, and what is not there is said", async () => {
    expect(await files.executeReadFile("../outside.txt")).toMatchObject({ success: false });
    expect(await files.executeReadFile("link")).toMatchObject({ success: false });
    expect(await files.executeReadFile("gone.txt")).toMatchObject({ success: false, error: expect.any(String) });
    expect(await files.executeWriteFile("../made.txt", "x")).toMatchObject({ success: false });
  });
});

describe("commands", () => {
  test("run in the folder, with what they printed and how they ended", async () => {
    expect(await commands.executeCommand("cat", ["a.txt"])).toMatchObject({ success: true, stdout: "one\n" });
    expect(await commands.executeCommand("ls")).toMatchObject({ success: true });
  });

  test("end with their time", async () => {
    const wait = "import time; time.sleep(60)";
    expect(await commands.executeCommand("python3", ["-c", wait], 1)).toMatchObject({ success: false });
  });

  test("that the gate refuses do not run", async () => {
    expect(await commands.executeCommand("sudo", ["true"])).toMatchObject({ success: false });
  });
});

describe("a path", () => {
  test.each([
    ["a.txt", "a.txt"],
    ["./src/../src/b.ts", "src/b.ts"],
    ["inside", "src/b.ts"],
  ])("%s is valid, with its real place", async (path, real) => {
    expect(await paths.validatePath(path)).toEqual({ valid: true, error: null, realPath: join(root, real) });
  });

  test.each(["../outside.txt", "link", "/etc/passwd", ".."])("%s is not", async (path) => {
    expect(await paths.validatePath(path)).toEqual({ valid: false, error: expect.any(String), realPath: null });
  });
});
