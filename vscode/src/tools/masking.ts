// Covering what the owner's rules forbid, so that a command cannot read it whatever its arguments say. A directory gets an
// empty one over it that nobody may enter, a file an empty one that nobody may read. What lies outside the workspace needs
// no cover, since nothing of it is mounted. Never covers less than it was asked to: it refuses.

import { lstatSync, realpathSync } from "node:fs";
import { PathValidationError, ToolFailure } from "./errors.js";
import { repr } from "./words.js";

const MAX_MASKED = 400;

/** One path that is covered: where it really lies, from the workspace. */
export interface Mask {
  readonly path: string;
  readonly isDirectory: boolean;
}

/** The directories on the way to a path: `a`, `a/b` for `a/b/c`. */
export function parentsOf(path: string): string[] {
  const parts = path.split("/").slice(0, -1);
  return parts.map((_, index) => parts.slice(0, index + 1).join("/"));
}

/** What to cover for `paths`, outermost only, and which of them are hidden then; what is not there is left out. */
export function masksFor(root: string, paths: readonly string[]): { masks: Mask[]; hidden: string[] } {
  if (paths.length > MAX_MASKED) {
    throw new ToolFailure(
      `The rules forbid ${paths.length} paths of this workspace; at most ${MAX_MASKED} can be hidden.`,
      "Forbid the directories that hold them.",
    );
  }
  const found = new Map<string, Mask>();
  const hidden = new Set<string>();
  for (const path of paths) {
    const real = realPath(root, path);
    const info = real === undefined ? undefined : lstatSync(`${root}/${real}`, { throwIfNoEntry: false });
    if (real === undefined) {
      hidden.add(path); // a link out of the workspace: it leads nowhere in the sandbox
    } else if (info !== undefined) {
      found.set(real, { path: real, isDirectory: info.isDirectory() });
      hidden.add(path).add(real);
    }
  }
  const inside = (path: string) => parentsOf(path).some((parent) => found.get(parent)?.isDirectory);
  const masks = [...found.values()].filter(({ path }) => !inside(path));
  return { masks: masks.sort((one, other) => (one.path < other.path ? -1 : 1)), hidden: [...hidden].sort() };
}

/** Where a path of the workspace really lies; undefined when that is outside. */
function realPath(root: string, path: string): string | undefined {
  if (path === "" || path.includes("\0") || path.startsWith("/") || path.split("/").includes("..")) {
    throw new PathValidationError(`${repr(path)} is no path inside the workspace, so it cannot be hidden.`);
  }
  let real: string;
  try {
    real = realpathSync(`${root}/${path}`);
  } catch {
    return path; // nothing is there
  }
  if (real === root || root.startsWith(`${real}/`)) {
    const hint = "Name what lies in it.";
    throw new PathValidationError(`${repr(path)} leads to the workspace itself, so it cannot be hidden.`, hint);
  }
  return real.startsWith(`${root}/`) ? real.slice(root.length + 1) : undefined;
}

/** The arguments of bubblewrap that lay the covers; `nothing` gives the number of an empty file for the child. */
export function coverArguments(root: string, masks: readonly Mask[], nothing: () => number): string[] {
  // Mode 0: to git and its like, what is covered cannot be read; it has not been deleted.
  return masks.flatMap(({ path, isDirectory }) =>
    isDirectory
      ? ["--size", "4096", "--perms", "0000", "--tmpfs", `${root}/${path}`]
      : ["--perms", "0000", "--ro-bind-data", String(nothing()), `${root}/${path}`],
  );
}
