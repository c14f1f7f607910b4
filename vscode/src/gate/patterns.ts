// Regular expressions of the tables, with Python's ways to use them. Each is compiled when it is first used, and matched
// from the beginning, at a place, or anywhere, as its user says.

import { patternSource } from "./tables.js";

export type Groups = Readonly<Record<string, string | undefined>>;

export interface Match {
  readonly text: string;
  readonly start: number;
  readonly end: number;
  readonly groups: Groups;
  /** Where a group that took part begins. */
  span(group: string): number;
}

export class Pattern {
  #whole: RegExp | undefined;
  #sticky: RegExp | undefined;
  #anywhere: RegExp | undefined;

  constructor(readonly source: string) {}

  /** Whether all of a text fits. */
  fits(text: string): boolean {
    return this.fullmatch(text) !== undefined;
  }

  fullmatch(text: string): Match | undefined {
    this.#whole ??= new RegExp(`^(?:${this.source})$`, "ud");
    return matched(this.#whole.exec(text));
  }

  /** A match that begins at a place. */
  match(text: string, at = 0): Match | undefined {
    this.#sticky ??= new RegExp(this.source, "udy");
    this.#sticky.lastIndex = at;
    return matched(this.#sticky.exec(text));
  }

  /** The first match at or behind a place. */
  search(text: string, at = 0): Match | undefined {
    const anywhere = this.#global();
    anywhere.lastIndex = at;
    return matched(anywhere.exec(text));
  }

  *all(text: string): Generator<Match> {
    for (const found of text.matchAll(this.#global())) {
      yield matched(found) as Match;
    }
  }

  sub(text: string, replacement: (match: Match) => string): string {
    let done = 0;
    let result = "";
    for (const match of this.all(text)) {
      result += text.slice(done, match.start) + replacement(match);
      done = match.end;
    }
    return done === 0 ? text : result + text.slice(done);
  }

  split(text: string): string[] {
    return text.split(this.#global());
  }

  #global(): RegExp {
    this.#anywhere ??= new RegExp(this.source, "udg");
    this.#anywhere.lastIndex = 0;
    return this.#anywhere;
  }
}

function matched(found: RegExpExecArray | null): Match | undefined {
  if (found === null) {
    return undefined;
  }
  const [text] = found;
  const span = (group: string) => found.indices?.groups?.[group]?.[0] ?? found.index;
  return { text, start: found.index, end: found.index + text.length, groups: found.groups ?? {}, span };
}

const MADE = new Map<string, Pattern>();

/** The pattern with this source, made once. */
export function patternOf(source: string): Pattern {
  let made = MADE.get(source);
  if (made === undefined) {
    made = new Pattern(source);
    MADE.set(source, made);
  }
  return made;
}

/** A pattern of the tables by its name. */
export function pattern(name: string): Pattern {
  return new Pattern(patternSource(name));
}
