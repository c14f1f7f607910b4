// A server on this machine, started because the person said so: the program they named, with arguments from here and no
// shell. It ends with the window. Its token is made by the same program and goes straight to the secret storage.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { homedir, userInfo } from "node:os";
import { promisify } from "node:util";
import * as vscode from "vscode";
import { oneLine } from "../../../ui/src/text/visible.js";
import { isLoopback } from "../host/address.js";
import type { Log } from "../tools/ports.js";
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
  #process: ChildProcess | null = null;

  constructor(log: Log) {
    this.#log = log;
  }

  /** Starts one with the person's consent, or uses the one that runs; null when there is none now, which was said. */
  async start(): Promise<Started | null> {
    const { serverCommand, origin } = readSettings();
    const here = origin !== null && isLoopback(origin) ? origin : null;
    const running = here !== null && (await answers(here)) ? here : null;
    if (!(await consent(serverCommand, running))) return null;
    const port = here === null ? "0" : new URL(here).port || "80";
    try {
      return await vscode.window.withProgress(
        { location: vscode.ProgressLocation.Notification, title: "Byleave: starting a server…" },
        async () => {
          const url = running ?? (await this.#serve(serverCommand, port));
          return { origin: new URL(url).origin, token: await this.#token(serverCommand) };
        },
      );
    } catch (error) {
      this.dispose();
      await this.#tell(serverCommand, error);
      return null;
    }
  }

  dispose(): void {
    this.#process?.kill("SIGTERM");
    this.#process = null;
  }

  #serve(command: string, port: string): Promise<string> {
    this.dispose();
    return new Promise((resolve, reject) => {
      const child = spawn(command, ["serve", "--host", "127.0.0.1", "--port", port, "--json"], {
        stdio: ["ignore", "pipe", "pipe"],
        // Never in the open folder: nothing of it may have a say in how the server starts.
        cwd: homedir(),
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

  async #token(command: string): Promise<string> {
    const { stdout } = await run(command, ["token", "--user", userInfo().username, "--json"], {
      cwd: homedir(),
      timeout: READY_MS,
    });
    const token = (JSON.parse(stdout) as { token?: unknown }).token;
    if (typeof token !== "string") throw new Error("it made no token");
    return token;
  }

  async #tell(command: string, error: unknown): Promise<void> {
    this.#log.error("the local server did not start", { error: String(error) });
    const sentence = failure(oneLine(command), error);
    const said = await vscode.window.showErrorMessage(notice(sentence), "Open the settings", "Show the log");
    if (said === "Open the settings") await vscode.commands.executeCommand("byleave.openSettings");
    if (said === "Show the log") await vscode.commands.executeCommand("byleave.showLog");
  }
}

function failure(program: string, error: unknown): string {
  const { code, stderr } = error as NodeJS.ErrnoException & { stderr?: unknown };
  if (code === "ENOENT") {
    return `There is no program ${program}. Install Byleave with "pipx install byleave", or say where it is in the setting byleave.serverCommand.`;
  }
  if (code === "EACCES") {
    return `You may not run ${program}: its permissions do not allow it. Correct the setting byleave.serverCommand, or the permissions.`;
  }
  const words = typeof stderr === "string" ? lastWords(stderr) : "";
  return `The server did not start: ${plain(oneLine(words || (error instanceof Error ? error.message : String(error))))}`;
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

async function consent(command: string, running: string | null): Promise<boolean> {
  const program = oneLine(command);
  const [question, detail, yes] =
    running === null
      ? [
          "Start a Byleave server on this machine?",
          `Runs ${program} serve on 127.0.0.1 as you, until this window closes, and makes a token for you that is kept in the editor's secret storage.`,
          "Start",
        ]
      : [
          `A server runs at ${running} already. Sign in to it?`,
          `Runs ${program} token to make a token for you, which is kept in the editor's secret storage. It is sent once the server has proven that it is yours.`,
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
