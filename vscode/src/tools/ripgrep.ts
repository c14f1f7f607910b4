// ripgrep in walls: bubblewrap with the searched place and nothing else of the user's machine. The place is given by
// descriptor and mounted from it, so no name of the user's tree is resolved again and a link that leads out leads nowhere.
// Its answer is read as it comes, in bounded memory. A bubblewrap without `--ro-bind-fd`, or that does not work, gives no
// walls: then `scan` searches.

import { lstatSync, openSync, readlinkSync, realpathSync } from "node:fs";
import { Extras, filterFor } from "./bubblewrap.js";
import type { Keeper, StreamName } from "./output.js";
import { READ } from "./PathValidator.js";
import { type Ended, runProcess } from "./processes.js";
import { findProgram, runnerFor } from "./programs.js";
import type { Isolation, Launch } from "./sandbox.js";
import { MAX_DEPTH, MAX_FILE } from "./scan.js";

const SKELETON = "/.ws";
const LIMITS = { core: 0, cpu: 120, data: 2 * 1024 ** 3, fsize: 4 * 1024 ** 2, nofile: 1024 };
const MAX_COLUMNS = 8000;
const WALLS: Isolation = {
  isolated: true,
  backend: "bwrap",
  fs: "allowlist",
  net: "none",
  pidns: true,
  seccomp: true,
  runs_as: "user",
  protected: [],
  masked: [],
  created: [],
  limits: Object.keys(LIMITS),
  degraded: [],
};

export interface SearchParams {
  readonly pattern: string;
  readonly path: string;
  readonly regex: boolean;
  readonly glob: string | null;
  readonly case_sensitive: boolean;
  readonly max_results: number;
}

/** What is searched: a name for the open place, the path it stands for, and the ignore rules from above it. */
export interface Place {
  readonly base: string;
  readonly real: string;
  readonly isFile: boolean;
  readonly above: readonly { readonly directory: string; readonly content: Buffer }[];
}

export interface Match {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

/** Reads the answer of ripgrep, `path NUL number : line`, in the order of paths, until it is enough. */
export class AnswerReader implements Keeper {
  readonly #matches: Match[] = [];
  readonly #complaints: Buffer[] = [];
  readonly #binary = new Set<string>();
  #rest = Buffer.alloc(0);
  #odd = false;
  #last = { path: "", wanted: false };
  whenEnough = () => {};

  constructor(
    private readonly most: number,
    private readonly wanted: (path: string) => boolean,
  ) {}

  feed(stream: StreamName, data: Buffer): void {
    if (stream === "stderr") {
      this.#complaints.push(data.subarray(0, 4096));
      return;
    }
    if (this.enough) {
      return;
    }
    this.#rest = Buffer.concat([this.#rest, data]);
    let start = 0;
    for (let end = this.#rest.indexOf(10); end >= 0; end = this.#rest.indexOf(10, start)) {
      this.#line(this.#rest.subarray(start, end));
      start = end + 1;
    }
    this.#rest = Buffer.from(this.#rest.subarray(start));
    if (this.enough) {
      this.whenEnough();
    }
  }

  /** Whether nothing that can still come matters. One more file may still turn out to be no text. */
  get enough(): boolean {
    const beyond = this.found().length > this.most;
    return beyond && this.#matches.at(-1)?.path !== this.found()[this.most]?.path;
  }

  #line(line: Buffer): void {
    const end = line.indexOf(0);
    const odd = this.#odd;
    this.#odd = false;
    if (end < 0) {
      const binary = /^\.\/(.*?): binary file matches/.exec(line.toString("utf8"));
      if (binary !== null) {
        this.#binary.add(binary[1] as string);
      } else {
        this.#odd = true; // a name with a newline in it: what follows could imitate the form
      }
      return;
    }
    const path = line.toString("utf8", 0, end);
    if (odd || !path.startsWith("./")) {
      return;
    }
    if (this.#last.path !== path) {
      this.#last = { path, wanted: this.wanted(path.slice(2)) };
    }
    if (this.#last.wanted) {
      const text = line.subarray(end + 1);
      const colon = text.indexOf(58);
      const number = Number(text.toString("latin1", 0, colon));
      this.#matches.push({ path: path.slice(2), line: number, text: text.toString("utf8", colon + 1) });
    }
  }

  found(): Match[] {
    return this.#binary.size === 0 ? this.#matches : this.#matches.filter(({ path }) => !this.#binary.has(path));
  }

  said(): string {
    return Buffer.concat(this.#complaints).toString("utf8").split(/\s+/).join(" ").trim().slice(0, 300);
  }
}

/** Everything after ripgrep's name; the pattern and the place come last, where nothing is read as an option. */
export function ripgrepArguments(params: SearchParams, globs: readonly string[], isFile: boolean): string[] {
  const place = isFile
    ? ["--no-ignore", "--hidden"]
    : [
        ...["--no-require-git", "--no-ignore-global", "--no-ignore-dot", "--no-ignore-exclude"],
        `--max-depth=${MAX_DEPTH + 1}`,
        // A type, not --glob: a glob that is given overrules .gitignore. A colon would end it; names are looked at again.
        ...globs.map((glob) => `--type-add=wanted:${glob.replaceAll(":", "?")}`),
        ...(globs.length > 0 ? ["--type=wanted"] : []),
        ...(globs.some((glob) => glob.startsWith(".")) ? ["--hidden", "--glob=!.*/"] : []),
      ];
  return [
    ...["--no-config", "--no-messages", "--no-follow", "--no-heading", "--null", "--line-number", "--sort=path"],
    ...["--with-filename", "--color=never", "--crlf", `--max-count=${params.max_results + 1}`],
    ...[`--max-columns=${MAX_COLUMNS}`, "--max-columns-preview", `--max-filesize=${MAX_FILE}`],
    params.case_sensitive ? "--case-sensitive" : "--ignore-case",
    ...(params.regex ? [] : ["--fixed-strings"]),
    ...place,
    ...["-e", params.pattern, "--", "./"],
  ];
}

/** ripgrep in bubblewrap, for one workspace. Throws ToolFailure where one of the two is not installed. */
export class RipgrepSandbox {
  readonly #prefix: readonly string[];

  constructor(
    private readonly root: string,
    /** The editor's own, where the system has none. */
    ripgrep?: string,
  ) {
    const program = realpathSync(ripgrep ?? findProgram("rg", root));
    const limits = Object.entries(LIMITS).map(([name, most]) => `--${name}=${most}`);
    this.#prefix = [
      ...[findProgram("prlimit", root), ...limits, "--", findProgram("bwrap", root)],
      ...["--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL", ...libraries()],
      ...["--ro-bind", program, "/rg", "--perms", "0755", "--dir", SKELETON],
    ];
  }

  /** Run ripgrep in a place to its end, or until its answer is enough. */
  async run(
    place: Place,
    args: readonly string[],
    reader: Keeper,
    seconds: number,
    signal: AbortSignal,
  ): Promise<Ended> {
    const launch = this.#launch(place, args);
    try {
      return await runProcess(launch, reader, { seconds, signal });
    } finally {
      launch.release();
    }
  }

  #launch(place: Place, args: readonly string[]): Launch {
    const extras = new Extras();
    const inside = (directory: string) => (directory === "" ? SKELETON : `${SKELETON}/${directory}`);
    const target = place.isFile ? `${SKELETON}/file` : inside(place.real === "." ? "" : place.real);
    const filter = filterFor(false);
    const runner = runnerFor(this.root);
    const argv = [
      ...this.#prefix,
      ...place.above.flatMap(({ content, directory }) => {
        return ["--file", String(extras.content(content)), `${inside(directory)}/.gitignore`];
      }),
      ...["--ro-bind-fd", String(extras.add(openSync(place.base, READ))), target],
      ...["--remount-ro", "/", "--chdir", place.isFile ? SKELETON : target],
      ...(filter === undefined ? [] : ["--seccomp", String(extras.content(filter))]),
      ...["--json-status-fd", String(extras.status()), "--", "/rg", ...args],
    ];
    extras.seal();
    return {
      argv,
      env: { LANG: "C.UTF-8", LC_ALL: "C.UTF-8" },
      cwd: "/",
      isolation: WALLS,
      extras: [...extras.list],
      uid: runner?.uid,
      gid: runner?.gid,
      covered: false,
      release() {
        extras.close();
        return [];
      },
    };
  }
}

/** What a program needs to start, and no program. */
function libraries(): string[] {
  return ["/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64"].flatMap((name) => {
    const info = lstatSync(name, { throwIfNoEntry: false });
    const link = info?.isSymbolicLink() ? ["--symlink", readlinkSync(name), name] : [];
    return info?.isDirectory() ? ["--ro-bind", name, name] : link;
  });
}
