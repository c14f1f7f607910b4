// read_file, write_file and list_directory on the real file system. Every open goes through the `PathValidator`; no name
// is looked at first and opened later. A cancelled call gives up before it changes anything. Whether a call may run was
// decided before.

import { closeSync, fstatSync } from "node:fs";
import type { ListDirectoryResult, ReadFileResult, WriteFileResult } from "@protocol";
import { countLines, cutLines, readContent } from "./contents.js";
import { refuseHiddenSecret } from "./disguises.js";
import { InvalidParameters, ToolFailure } from "./errors.js";
import { readAll, refuseOddKind } from "./io.js";
import { Listing, type ListParams } from "./listing.js";
import { namesDirectory, type PathValidator, READ } from "./PathValidator.js";
import { toldOf } from "./path_errors.js";
import { repr, TABLES } from "./words.js";
import { type WriteOrder, writeBeneath } from "./writing.js";

export interface ReadParams {
  readonly path: string;
  readonly start_line: number | null;
  readonly end_line: number | null;
}

export interface WriteParams {
  readonly path: string;
  readonly content: string;
  readonly mode: "write" | "append";
}

/** How a call is run: until when, and bound to what. */
export interface RunOptions {
  readonly signal?: AbortSignal;
  /** Whether its time is up: asked right before it takes effect. */
  readonly late?: () => boolean;
  readonly bound?: Readonly<Record<string, string>>;
}

const NEVER = new AbortController().signal;
const LONE_SURROGATE = /\p{Cs}/u;

/** The file tools of one workspace. */
export class FileSystemExecutor {
  constructor(
    private readonly paths: PathValidator,
    private readonly maxFileBytes: number = TABLES.max_file_bytes,
    /** What the owner denies to this tool, by real path. */
    private readonly forbidden: (real: string) => boolean = () => false,
  ) {}

  async readFile(params: ReadParams): Promise<ReadFileResult> {
    const { path } = params;
    if (namesDirectory(path)) {
      throw new ToolFailure(`${repr(path)} names a directory, not a file.`, "Use list_directory.");
    }
    const relative = this.paths.relative(path);
    const data = await toldOf(path, async () => {
      const opened = this.paths.open(relative, READ);
      const { fd, real } = opened;
      try {
        refuseHiddenSecret(relative, real);
        const info = fstatSync(fd);
        refuseOddKind(info, path);
        this.paths.refuseClosed(opened, info);
        return await readAll(fd, this.maxFileBytes, () => this.#tooLarge(path));
      } finally {
        closeSync(fd);
      }
    });
    return readResult(params, data);
  }

  #tooLarge(path: string): ToolFailure {
    const hint = "Use search_files, or a command like head.";
    return new ToolFailure(`${repr(path)} is larger than ${this.maxFileBytes} bytes.`, hint);
  }

  /** `keep`: keeps what is about to be replaced, right before it is. */
  async writeFile(params: WriteParams, options: RunOptions = {}, keep?: WriteOrder["keep"]): Promise<WriteFileResult> {
    if (LONE_SURROGATE.test(params.content)) {
      throw new InvalidParameters("The content holds half a surrogate pair, which is no text.");
    }
    return writeBeneath(this.paths, {
      path: params.path,
      data: Buffer.from(params.content, "utf8"),
      append: params.mode === "append",
      maxBytes: this.maxFileBytes,
      signal: options.signal ?? NEVER,
      bound: options.bound ?? {},
      forbidden: this.forbidden,
      late: options.late,
      keep,
    });
  }

  async listDirectory(params: ListParams, options: RunOptions = {}): Promise<ListDirectoryResult> {
    return new Listing(this.paths, params, options.signal ?? NEVER, this.forbidden).run();
  }
}

function readResult({ path, start_line: start, end_line: end }: ReadParams, data: Buffer): ReadFileResult {
  const { encoding, text } = readContent(data, path);
  const base = { success: true, error: null, encoding, size: data.length };
  if (start === null && end === null) {
    const total = encoding === "base64" ? null : countLines(text);
    return { ...base, content: text, start_line: null, end_line: null, total_lines: total };
  }
  if (encoding === "base64") {
    throw new InvalidParameters(`${repr(path)} has no lines: it is a PDF or a picture.`, "Leave out the range.");
  }
  const first = start ?? 1;
  if (end !== null && end < first) {
    throw new InvalidParameters(`end_line ${end} comes before start_line ${first}.`);
  }
  const cut = cutLines(text, first, end);
  if (cut.first > Math.max(cut.total, 1)) {
    const count = cut.total === 1 ? "1 line" : `${cut.total} lines`;
    throw new ToolFailure(`${repr(path)} has ${count}; there is no line ${cut.first}.`);
  }
  return { ...base, content: cut.text, start_line: cut.first, end_line: cut.last, total_lines: cut.total };
}
