// Putting a file where another is, or taking one away, without losing one that somebody else puts there at the same moment.
// All by names in a directory that is already open. What is replaced is held under a second name and compared there, so a
// save into it is seen until the last step; taking away moves it aside first and puts it back when it is another. Node
// cannot swap two names in one step: a file that is moved in between the last look and the rename, a few microseconds, is
// replaced.

import { randomBytes } from "node:crypto";
import { type BigIntStats, linkSync, lstatSync, renameSync, unlinkSync } from "node:fs";
import { codeOf, isCode } from "./errors.js";
import type { Opened } from "./PathValidator.js";
import { quietly } from "./replacing.js";

/** Something else was there; it is there still. */
export class Unexpected extends Error {}

/** How a file system says that it has no hard links; the last is macOS. */
export const NO_LINKS = ["EPERM", "EOPNOTSUPP", "ENOTSUP"] as const;

/** The stat of what has a name in the directory, when it is what was expected, down to its bytes. */
export type Expected = (name: string) => Promise<BigIntStats | undefined>;

/** A name for the time between; looks at a workspace pass over such names. */
export function passingName(): string {
  return `.byleave-${randomBytes(8).toString("hex")}.undo`;
}

/** Give a draft a name that is free. Throws Unexpected where it is not; the draft stays. */
export function place(directory: Opened, draft: string, name: string): void {
  try {
    linkSync(`${directory.base}/${draft}`, `${directory.base}/${name}`);
  } catch (error) {
    if (codeOf(error) === "EEXIST") {
      throw new Unexpected("something is there");
    }
    if (!isCode(error, ...NO_LINKS)) {
      throw error;
    }
    // A file system without hard links: the next best is a look right before.
    if (now(directory, name) !== undefined) {
      throw new Unexpected("something is there");
    }
    renameSync(`${directory.base}/${draft}`, `${directory.base}/${name}`);
    return;
  }
  unlinkSync(`${directory.base}/${draft}`);
}

/** Put a draft in the place of what is expected under a name. Throws Unexpected; then nothing has changed. */
export async function swap(directory: Opened, draft: string, name: string, expected: Expected): Promise<void> {
  const held = hold(directory, name);
  try {
    const seen = await expected(held ?? name);
    // From here to the rename nothing waits any more.
    if (seen === undefined || !isSame(now(directory, name), seen)) {
      throw new Unexpected("it changed");
    }
    renameSync(`${directory.base}/${draft}`, `${directory.base}/${name}`);
    if (held !== undefined && !isSame(now(directory, held), seen)) {
      renameSync(`${directory.base}/${held}`, `${directory.base}/${name}`); // saved into at that very moment: it stays
      throw new Unexpected("it changed");
    }
  } finally {
    if (held !== undefined) {
      quietly(() => unlinkSync(`${directory.base}/${held}`));
    }
  }
}

/** Remove what is expected under a name. Throws Unexpected; then it is still there. */
export async function takeAway(directory: Opened, name: string, expected: Expected): Promise<void> {
  if ((await expected(name)) === undefined) {
    throw new Unexpected("it changed");
  }
  const aside = passingName();
  try {
    renameSync(`${directory.base}/${name}`, `${directory.base}/${aside}`);
  } catch (error) {
    if (codeOf(error) === "ENOENT") {
      throw new Unexpected("it is gone");
    }
    throw error;
  }
  let isExpected = false;
  try {
    isExpected = (await expected(aside)) !== undefined;
  } finally {
    if (!isExpected) {
      bringBack(directory, aside, name);
    }
  }
  if (!isExpected) {
    throw new Unexpected("it changed");
  }
  unlinkSync(`${directory.base}/${aside}`);
}

function bringBack(directory: Opened, aside: string, name: string): void {
  try {
    place(directory, aside, name);
  } catch {
    // Saved twice in that moment: both stay, one of them under a name that can be seen.
    renameSync(`${directory.base}/${aside}`, `${directory.base}/${name}.${randomBytes(4).toString("hex")}.saved`);
  }
}

/** A second name for what is there; undefined where the file system has none to give. */
function hold(directory: Opened, name: string): string | undefined {
  const held = passingName();
  try {
    linkSync(`${directory.base}/${name}`, `${directory.base}/${held}`);
    return held;
  } catch (error) {
    if (codeOf(error) === "ENOENT") {
      throw new Unexpected("it is gone");
    }
    return undefined;
  }
}

function now(directory: Opened, name: string): BigIntStats | undefined {
  return lstatSync(`${directory.base}/${name}`, { bigint: true, throwIfNoEntry: false });
}

/** Not the time of the inode's change: giving it another name is one. */
function isSame(found: BigIntStats | undefined, seen: BigIntStats): boolean {
  return found !== undefined && found.ino === seen.ino && found.size === seen.size && found.mtimeNs === seen.mtimeNs;
}
