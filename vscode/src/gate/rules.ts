// Whether a rule's pattern fits a call. Strictly, for what loosens: the line must begin with the rule's words, one for
// one, and a path must be spelled plainly. Leniently, for what tightens: any way of looking at the call counts, and what
// only may fit is said to fit perhaps.

import { type Call, FILE_TOOLS } from "./calls.js";
import { directoryOf, firstFixed, pathAbove, pathFits, pathFitsCarelessly } from "./globs.js";
import { normalPath } from "./strings.js";

export { callOf } from "./calls.js";

/** How sure it is that a call is one of those a rule is about. */
export const Fit = { NO: 0, PERHAPS: 1, YES: 2 } as const;
export type Fit = (typeof Fit)[keyof typeof Fit];

type Words = readonly (readonly string[])[];

/** Which calls a rule is about. Empty parts do not narrow it. */
export class Pattern {
  constructor(
    readonly tool: string | null,
    /** Words the line begins with; each may have alternatives. */
    readonly command: Words = [],
    /** Any of these options, anywhere. For rules that tighten. */
    readonly options: readonly string[] = [],
    readonly paths: readonly string[] = [],
  ) {}

  /** For an allow: every part must fit plainly. */
  fitsStrictly(call: Call): boolean {
    if (this.options.length > 0 || (this.tool !== null && this.tool !== call.tool)) {
      return false;
    }
    if (this.command.length > 0 && (call.tool !== "execute_command" || !begins(call.argv, this.command, false))) {
      return false;
    }
    const { path } = call;
    return this.paths.length === 0 || (path !== null && this.paths.some((glob) => pathFits(glob, path)));
  }

  /** For an ask or a deny: any way of looking at the call counts, and the least sure part decides. */
  fit(given: Call): Fit {
    if (this.tool !== null && this.tool !== given.tool) {
      return Fit.NO;
    }
    const also = given.also;
    const other = also !== null && this.command[0]?.includes(also.argv[0] ?? "") === true;
    const call = other ? also : given;
    const sure = this.command.length > 0 ? this.#commandFit(call) : Fit.YES;
    if (sure !== Fit.NO && this.options.length > 0 && !hasOption(this.options, call.options)) {
      return Fit.NO;
    }
    if (sure === Fit.NO || this.paths.length === 0) {
      return sure;
    }
    return Math.min(sure, ...[Math.max(...this.paths.map((glob) => pathFit(glob, call)))]) as Fit;
  }

  #commandFit(call: Call): Fit {
    const { command } = this;
    if (call.tool !== "execute_command" || !command[0]?.includes(call.argv[0] ?? "")) {
      return Fit.NO;
    }
    if (begins(call.argv, command, true) || begins(call.words, command, true)) {
      return Fit.YES;
    }
    const skipping = beginsSkipping(call.argv, command);
    const aboutOptions = command.slice(1).some((words) => words.some((word) => word.startsWith("-")));
    if (aboutOptions && (skipping || beginsSkipping(call.spelled, command))) {
      return Fit.YES;
    }
    if (skipping) {
      return call.read ? Fit.PERHAPS : Fit.YES;
    }
    return call.doubtful ? Fit.PERHAPS : Fit.NO;
  }
}

function pathFit(glob: string, call: Call): Fit {
  const first = firstFixed(glob);
  if (first === undefined || call.firsts.has(first)) {
    if (call.mentions.some((mention) => pathFitsCarelessly(glob, mention))) {
      return Fit.YES;
    }
    if (call.mentions.some((mention) => directoryOf(mention, glob))) {
      // A file tool's path is a path; a word of a command may be anything.
      return FILE_TOOLS.has(call.tool) ? Fit.YES : Fit.PERHAPS;
    }
    if (call.hints.some((hint) => pathFitsCarelessly(glob, hint))) {
      return Fit.PERHAPS;
    }
  }
  return call.reach.some((top) => pathAbove(top, glob)) ? Fit.PERHAPS : Fit.NO;
}

function begins(words: readonly string[], command: Words, loosely: boolean): boolean {
  return command.every((wanted, index) => {
    const word = words[index];
    if (word === undefined) {
      return false;
    }
    return wanted.includes(word) || (loosely && word.includes("/") && wanted.includes(normalPath(word)));
  });
}

/** Whether the line begins so when options, each with or without a value, may stand between the words. */
function beginsSkipping(words: readonly string[], command: Words): boolean {
  const [opening] = words;
  if (opening === undefined || !command[0]?.includes(opening)) {
    return false;
  }
  let places = new Set([1]);
  for (const wanted of command.slice(1)) {
    const reached = new Set<number>();
    for (const place of places) {
      behindOptions(words, place, reached);
    }
    places = new Set([...reached].filter((at) => wanted.includes(words[at] ?? "")).map((at) => at + 1));
  }
  return places.size > 0;
}

function behindOptions(words: readonly string[], place: number, reached: Set<number>): void {
  const waiting = [place];
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    if (reached.has(at)) {
      continue;
    }
    reached.add(at);
    if (words[at]?.startsWith("-")) {
      waiting.push(at + 1, at + 2);
    }
  }
}

function hasOption(wanted: readonly string[], given: readonly string[]): boolean {
  return wanted.some((one) => given.some((other) => isOption(one, other)));
}

function isOption(wanted: string, given: string): boolean {
  if (given === wanted) {
    return true;
  }
  // `--forc` may be read as `--force`.
  const spelled = given.replaceAll("_", "-");
  return wanted.startsWith("--") && spelled.length > 2 && spelled.startsWith("--") && wanted.startsWith(spelled);
}
