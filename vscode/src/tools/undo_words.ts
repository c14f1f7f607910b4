// An undo in words: what becomes of a path, why nothing is undone, what of a file can be shown. The sentences are the
// Python client's. It looks at plans and at bytes it is given, opens nothing and decides nothing about files.

import type { ChangeKind } from "@protocol";
import type { Plan, Step } from "./undo_history.js";
import type { State } from "./undo_states.js";
import { visibleName } from "./words.js";

const MAX_NAMED = 10;
export const SECRET = "not shown: it may hold secrets";
export const NO_TEXT = "not shown: large, or no text";
export const GIT_STAYS = "git's own state (commits, branches, what is staged) is left as it is.";

/** What happens to a path that goes from one state to another. */
export function changeKind(before: State | null, after: State | null): ChangeKind {
  return before === null ? "create" : after === null ? "delete" : "change";
}

/** What becomes of a path's mode; empty where it stays. */
export function modeWords({ now, target }: Step): string {
  return now === null || target === null || now.mode === target.mode || target.kind === "link"
    ? ""
    : `mode ${now.mode.toString(8)} becomes ${target.mode.toString(8)}`;
}

/** Whether a file keeps its content: only its mode goes back. */
export function sameContent({ now, target }: Step): boolean {
  return now !== null && target !== null && now.digest === target.digest;
}

/** Why a plan is not carried out. `partial`: what was not kept may stay as it is. */
export function whyNot({ conflicts, lost }: Plan, partial: boolean): string | undefined {
  if (conflicts.length > 0) {
    return `Changed since this call: ${named(conflicts)}. So nothing was undone.`;
  }
  return lost.size > 0 && !partial
    ? `This cannot be brought back: ${reasons(lost)}. So nothing was undone.`
    : undefined;
}

/** Whether the call was git's, which keeps a state that no undo touches. */
export function isGit({ entry }: Plan): boolean {
  return entry.summary.split(" ", 1)[0] === "git";
}

/** A few names, and how many more. */
function named(names: readonly string[]): string {
  const listed = names.slice(0, MAX_NAMED).map(visibleName).join(", ");
  return names.length > MAX_NAMED ? `${listed} and ${names.length - MAX_NAMED} more` : listed;
}

/** A few paths with why, and how many more. */
export function reasons(paths: ReadonlyMap<string, string>): string {
  return named([...paths].map(([path, why]) => `${path} (${why})`));
}

/** A file's text; undefined where it was not kept, is larger than `most` bytes, or is no text. */
export function textIn(content: Buffer | undefined, most: number): string | undefined {
  if (content === undefined || content.length > most || content.includes(0)) {
    return undefined;
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return undefined;
  }
}
