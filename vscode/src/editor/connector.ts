// The one that connects: folder, server, token, engine, project, then the watch over the project and the engine at work in
// the folder. One attempt at a time; a newer one ends the older. In a folder that is not trusted nothing is executed.

import * as vscode from "vscode";
import { Api, Problem } from "../../../ui/src/api.js";
import { oneLine } from "../../../ui/src/text/visible.js";
import { type Engine, EngineError } from "../engine/engine.js";
import { EngineHost } from "../engine/host.js";
import { EngineProblem } from "../engine/program.js";
import { isLoopback } from "../host/address.js";
import type { ChatView } from "../webview/view.js";
import { findFolder, forgetFolder } from "./folder.js";
import { tellEngineProblem } from "./getting_engine.js";
import type { LivePorts } from "./live.js";
import { LiveProject } from "./live.js";
import type { Log } from "./log.js";
import { plain, sentence } from "./notices.js";
import type { Projects } from "./projects.js";
import type { Tokens } from "./secrets.js";
import { readSettings } from "./settings.js";
import { unfit } from "./sign_in.js";
import { placeOf, type Standing, silence, statusOf } from "./standing.js";
import type { StatusBar } from "./status.js";

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;
const OUTAGE_MS = 15_000;
const AGAIN = "Sign in again: byleave link prints a link, and byleave token --user NAME a token.";
/** In the folder's memory while the person has disconnected it: then it is not connected by itself. */
const OFF = "disconnected";

export interface ConnectorPorts {
  readonly memory: vscode.Memento;
  readonly tokens: Tokens;
  readonly projects: Projects;
  readonly log: Log;
  readonly view: ChatView;
  readonly status: StatusBar;
  readonly engine: Engine;
  readonly live: Omit<LivePorts, "engine" | "log">;
  /** How long a break lasts before it is told. */
  readonly outageMs?: number;
}

export class Connector {
  readonly #ports: ConnectorPorts;
  #standing: Standing = { at: "disconnected" };
  #live: LiveProject | null = null;
  #round = 0;
  #tries = 0;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #outage: ReturnType<typeof setTimeout> | undefined;
  #told = false;

  constructor(ports: ConnectorPorts) {
    this.#ports = ports;
    this.#become(this.#standing);
  }

  get standing(): Standing {
    return this.#standing;
  }

  get live(): LiveProject | null {
    return this.#live;
  }

  /** At the start of the window: only a folder that was connected before is connected again by itself. */
  async start(): Promise<void> {
    const found = await findFolder(this.#ports.memory, false);
    const { origin, connectAtStart } = readSettings();
    if (found.kind !== "folder") return this.#become({ at: at(found.kind) });
    if (origin === null) return this.#become({ at: "bad-address" });
    if ((await this.#ports.tokens.read(origin)) === null) return this.#become({ at: "signed-out", why: null });
    if (this.#ports.memory.get(OFF) === true) return this.#become({ at: "disconnected" });
    if (connectAtStart && this.#ports.projects.known(origin, found.folder) !== null) await this.connect(false);
  }

  /** `ask`: the person wants it now and may be asked. */
  async connect(ask: boolean): Promise<void> {
    const round = ++this.#round;
    await this.#end();
    if (ask) await this.#ports.memory.update(OFF, undefined);
    const found = await findFolder(this.#ports.memory, ask);
    if (round !== this.#round) return;
    if (found.kind !== "folder") {
      this.#become({ at: at(found.kind) });
      if (ask) this.#tellNoFolder(found.kind);
      return;
    }
    const { origin } = readSettings();
    if (origin === null) return this.#become({ at: "bad-address" });
    const token = await this.#ports.tokens.read(origin);
    if (round !== this.#round) return;
    if (token === null) return this.#become({ at: "signed-out", why: null });
    this.#become({ at: "connecting" });
    const { engine } = this.#ports;
    const host = new EngineHost(engine, origin);
    const api = new Api(host);
    try {
      await engine.start();
      if (round !== this.#round) return;
      await engine.useServer({ server_url: origin, token });
      const problem = unfit(await api.me());
      if (round !== this.#round) return;
      if (problem !== null) return this.#become({ at: "refused", why: problem });
      const project = await this.#ports.projects.find(api, origin, found.folder);
      if (round !== this.#round) return;
      if (project === null) return this.#become({ at: "disconnected" });
      this.#tries = 0;
      this.#told = false;
      await this.#open(host, api, project.project_id, found.folder);
    } catch (error) {
      if (round === this.#round) this.#failed(origin, error, ask);
    } finally {
      if (this.#live?.host !== host) host.dispose();
    }
  }

  async disconnect(): Promise<void> {
    this.#round += 1;
    await this.#end();
    await forgetFolder(this.#ports.memory);
    await this.#ports.memory.update(OFF, true);
    this.#become({ at: "disconnected" });
  }

  async signOut(why: string | null = null): Promise<void> {
    const { origin } = readSettings();
    this.#round += 1;
    await this.#end();
    // Also where nothing was connected: the engine has the token since the last try.
    await this.#ports.engine.leave();
    if (origin !== null) await this.#ports.tokens.forget(origin);
    this.#become({ at: "signed-out", why });
  }

  /** The window has other folders now: what runs in one that is still there goes on. */
  async foldersChanged(): Promise<void> {
    const live = this.#live;
    const folders = vscode.workspace.workspaceFolders ?? [];
    if (live && folders.some((folder) => folder.uri.fsPath === live.folder)) return;
    await this.#startAgain();
  }

  /** The settings name another server, or one at last. */
  async serverChanged(): Promise<void> {
    const { at } = this.#standing;
    const moved = this.#live !== null && this.#live.origin !== readSettings().origin;
    if (moved || at === "bad-address" || at === "unreachable") await this.#startAgain();
  }

  /** The engine must be told anew: whoever asked for a stronger sandbox must not be left with the weaker. */
  async engineSettingsChanged(): Promise<void> {
    if (this.#live !== null) await this.connect(false);
  }

  /** The setting names another engine, or the one that ended is wanted again. */
  async engineChanged(): Promise<void> {
    if (this.#live === null && this.#standing.at !== "no-engine") return;
    await this.#end();
    // Where that fails, connecting starts it once more and says why it cannot.
    await this.#ports.engine.restart().catch(() => {});
    await this.connect(false);
  }

  /** The engine could not be kept running. */
  engineGone(problem: Error): void {
    this.#round += 1;
    void this.#end();
    this.#become({ at: "no-engine", why: oneLine(problem.message) });
    void tellEngineProblem(problem);
  }

  /** The folder is trusted now: what could not be executed can be. */
  async trusted(): Promise<void> {
    await this.#live?.execute();
  }

  async dispose(): Promise<void> {
    this.#round += 1;
    await this.#end();
  }

  async #startAgain(): Promise<void> {
    this.#round += 1;
    await this.#end();
    this.#become({ at: "disconnected" });
    await this.start();
  }

  async #open(host: EngineHost, api: Api, projectId: string, folder: vscode.WorkspaceFolder): Promise<void> {
    const { engine, log } = this.#ports;
    const ports = { ...this.#ports.live, engine, log };
    const connected = { host, api, projectId, folder: folder.uri.fsPath };
    const live: LiveProject = new LiveProject(connected, ports, () => this.#changed(live));
    this.#live = live;
    this.#become({ at: "connected", projectId, folder: oneLine(folder.name) });
    if (vscode.workspace.isTrusted) await live.execute();
  }

  #changed(live: LiveProject): void {
    if (this.#live !== live) return;
    if (live.link === "signed-out") {
      void this.signOut(`The server no longer takes your token: it expired, or the server's secret changed. ${AGAIN}`);
      return;
    }
    this.#watchOutage(live);
    this.#showStatus();
  }

  /** A short break mends itself and is told by the status bar alone; a long one is worth a word. */
  #watchOutage(live: LiveProject): void {
    if (live.link !== "down") {
      clearTimeout(this.#outage);
      this.#outage = undefined;
      return;
    }
    this.#outage ??= setTimeout(() => void this.#tellUnreachable(live.origin, 0), this.#ports.outageMs ?? OUTAGE_MS);
  }

  #failed(origin: string, error: unknown, ask: boolean): void {
    if (error instanceof EngineProblem || error instanceof EngineError) {
      this.#ports.log.error("no engine", { error: error.message });
      this.#become({ at: "no-engine", why: oneLine(error.message) });
      // Not each time a window opens: the view says it too.
      if (ask || error instanceof EngineProblem) void tellEngineProblem(error);
      return;
    }
    if (!(error instanceof Problem)) throw error;
    this.#ports.log.warn("not connected", { origin, status: error.status, error: error.message });
    if (error.status === 401) {
      void this.signOut(`The server did not take your token: ${plain(oneLine(error.message))} ${AGAIN}`);
      return;
    }
    if (error.status !== 0 && error.status < 500) {
      const why = sentence(error);
      this.#become({ at: error.state === "unproven" ? "unproven" : "refused", why });
      return;
    }
    this.#become({ at: "unreachable", origin, status: error.status });
    const pause = Math.min(FIRST_PAUSE_MS * 2 ** this.#tries, LONGEST_PAUSE_MS);
    this.#tries += 1;
    this.#retry = setTimeout(() => void this.connect(false), pause);
    void this.#tellUnreachable(origin, error.status);
  }

  async #tellUnreachable(origin: string, status: number): Promise<void> {
    if (this.#told) return;
    this.#told = true;
    const said = await vscode.window.showWarningMessage(
      `Byleave: ${silence(origin, status)} It is tried again by itself; what runs here goes on and is reported then.`,
      ...(isLoopback(origin) ? ["Start a local server"] : []),
      "Show the log",
    );
    if (said === "Start a local server") await vscode.commands.executeCommand("byleave.startServer");
    if (said === "Show the log") await vscode.commands.executeCommand("byleave.showLog");
  }

  #tellNoFolder(kind: "none" | "virtual" | "unchosen"): void {
    if (kind === "unchosen") return;
    const place = placeOf({ at: at(kind) });
    if (place.state === "away") void this.#tellPlace(`Byleave: ${place.title}. ${place.text}`);
  }

  async #tellPlace(words: string): Promise<void> {
    const said = await vscode.window.showWarningMessage(words, "Open a folder");
    if (said !== undefined) await vscode.commands.executeCommand("byleave.openFolder");
  }

  #become(standing: Standing): void {
    this.#standing = standing;
    this.#ports.view.show(placeOf(standing), this.#live?.host ?? null);
    void vscode.commands.executeCommand("setContext", "byleave.connected", standing.at === "connected");
    this.#showStatus();
  }

  #showStatus(): void {
    const live = this.#live;
    const waiting = live?.waiting.length ?? 0;
    this.#ports.status.show(
      statusOf(this.#standing, {
        waiting,
        up: live?.link === "up",
        trusted: vscode.workspace.isTrusted,
        isolation: live?.executing?.isolation ?? null,
        warnings: live?.executing?.warnings ?? [],
        executes: live?.executing !== null && live?.executing?.ended === null,
        elsewhere: live?.executing?.elsewhere ?? false,
      }),
    );
    this.#ports.view.badge(waiting);
  }

  async #end(): Promise<void> {
    clearTimeout(this.#retry);
    clearTimeout(this.#outage);
    this.#outage = undefined;
    const live = this.#live;
    this.#live = null;
    await live?.end();
  }
}

function at(kind: "none" | "virtual" | "unchosen"): "no-folder" | "virtual" | "unchosen" {
  return kind === "none" ? "no-folder" : kind;
}
