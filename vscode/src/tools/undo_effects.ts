// What a command left behind, told with its result: the files it changed, and which of them run later. A command runs
// between two looks at the workspace; one that only reads needs none. A cancelled or timed-out command is looked at too,
// before the call ends. A look that fails costs the record, not the command: the result says so. Nothing is decided here.

import type { ExecuteCommandResult, FileChange } from "@protocol";
import { maskText, trustedName } from "../gate/index.js";
import type { CommandParams } from "./CommandExecutor.js";
import { ExecutionTimeout, isOsError, systemWords } from "./errors.js";
import { fnmatch } from "./fnmatch.js";
import { startsNothing } from "./git_words.js";
import type { RunningCommand, UndoRecorder } from "./undo_recorder.js";
import type { Change } from "./undo_states.js";
import { firstCharacters, repr, TABLES, visibleName } from "./words.js";

const MAX_WARNINGS = 20;
const MAX_SUMMARY = 200;

interface Later {
  readonly byPath: boolean;
  readonly fits: (name: string) => boolean;
  readonly because: string;
}

let table: readonly Later[] | undefined;

/** Who runs a file, and when: globs on the name, or on the whole path where they hold a '/'. Case does not count. */
function laters(): readonly Later[] {
  table ??= (TABLES.runs_later as [string, string][]).flatMap(([globs, because]) =>
    globs.split(" ").map((glob) => ({ byPath: glob.includes("/"), fits: fnmatch(glob.toLowerCase()), because })),
  );
  return table;
}

/** Who runs or obeys the file at a path, and when. */
export function runsLater(path: string): string | undefined {
  const whole = path.toLowerCase();
  const name = whole.slice(whole.lastIndexOf("/") + 1);
  const found = laters().find(({ byPath, fits }) => fits(byPath ? `/${whole}` : name));
  return found?.because ?? trustedName(path);
}

/** Run a command, and tell what it changed. */
export async function recorded(
  recorder: UndoRecorder,
  id: string,
  { args, command }: CommandParams,
  run: () => Promise<ExecuteCommandResult>,
  signal?: AbortSignal,
): Promise<ExecuteCommandResult> {
  if (startsNothing([command, ...args])) {
    return run(); // it has the workspace read-only
  }
  const summary = firstCharacters(maskText([command, ...args].map(quoted).join(" ")), MAX_SUMMARY);
  let running: RunningCommand;
  try {
    running = await recorder.begin(id, summary, signal);
  } catch (error) {
    if (!isOsError(error)) {
      throw error;
    }
    return withWarnings(await run(), [unrecorded(error)]);
  }
  let result: ExecuteCommandResult;
  try {
    result = await run();
  } catch (error) {
    if (error instanceof ExecutionTimeout && error.partial !== null) {
      throw new ExecutionTimeout(error.message, error.hint, await ended(recorder, running, error.partial));
    }
    await recorder.end(running).catch(() => {});
    throw error;
  }
  return ended(recorder, running, result);
}

async function ended(
  recorder: UndoRecorder,
  running: RunningCommand,
  result: ExecuteCommandResult,
): Promise<ExecuteCommandResult> {
  try {
    await recorder.end(running);
  } catch (error) {
    if (!isOsError(error)) {
      throw error;
    }
    return withWarnings(withEffects(result, running.changes), [unrecorded(error)]);
  }
  return withWarnings(withEffects(result, running.changes), running.notes);
}

/** The result with what the command changed. */
function withEffects(result: ExecuteCommandResult, changes: ReadonlyMap<string, Change>): ExecuteCommandResult {
  const files = [...changes]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .flatMap(([path, change]) => fileChange(path, change));
  const changed = files.slice(0, TABLES.max_changes);
  return withWarnings({ ...result, changed, changed_count: files.length }, warningsOf(files));
}

function fileChange(path: string, [before, after]: Change): FileChange[] {
  if ([before, after].every((state) => state === null || state.kind === "directory")) {
    return []; // what lies in it tells more
  }
  const change = before === null ? "created" : after === null ? "deleted" : "changed";
  return [{ path: visibleName(path), change }];
}

/** Which of the files run later, in plain words. */
function warningsOf(files: readonly FileChange[]): string[] {
  const found = files.flatMap(({ change, path }) => {
    const because = change === "deleted" ? undefined : runsLater(path);
    return because === undefined ? [] : [`The command ${change} ${repr(path)}. ${because}`];
  });
  const left = found.length - MAX_WARNINGS;
  return left <= 0
    ? found
    : [...found.slice(0, MAX_WARNINGS), `It changed ${left} more files that other programs run or obey later.`];
}

function withWarnings(result: ExecuteCommandResult, warnings: readonly string[]): ExecuteCommandResult {
  return { ...result, warnings: [...(result.warnings ?? []), ...warnings] };
}

function unrecorded(error: unknown): string {
  return `What the command changed was not recorded (${systemWords(error)}), so it cannot be undone.`;
}

/** A word as a shell would need it: for a line that people read. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
