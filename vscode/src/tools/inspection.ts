// Looking at what a call would run or replace, before a person is asked: digest, size, age and text, all of the same bytes.
// Never throws: where it cannot see it says why, and then nothing is known. A pipe or a device is never opened, a link
// that leads out never followed. The path that is told of a write is the real one. Nothing here decides or changes anything.

import { fstatSync, lstatSync } from "node:fs";
import { posix } from "node:path";
import type { Inspection, SeenFile } from "@protocol";
import { maskText, secretName } from "../gate/index.js";
import { refuseHiddenTarget, refuseProtected } from "./disguises.js";
import { ByleaveError, codeOf, kindOf, PathValidationError, ToolFailure } from "./errors.js";
import { type Look, lookAt, refuseDirectory } from "./looking.js";
import { namesDirectory, O_DIRECTORY, O_PATH, type PathValidator } from "./PathValidator.js";
import { asTold } from "./path_errors.js";
import { refuseIrreplaceable } from "./replacing.js";
import { firstCharacters, repr, visibleName } from "./words.js";

const MISSING = "missing";
const MAX_PROBLEM = 400;
const MAX_SEEN_TEXT = 16 * 1024;
const MAX_SHOWN_TEXT = 256 * 1024;
const MAX_SENT = 640 * 1024;

type Files = SeenFile[];

async function inspected(path: string, look: () => Promise<Files>): Promise<Inspection> {
  try {
    return { files: (await look()) as Inspection["files"], problem: null };
  } catch (error) {
    const told = asTold(path, error);
    const problem =
      told instanceof ByleaveError
        ? firstCharacters(maskText(told.message), MAX_PROBLEM)
        : `The files could not be looked at (${kindOf(told)}).`;
    return { files: [], problem };
  }
}

/** What the files of a command hold now. */
export function inspectCommand(
  paths: PathValidator,
  command: string,
  runs: readonly string[],
  maxBytes: number,
): Promise<Inspection> {
  return inspected(command, async () => {
    const looks: Look[] = [];
    for (const path of runs) {
      const look = await lookAt(paths, path, maxBytes);
      refuseDirectory(look, runs);
      looks.push(look);
    }
    refuseUnseen(command, runs, looks);
    return looks.map((look) => seen(look, command === "npm"));
  });
}

/** Refuse what would run something that is not among the files. */
function refuseUnseen(command: string, runs: readonly string[], looks: readonly Look[]): void {
  const isScript = ["python", "python3", "node"].includes(command) && looks.length > 0;
  const isModule = runs.some((path) => path.endsWith("__init__.py"));
  if (isScript && !isModule && looks.every((look) => look.sha256 === MISSING)) {
    throw new ToolFailure(`There is no ${repr(runs[0] as string)} in the workspace.`);
  }
  for (const look of looks) {
    const directory = posix.dirname(look.path);
    const isPackage = command === "node" && posix.basename(look.path) === "package.json" && look.head.length > 0;
    if (isPackage && runs.includes(directory)) {
      refuseOtherMain(directory, look, runs);
    }
  }
}

function refuseOtherMain(directory: string, look: Look, runs: readonly string[]): void {
  const main = packageOf(look.head)?.main ?? "index.js";
  const named = typeof main === "string" ? posix.normalize(posix.join(directory, main)) : "";
  if (!runs.includes(named) && !runs.includes(`${named}.js`)) {
    throw new ToolFailure(
      `${repr(look.path)} says which file would run, and it is not one that is shown.`,
      "Name the file itself.",
    );
  }
}

function seen(look: Look, showsScripts: boolean): SeenFile {
  const hidden = look.sha256 === MISSING || secretName(look.path) || secretName(look.real ?? "");
  const text = hidden ? null : textOf(look, showsScripts);
  // Masked in more than is shown: half a secret no longer looks like one.
  const shown = text === null ? null : maskText(firstCharacters(text, 4 * MAX_SEEN_TEXT));
  const first = shown === null ? null : firstCharacters(shown, MAX_SEEN_TEXT);
  const { modifiedAt: modified_at, path, sha256, size } = look;
  return { path, role: "runs", sha256, size, modified_at, text: first, shortened: first !== shown, note: null };
}

function textOf(look: Look, showsScripts: boolean): string | null {
  const found = showsScripts && posix.basename(look.path) === "package.json" ? packageOf(look.head) : null;
  if (found !== null) {
    return scriptLines(found);
  }
  return look.head.includes(0) ? null : look.head.toString("utf8");
}

/** A package.json, read as npm does; null where that is no object. */
function packageOf(data: Buffer): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(data.toString("utf8").replace(/^\ufeff/, ""));
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** All its scripts, as they are written: which of them would run is not told apart here. */
function scriptLines({ scripts }: Record<string, unknown>): string {
  const known = typeof scripts === "object" && scripts !== null ? (scripts as Record<string, unknown>) : {};
  const lines = Object.entries(known).map(([name, line]) => `${JSON.stringify(name)}: ${JSON.stringify(line)}`);
  return lines.join("\n") || "(no script of this name)";
}

/** What stands where a write would go. `unreadable`: whether a real path may not be read, so its text is not told. */
export function inspectWrite(
  paths: PathValidator,
  path: string,
  maxBytes: number,
  unreadable: (real: string) => boolean,
): Promise<Inspection> {
  return inspected(path, async () => {
    const relative = paths.relative(path);
    if (namesDirectory(path) || relative === ".") {
      throw new ToolFailure(`${repr(path)} names a directory, not a file.`);
    }
    let real: string;
    try {
      real = paths.with(relative, O_PATH, (opened) => {
        const found = checked(path, relative, opened.real);
        const info = fstatSync(opened.fd, { bigint: true });
        paths.refuseOutOfReach(opened.real);
        refuseIrreplaceable(opened, info, path);
        if (info.size > BigInt(maxBytes)) {
          throw new ToolFailure(
            `${repr(path)} is larger than ${maxBytes} bytes, so what would be replaced cannot be shown.`,
          );
        }
        if ((info.mode & 0o444n) === 0n) {
          throw new ToolFailure(`No permission to read ${repr(path)}, so what would be replaced cannot be shown.`);
        }
        return found;
      });
    } catch (error) {
      if (codeOf(error) !== "ENOENT") {
        throw error;
      }
      const place = checked(path, relative, paths.realName(relative));
      refuseTaken(paths, path, place);
      return [
        {
          path: place,
          role: "replaces",
          sha256: MISSING,
          size: null,
          modified_at: null,
          text: null,
          shortened: false,
          note: null,
        },
      ];
    }
    return [await replaced(paths, path, real, maxBytes, unreadable(real))];
  });
}

function checked(path: string, relative: string, real: string | undefined): string {
  if (real === undefined || visibleName(real) !== real) {
    throw new PathValidationError(`Where ${repr(path)} really lies cannot be told.`);
  }
  refuseProtected(real, path);
  refuseHiddenTarget(relative, real);
  return real;
}

/** Nothing is there, but the name may be taken: by a link to nothing, or by a file that came just now. */
function refuseTaken(paths: PathValidator, path: string, real: string): void {
  const cut = real.lastIndexOf("/");
  const parent = cut < 0 ? "." : real.slice(0, cut);
  if (!paths.exists(parent)) {
    return;
  }
  paths.with(parent, O_PATH | O_DIRECTORY, ({ base }) => {
    const found = lstatSync(`${base}/${real.slice(cut + 1)}`, { throwIfNoEntry: false });
    if (found?.isSymbolicLink()) {
      throw new PathValidationError(`${repr(path)} is a link to something that is not there.`);
    }
    if (found !== undefined) {
      throw new ToolFailure(`${repr(path)} appeared while it was looked at.`, "Try again.");
    }
  });
}

async function replaced(
  paths: PathValidator,
  path: string,
  real: string,
  maxBytes: number,
  denied: boolean,
): Promise<SeenFile> {
  const look = await lookAt(paths, real, maxBytes, undefined, 4 * MAX_SHOWN_TEXT + 1);
  if (look.size === null || look.real !== real) {
    throw new ToolFailure(`${repr(path)} changed while it was looked at.`, "Try again.");
  }
  const [text, note] = denied ? [null, "A rule denies reading it."] : wholeText(look.head, path, real);
  const { modifiedAt: modified_at, sha256, size } = look;
  return { path: real, role: "replaces", sha256, size, modified_at, text, shortened: text === null && size > 0, note };
}

/** All of a text with its secrets masked, or why it is not shown. Never a part: half a file is no difference. */
function wholeText(data: Buffer, path: string, real: string): [text: string | null, note: string | null] {
  if (secretName(path) || secretName(real)) {
    return [null, "Its name says that it may hold secrets, so its content is not shown."];
  }
  if (data.includes(0)) {
    return [null, "It is not text."];
  }
  const text = data.toString("utf8");
  const tooLong = "It is too long to be shown here.";
  if (data.length > 4 * MAX_SHOWN_TEXT) {
    return [null, tooLong];
  }
  if (!Buffer.from(text).equals(data)) {
    return [null, "It is not text in UTF-8."]; // read with replacements, different bytes would look the same
  }
  const masked = maskText(text);
  const sent = Buffer.byteLength(JSON.stringify(masked));
  return text.length > MAX_SHOWN_TEXT || masked.length > 2 * MAX_SHOWN_TEXT || sent > MAX_SENT
    ? [null, tooLong]
    : [masked, null];
}
