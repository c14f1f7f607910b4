// Names of files that someone else executes, trusts or keeps secrets in. The lists are the tables'; this answers questions
// about a spelling and never looks at a file: a link to a protected file is found by asking here again with the real name.

import { plainForm } from "./characters.js";
import { endsWithAny, partition, trimEnd, trimStart } from "./strings.js";
import { NAMES, type NameGroup } from "./tables.js";
import { starFits } from "./wildcards.js";

class Group {
  readonly because: string;
  readonly #directories: ReadonlySet<string>;
  readonly #files: ReadonlySet<string>;
  readonly #patterns: readonly string[];
  readonly #paths: readonly string[];

  constructor(group: NameGroup) {
    this.because = group.because ?? "";
    this.#directories = new Set(group.directories ?? []);
    this.#files = new Set(group.files ?? []);
    this.#patterns = group.patterns ?? [];
    this.#paths = (group.paths ?? []).map((path) => `/${path}/`);
  }

  holds(names: readonly string[]): boolean {
    const last = names.at(-1) ?? "";
    if (this.#files.has(last) || names.some((name) => this.#directories.has(name))) {
      return true;
    }
    if (this.#patterns.some((one) => starFits(one, last))) {
      return true;
    }
    const whole = `/${names.join("/")}/`;
    return this.#paths.some((path) => whole.includes(path));
  }
}

const PROTECTED = NAMES.protected.map((group) => new Group(group));
const TRUSTED = NAMES.trusted.map((group) => new Group(group));
const SECRET = new Group(NAMES.secrets);
const SECRET_STEMS = new Set(NAMES.secrets.data_stems);
const SECRET_ENDINGS = new Set(NAMES.secrets.data_endings);
const NEVER_SECRET = new Set(NAMES.secrets.never);

/** The parts of a path as a careless file system would compare them. */
export function namesOf(path: string): string[] {
  const names = plainForm(path)
    .replaceAll("\\", "/")
    .split("/")
    .filter((part) => part !== "" && part !== ".")
    .map((part) => (part === ".." ? part : trimEnd(partition(part, ":")[0], " .") || part));
  return names.length > 0 ? names : ["."];
}

/** Why nothing but its owner may write here. */
export function protectedName(path: string): string | undefined {
  const names = namesOf(path);
  return PROTECTED.find((group) => group.holds(names))?.because;
}

/** Who executes or obeys this file. */
export function trustedName(path: string): string | undefined {
  const names = namesOf(path);
  return TRUSTED.find((group) => group.holds(names))?.because;
}

/** Whether a file of this name usually holds secrets. */
export function secretName(path: string): boolean {
  const names = namesOf(path);
  const last = names.at(-1) ?? "";
  if (NEVER_SECRET.has(last) || endsWithAny(last, NAMES.secrets.never_endings)) {
    return false;
  }
  if (SECRET.holds(names)) {
    return true;
  }
  const [stem, , ending] = partition(trimStart(last, "."), ".");
  return SECRET_STEMS.has(stem) && SECRET_ENDINGS.has(ending);
}

/** The names of `secretName` as globs, for a searcher of its own; `harmless` fits `files` and holds no secret. */
export interface SecretGlobs {
  readonly files: readonly string[];
  readonly directories: readonly string[];
  readonly harmless: readonly string[];
}

/** What a search that nobody was asked about leaves out. */
export function secretGlobs(): SecretGlobs {
  const group = NAMES.secrets;
  const stems = group.data_stems.flatMap((stem) =>
    group.data_endings.map((ending) => trimEnd(`${stem}.${ending}`, ".")),
  );
  return {
    files: [...(group.files ?? []), ...(group.patterns ?? []), ...stems],
    directories: group.directories ?? [],
    harmless: [...group.never, ...group.never_endings.map((ending) => `*${ending}`)],
  };
}
