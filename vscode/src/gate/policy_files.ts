// The rule files of this machine: the device's, the user's own, and the project's. A file that somebody else could have
// written is no rule of its owner's, so it is refused; so is one that cannot be read or understood, and then nothing runs.
// A project's file comes with a repository: it is opened without following a link, tightens at once, and loosens only
// while its content is what the owner trusted with `byleave trust`. Where a workspace holds Byleave's own files, a layer of
// its own denies them. The only module of the gate that opens a file.

import { createHash } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readSync, realpathSync } from "node:fs";
import { homedir, platform } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { namesOf } from "./names.js";
import { type Layer, type LayerPolicy, Policy, Rule } from "./policy.js";
import { PolicyError, parsePolicy } from "./policy_text.js";
import { Pattern } from "./rules.js";
import { numberOf } from "./tables.js";

const MAX_BYTES = numberOf("policies.MAX_POLICY_CHARACTERS");
const MAX_TRUSTED_BYTES = 4 * 1024 * 1024;
const MAX_SOURCE_CHARACTERS = 400;
const DEVICE_POLICY = "/etc/byleave/policy.toml";
const PROJECT_POLICY = ".byleave/policy.toml";
const { O_RDONLY, O_NONBLOCK, O_NOFOLLOW, O_DIRECTORY } = constants;

/** Where the files are, as far as it is not the usual place. */
export interface PolicyPlaces {
  /** BYLEAVE_USER_POLICY. */
  readonly userPolicy?: string | undefined;
  /** BYLEAVE_DEVICE_POLICY. */
  readonly devicePolicy?: string | undefined;
  /** BYLEAVE_HOME: where it is kept what the owner trusted. */
  readonly home?: string | undefined;
}

/** One layer as it travels to the server. */
export interface DeclaredLayer {
  readonly layer: "user" | "device" | "project";
  readonly source: string;
  readonly text: string;
  readonly trusted: boolean;
}

export interface LoadedPolicy {
  readonly policy: Policy;
  readonly texts: readonly DeclaredLayer[];
  /** What a person should know: what is held back, and why. */
  readonly notes: readonly string[];
}

/** Where Byleave keeps its state when nothing else is said. */
export function defaultHome(): string {
  return join(base("XDG_DATA_HOME", ".local/share"), "byleave");
}

function userDirectory(): string {
  return join(base("XDG_CONFIG_HOME", ".config"), "byleave");
}

function base(variable: string, usual: string): string {
  if (platform() === "darwin") {
    return join(homedir(), "Library/Application Support");
  }
  return process.env[variable]?.trim() || join(homedir(), usual);
}

/** Read every layer of this machine for a workspace. Throws PolicyError for a file that cannot be used. */
export function loadPolicy(workspace: string, places: PolicyPlaces = {}): LoadedPolicy {
  const root = realpathSync(workspace);
  const home = places.home ?? defaultHome();
  const texts: DeclaredLayer[] = [];
  const named = [
    { layer: "device", path: places.devicePolicy, usual: DEVICE_POLICY },
    { layer: "user", path: places.userPolicy, usual: join(userDirectory(), "policy.toml") },
  ] as const;
  for (const { layer, path, usual } of named) {
    const file = path ?? usual;
    const data = readOwned(file);
    if (data === undefined && path !== undefined) {
      throw new PolicyError(`There is no policy file '${path}'.`, "correct the setting or leave it out");
    }
    if (data !== undefined) {
      if (liesIn(file, root)) {
        const hint = "move it, or choose a workspace that does not hold it";
        throw new PolicyError(`The policy file '${file}' lies in the workspace, where an agent could change it.`, hint);
      }
      texts.push({ layer, source: file.slice(-MAX_SOURCE_CHARACTERS), text: decoded(data, file), trusted: true });
    }
  }
  const project = readProject(root);
  if (project !== undefined) {
    const trusted = isTrusted(home, root, project);
    texts.push({ layer: "project", source: PROJECT_POLICY, text: decoded(project, PROJECT_POLICY), trusted });
  }
  const layers = texts.map(({ layer, source, text, trusted }) => parsePolicy(text, layer, source, trusted));
  const own = ownLayer(root, home, places);
  return { policy: new Policy(own === undefined ? layers : [own, ...layers]), texts, notes: layers.flatMap(heldBack) };
}

function heldBack({ rules, trusted, turnedOn }: LayerPolicy): string[] {
  const allowed = rules.filter((rule) => rule.action === "allow").map((rule) => `rule ${rule.number}: ${rule.text}`);
  const loosening = [...turnedOn.map((name) => `turns on the command ${name}`), ...allowed];
  return trusted ? [] : loosening.map((line) => `held back until you run \`byleave trust\`: ${line}`);
}

/** Denies Byleave's own files in a workspace to every tool, whether they exist or not. */
function ownLayer(root: string, home: string, places: PolicyPlaces): LayerPolicy | undefined {
  const files = [places.userPolicy, places.devicePolicy, process.env.BYLEAVE_CONFIG].filter(
    (path) => path !== undefined,
  );
  const own = [home, defaultHome(), userDirectory(), dirname(DEVICE_POLICY), ...files];
  const spelled = own.flatMap((path) => [resolve(path), real(path)]);
  const inside = [...new Set(spelled.map((path) => relative(root, path)))].filter((path) => !leadsUp(path));
  if (inside.includes("") || ["clients", "undo"].some((name) => !leadsUp(relative(join(real(home), name), root)))) {
    const hint = "name a project's directory";
    throw new PolicyError(`'${root}' cannot be a workspace: it is where Byleave keeps its own files.`, hint);
  }
  const because = "These are Byleave's own files: its state, its keys and your rules.";
  const rules = inside.map((path, index) => {
    // Spelled as patterns are compared, so that the names fit whatever they hold.
    const pattern = new Pattern(null, [], [], [`/${namesOf(path).join("/")}`]);
    return new Rule("built-in" satisfies Layer, index + 1, "deny", pattern, `deny in ${path}`, because);
  });
  const more = { turnedOn: [], widestMode: "full", trusted: true } as const;
  return rules.length === 0 ? undefined : { layer: "built-in", source: "Byleave itself", rules, ...more };
}

function leadsUp(path: string): boolean {
  return path === ".." || path.startsWith("../");
}

/** A path after all links; of one that is not there, as much as is there. */
function real(path: string): string {
  const whole = resolve(path);
  try {
    return realpathSync(whole);
  } catch {
    const above = dirname(whole);
    return above === whole ? whole : join(real(above), whole.slice(above.length));
  }
}

function liesIn(path: string, root: string): boolean {
  return !leadsUp(relative(root, real(path)));
}

/** Whether the owner trusted exactly this content for this workspace. */
function isTrusted(home: string, root: string, data: Buffer): boolean {
  if (liesIn(home, root)) {
    return false; // an agent could have written it
  }
  try {
    const descriptor = openSync(join(home, "trusted.json"), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      const { mode, uid } = fstatSync(descriptor);
      const mine = uid === process.geteuid?.() && (mode & 0o022) === 0;
      const known: unknown = mine ? JSON.parse(readAll(descriptor, MAX_TRUSTED_BYTES).toString("utf8")) : null;
      const trusted = new Map(Object.entries(typeof known === "object" && known !== null ? known : {}));
      return trusted.get(root) === createHash("sha256").update(data).digest("hex");
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return false; // missing or broken: nothing was trusted
  }
}

/** The text of a file that its owner alone can change; undefined when there is no such file. */
function readOwned(path: string): Buffer | undefined {
  return reading(path, `The policy file '${path}'`, () => {
    const descriptor = openSync(path, O_RDONLY | O_NONBLOCK);
    try {
      const { mode, uid } = fstatSync(descriptor);
      if ((uid !== 0 && uid !== process.geteuid?.()) || (mode & 0o022) !== 0) {
        const hint = `chown it to yourself or root, and: chmod go-w ${path}`;
        throw new PolicyError(`The policy file '${path}' can be changed by others, so it is not used.`, hint);
      }
      return readAll(descriptor, MAX_BYTES);
    } finally {
      closeSync(descriptor);
    }
  });
}

/** The project's file as it lies there, through no link. */
function readProject(root: string): Buffer | undefined {
  return reading(PROJECT_POLICY, `The project's policy '${PROJECT_POLICY}'`, () => {
    const directory = openSync(join(root, ".byleave"), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK);
    try {
      // On Linux through the open directory, so that it cannot be swapped for a link meanwhile.
      const below = platform() === "linux" ? `/proc/self/fd/${directory}` : join(root, ".byleave");
      const file = openSync(join(below, "policy.toml"), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
      try {
        return readAll(file, MAX_BYTES);
      } finally {
        closeSync(file);
      }
    } finally {
      closeSync(directory);
    }
  });
}

function reading(path: string, what: string, read: () => Buffer): Buffer | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof PolicyError) {
      throw error;
    }
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") {
      return undefined;
    }
    const hint = path === PROJECT_POLICY ? "it must be a plain file in a plain directory, not a link" : undefined;
    throw new PolicyError(`${what} cannot be read: ${message}.`, hint);
  }
}

function readAll(descriptor: number, most: number): Buffer {
  if (!fstatSync(descriptor).isFile()) {
    throw new PolicyError("The policy file is not a regular file.", "replace it by one");
  }
  const data = Buffer.alloc(most + 1);
  let size = 0;
  for (let count = -1; count !== 0 && size <= most; size += count) {
    count = readSync(descriptor, data, size, data.length - size, null);
  }
  if (size > most) {
    throw new PolicyError(`The policy file is longer than ${most / 1024} kB.`, "merge some of its rules");
  }
  return data.subarray(0, size);
}

function decoded(data: Buffer, name: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new PolicyError(`The policy file '${name}' is not UTF-8 text.`, "save it as UTF-8");
  }
}
