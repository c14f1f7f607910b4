// The private environment: the packed wheel and what it needs, installed once under the extension's storage. It is made
// in a draft and renamed when it works, so a half-made one is never started. Nothing is installed that the lock file's
// hashes do not name, and no Python is ever downloaded.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import {
  askVersion,
  attempt,
  ENGINE,
  EngineProblem,
  type EngineProgram,
  home,
  liesIn,
  programs,
  run,
  type Surroundings,
} from "./outside.js";

const ARGS = ["-I", "-m", "byleave.cli.main"];
const PYTHONS = ["python3", "python3.14", "python3.13", "python3.12", "python3.11"];
const ASK_PYTHON =
  "import json, sys; print(json.dumps([*sys.version_info[:2], sys.executable, sys.prefix, sys.base_prefix]))";
const NO_VENV = /No module named '?(venv|ensurepip)|python3-venv/;
const NO_NETWORK =
  /NewConnectionError|Failed to establish a new connection|name resolution|Name or service not known|timed out|ProxyError|SSLError|Connection (refused|reset|broken|aborted)|unreachable|Could not fetch URL|HTTP error|from versions: none|Failed to (fetch|download)|error sending request|dns error|not found in the package registry/i;
const FAILED = "Byleave could not set up its engine. The log says why.";

interface Packed {
  readonly wheel: string;
  readonly lock: string;
  /** Changes with every byte of the two. */
  readonly name: string;
}

/** The engine of the private environment, which is made if there is none that works. */
export async function privateEngine(around: Surroundings): Promise<EngineProgram> {
  if (liesIn(around.storage, around.folders)) {
    throw new EngineProblem(
      "setting",
      "Byleave's engine would lie in the opened folder, where agents could change it. Open a smaller folder, or set byleave.path to a program outside.",
    );
  }
  try {
    const packed = contents(around.packed);
    const environment = join(around.storage, "engine", packed.name);
    const found = (await working(environment, around)) ?? (await install(environment, packed, around));
    await tidy(join(around.storage, "engine"), packed.name, around);
    return found;
  } catch (error) {
    if (error instanceof EngineProblem || around.signal?.aborted) throw error;
    throw new EngineProblem("install", FAILED, String(error)); // a full disk, missing permissions
  }
}

function contents(directory: string): Packed {
  const file = readdirSync(directory).find((name) => /^byleave-.*\.whl$/.test(name));
  if (file === undefined) throw new EngineProblem("install", FAILED, `There is no wheel in ${directory}.`);
  const [wheel, lock] = [join(directory, file), join(directory, "requirements.lock")];
  const digest = createHash("sha256").update(readFileSync(wheel)).update(readFileSync(lock)).digest("hex");
  return { wheel, lock, name: `${file.split("-")[1]}-${digest.slice(0, 12)}` };
}

/** The engine of an environment if it still starts: its Python may have been removed, or upgraded. */
async function working(environment: string, around: Surroundings): Promise<EngineProgram | null> {
  const command = python(environment);
  if (!existsSync(environment)) return null;
  // By its path, never by its console script: that one names the draft.
  const found = liesIn(command, around.folders) ? null : await askVersion(command, ARGS, around);
  if (found?.engine !== ENGINE) {
    around.log("the private environment does not work", { environment, ...found });
    return null;
  }
  attempt(() => use(environment)); // on a full disk it starts all the same
  return { command, args: ARGS, version: found.version, from: "private" };
}

let drafts = 0;

async function install(environment: string, packed: Packed, around: Surroundings): Promise<EngineProgram> {
  const base = await findPython(around);
  if (base === null) {
    const sentence = "Byleave needs Python 3.11 or newer on this machine. Install it, then try again.";
    throw new EngineProblem("python", sentence);
  }
  around.progress("setting up its engine (once)…");
  const draft = `${environment}.draft-${process.pid}-${drafts++}`;
  try {
    mkdirSync(join(around.storage, "engine"), { recursive: true });
    await rm(draft, { recursive: true, force: true });
    await fill(draft, base, packed, around);
    if ((await working(draft, around)) === null) {
      throw new EngineProblem("install", FAILED, "The engine was installed and does not start.");
    }
    return await settle(draft, environment, around);
  } finally {
    // What was stopped may still write for a moment.
    await rm(draft, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Put a draft in its place, unless another window was faster. */
async function settle(draft: string, environment: string, around: Surroundings): Promise<EngineProgram> {
  for (let tries = 0; tries < 3; tries++) {
    let moved = true;
    try {
      renameSync(draft, environment);
    } catch (error) {
      moved = false;
      around.log("the environment's place is taken", { error: String(error) });
    }
    const found = await working(environment, around);
    if (found !== null) return found;
    if (moved) break;
    // A broken one is in the way. Moved first: another window could start it while it is removed.
    attempt(() => renameSync(environment, `${draft}-broken`));
    await rm(`${draft}-broken`, { recursive: true, force: true });
  }
  throw new EngineProblem("install", FAILED, `The engine does not start in ${environment}.`);
}

function python(environment: string): string {
  return join(environment, "bin", "python");
}

/** The first Python of 3.11 or newer that has no part in an opened folder. */
async function findPython(around: Surroundings): Promise<string | null> {
  for (const command of programs(PYTHONS, around, places(around))) {
    const ran = await run(command, ["-I", "-c", ASK_PYTHON], around, 30);
    const told = attempt(() => JSON.parse(ran.stdout) as [number, number, string, ...string[]]);
    if (!ran.ok || !Array.isArray(told)) continue;
    const [major, minor, ...paths] = told;
    // A shim tells here which Python it starts.
    const fits = (major > 3 || (major === 3 && minor >= 11)) && paths.every((path) => isAbsolute(path));
    if (fits && !paths.some((path) => liesIn(path, around.folders))) return paths[0] ?? command;
    around.log("skipped a Python", { command, told });
  }
  return null;
}

function places(around: Surroundings): readonly string[] {
  const own = (path: string) => join(home(around), path);
  return (
    around.places ?? [
      own(".local/bin"),
      own(".cargo/bin"),
      "/usr/local/bin",
      "/usr/bin",
      "/opt/homebrew/bin",
      own(".pyenv/shims"),
    ]
  );
}

async function fill(draft: string, base: string, packed: Packed, around: Surroundings): Promise<void> {
  const uv = programs(["uv"], around, places(around)).next().value;
  let first: EngineProblem | null = null;
  if (uv !== undefined) {
    try {
      return await fillWithUv(uv, draft, base, packed, around);
    } catch (error) {
      if (!(error instanceof EngineProblem)) throw error;
      around.log("uv could not set up the engine; trying pip", { details: error.details });
      first = error;
      await rm(draft, { recursive: true, force: true });
    }
  }
  try {
    await fillWithPip(draft, base, packed, around);
  } catch (error) {
    // With uv there, a missing venv module is not what stands in the way.
    throw first !== null && error instanceof EngineProblem && error.kind === "venv" ? first : error;
  }
}

async function fillWithUv(
  uv: string,
  draft: string,
  base: string,
  packed: Packed,
  around: Surroundings,
): Promise<void> {
  // Agents can write to uv's cache: files of a folder's .venv are hard links into it. So it is not used, nor linked to.
  const own = ["--no-cache", "--no-python-downloads", "--color", "never", "--no-progress"];
  const install = ["pip", "install", ...own, "--link-mode", "copy", "--compile-bytecode", "--python", python(draft)];
  await step(uv, ["venv", ...own, "--no-project", "--python", base, draft], 120, around);
  around.progress("downloading its engine…");
  await step(uv, [...install, "--require-hashes", "--only-binary", ":all:", "-r", packed.lock], 900, around);
  await step(uv, [...install, "--no-deps", "--no-index", packed.wheel], 120, around);
}

async function fillWithPip(draft: string, base: string, packed: Packed, around: Surroundings): Promise<void> {
  const quiet = ["--disable-pip-version-check", "--no-input", "--no-user", "--no-color", "--progress-bar", "off"];
  const install = ["-I", "-m", "pip", "install", ...quiet];
  // Fewer retries say sooner that there is no network. The time limit stays pip's own: lines are slow.
  const hashed = ["--retries", "2", "--require-hashes", "--only-binary", ":all:", "-r", packed.lock];
  await step(base, ["-I", "-m", "venv", draft], 120, around);
  around.progress("downloading its engine…");
  await step(python(draft), [...install, ...hashed], 900, around);
  await step(python(draft), [...install, "--no-deps", "--no-index", packed.wheel], 120, around);
}

async function step(command: string, args: readonly string[], seconds: number, around: Surroundings): Promise<void> {
  const ran = await run(command, args, around, seconds);
  if (ran.ok) return;
  const details = `${[command, ...args].join(" ")}\n${ran.said.slice(-8000)}`;
  if (NO_VENV.test(ran.said)) {
    const name = /apt install (\S+)/.exec(ran.said)?.[1] ?? "python3-venv";
    const sentence = `Python on this machine is incomplete. Install the package ${name}, then try again.`;
    throw new EngineProblem("venv", sentence, details);
  }
  if (NO_NETWORK.test(ran.said)) {
    const sentence =
      "Byleave could not download its engine. Check the network and pip's package index, then try again.";
    throw new EngineProblem("network", sentence, details);
  }
  throw new EngineProblem("install", FAILED, details);
}

/** Note that this window uses an environment, so that no other one removes it. */
function use(environment: string): void {
  const notes = join(environment, "in-use");
  mkdirSync(notes, { recursive: true });
  for (const pid of readdirSync(notes)) if (!alive(pid)) rmSync(join(notes, pid), { force: true });
  writeFileSync(join(notes, String(process.pid)), "");
}

/** Remove old environments that no other window uses, and drafts that nobody works on. */
async function tidy(directory: string, keep: string, around: Surroundings): Promise<void> {
  for (const name of readdirSync(directory)) {
    const [ours, draft] = /-[0-9a-f]{12}(?:\.draft-(\d+).*)?$/.exec(name) ?? [];
    if (ours === undefined || name === keep) continue;
    const others = (attempt(() => readdirSync(join(directory, name, "in-use"))) ?? []).filter(
      (pid) => +pid !== process.pid,
    );
    if ((draft === undefined ? others : [draft]).some(alive)) continue;
    await rm(join(directory, name), { recursive: true, force: true }).catch((error: unknown) =>
      around.log("an old environment could not be removed", { name, error: String(error) }),
    );
  }
}

function alive(pid: string): boolean {
  try {
    return process.kill(Number(pid), 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
