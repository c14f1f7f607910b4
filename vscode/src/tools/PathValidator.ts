// Names to descriptors: every path is walked beneath the workspace one part at a time and opened in the same step. On
// Linux each part is opened with O_NOFOLLOW from the descriptor of the one before (by /proc/self/fd), so nothing that was
// checked can be swapped before it is used; elsewhere by names, which leaves a moment between. Relative links that stay
// inside are followed, absolute links are not, nor are other mounts. It decides nothing about risk.

import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  type Stats,
} from "node:fs";
import { resolve } from "node:path";
import { ConfigurationError, codeOf, osError, PathValidationError } from "./errors.js";
import { outside } from "./path_errors.js";
import { firstCharacters, isUnseen, repr } from "./words.js";

const IS_LINUX = process.platform === "linux";
/** Node has no name for it: a descriptor that stands for a place and opens nothing. */
export const O_PATH = IS_LINUX ? 0o10000000 : constants.O_RDONLY | constants.O_NONBLOCK;
export const O_DIRECTORY = constants.O_DIRECTORY;
const O_NOFOLLOW = constants.O_NOFOLLOW;
// O_NONBLOCK: opening a FIFO must not wait for a writer.
export const READ = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
const MAX_LINKS = 40;
const MAX_PATH_BYTES = 4096;
const PLAIN = /^[ -[\]-~]*$/;
const FALSE_SEPARATORS = "\\\u2044\u2215\u29f5\u29f8\ufe68\uff0f\uff3c";
const SYSTEM = new Set(
  "/bin /boot /dev /etc /lib /lib32 /lib64 /proc /run /sbin /sys /usr /var /usr/bin /usr/lib /usr/lib64 /usr/sbin /usr/share /var/lib /var/run /System /Library".split(
    " ",
  ),
);
const SYSTEM_TREES = ["/boot/", "/dev/", "/etc/", "/proc/", "/sys/", "/System/"];

/** Something open, and where it really lies from the workspace, after all links. The one who asked closes it. */
export interface Opened {
  readonly fd: number;
  readonly real: string;
  /** How its children are named to the file system. */
  readonly base: string;
}

/** What lies behind a descriptor, as a name. */
export function nameOf(fd: number, path: string): string {
  return IS_LINUX ? `/proc/self/fd/${fd}` : path;
}

/** Whether a path can stand for nothing but a directory, whatever is there. */
export function namesDirectory(path: string): boolean {
  return path.endsWith("/") || path.endsWith("/.");
}

/** Whether anybody may read it at all. Root could all the same; its owner said nobody may. */
export function isOpen(info: Stats): boolean {
  return (info.mode & 0o444) !== 0;
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "" && part !== ".");
}

function mountOf(fd: number): string {
  return IS_LINUX ? (/^mnt_id:.*$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[0] ?? "") : "";
}

/** Where an open directory lies now; says so only on Linux. */
function placeOf(fd: number): string {
  return IS_LINUX ? readlinkSync(`/proc/self/fd/${fd}`) : "";
}

/** Resolves names against the real file system, beneath one pinned directory. */
export class PathValidator {
  /** The workspace's real path. */
  readonly root: string;
  readonly #rootFd: number;
  readonly #mount: string;
  readonly #place: string;
  readonly #prefixes: readonly string[][];
  #closed = false;

  constructor(
    root: string,
    /** Whether what lies at a real path may not be opened: the owner's floor. */
    private readonly forbidden: (real: string) => boolean = () => false,
  ) {
    const given = resolve(root);
    try {
      this.root = realpathSync(given);
      this.#rootFd = openSync(this.root, O_PATH | O_DIRECTORY);
    } catch (error) {
      const why = codeOf(error) === "ENOENT" ? "No such file or directory" : (codeOf(error) ?? "it cannot be opened");
      throw new ConfigurationError(`${repr(root)} cannot be a workspace: ${why}.`, "Name a directory that exists.");
    }
    const wrong = this.#wrongRoot();
    if (wrong !== undefined) {
      this.close();
      throw new ConfigurationError(wrong, "Name a project's directory.");
    }
    this.#mount = mountOf(this.#rootFd);
    this.#place = placeOf(this.#rootFd);
    this.#prefixes = [partsOf(this.root), partsOf(given)];
  }

  /** Another one on the same directory, which opens nothing that is forbidden where it really lies. */
  guarded(forbidden: (real: string) => boolean): PathValidator {
    return new PathValidator(this.root, forbidden);
  }

  #wrongRoot(): string | undefined {
    if (this.root === "/") {
      return "The whole file system cannot be a workspace.";
    }
    const inSystem = SYSTEM_TREES.some((tree) => this.root.startsWith(tree)) && !this.root.startsWith("/dev/shm/");
    return SYSTEM.has(this.root) || inSystem
      ? `${repr(this.root)} belongs to the system and cannot be a workspace.`
      : undefined;
  }

  /** Let go of the workspace; every later call fails. */
  close(): void {
    if (!this.#closed) {
      this.#closed = true;
      closeSync(this.#rootFd);
    }
  }

  /** `path` as the workspace spells it: relative, without empty parts. Says nothing yet about where it leads. */
  relative(path: string): string {
    const found = PLAIN.test(path)
      ? undefined
      : Array.from(path).find((one) => FALSE_SEPARATORS.includes(one) || isUnseen(one));
    if (found !== undefined) {
      throw new PathValidationError(
        `The path ${repr(firstCharacters(path, 200))} holds ${repr(found)}, which no path here may hold.`,
        "Use '/' between parts, and only characters that can be seen.",
      );
    }
    if (path === "" || Buffer.byteLength(path) > MAX_PATH_BYTES) {
      const shown = repr(firstCharacters(path, 60));
      throw new PathValidationError(`The path ${shown} is empty or longer than ${MAX_PATH_BYTES} bytes.`);
    }
    const parts = partsOf(path);
    if (!path.startsWith("/")) {
      return parts.join("/") || ".";
    }
    const prefix = this.#prefixes.find((one) => one.every((part, at) => parts[at] === part));
    if (prefix === undefined) {
      throw outside(path);
    }
    return parts.slice(prefix.length).join("/") || ".";
  }

  /** Open what a relative path leads to; throws what the system says. */
  open(relative: string, flags: number): Opened {
    if (this.#closed) {
      throw osError("EBADF");
    }
    if (placeOf(this.#rootFd) !== this.#place) {
      throw osError("ESTALE"); // in a directory that is gone everything seems to be merely missing
    }
    const opened = new Walk({ fd: this.#rootFd, real: ".", base: this.#base(this.#rootFd, ".") }, this).open(
      relative,
      flags,
    );
    if (this.forbidden(opened.real)) {
      closeSync(opened.fd);
      throw osError("EACCES");
    }
    return opened;
  }

  /** Open for the time of `use`. */
  with<T>(relative: string, flags: number, use: (opened: Opened) => T): T {
    const opened = this.open(relative, flags);
    try {
      return use(opened);
    } finally {
      closeSync(opened.fd);
    }
  }

  exists(relative: string): boolean {
    try {
      return this.with(relative, O_PATH, () => true);
    } catch {
      return false;
    }
  }

  /** Throws for what nobody may read or reach: the kernel lets root in. */
  refuseClosed(opened: Opened, info: Stats): void {
    if (!isOpen(info)) {
      throw osError("EACCES");
    }
    this.refuseOutOfReach(opened.real);
  }

  /** Throws for what lies in a directory that nobody may enter. */
  refuseOutOfReach(real: string): void {
    if (process.geteuid?.() !== 0) {
      return;
    }
    const parts = real.split("/");
    const base = this.#base(this.#rootFd, ".");
    for (let depth = 1; depth < parts.length; depth += 1) {
      const above = `${base}/${parts.slice(0, depth).join("/")}`;
      // Renamed since: what was opened was open then.
      const info = lstatSync(above, { throwIfNoEntry: false });
      if (info !== undefined && (info.mode & 0o111) === 0) {
        throw osError("EACCES");
      }
    }
  }

  /** Open one entry of a directory that is open; never follows a link, never crosses a mount. */
  child(parent: Opened, name: string, flags: number): Opened {
    const fd = openSync(`${parent.base}/${name}`, flags | O_NOFOLLOW);
    const real = parent.real === "." ? name : `${parent.real}/${name}`;
    try {
      if (mountOf(fd) !== this.#mount) {
        throw osError("EXDEV");
      }
      if (this.forbidden(real)) {
        throw osError("EACCES");
      }
    } catch (error) {
      closeSync(fd);
      throw error;
    }
    return { fd, real, base: this.#base(fd, real) };
  }

  /** Opened by the walk: the very thing that was looked at. */
  reopened(fd: number, real: string, flags: number): Opened {
    if (mountOf(fd) !== this.#mount) {
      throw osError("EXDEV");
    }
    const again = openSync(nameOf(fd, `${this.root}/${real}`), IS_LINUX ? flags : flags | O_NOFOLLOW);
    return { fd: again, real, base: this.#base(again, real) };
  }

  #base(fd: number, real: string): string {
    return nameOf(fd, real === "." ? this.root : `${this.root}/${real}`);
  }

  /** Where a path really lies, or would once it is made; undefined where that cannot be told. */
  realName(relative: string): string | undefined {
    let [above, rest] = [relative, ""];
    for (let missing = 0; missing < 65; missing += 1) {
      try {
        const real = this.with(above, O_PATH, (opened) => opened.real);
        return rest === "" ? real : `${real}${rest}`.replace(/^\.\//, "");
      } catch {
        const cut = above.lastIndexOf("/");
        const last = above.slice(cut + 1);
        if (above === "." || last === "..") {
          return undefined;
        }
        [above, rest] = [cut < 0 ? "." : above.slice(0, cut), `/${last}${rest}`];
      }
    }
    return undefined;
  }
}

/** One resolution: a stack of open directories, so that `..` is where we really came from. */
class Walk {
  readonly #stack: Opened[];

  constructor(
    root: Opened,
    private readonly paths: PathValidator,
  ) {
    this.#stack = [root];
  }

  open(relative: string, flags: number): Opened {
    try {
      return this.#open(relative.split("/"), flags);
    } finally {
      for (const { fd } of this.#stack.slice(1)) {
        closeSync(fd);
      }
    }
  }

  get #here(): Opened {
    return this.#stack.at(-1) as Opened;
  }

  #open(parts: string[], flags: number): Opened {
    let links = 0;
    for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
      if (part === "" || part === ".") {
        continue;
      }
      if (part === "..") {
        this.#leave();
        continue;
      }
      const target = this.#step(part, parts, flags);
      if (typeof target === "string") {
        links += 1;
        if (links > MAX_LINKS) {
          throw osError("ELOOP");
        }
        if (target.startsWith("/")) {
          throw osError("EXDEV");
        }
        parts.unshift(...target.split("/"));
      } else if (target !== undefined) {
        return target;
      }
    }
    return this.paths.reopened(this.#here.fd, this.#here.real, flags);
  }

  /** One name further: a link's target, what was wanted, or undefined for a directory on the way. */
  #step(part: string, rest: readonly string[], flags: number): Opened | string | undefined {
    const name = `${this.#here.base}/${part}`;
    const real = this.#here.real === "." ? part : `${this.#here.real}/${part}`;
    if (!IS_LINUX && lstatSync(name).isSymbolicLink()) {
      return readlinkSync(name);
    }
    const fd = openSync(name, O_PATH | O_NOFOLLOW);
    try {
      const info = fstatSync(fd);
      if (info.isSymbolicLink()) {
        return readlinkSync(name); // whatever it says by now is walked by the same rules
      }
      if (!rest.some((one) => one !== "" && one !== ".")) {
        return this.paths.reopened(fd, real, flags);
      }
      if (!info.isDirectory()) {
        throw osError("ENOTDIR");
      }
      const below = this.paths.reopened(fd, real, O_PATH | O_DIRECTORY);
      this.#stack.push(below);
      return undefined;
    } finally {
      closeSync(fd);
    }
  }

  #leave(): void {
    const left = this.#stack.pop() as Opened;
    if (this.#stack.length === 0) {
      this.#stack.push(left);
      throw osError("EXDEV");
    }
    closeSync(left.fd);
  }
}
