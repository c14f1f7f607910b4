// Which directories a command may look through, beyond the files its line names. `grep -r x .` opens everything below,
// `cat a.txt` only what it is told. A command that is not listed in the tables may look through everything.

import { once, partition, startsWithAny } from "./strings.js";
import { listOf, mapOf, setOf } from "./tables.js";
import type { Understood } from "./verdicts.js";

const EVERYTHING = ["."];
const NAMES_ONLY = setOf("reach.NAMES_ONLY");
const WALK_WITH = mapOf<readonly string[]>("reach.WALK_WITH");
const GIVE_PATTERN = listOf("reach.GIVE_PATTERN");
const WALK = setOf("reach.WALK");
const RUN_CODE = setOf("reach.RUN_CODE");
const ABOUT_HISTORY = setOf("reach.ABOUT_HISTORY");
const NAMES_IN_A_FILE = new Set(["wc", "sort", "du"]);

/** The directories; none when only named files are opened. */
export function reachOf(
  command: string,
  options: readonly string[],
  operands: readonly string[],
  mentions: readonly string[],
  understood: Understood | null,
): readonly string[] {
  if (RUN_CODE.has(command)) {
    return mentions;
  }
  if (understood === null) {
    return EVERYTHING;
  }
  if (NAMES_IN_A_FILE.has(command) && options.some((option) => option.startsWith("--f"))) {
    return EVERYTHING; // --files0-from: the names are in a file
  }
  if (NAMES_ONLY.has(command)) {
    return [];
  }
  if (command === "git") {
    const sub = understood.subcommand;
    return sub !== undefined && ABOUT_HISTORY.has(partition(sub.command, " ")[2]) ? [] : EVERYTHING;
  }
  const walksWith = WALK_WITH.get(command);
  if (walksWith !== undefined && !options.some((option) => startsWithAny(option, walksWith))) {
    return [];
  }
  return walksWith !== undefined || WALK.has(command) ? walked(command, understood, operands) : EVERYTHING;
}

/** What is walked: the operands, without grep's pattern; the current directory when there are none. */
function walked(command: string, understood: Understood, operands: readonly string[]): readonly string[] {
  const pattern = command === "grep" && !understood.options.some(([spelled]) => GIVE_PATTERN.includes(spelled));
  const kept = pattern ? operands.slice(1) : operands;
  return kept.length > 0 ? once(kept) : EVERYTHING;
}
