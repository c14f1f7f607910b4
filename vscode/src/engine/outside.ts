// What finding and installing the engine share: programs outside the opened folders, and how they are run. An agent can
// change an opened folder, so nothing in one is ever started: no program, no interpreter, no link on the way to either.

import { spawn } from "node:child_process";
import {
  accessSync,
  closeSync,
  constants,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  realpathSync,
  statSync,
} from "node:fs";
import { homedir } from "node:os";
import { delimiter, dirname, isAbsolute, join, sep } from "node:path";

/** The number of the engine protocol that this extension speaks. */
export const ENGINE = 1;

export interface EngineProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly version: string;
  readonly from: "setting" | "path" | "private";
}

export interface Surroundings {
  readonly setting: string | null; // byleave.path, only as the person set it for this machine
  readonly env: NodeJS.ProcessEnv;
  readonly folders: readonly string[]; // open in the editor, or ever connected: agents could change what is in them
  readonly storage: string; // the extension's global storage directory
  readonly packed: string; // the directory with byleave-*.whl and requirements.lock
  readonly places?: readonly string[]; // where uv and Python are looked for after PATH, if not in the well-known places
  readonly signal?: AbortSignal;
  progress(message: string): void; // shown while it installs
  log(message: string, fields?: Record<string, unknown>): void;
}

const BUTTONS = {
  setting: "Open Settings",
  version: "Open Settings",
  python: "Try Again",
  venv: "Try Again",
  network: "Try Again",
  install: "Show Log",
} as const;

/** Why there is no engine, in one sentence for a person, and the one button that helps. */
export class EngineProblem extends Error {
  override readonly name = "EngineProblem";
  readonly kind: keyof typeof BUTTONS;
  readonly button: (typeof BUTTONS)[keyof typeof BUTTONS];
  /** For the log. */
  readonly details: string;

  constructor(kind: keyof typeof BUTTONS, message: string, details = "") {
    super(message);
    this.kind = kind;
    this.button = BUTTONS[kind];
    this.details = details;
  }
}

// Python's and the editor's own variables would change how the engine's Python starts. Token, server and the sandbox come
// over stdin; of Byleave's own only those stay that say where state and the owner's rules are. Of the installers' only those
// that say where packages come from: what is installed is for the lock file to say.
const DROPPED = /^(PYTHON|__PYVENV|VIRTUAL_ENV|ELECTRON_|VSCODE_|NODE_|BYLEAVE_|PIP_|UV_)/;
const KEPT =
  /^(BYLEAVE_(HOME|CONFIG|USER_POLICY|DEVICE_POLICY|LOG|DEBUG|TELEMETRY)|(PIP|UV)_(\w*INDEX\w*|FIND_LINKS|\w*CERTS?|NATIVE_TLS|PROXY|TRUSTED_HOST|INSECURE_HOST|\w*TIMEOUT))$/;

/** The environment to start the engine with. No variable in it leads into one of the folders. */
export function engineEnvironment(env: NodeJS.ProcessEnv, folders: readonly string[] = []): NodeJS.ProcessEnv {
  // Lists are parted by the delimiter, the dynamic linker's also by spaces and semicolons; a path may hold those itself.
  const parts = (value: string) => [...value.split(delimiter), ...value.split(/[\s;:]+/)];
  const leads = (value: string) => parts(value).some((part) => isAbsolute(part) && liesIn(part, folders));
  const kept = Object.fromEntries(
    Object.entries(env).filter(
      ([name, value]) => name !== "PATH" && (!DROPPED.test(name) || KEPT.test(name)) && !leads(value ?? ""),
    ),
  );
  const path = entries(env).filter((entry) => !liesIn(entry, folders));
  // An empty PATH means the current directory to some programs; none at all means the system's own.
  return path.length > 0 ? { ...kept, PATH: path.join(delimiter) } : kept;
}

/** PATH without its empty and relative entries, which mean whatever the current directory is. */
function entries(env: NodeJS.ProcessEnv): string[] {
  return (env.PATH ?? "").split(delimiter).filter((entry) => isAbsolute(entry));
}

/**
 * True if the path, a link on its way, or its target lies in a folder. Inodes are compared too: the file system knows
 * which names are the same. A link in a folder counts wherever it leads: an agent can turn it.
 */
export function liesIn(path: string, folders: readonly string[]): boolean {
  const forbidden = new Set(
    folders.flatMap((folder) => [attempt(() => realpathSync(folder)) ?? folder, inode(folder)]),
  );
  forbidden.delete(null);
  const rest = path.split(sep);
  let at: string = sep; // never a link: they are followed one by one
  for (let steps = 0; steps < 1000; steps++) {
    if (forbidden.has(at) || forbidden.has(inode(at))) return true;
    const name = rest.shift();
    if (name === undefined) return false;
    const link = attempt(() => readlinkSync(join(at, name)));
    if (link !== null) rest.unshift(...link.split(sep));
    if (link === null) at = join(at, name);
    else if (isAbsolute(link)) at = sep;
  }
  return true; // links that go in circles
}

function inode(path: string): string | null {
  const status = attempt(() => statSync(path, { bigint: true }));
  return status && `${status.dev}:${status.ino}`;
}

/** True if starting this file would run anything in a folder: itself, its interpreter, or modules that one is led to. */
export function startsIn(file: string, folders: readonly string[]): boolean {
  return [file, ...interpreters(file)].some((path) => liesIn(path, folders) || isLedTo(path, folders));
}

/** True if a Python has a `.pth` file or an editable install that names a folder: it would import from there. */
function isLedTo(interpreter: string, folders: readonly string[]): boolean {
  const named = folders.flatMap((folder) => [folder, attempt(() => realpathSync(folder)) ?? folder]);
  for (const program of new Set([interpreter, attempt(() => realpathSync(interpreter)) ?? interpreter])) {
    const lib = join(dirname(dirname(program)), "lib");
    const pythons = (attempt(() => readdirSync(lib)) ?? []).filter((name) => name.startsWith("python3"));
    for (const packages of pythons.flatMap((name) =>
      ["site", "dist"].map((kind) => join(lib, name, `${kind}-packages`)),
    )) {
      const names = attempt(() => readdirSync(packages)) ?? [];
      for (const name of names.filter((each) => each.endsWith(".pth") || each.startsWith("__editable__"))) {
        const text = attempt(() => readFileSync(join(packages, name), "utf8")) ?? "";
        if (named.some((folder) => text.includes(folder))) return true;
      }
    }
  }
  return false;
}

function interpreters(file: string): string[] {
  const head = attempt(() => beginning(file)) ?? "";
  if (!head.startsWith("#!")) return [];
  const first = head.slice(2).split("\n", 1)[0] ?? "";
  // Installers write long paths and paths with spaces into the second line, for a shell to start.
  const second = /^'''exec' (["']?)(\/.*?)\1 "\$0"/m.exec(head)?.[2];
  return [...first.split(/\s+/).filter(isAbsolute), ...(second === undefined ? [] : [second])];
}

function beginning(file: string): string {
  const descriptor = openSync(file, "r");
  try {
    const bytes = Buffer.alloc(4096);
    return bytes.toString("utf8", 0, readSync(descriptor, bytes));
  } finally {
    closeSync(descriptor);
  }
}

export function executable(path: string): boolean {
  return attempt(() => statSync(path).isFile() && accessSync(path, constants.X_OK) === undefined) ?? false;
}

/** Executables of these names on PATH, then in the places; never one that starts anything in an opened folder. */
export function* programs(
  names: readonly string[],
  around: Surroundings,
  places: readonly string[] = [],
): Generator<string, undefined> {
  for (const directories of [entries(around.env), places]) {
    for (const path of names.flatMap((name) => directories.map((directory) => join(directory, name)))) {
      if (!executable(path)) continue;
      if (startsIn(path, around.folders)) around.log("skipped a program in an opened folder", { path });
      else yield path;
    }
  }
}

export function home(around: Surroundings): string {
  return around.env.HOME ?? homedir();
}

export interface Ran {
  readonly ok: boolean;
  readonly stdout: string;
  /** The end of what it printed, or why it could not be started. */
  readonly said: string;
}

const MOST = 64_000;

/** Run a program to its end: no shell, in the storage directory, with a time limit. Rejects only when aborted. */
export function run(command: string, args: readonly string[], around: Surroundings, seconds: number): Promise<Ran> {
  return new Promise((resolve, reject) => {
    around.signal?.throwIfAborted();
    const child = spawn(command, args, {
      cwd: around.storage,
      env: engineEnvironment(around.env, around.folders),
      stdio: ["ignore", "pipe", "pipe"],
      detached: true, // a group of its own, which can be ended with all that it started
    });
    let stdout = "";
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout = (stdout + text).slice(-MOST);
      said = (said + text).slice(-MOST);
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-MOST);
    });
    const end = () => {
      clearTimeout(timer);
      around.signal?.removeEventListener("abort", aborted);
      // A process that left the group may hold the pipes: they are not waited for.
      child.stdout.destroy();
      child.stderr.destroy();
    };
    const stop = (why: string) => {
      attempt(() => child.pid !== undefined && process.kill(-child.pid, "SIGKILL"));
      end();
      resolve({ ok: false, stdout, said: `${said}\n${why}`.trim() });
    };
    const aborted = () => {
      reject(around.signal?.reason);
      stop("aborted");
    };
    const timer = setTimeout(() => stop(`stopped after ${seconds} seconds`), seconds * 1000);
    around.signal?.addEventListener("abort", aborted, { once: true });
    child.once("error", (error) => stop(error.message));
    child.once("close", (code) => {
      end();
      resolve({ ok: code === 0, stdout, said });
    });
  });
}

/** What `<program> version --json` says, or null if that is not what Byleave says. */
export async function askVersion(
  command: string,
  args: readonly string[],
  around: Surroundings,
): Promise<{ version: string; engine: number | null } | null> {
  const ran = await run(command, [...args, "version", "--json"], around, 30);
  const told = attempt(() => JSON.parse(ran.stdout) as { version?: unknown; engine?: unknown } | null);
  if (ran.ok && typeof told?.version === "string") {
    return { version: told.version.slice(0, 40), engine: typeof told.engine === "number" ? told.engine : null };
  }
  around.log("a program did not tell Byleave's version", { command, said: ran.said.slice(-2000) });
  return null;
}

export function attempt<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}
