// A server on this machine, started because the person said so: the engine's own program, with arguments from here and no
// shell. It ends with the window. Its token is made by the same program and goes straight to the secret storage.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { homedir, userInfo } from "node:os";
import { promisify } from "node:util";
import * as vscode from "vscode";
import { oneLine } from "../../../ui/src/text/visible.js";
import { EngineProblem, type EngineProgram, engineEnvironment } from "../engine/program.js";
import { isLoopback } from "../host/address.js";
import { tellEngineProblem } from "./getting_engine.js";
import type { Log } from "./log.js";
import { notice, plain } from "./notices.js";
import { readSettings } from "./settings.js";

const READY_MS = 60_000;
const run = promisify(execFile);

export interface Started {
  readonly origin: string;
  readonly token: string;
}

export class LocalServer implements vscode.Disposable {
  readonly #log: Log;
  readonly #program: () => Promise<EngineProgram>;
  readonly #folders: () => readonly string[];
  #process: ChildProcess | null = null;

  constructor(log: Log, program: () => Promise<EngineProgram>, folders: () => readonly string[]) {
    this.#log = log;
    this.#program = program;
    this.#folders = folders;
  }

  /** Starts one with the person's consent, or uses the one that runs; null when there is none now, which was said. */
  async start(): Promise<Started | null> {
    const { origin } = readSettings();
    const here = origin !== null && isLoopback(origin) ? origin : null;
    const running = here !== null && (await answers(here)) ? here : null;
    if (!(await consent(running))) return null;
    const port = here === null ? "0" : new URL(here).port || "80";
    try {
      return await vscode.window.withProgress(
        { location: vscode.ProgressLocation.Notification, title: "Byleave: starting a server…" },
        async () => {
          const program = await this.#program();
          const url = running ?? (await this.#serve(program, port));
          return { origin: new URL(url).origin, token: await this.#token(program) };
        },
      );
    } catch (error) {
      this.dispose();
      if (error instanceof EngineProblem) await tellEngineProblem(error);
      else await this.#tell(error);
      return null;
    }
  }

  dispose(): void {
    this.#process?.kill("SIGTERM");
    this.#process = null;
  }

  #serve({ args, command }: EngineProgram, port: string): Promise<string> {
    this.dispose();
    return new Promise((resolve, reject) => {
      const child = spawn(command, [...args, "serve", "--host", "127.0.0.1", "--port", port, "--json"], {
        stdio: ["ignore", "pipe", "pipe"],
        // Never in the open folder: nothing of it may have a say in how the server starts.
        cwd: homedir(),
        env: engineEnvironment(process.env, this.#folders()),
        windowsHide: true,
      });
      this.#process = child;
      let said = "";
      let told = "";
      const timer = setTimeout(() => reject(new Error("it did not become ready within a minute")), READY_MS);
      child.stdout.setEncoding("utf8").on("data", (text: string) => {
        said = (said + text).slice(-20_000);
        const url = readyUrl(said);
        if (url === null) return;
        clearTimeout(timer);
        resolve(url);
      });
      child.stderr.setEncoding("utf8").on("data", (text: string) => {
        told = (told + text).slice(-2000);
        this.#log.debug("local server", { said: text.trimEnd() });
      });
      child.once("error", reject);
      child.once("exit", (code) => {
        clearTimeout(timer);
        if (this.#process === child) this.#process = null;
        reject(new Error(lastWords(told) || `it ended with ${code}, and did not say why`));
      });
    });
  }

  async #token({ args, command }: EngineProgram): Promise<string> {
    const { stdout } = await run(command, [...args, "token", "--user", userInfo().username, "--json"], {
      cwd: homedir(),
      env: engineEnvironment(process.env, this.#folders()),
      timeout: READY_MS,
    });
    const token = (JSON.parse(stdout) as { token?: unknown }).token;
    if (typeof token !== "string") throw new Error("it made no token");
    return token;
  }

  async #tell(error: unknown): Promise<void> {
    this.#log.error("the local server did not start", { error: String(error) });
    const { stderr } = error as { stderr?: unknown };
    const words = typeof stderr === "string" ? lastWords(stderr) : "";
    const why = plain(oneLine(words || (error instanceof Error ? error.message : String(error))));
    const said = await vscode.window.showErrorMessage(notice(`The server did not start: ${why}`), "Show the log");
    if (said !== undefined) await vscode.commands.executeCommand("byleave.showLog");
  }
}

/** What a program says last: its error with what to do, or its last line. */
function lastWords(told: string): string {
  const lines = told.trim().split("\n");
  const at = lines.findLastIndex((line) => line.startsWith("error: "));
  if (at < 0) return lines.at(-1) ?? "";
  return lines.slice(at).join(" ").replace("error: ", "").replace(" hint: ", " ");
}

/** Whether a server is there already. Nothing is told to it. */
async function answers(origin: string): Promise<boolean> {
  try {
    const answer = await fetch(`${origin}/readyz`, { redirect: "error", signal: AbortSignal.timeout(2000) });
    return answer.ok;
  } catch {
    return false;
  }
}

async function consent(running: string | null): Promise<boolean> {
  const [question, detail, yes] =
    running === null
      ? [
          "Start a Byleave server on this machine?",
          "Runs byleave serve on 127.0.0.1 as you, until this window closes, and makes a token for you that is kept in the editor's secret storage.",
          "Start",
        ]
      : [
          `A server runs at ${running} already. Sign in to it?`,
          "Runs byleave token to make a token for you, which is kept in the editor's secret storage. It is sent once the server has proven that it is yours.",
          "Sign in",
        ];
  return (await vscode.window.showInformationMessage(question, { modal: true, detail }, yes)) === yes;
}

function readyUrl(said: string): string | null {
  const line = said.split("\n").find((each) => each.includes('"ready"'));
  if (line === undefined) return null;
  try {
    const url = (JSON.parse(line) as { url?: unknown }).url;
    return typeof url === "string" ? url : null;
  } catch {
    return null; // half a line: the rest is coming
  }
}
