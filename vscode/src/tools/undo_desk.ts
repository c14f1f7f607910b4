// Undoing for a person, at this machine or elsewhere: the plan as the protocol says it, and carrying out exactly that one.
// `look` shows what an undo would do, with texts masked and bounded; `carryOut` plans again while no call runs, and acts
// only when its digest is the one that was shown and nothing stands against it. What the owner's rules deny is never
// written: it counts as lost, and is not shown.

import { createHash } from "node:crypto";
import type { ShownChange, UndoPlan } from "@protocol";
import { directoryOf } from "../gate/globs.js";
import { maskText, pathFitsCarelessly, secretName } from "../gate/index.js";
import { CallerError } from "./errors.js";
import type { Clock } from "./ports.js";
import type { Restorer } from "./restoring.js";
import type { Plan, Step, UndoHistory } from "./undo_history.js";
import type { Entry } from "./undo_list.js";
import type { UndoRecorder } from "./undo_recorder.js";
import type { State } from "./undo_states.js";
import {
  changeKind,
  GIT_STAYS,
  isGit,
  modeWords,
  NO_TEXT,
  reasons,
  SECRET,
  sameContent,
  textIn,
  whyNot,
} from "./undo_words.js";
import { firstCharacters, repr, visibleName } from "./words.js";

const MAX_SHOWN_TEXT = 256 * 1024;
const MAX_FILES = 200;
/** Most characters of all texts in one plan. */
const MAX_PLAN_TEXT = 2 * 1024 * 1024;
/** Texts that are not ready by then are not shown. */
const TEXT_TIME = 2_000;
/** How long the end of a call that runs is waited for: a write is over soon, a command need not be. */
const PATIENCE = 3_000;
const MAX_TOLD = 1000;
const MAX_PATH = 4096;
const MAX_NOTES = 50;
const IDENTIFIER = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;
const DENIED = "the rules deny it, so it stays as it is";
const NOT_READ = "not shown: the rules deny reading it";
const TOO_MUCH = "not shown: there is too much in all";
const MASKED = "it differs only in what is masked here";

/** A plan that is not carried out; it is told with the reason. */
export class UndoRefused extends CallerError {
  constructor(
    message: string,
    readonly plan: UndoPlan,
    hint: string | null = null,
  ) {
    super(message, hint);
  }
}

/** A file that an agent changed, for a list. */
export interface ChangedFile {
  readonly toolId: string;
  readonly path: string;
  readonly kind: ShownChange["kind"];
  /** In milliseconds since 1970. */
  readonly at: number;
}

/** A call that was undone, and can be had back. */
export interface UndoneCall {
  readonly undoId: string;
  readonly paths: readonly string[];
  /** In milliseconds since 1970. */
  readonly at: number;
}

/** Paths that the server's own rules deny, by tool; the owner's are added. */
export type KeepOff = Readonly<Record<string, readonly string[]>>;

type Forbids = (path: string, tool: string) => boolean;

/** How an undo ended. */
export interface Outcome {
  /** Under which it can be taken back; null where it changed nothing. */
  readonly undoId: string | null;
  readonly paths: number;
  /** False: it was stopped in the middle. */
  readonly finished: boolean;
}

export interface DeskParts {
  readonly recorder: UndoRecorder;
  readonly history: UndoHistory;
  readonly restorer: Restorer;
  readonly clock: Clock;
  /** Whether the owner's rules deny a path to a tool. */
  readonly forbids: Forbids;
}

/** Plans and carries out undos in one workspace. */
export class UndoDesk {
  readonly #listeners = new Set<() => void>();

  constructor(private readonly parts: DeskParts) {}

  /** Called whenever what was changed is another list; the function that is given ends that. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  changed(): void {
    for (const listener of [...this.#listeners]) {
      listener();
    }
  }

  /** Files that calls changed and nobody took back, the newest first. */
  files(): ChangedFile[] {
    const { list } = this.parts.recorder;
    const entries = list.entries();
    const undone = list.undoneBy(entries);
    return entries
      .filter(({ done, id, undoes }) => done && undoes === null && !undone.has(id))
      .toReversed()
      .flatMap(({ at, changes, id }) =>
        changes
          .filter(([, before, after]) => before?.kind === "file" || after?.kind === "file")
          .map(([path, before, after]) => ({ toolId: id, path, kind: changeKind(before, after), at })),
      )
      .slice(0, MAX_FILES);
  }

  /** Calls that were undone and not brought back, the newest first. */
  undone(): UndoneCall[] {
    const { list } = this.parts.recorder;
    const entries = list.entries();
    const by = new Set(list.undoneBy(entries).values());
    const calls = new Set(entries.filter(({ undoes }) => undoes === null).map(({ id }) => id));
    return entries
      .filter(({ changes, id, undoes }) => by.has(id) && calls.has(undoes ?? "") && changes.length > 0)
      .toReversed()
      .map(({ at, changes, id }) => ({ undoId: id, paths: changes.map(([path]) => path), at }));
  }

  /** Of each call whose undo stopped in the middle, one file. */
  interrupted(): ChangedFile[] {
    const begun = new Set(this.parts.recorder.list.entries().flatMap(({ done, undoes }) => (done ? [] : [undoes])));
    const byCall = new Map(this.files().map((file) => [file.toolId, file]));
    return [...byCall.values()].filter(({ toolId }) => begun.has(toolId));
  }

  /** What a file held before a call changed it; undefined where there was none, null where it cannot be shown. */
  async before(toolId: string, path: string): Promise<string | null | undefined> {
    const entry = this.parts.recorder.list.get(toolId);
    const found = entry?.changes.find(([name]) => name === path);
    if (found === undefined || found[1] === null) {
      return undefined;
    }
    if (this.parts.forbids(path, "read_file")) {
      return null;
    }
    return textIn(await this.parts.history.content(found[1]), 4 * MAX_SHOWN_TEXT) ?? null;
  }

  /** What undoing a call would do now. Rejects where that cannot be said, as while a call runs. */
  look(toolId: string, keepOff: KeepOff = {}): Promise<UndoPlan> {
    const forbids = this.#forbids(keepOff);
    return this.parts.recorder.gate.alone(PATIENCE, async () => {
      return this.#told(await this.#plan(toolId, forbids), forbids);
    });
  }

  #forbids(keepOff: KeepOff): Forbids {
    const denies = (path: string, tool: string) =>
      keepOff[tool]?.some((glob) => pathFitsCarelessly(glob, path) || directoryOf(path, glob)) ?? false;
    return (path, tool) => this.parts.forbids(path, tool) || denies(path, tool);
  }

  /**
   * Undo a call as it was shown; what was done, and the id under which it can be taken back (null: nothing was). `wanted`
   * is asked right before the first step: what nobody waits for any more is not done.
   */
  async carryOut(
    toolId: string,
    digest: string,
    partial: boolean,
    wanted: () => boolean | Promise<boolean>,
    keepOff: KeepOff = {},
  ): Promise<{ readonly plan: UndoPlan; readonly undoId: string | null }> {
    const done = await this.parts.recorder.gate.alone(PATIENCE, async () => {
      const plan = await this.#plan(toolId, this.#forbids(keepOff));
      const told = await this.#told(plan, null);
      if (told.plan !== digest) {
        const hint = "Look at what it would do now.";
        throw new UndoRefused("Something changed while you decided; nothing was undone.", told, hint);
      }
      const why = whyNot(plan, partial);
      if (why !== undefined) {
        throw new UndoRefused(why, told, plan.conflicts.length > 0 ? null : "Undoing the rest must be asked for.");
      }
      if (!(await wanted())) {
        throw new UndoRefused("Its time was up before it could begin; nothing was undone.", told);
      }
      const undo = await this.parts.restorer.apply(plan);
      return { plan: told, undoId: undoIdOf(undo) };
    });
    this.changed();
    return done;
  }

  /** The last undo of a call that was begun since a moment, in milliseconds since 1970. */
  outcome(toolId: string, since: number): Outcome | undefined {
    const found = this.parts.recorder.list.entries().findLast(({ at, undoes }) => undoes === toolId && at >= since);
    return found && { undoId: undoIdOf(found), paths: found.changes.length, finished: found.done };
  }

  /** The plan, without what the owner's rules keep every tool's hands off. */
  async #plan(toolId: string, forbids: Forbids): Promise<Plan> {
    const { history } = this.parts;
    const entry = history.entry(toolId);
    const plan = await history.plan(entry);
    // Putting back is writing; and what is denied to the call's own tool is not touched in its name either.
    const isDenied = (path: string) => forbids(path, "write_file") || forbids(path, entry.toolName);
    const touched = [...plan.steps.map(({ path }) => path), ...plan.conflicts, ...plan.lost.keys()];
    return {
      ...plan,
      // Also what an interrupted undo left beside such a path is not cleared away.
      entry: { ...entry, changes: entry.changes.filter(([path]) => !isDenied(path)) },
      steps: plan.steps.filter(({ path }) => !isDenied(path)),
      conflicts: plan.conflicts.filter((path) => !isDenied(path)),
      lost: new Map([...plan.lost, ...touched.filter(isDenied).map((path) => [path, DENIED] as const)]),
    };
  }

  // As it is told

  /** `shows`: what is forbidden, where texts are shown; null: none are. */
  async #told(plan: Plan, shows: Forbids | null): Promise<UndoPlan> {
    const until = this.parts.clock.monotonic() + TEXT_TIME;
    const files: ShownChange[] = [];
    let room = MAX_PLAN_TEXT;
    for (const step of byPath(plan.steps).slice(0, MAX_FILES)) {
      // No call runs meanwhile, and texts can be made so that masking takes long.
      room = this.parts.clock.monotonic() < until ? room : 0;
      const change = shows ? await this.#shown(step, room, shows) : outlined(step);
      room -= (change.before?.length ?? 0) + (change.after?.length ?? 0);
      files.push(change);
    }
    return {
      tool_id: plan.entry.id,
      plan: planDigest(plan),
      files,
      total_files: plan.steps.length,
      conflicts: shownPaths(plan.conflicts),
      lost: Object.fromEntries(
        [...plan.lost]
          .sort()
          .slice(0, MAX_FILES)
          .map(([path, why]) => [shownPath(path), shownWords(why)]),
      ),
      left: shownPaths([...plan.left.keys()]),
      notes: notesOf(plan).map(shownWords).slice(0, MAX_NOTES),
      together: plan.entry.together.filter((id) => IDENTIFIER.test(id)).slice(0, MAX_NOTES),
    };
  }

  /** One path with its texts, or with why they are not there. */
  async #shown(step: Step, room: number, forbids: Forbids): Promise<ShownChange> {
    const change = outlined(step);
    const states = [step.now, step.target].filter((state) => state !== null);
    if (states.some(({ kind }) => kind !== "file") || sameContent(step)) {
      return change;
    }
    if (secretName(step.path)) {
      return noted(change, SECRET);
    }
    if (forbids(step.path, "read_file")) {
      return noted(change, NOT_READ);
    }
    if (room <= 0) {
      return noted(change, TOO_MUCH);
    }
    const [before, after] = [await this.#masked(step.now), await this.#masked(step.target)];
    if (before === undefined || after === undefined) {
      return noted(change, NO_TEXT);
    }
    if ((before?.length ?? 0) + (after?.length ?? 0) > room) {
      return noted(change, TOO_MUCH);
    }
    return { ...(before === after ? noted(change, MASKED) : change), before, after };
  }

  /** A text with its secrets masked; null where there is no file, undefined where there is no text to show. */
  async #masked(state: State | null): Promise<string | null | undefined> {
    if (state === null) {
      return null;
    }
    const text = textIn(await this.parts.history.content(state), MAX_SHOWN_TEXT);
    const masked = text === undefined ? undefined : maskText(text);
    return masked !== undefined && masked.length <= 2 * MAX_SHOWN_TEXT ? masked : undefined;
  }
}

/** Under which it can be taken back; null where it changed nothing. */
function undoIdOf({ changes, id }: Entry): string | null {
  return changes.length > 0 ? id : null;
}

/** A digest of all that a plan would do and leave: the same only while every path is what it was. */
function planDigest({ conflicts, entry, left, lost, steps }: Plan): string {
  const value = {
    id: entry.id,
    steps: byPath(steps).map(({ now, path, target }) => [path, keyOf(now), keyOf(target)]),
    conflicts: [...conflicts].sort(),
    lost: [...lost.keys()].sort(),
    left: [...left.keys()].sort(),
  };
  return createHash("sha256").update(JSON.stringify(value)).digest("hex");
}

/** What a person would call another state: not when it was touched, but what it is. */
function keyOf(state: State | null): unknown[] {
  if (state === null) {
    return [];
  }
  const known = state.digest ?? (state.kind === "file" ? state.stamp : "");
  return [state.kind, state.mode, state.owner, known, state.target ?? ""];
}

/** One path without its texts. */
function outlined(step: Step): ShownChange {
  const note = shownWords(kindWords(step));
  const kind = changeKind(step.now, step.target);
  return { path: shownPath(step.path), kind, before: null, after: null, note: note === "" ? null : note };
}

/** What else there is to say of a path that is no file, or whose mode changes. */
function kindWords(step: Step): string {
  const states = [step.now, step.target].filter((state) => state !== null);
  const words = states.some(({ kind }) => kind !== "file") ? [...new Set(states.map(thing))].join(" becomes ") : "";
  return [words, modeWords(step)].filter((part) => part !== "").join("; ");
}

function thing({ kind, target }: State): string {
  if (kind === "link") {
    return `a link to ${repr(maskText(visibleName(target ?? "")))}`;
  }
  return kind === "file" ? "a file" : kind === "directory" ? "a directory" : "something else";
}

function noted(change: ShownChange, note: string): ShownChange {
  return { ...change, note: shownWords(change.note ? `${change.note}; ${note}` : note) };
}

function notesOf(plan: Plan): string[] {
  const counts: [string, number][] = [
    ["would change", plan.steps.length],
    ["changed since", plan.conflicts.length],
    ["cannot be brought back", plan.lost.size],
  ];
  const more = counts.filter(([, count]) => count > MAX_FILES).map(([what, count]) => `${count} ${what}`);
  return [
    // First: of many notes it must not be among those that are left out.
    ...(more.length > 0 ? [`Not all paths are listed: ${more.join(", ")}.`] : []),
    ...plan.entry.notes,
    ...(plan.left.size > 0 ? [`Left where it is: ${reasons(plan.left)}.`] : []),
    ...(isGit(plan) ? [GIT_STAYS] : []),
  ];
}

function byPath(steps: readonly Step[]): Step[] {
  return steps.toSorted((one, other) => (one.path < other.path ? -1 : 1));
}

function shownPaths(paths: readonly string[]): string[] {
  return [...paths].sort().slice(0, MAX_FILES).map(shownPath);
}

function shownPath(path: string): string {
  return firstCharacters(visibleName(path), MAX_PATH);
}

function shownWords(text: string): string {
  return firstCharacters(visibleName(text), MAX_TOLD);
}
