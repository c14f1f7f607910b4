// A server on this machine, started with the engine's own program: a real one, and small scripts for what goes wrong.

import { mkdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { LocalServer } from "../../src/editor/local_server.js";
import { Tokens } from "../../src/editor/secrets.js";
import { takeToken } from "../../src/editor/sign_in.js";
import { EngineProblem, type EngineProgram } from "../../src/engine/program.js";
import { Lines, PROGRAM, realEngine } from "../engine/real_engine.js";
import { machine, script } from "../engine/surroundings.js";
import { until } from "../waiting.js";
import { answers, codeMarks, handlers, ran, reset, Secrets, settings, shown } from "./fake_vscode.js";
import { SmallServer } from "./small_server.js";

let server: SmallServer;
const open: LocalServer[] = [];

beforeEach(async () => {
  reset();
  server = await SmallServer.open();
  settings.set("serverUrl", server.origin);
  answers.set("Start a Byleave server", "Start");
});

afterEach(async () => {
  vi.unstubAllEnvs();
  for (const each of open.splice(0)) each.dispose();
  await server.close();
  expect(codeMarks()).toEqual([]);
});

function local(program: () => Promise<EngineProgram>): LocalServer {
  const made = new LocalServer(new Lines(), program, () => []);
  open.push(made);
  return made;
}

/** A program with these two commands, in JavaScript. It notes how it was started. */
function fake(serve: string, token = `console.log('{"token": "made"}')`) {
  const { root } = machine();
  const note = `require("fs").writeFileSync("${root}/" + process.argv[2], JSON.stringify([process.cwd(), process.argv.slice(2), process.env.BYLEAVE_TOKEN ?? null]));`;
  const body = `${note}\nif (process.argv[2] === "serve") { ${serve} } else { ${token} }`;
  const command = script(join(root, "byleave"), body, `#!${process.execPath}`);
  const program = { ...PROGRAM, command, args: [] };
  return { root, start: () => local(async () => program).start() };
}

const ready = () => `console.log('{"ready": true, "url": "${server.origin}"}'); setInterval(() => {}, 1000)`;
const last = () => shown.at(-1)?.text;

describe("a local server", () => {
  test("is started after consent, proves itself, and its token signs in", async () => {
    const real = realEngine();
    mkdirSync(join(real.root, "home"), { recursive: true });
    vi.stubEnv("BYLEAVE_HOME", join(real.root, "home"));
    settings.set("serverUrl", "https://elsewhere.example.com");
    const made = local(async () => PROGRAM);
    const started = await made.start();
    expect(started?.origin).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(shown[0]?.detail).toContain("serve on 127.0.0.1");
    const tokens = new Tokens(new Secrets() as never);
    const { origin, token } = started ?? { origin: "", token: "" };
    expect(await takeToken({ tokens, engine: real.engine }, origin, token)).toBe(true);
    expect([await tokens.read(origin), settings.get("serverUrl")]).toEqual([token, origin]);
    made.dispose();
    await until(async () => expect(await fetch(origin).catch(() => null)).toBeNull());
  });

  test("is not started without consent", async () => {
    answers.clear();
    const program = vi.fn(async () => PROGRAM);
    expect(await local(program).start()).toBeNull();
    expect(program).not.toHaveBeenCalled();
  });

  test("runs outside the folder, by its own arguments, and tells its address in pieces", async () => {
    vi.stubEnv("BYLEAVE_TOKEN", "nobody's");
    const pieces = `process.stderr.write("hello\\n"); process.stdout.write('{"ready": true, "ur', () => process.stdout.write('l": "${server.origin}"}\\n')); setInterval(() => {}, 1000)`;
    const { root, start } = fake(pieces);
    expect(await start()).toEqual({ origin: server.origin, token: "made" });
    const [cwd, args, token] = JSON.parse(readFileSync(join(root, "serve"), "utf8"));
    expect([cwd, token]).toEqual([homedir(), null]);
    expect(args).toEqual(["serve", "--host", "127.0.0.1", "--port", new URL(server.origin).port, "--json"]);
  });

  test("that runs already is used, and no other is started", async () => {
    server.routes.set("GET /readyz", [200, {}]);
    answers.set("runs at", "Sign in");
    expect(await fake("process.exit(9)").start()).toEqual({ origin: server.origin, token: "made" });
    expect(server.got).toMatchObject([{ path: "/readyz", token: "" }]);
  });

  test("without a program says why, with the button that helps", async () => {
    answers.set("There is no program", "Open Settings");
    handlers.set("byleave.openSettings", () => {});
    expect(
      await local(() => Promise.reject(new EngineProblem("setting", "There is no program at 'x'."))).start(),
    ).toBeNull();
    expect(last()).toBe("There is no program at 'x'.");
    expect(ran.at(-1)).toEqual(["byleave.openSettings"]);
  });

  test("that ends at once tells its last words", async () => {
    answers.set("did not start", "Show the log");
    handlers.set("byleave.showLog", () => {});
    settings.set("serverUrl", "https://elsewhere.example.com");
    expect(await fake(`process.stderr.write("one\\nThe port is taken.\\n"); process.exitCode = 3`).start()).toBeNull();
    expect(last()).toBe("The server did not start: The port is taken.");
    expect(ran.at(-1)).toEqual(["byleave.showLog"]);
    await fake("process.exitCode = 3").start();
    expect(last()).toBe("The server did not start: it ended with 3, and did not say why");
    const both = "error: Cannot listen on 127.0.0.1:1: Address already in use.\\nhint: Choose another --port.\\n";
    await fake(`process.stderr.write("2026 warning\\n${both}"); process.exitCode = 1`).start();
    expect(last()).toBe(
      "The server did not start: Cannot listen on 127.0.0.1:1: Address already in use. Choose another --port.",
    );
  });

  test("whose token cannot be made is ended again, and says why", async () => {
    const words = `process.stderr.write("error: The secret is too short.\\nhint: Run \`byleave up\`.\\n"); process.exitCode = 1`;
    expect(await fake(ready(), words).start()).toBeNull();
    expect(last()).toBe('The server did not start: The secret is too short. Run "byleave up".');
    expect(await fake(ready(), `console.log("{}")`).start()).toBeNull();
    expect(last()).toContain("it made no token");
  });

  test("whose program cannot be run is told", async () => {
    expect(await local(async () => ({ ...PROGRAM, command: machine().root })).start()).toBeNull();
    expect(last()).toMatch(/^The server did not start: \S/);
  });
});
