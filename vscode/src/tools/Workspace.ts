// One folder of this machine, and the tools on it. `run` takes a call that the gate has passed and hands it to the executor
// of its tool. It never asks whether a call may run; it makes sure that whatever runs stays inside: paths by the kernel,
// commands by the sandbox, and off what the owner's rules deny. With several folders open, a project's workspace is one of
// them: `workspaceFolder` says which.

import { spawnSync } from "node:child_process";
import { realpathSync } from "node:fs";
import { homedir } from "node:os";
import { posix } from "node:path";
import type { Inspection } from "@protocol";
import { NO_POLICY, type Params, type Policy } from "../gate/index.js";
import { workingBubblewrap } from "./bubblewrap.js";
import { CommandExecutor, type CommandOptions, type CommandParams } from "./CommandExecutor.js";
import { refuseLate } from "./deadline.js";
import { ByleaveError, ConfigurationError, ToolTypeError } from "./errors.js";
import { FileSystemExecutor, type ReadParams, type WriteParams } from "./FileSystemExecutor.js";
import { Floor } from "./floor.js";
import { inspectCommand, inspectWrite } from "./inspection.js";
import { ledTo } from "./links.js";
import type { ListParams } from "./listing.js";
import { PathValidator } from "./PathValidator.js";
import { HeldFiles } from "./pins.js";
import { type Clock, DEFAULT_SETTINGS, SYSTEM_CLOCK, type ToolSettings } from "./ports.js";
import { findProgram, SYSTEM_DIRECTORIES } from "./programs.js";
import type { SearchParams } from "./ripgrep.js";
import { SearchExecutor } from "./SearchExecutor.js";
import { type Isolation, NoSandbox, type Sandbox } from "./sandbox.js";
import { workingSeatbelt } from "./seatbelt.js";
import { WriteTurns } from "./turns.js";
import { openUndo, type Undo, type UndoPlace } from "./undo.js";
import type { UndoDesk } from "./undo_desk.js";
import { recorded } from "./undo_effects.js";
import { NO_WEB, searchWeb, type WebParams, type WebSettings } from "./web.js";
import { firstCharacters, repr, TABLES } from "./words.js";

const NOT_KEPT = "This cannot be undone: what was there before could not be kept here.";
const MAX_SUMMARY = 200;

/** What every result carries. */
export interface AnyResult {
  readonly success: boolean;
  readonly error: string | null;
}

export interface WorkspaceOptions {
  readonly settings?: ToolSettings;
  readonly policy?: Policy;
  readonly clock?: Clock;
  /** The editor's own ripgrep; false: never with one. */
  readonly ripgrep?: string | false;
  /** Where the bundle of `scan_worker.ts` lies. */
  readonly scanWorker?: string;
  /** Who searches the web, read anew for each search; left out: nobody. */
  readonly web?: () => Promise<WebSettings>;
  /** Where what calls change is kept; left out: nowhere, and nothing can be undone. */
  readonly undo?: UndoPlace;
  /** In place of the one that is found; for tests. */
  readonly sandbox?: Sandbox;
}

export interface ToolRun extends CommandOptions {
  /** Keep what it changes under this id, so that it can be undone; and say with the result where that is not so. */
  readonly recordAs?: string | undefined;
}

function withWarning<T extends { readonly warnings: readonly string[] }>(result: T, warning: string): T {
  return { ...result, warnings: [...result.warnings, warning] };
}

/** Which of the open folders is a project's workspace: the one that was chosen, or the only one. */
export function workspaceFolder(folders: readonly string[], chosen?: string): string {
  const only = folders.length === 1 ? folders[0] : undefined;
  if (chosen === undefined && only !== undefined) {
    return only;
  }
  if (folders.length === 0) {
    throw new ConfigurationError("No folder is open, so there is no workspace.", "Open a folder first.");
  }
  const real = (path: string) => {
    try {
      return realpathSync(path);
    } catch {
      return path;
    }
  };
  const found = folders.find((folder) => chosen !== undefined && real(folder) === real(chosen));
  if (found === undefined) {
    throw new ConfigurationError(
      chosen === undefined ? "Several folders are open." : `${repr(chosen)} is not one of the open folders.`,
      "Choose which of the open folders is this project's workspace.",
    );
  }
  return found;
}

/** One project's directory on this machine and the tools on it. */
export class Workspace {
  readonly root: string;
  readonly #paths: PathValidator;
  readonly #floor: Floor;
  readonly #held: HeldFiles;
  readonly #guarded = new Map<string, PathValidator>();
  readonly #search: SearchExecutor;
  readonly #undo: Undo | undefined;
  readonly #turns: WriteTurns;
  #sandbox: Promise<Sandbox> | undefined;

  constructor(
    root: string,
    private readonly options: WorkspaceOptions = {},
  ) {
    this.#paths = new PathValidator(root);
    this.root = this.#paths.root;
    this.#floor = new Floor(options.policy ?? NO_POLICY);
    this.#held = new HeldFiles(this.#paths, this.settings.maxFileBytes, this.#clock);
    this.#undo = this.#openUndo();
    this.#turns = new WriteTurns(this.#clock);
    const { ripgrep, scanWorker } = options;
    this.#search = new SearchExecutor(this.#pathsOf("search_files"), {
      forbidden: (real) => this.#floor.forbids(real, "search_files"),
      ...(ripgrep === undefined ? {} : { ripgrep }),
      ...(scanWorker === undefined ? {} : { scanWorker }),
    });
  }

  get settings(): ToolSettings {
    return this.options.settings ?? DEFAULT_SETTINGS;
  }

  /** For a person who wants something undone; undefined where nothing is kept. */
  get undoing(): UndoDesk | undefined {
    return this.#undo?.desk;
  }

  /** Where nothing can be kept, calls say so with their result. */
  #openUndo(): Undo | undefined {
    const { undo } = this.options;
    try {
      return undo && openUndo(this.#paths, undo, this.#clock, (path, tool) => this.#floor.forbids(path, tool));
    } catch {
      return undefined;
    }
  }

  /** Look at the files as they are, so that the first command need not wait for it. */
  async prepare(): Promise<void> {
    // What stands in the way is told with the first call that it concerns.
    await this.#undo?.recorder.prepare().catch(() => {});
  }

  get #clock(): Clock {
    return this.options.clock ?? SYSTEM_CLOCK;
  }

  #pathsOf(tool: string): PathValidator {
    if (!this.#floor.guards(tool)) {
      return this.#paths;
    }
    let paths = this.#guarded.get(tool);
    if (paths === undefined) {
      paths = this.#paths.guarded((real) => this.#floor.forbids(real, tool));
      this.#guarded.set(tool, paths);
    }
    return paths;
  }

  #files(tool: string): FileSystemExecutor {
    const forbidden = (real: string) => this.#floor.forbids(real, tool);
    return new FileSystemExecutor(this.#pathsOf(tool), this.settings.maxFileBytes, forbidden);
  }

  /** What commands are held by, found out once by really running something through it. */
  async isolation(): Promise<Isolation> {
    return (await this.sandbox()).isolation();
  }

  sandbox(): Promise<Sandbox> {
    this.#sandbox ??= this.options.sandbox
      ? Promise.resolve(this.options.sandbox)
      : chooseSandbox(this.root, this.settings.sandbox);
    return this.#sandbox;
  }

  /** What the files a command would run hold now. Never throws: what cannot be seen is said. */
  inspect(command: string, runs: readonly string[]): Promise<Inspection> {
    return inspectCommand(this.#pathsOf("execute_command"), command, runs, this.settings.maxFileBytes);
  }

  /** What a write would replace, as it is now. Never throws: what cannot be seen is said. */
  async inspectWrite(path: string): Promise<Inspection> {
    try {
      this.#refuseDenied("write_file", path);
    } catch (error) {
      if (error instanceof ByleaveError) {
        return { files: [], problem: error.message.slice(0, 400) };
      }
      throw error;
    }
    const unreadable = (real: string) => this.#floor.forbids(real, "read_file");
    return inspectWrite(this.#pathsOf("write_file"), path, this.settings.maxFileBytes, unreadable);
  }

  /** A call's parameters with links resolved: what rules about names must be held against as well. */
  underRealNames(params: Params): Params {
    const changed: Record<string, Params[string]> = { ...params };
    if (typeof params.path === "string") {
      changed.path = this.#real(params.path);
    }
    if (Array.isArray(params.args)) {
      changed.args = (params.args as readonly string[]).map((arg) => this.#realArgument(arg));
    }
    return changed;
  }

  /** A name, or the value glued to an option. */
  #realArgument(arg: string): string {
    const at = arg.indexOf("=");
    if (!arg.startsWith("-")) {
      return this.#real(arg);
    }
    return at > 0 && at < arg.length - 1 ? `${arg.slice(0, at + 1)}${this.#real(arg.slice(at + 1))}` : arg;
  }

  #real(name: string): string {
    try {
      const relative = this.#paths.relative(name);
      const real = this.#paths.realName(relative);
      // The same place under another spelling is no reason to judge again.
      return real === undefined || real === posix.normalize(relative) ? name : real;
    } catch {
      return name;
    }
  }

  #refuseDenied(tool: string, path: unknown): void {
    if (typeof path === "string" && this.#floor.guards(tool)) {
      this.#floor.refuse(this.#realPath(path), tool);
    }
  }

  /** A path from the workspace, with links resolved. */
  #realPath(path: string): string {
    return posix.normalize(this.#paths.relative(this.#real(path)));
  }

  /** Execute one gated call. A cancelled call ends its processes before it returns. */
  async run(tool: string, params: Params, run: ToolRun = {}): Promise<AnyResult> {
    this.#refuseDenied(tool, params.path);
    switch (tool) {
      case "read_file":
        return this.#files(tool).readFile(params as unknown as ReadParams);
      case "write_file": {
        const path = params.path as string;
        await this.#held.free(path);
        const write = () => this.#write(params as unknown as WriteParams, run);
        return this.#turns.write(this.#realPath(path), write, ledTo(this.root, TABLES.protected), run.signal);
      }
      case "list_directory":
        return this.#files(tool).listDirectory(params as unknown as ListParams, run);
      case "search_files":
        return this.#search.search(params as unknown as SearchParams, run.signal);
      case "execute_command":
        return this.#turns.command(
          () => this.#command(params as unknown as CommandParams, run),
          ledTo(this.root, TABLES.protected),
          run.signal,
        );
      case "search_web": {
        const settings = (await this.options.web?.()) ?? NO_WEB;
        refuseLate(run.late);
        return searchWeb(settings, params as unknown as WebParams, run.signal);
      }
      default:
        throw new ToolTypeError(`There is no tool ${repr(tool)}.`);
    }
  }

  async #write(params: WriteParams, run: ToolRun): Promise<AnyResult> {
    const files = this.#files("write_file");
    if (run.recordAs === undefined) {
      return files.writeFile(params, run);
    }
    if (this.#undo === undefined) {
      return withWarning(await files.writeFile(params, run), NOT_KEPT);
    }
    const summary = firstCharacters(`write_file ${params.path}`, MAX_SUMMARY);
    return this.#undo.recorder.writing(run.recordAs, summary, (keep) => files.writeFile(params, run, keep), run.signal);
  }

  async #command(params: CommandParams, run: ToolRun): Promise<AnyResult> {
    const sandbox = await this.sandbox();
    const executor = new CommandExecutor(this.#paths, sandbox, this.settings, this.#held, this.#floor, this.#clock);
    if (run.recordAs === undefined) {
      return executor.run(params, run);
    }
    if (this.#undo === undefined) {
      return withWarning(await executor.run(params, run), NOT_KEPT);
    }
    return recorded(this.#undo.recorder, run.recordAs, params, () => executor.run(params, run), run.signal);
  }

  close(): void {
    for (const paths of this.#guarded.values()) {
      paths.close();
    }
    this.#undo?.recorder.close();
    this.#paths.close();
  }
}

/** The isolation that really works here; or the one that is wanted, and no other. */
export async function chooseSandbox(root: string, wanted: ToolSettings["sandbox"]): Promise<Sandbox> {
  const identity = gitIdentity(root);
  if (wanted === "none") {
    return new NoSandbox(root, "A setting of Byleave says that commands are not isolated.", identity);
  }
  const kind = process.platform === "darwin" ? "seatbelt" : "bwrap";
  if (wanted !== "auto" && wanted !== kind) {
    throw new ConfigurationError(`The sandbox ${repr(wanted)} does not work on this system.`, "set it to 'auto'");
  }
  const found =
    process.platform === "linux"
      ? await workingBubblewrap(root, identity)
      : process.platform === "darwin"
        ? await workingSeatbelt(root, identity)
        : "there is no sandbox for this system.";
  return typeof found === "string" ? new NoSandbox(root, found, identity) : found;
}

/** The user's name and address for commits, and nothing else of their git settings, as a gitconfig. */
export function gitIdentity(root: string): string {
  const lines = ["[user]"];
  try {
    const git = findProgram("git", root);
    const env = { HOME: homedir(), PATH: SYSTEM_DIRECTORIES.join(":"), GIT_CONFIG_NOSYSTEM: "1" };
    for (const key of ["name", "email"]) {
      const asked = spawnSync(git, ["config", "--global", "--get", `user.${key}`], { env, cwd: "/", timeout: 10_000 });
      const value = asked.stdout?.toString("utf8").trim() ?? "";
      if (asked.status === 0 && value !== "" && !/["\\\p{C}]/u.test(value)) {
        lines.push(`\t${key} = "${value}"`);
      }
    }
  } catch {
    return ""; // git is not installed
  }
  // What git would leave running in the background is killed with it, half done; so it runs in front.
  return [...lines, "[gc]", "\tautoDetach = false", "[maintenance]", "\tautoDetach = false", ""].join("\n");
}
