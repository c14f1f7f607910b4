// What a link hides: the gate judged the name that was asked for, the system opened what it leads to. Where the two
// differ, the gate's own tables are asked again with the real name. A file may not be read or written under a name that
// looks more harmless than it is. What the gate lets nobody write is refused here once more, whatever the gate said.

import { assessWrite, type Level, protectedName, rank, secretName, trustedName } from "../gate/index.js";
import { PathValidationError } from "./errors.js";
import { repr, TABLES, visibleName } from "./words.js";

const HINT = "Ask for the file by its own name.";
/** Names that only Byleave gives, for a moment. */
const PASSING = /^\.byleave-[0-9a-f]{16}\.(?:tmp|undo)$/;
const NEVER_WRITTEN = new Set(TABLES.never_written);

/** Refuse to read a file that holds secrets under a name that does not say so. */
export function refuseHiddenSecret(asked: string, real: string): void {
  if (asked !== real && secretName(real) && !secretName(asked)) {
    throw new PathValidationError(
      `${repr(asked)} is a link to ${repr(visibleName(real))}, which may hold secrets.`,
      HINT,
    );
  }
}

/** Refuse to write a file under a name that asks for less than its own would. */
export function refuseHiddenTarget(asked: string, real: string): void {
  if (asked === real) {
    return;
  }
  const [before, after] = [levelOf(asked), levelOf(real)];
  const worse = rank(after) > rank(before) || (trustedName(real) !== undefined && trustedName(asked) === undefined);
  if (worse || after === "REFUSE") {
    throw new PathValidationError(
      `${repr(asked)} is a link to ${repr(visibleName(real))}, which is judged more strictly.`,
      HINT,
    );
  }
}

function levelOf(path: string): Level {
  const levels = assessWrite(path, "").map((finding) => finding.level);
  return levels.reduce((one, other) => (rank(other) > rank(one) ? other : one));
}

/** Refuse a real path (links resolved) that runs through `.git` or `.byleave`, however they are spelled. */
export function refuseProtectedDirectory(real: string, path: string): void {
  for (const part of real.split("/")) {
    // Other file systems drop trailing dots and spaces and do not tell upper from lower case.
    const plain = plainName(part);
    if (NEVER_WRITTEN.has(plain) || PASSING.test(plain) || protectedName(part) !== undefined) {
      throw new PathValidationError(`${repr(path)} lies in ${repr(visibleName(part))}, which is never written.`);
    }
  }
}

/** The same of a file, and of one that would be a program or library. */
export function refuseProtected(real: string, path: string): void {
  refuseProtectedDirectory(real, path);
  if (TABLES.forbidden_endings.some((ending) => plainName(real).endsWith(ending)) || levelOf(real) === "REFUSE") {
    throw new PathValidationError(`${repr(path)} would be a program or library; such files are never written.`);
  }
}

function plainName(name: string): string {
  return name.toLowerCase().replace(/[. ]+$/, "");
}
