// search_files: text or a regular expression in the workspace's files, bounded in time and number. The place to search is
// opened beneath the workspace and handed on by descriptor, so it cannot be swapped for another. ripgrep searches inside
// walls of its own; where there is no ripgrep or no walls, `scan` does, in a thread that can be ended. Both leave out what
// .gitignore names, hidden files (unless the glob starts with a dot), files that hold secrets by their name, other mounts,
// and what the owner has ruled out; neither follows links, and both give the same answer, in the order of paths.

import { closeSync, fstatSync } from "node:fs";
import { Worker } from "node:worker_threads";
import type { SearchFilesResult } from "@protocol";
import { secretName } from "../gate/index.js";
import { refuseHiddenSecret } from "./disguises.js";
import {
  ExecutionCancelled,
  ExecutionTimeout,
  InvalidParameters,
  isOsError,
  PathValidationError,
  ToolFailure,
} from "./errors.js";
import { bytesOf, globFits } from "./globs.js";
import { namesDirectory, O_DIRECTORY, type Opened, type PathValidator, READ } from "./PathValidator.js";
import { toldOf } from "./path_errors.js";
import { type Clock, SYSTEM_CLOCK } from "./ports.js";
import {
  AnswerReader,
  type Match,
  type Place,
  RipgrepSandbox,
  ripgrepArguments,
  type SearchParams,
} from "./ripgrep.js";
import { MAX_FILE, readRules, type Work } from "./scan.js";
import type { ScanMessage } from "./scan_worker.js";
import { expandGlob } from "./search_terms.js";
import { firstCharacters, repr, visibleName } from "./words.js";

const SECONDS = 10;
const MAX_LINE = 2000;
/** To the agent, which names both. */
export const SEARCH_LESS = "Search a smaller directory, or use a simpler pattern.";

export interface SearchOptions {
  /** What the owner denies to searches, by real path. */
  readonly forbidden?: (real: string) => boolean;
  /** The editor's own ripgrep; false: never with one. */
  readonly ripgrep?: string | false;
  /** The bundled thread of `scan_worker.ts`; without it there is no search without ripgrep. */
  readonly scanWorker?: string;
  readonly seconds?: number;
  readonly clock?: Clock;
}

/** Searches one workspace. */
export class SearchExecutor {
  #ripgrep: Promise<RipgrepSandbox | undefined> | undefined;

  constructor(
    private readonly paths: PathValidator,
    private readonly options: SearchOptions = {},
  ) {}

  async search(params: SearchParams, signal: AbortSignal = new AbortController().signal): Promise<SearchFilesResult> {
    const globs = expandGlob(params.glob);
    if (/[\r\n\0]/.test(params.pattern)) {
      throw new InvalidParameters("The pattern may not hold a newline or NUL: the search goes line by line.");
    }
    const relative = this.paths.relative(params.path);
    // Only a directory may be named with a slash at the end.
    const flags = namesDirectory(params.path) ? READ | O_DIRECTORY : READ;
    const opened = await toldOf(params.path, () => this.paths.open(relative, flags));
    try {
      const place = await toldOf(params.path, () => this.#place(opened, params.path));
      refuseHiddenSecret(relative, place.real);
      if (this.options.forbidden?.(place.real)) {
        const hint = "Work without it; no approval opens it.";
        throw new PathValidationError(`The owner of this machine has ruled out ${repr(params.path)}.`, hint);
      }
      const found = await this.#find(params, globs, place, signal);
      const first = found.sort(byPath).slice(0, params.max_results);
      const matches = first.map(({ line, path, text }) => {
        const shown = text.replace(/[\r\n]+$/, "");
        const cut = firstCharacters(shown, MAX_LINE);
        const whole = place.isFile ? place.real : place.real === "." ? path : `${place.real}/${path}`;
        return { path: visibleName(whole), line_number: line, line: cut === shown ? shown : `${cut} [...]` };
      });
      const truncated = found.length > matches.length;
      return { success: true, error: null, matches, total_count: matches.length, truncated };
    } finally {
      closeSync(opened.fd);
    }
  }

  #place(opened: Opened, path: string): Place {
    const { base, fd, real } = opened;
    const info = fstatSync(fd);
    this.paths.refuseClosed(opened, info);
    if (info.isDirectory()) {
      return { base, real, isFile: false, above: this.#above(real) };
    }
    if (!info.isFile()) {
      throw new ToolFailure(`${repr(path)} is neither a file nor a directory.`);
    }
    if (info.size > MAX_FILE) {
      throw new ToolFailure(`${repr(path)} is larger than ${MAX_FILE >> 20} MiB.`, "Use a command like grep.");
    }
    return { base, real, isFile: true, above: [] };
  }

  /** The .gitignore files between the workspace and the searched directory. */
  #above(real: string): { directory: string; content: Buffer }[] {
    const found: { directory: string; content: Buffer }[] = [];
    const parts = real === "." ? [] : real.split("/");
    parts.forEach((_, depth) => {
      const directory = parts.slice(0, depth).join("/");
      const inside = (name: string) => (directory === "" ? name : `${directory}/${name}`);
      if (this.paths.exists(inside(".git"))) {
        found.length = 0; // a repository of its own: what lies above it has no say
      }
      try {
        this.paths.with(inside(".gitignore"), READ, ({ fd }) => {
          if (fstatSync(fd).isFile()) {
            found.push({ directory, content: readRules(fd) });
          }
        });
      } catch {
        // there is none
      }
    });
    return found;
  }

  async #find(params: SearchParams, globs: readonly string[], place: Place, signal: AbortSignal): Promise<Match[]> {
    const wanted = this.#filter(globs, place);
    this.#ripgrep ??= this.#working(place);
    const ripgrep = await this.#ripgrep;
    const seconds = this.options.seconds ?? SECONDS;
    if (signal.aborted) {
      throw new ExecutionCancelled("It was called off.");
    }
    if (ripgrep === undefined) {
      return this.#scan(params, globs, place, wanted, seconds, signal);
    }
    const reader = new AnswerReader(params.max_results, wanted);
    const stop = new AbortController();
    const cancel = () => stop.abort();
    reader.whenEnough = cancel;
    signal.addEventListener("abort", cancel, { once: true });
    try {
      const args = ripgrepArguments(params, globs, place.isFile);
      const { exitCode, timedOut } = await ripgrep.run(place, args, reader, seconds, stop.signal);
      if (timedOut) {
        throw tooSlow(seconds);
      }
      judge(exitCode, reader);
      return reader.found();
    } catch (error) {
      if (error instanceof ExecutionCancelled && reader.enough && !signal.aborted) {
        return reader.found();
      }
      throw error;
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  }

  /** ripgrep in walls that really hold it here; undefined: there is none, or no walls are to be had. */
  async #working(place: Place): Promise<RipgrepSandbox | undefined> {
    if (this.options.ripgrep === false || process.platform !== "linux") {
      return undefined;
    }
    try {
      const found = new RipgrepSandbox(this.paths.root, this.options.ripgrep);
      const { exitCode } = await found.run(place, ["--version"], new AnswerReader(1, () => false), 10, NEVER);
      return exitCode === 0 ? found : undefined;
    } catch (error) {
      if (error instanceof ToolFailure || isOsError(error)) {
        return undefined; // also where the editor's own went with an update
      }
      throw error;
    }
  }

  async #scan(
    params: SearchParams,
    globs: readonly string[],
    place: Place,
    wanted: (path: string) => boolean,
    seconds: number,
    signal: AbortSignal,
  ): Promise<Match[]> {
    const { clock = SYSTEM_CLOCK, scanWorker } = this.options;
    if (scanWorker === undefined) {
      throw new ToolFailure("There is no ripgrep on this machine, so nothing can be searched.", "install ripgrep");
    }
    const above = place.above.map(({ content, directory }) => {
      const from = directory === "" ? place.real : place.real.slice(directory.length + 1);
      return { content: content.toString("base64"), add: `${from}/` };
    });
    const { case_sensitive: caseSensitive, max_results: most, pattern, regex } = params;
    const { base, isFile } = place;
    const work: Work = { base, isFile, above, pattern, regex, caseSensitive, globs, maxCount: most + 1 };
    const thread = new Worker(scanWorker, { workerData: work, resourceLimits: { maxOldGenerationSizeMb: 512 } });
    const found: Match[] = [];
    const timer = { cancel: () => {} };
    try {
      await new Promise<void>((resolve, reject) => {
        timer.cancel = clock.after(seconds * 1000, () => reject(tooSlow(seconds))).cancel;
        signal.addEventListener("abort", () => reject(new ExecutionCancelled("It was called off.")), { once: true });
        thread.on("error", () => reject(tooLarge()));
        thread.on("message", (message: ScanMessage) => {
          if ("done" in message) {
            resolve();
          } else if ("wrong" in message) {
            const why = `The pattern cannot be searched for: regex parse error: ${message.wrong}`;
            reject(new InvalidParameters(why));
          } else if (wanted(message.path)) {
            found.push(...message.lines.map(([line, text]) => ({ path: message.path, line, text })));
            if (found.length > most) {
              resolve();
            }
          }
        });
      });
      return found;
    } finally {
      timer.cancel();
      await thread.terminate();
    }
  }

  /** Whether a found path is one we may tell of. */
  #filter(globs: readonly string[], place: Place): (path: string) => boolean {
    const fits = globs.map((glob) => globFits(bytesOf(glob), true));
    const hidden = globs.some((glob) => glob.startsWith("."));
    const askedForSecrets = secretName(place.real); // named by the call itself, so the gate has seen it
    return (found) => {
      if (place.isFile) {
        return true;
      }
      const parts = found.split("/");
      const name = parts.pop() as string;
      const whole = place.real === "." ? found : `${place.real}/${found}`;
      if (parts.some((part) => part.startsWith(".")) || (name.startsWith(".") && !hidden)) {
        return false;
      }
      // The gate asks before such a file is read; a search must not read it unasked.
      if ((!askedForSecrets && secretName(whole)) || this.options.forbidden?.(whole)) {
        return false;
      }
      return (fits.length === 0 || fits.some((isFitting) => isFitting(bytesOf(name)))) && this.#isOnMount(whole);
    };
  }

  /** Other mounts are no part of the workspace. */
  #isOnMount(real: string): boolean {
    return this.paths.exists(real);
  }
}

const NEVER = new AbortController().signal;

function tooSlow(seconds: number): ExecutionTimeout {
  return new ExecutionTimeout(`The search took longer than ${seconds} s and was ended.`, SEARCH_LESS);
}

function tooLarge(): ToolFailure {
  return new ToolFailure(
    "The search ended before it was done: a file in it may need more memory than a search may take.",
    "Search a smaller directory.",
  );
}

function judge(exitCode: number | null, reader: AnswerReader): void {
  if (exitCode === 0 || exitCode === 1) {
    return;
  }
  if (exitCode !== 2) {
    throw tooLarge();
  }
  const said = reader.said();
  if (said !== "") {
    throw new InvalidParameters(`The pattern cannot be searched for: ${said}`);
  }
}

/** As a walk that sorts each directory by name meets them. */
function byPath(one: Match, other: Match): number {
  if (one.path === other.path) {
    return one.line - other.line;
  }
  const [left, right] = [one.path.split("/"), other.path.split("/")];
  for (let at = 0; at < Math.min(left.length, right.length); at += 1) {
    const difference = Buffer.compare(Buffer.from(left[at] as string), Buffer.from(right[at] as string));
    if (difference !== 0) {
      return difference;
    }
  }
  return left.length - right.length;
}
