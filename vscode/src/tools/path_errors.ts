// What the system says of a path, as a sentence for an agent: the path as it was asked for, never at any length.

import { isOsError, PathValidationError, systemWords, ToolFailure } from "./errors.js";
import { firstCharacters, repr } from "./words.js";

const MAX_SHOWN = 200;

export function outside(path: string): PathValidationError {
  return new PathValidationError(
    `${repr(path)} is outside the workspace.`,
    "Use a path relative to the workspace, such as 'src/app.py'.",
  );
}

/** The sentence for what the system said of a path. */
export function pathError(path: string, error: NodeJS.ErrnoException): PathValidationError | ToolFailure {
  const start = firstCharacters(path, MAX_SHOWN);
  const shown = start === path ? path : `${start}…`;
  const name = repr(shown);
  switch (error.code) {
    case "EXDEV":
      return outside(shown);
    case "ELOOP":
      return new PathValidationError(
        `${name} leads through a link that may not be followed, or through too many links.`,
      );
    case "ENAMETOOLONG":
      return new PathValidationError(`The path ${repr(path.slice(0, 60))}… is too long for this file system.`);
    case "ENOENT":
      return new ToolFailure(`There is no ${name} in the workspace.`, "List the directory to see what is there.");
    case "ENOTDIR":
      return new ToolFailure(`A part of ${name} is a file, not a directory.`);
    case "EISDIR":
      return new ToolFailure(`${name} is a directory.`, "Use list_directory to see what is in it.");
    case "EACCES":
    case "EPERM":
    case "EROFS":
      return new ToolFailure(`No permission for ${name}.`);
    case "ENXIO":
    case "ENODEV":
      return new ToolFailure(`${name} is not a regular file.`);
    case "ENOSPC":
    case "EDQUOT":
      return new ToolFailure(`There is no space left for ${name}.`, "Free some space on the disk.");
    case "ESTALE":
      return new ToolFailure(
        `The workspace's directory was moved or removed, so nothing can be done with ${name}.`,
        "Put it back, or start Byleave again where it is now.",
      );
    case "EFBIG":
      return new ToolFailure(`${name} would be larger than this machine allows.`);
    default:
      return new ToolFailure(`${name} could not be used: ${systemWords(error)}.`);
  }
}

/** What the system says, as an error about `path`; anything else as it is. */
export function asTold(path: string, error: unknown): unknown {
  return isOsError(error) ? pathError(path, error) : error;
}

/** What happens inside, with what the system says turned into an error about `path`. */
export async function toldOf<T>(path: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw asTold(path, error);
  }
}
