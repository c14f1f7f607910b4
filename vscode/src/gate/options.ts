// One reader of arguments for every command: from an argv and a table to what was said. It knows clusters (`-nrf`), glued
// and separate values, `--opt=value`, `--`, abbreviations and old styles (`tar xPf`, `head -20`). It decides nothing.

import { readEcho, readFind } from "./expressions.js";
import { pattern } from "./patterns.js";
import { Reading, said, Unreadable } from "./reading.js";
import { partition, withoutPrefix } from "./strings.js";
import { type CommandTable, numberOf, type Option } from "./tables.js";

const DIGITS = pattern("options.DIGITS");
const PLUS_FOLLOWS = pattern("options.PLUS_FOLLOWS");
const OPTION = pattern("options.OPTION");
const MOST_OPTIONS = numberOf("options.MOST_OPTIONS");
const MOST_LETTERS = numberOf("options.MOST_LETTERS");
const DIGIT = /^[0-9]$/;
const NUMBER = /^\p{Nd}+$/u;

/** Read the arguments of one command or subcommand. */
export function read(table: CommandTable, args: readonly string[]): Reading {
  if (table.style === "echo") {
    return readEcho(table, args);
  }
  return table.style === "find" ? readFind(table, args) : new Reader(table, args).read();
}

/** Left to right over one argv. */
class Reader {
  readonly #options: ReadonlyMap<string, Option>;
  readonly #reading = new Reading();
  #at = 0;
  #doubtfulLetters = 0;

  constructor(
    readonly table: CommandTable,
    readonly args: readonly string[],
  ) {
    this.#options = table.options;
  }

  read(): Reading {
    const { table, args } = this;
    const opening = args[0];
    if (table.style === "tar" && opening && !opening.startsWith("-")) {
      this.#at = 1;
      this.#oldCluster(opening);
    }
    while (this.#at < args.length) {
      const arg = args[this.#at] as string;
      this.#at += 1;
      if (arg === "--") {
        if (table.dashes_end === false) {
          continue;
        }
        this.#endOfOptions();
        break;
      }
      const follows = table.plus_follows && PLUS_FOLLOWS.fits(arg) ? this.#options.get("-f") : undefined;
      if (follows !== undefined) {
        this.#reading.said.push(said(follows, arg));
      }
      this.#argument(arg);
    }
    return this.#reading;
  }

  #argument(arg: string): void {
    const { style } = this.table;
    if (arg.length < 2 || !arg.startsWith("-")) {
      this.#reading.operands.push(arg);
      if (this.table.stops_at_operand) {
        this.#stop();
      }
    } else if (style === "single") {
      this.#single(arg);
    } else if (arg.startsWith("--")) {
      this.#long(arg);
    } else if (style === "prefix") {
      this.#prefix(arg);
    } else if (style === "apart") {
      this.#oldCluster(arg.slice(1));
    } else {
      this.#short(arg);
    }
  }

  /** An option that is not known may have taken the `--` for its value; then what follows are options. */
  #perhapsOptions(args: readonly string[]): void {
    let also: Reading;
    try {
      also = new Reader(this.table, args).read();
    } catch (error) {
      if (error instanceof Unreadable) {
        return;
      }
      throw error;
    }
    this.#reading.said.push(...also.said.map((one) => said(one.option, one.option.name, one.value, true)));
  }

  #endOfOptions(): void {
    let remaining = this.args.slice(this.#at);
    const { unknown, operands, rest } = this.#reading;
    if (unknown.length > 0) {
      this.#perhapsOptions(remaining);
    }
    const [opening] = remaining;
    if (this.table.stops_at_operand && opening !== undefined && operands.length === 0) {
      operands.push(opening);
      remaining = remaining.slice(1);
    }
    (this.table.stops_at_operand ? rest : operands).push(...remaining);
    this.#at = this.args.length;
  }

  #stop(): void {
    this.#reading.rest.push(...this.args.slice(this.#at));
    this.#at = this.args.length;
  }

  #next(spelled: string): string {
    const value = this.args[this.#at];
    if (value === undefined) {
      throw new Unreadable(`${spelled} needs a value`);
    }
    this.#at += 1;
    return value;
  }

  /** Note an option with its value: glued, the next argument, or none. */
  #take(option: Option, spelled: string, glued: string | null): void {
    let value = glued;
    if (option.kind === undefined) {
      if (glued !== null && this.table.style !== "config") {
        throw new Unreadable(`${spelled} takes no value`); // npm takes --flag=false
      }
      value = null;
    } else if (glued === null && !option.glued_only) {
      value = this.#next(spelled);
      if (this.table.level !== "LOW" && OPTION.fits(value)) {
        // A version that does not know the option takes this for the next one: it counts as both.
        this.#at -= 1;
      }
    }
    this.#reading.said.push(said(option, spelled, value));
    if (option.stops) {
      this.#stop();
    }
  }

  #long(arg: string): void {
    const [name, equals, value] = partition(arg, "=");
    const glued = equals ? value : null;
    const option = this.#options.get(name) ?? this.#options.get(name.replaceAll("_", "-"));
    if (option === undefined && this.table.style === "config") {
      this.#setting(name, glued);
    } else if (option !== undefined) {
      this.#take(option, name, glued);
    } else {
      this.#meant(name, glued, [name]);
    }
  }

  #meant(name: string, glued: string | null, beginnings: readonly string[]): void {
    const meant = this.table.longNames
      .filter((full) => beginnings.some((one) => full.startsWith(one)))
      .map((full) => this.#options.get(full) as Option);
    if (meant.length > 0) {
      this.#abbreviated(name, glued, meant);
    } else {
      this.#reading.unknown.push([name, glued]);
    }
  }

  /** Every option the abbreviation could stand for counts: the strictest of them decides. */
  #abbreviated(name: string, glued: string | null, meant: readonly Option[]): void {
    const wantsValue = meant.some((option) => option.kind !== undefined && !option.glued_only);
    let value = glued;
    if (value === null && wantsValue && this.#at < this.args.length) {
      // It may swallow the next argument; judged both as the value and, below, as what it looks like.
      value = this.args[this.#at] as string;
      if (meant.every((option) => option.kind !== undefined)) {
        this.#at += 1;
      }
    }
    this.#reading.said.push(...meant.map((option) => said(option, name, option.kind ? value : null, true)));
  }

  /** npm: `--no-x`, `--key=value`, or `--key value` for a key that we do not know. */
  #setting(name: string, glued: string | null): void {
    let folded = name.replaceAll("_", "-").toLowerCase();
    if (folded.endsWith(":registry")) {
      folded = "--registry"; // of one scope
    }
    const option = this.#options.get(folded) ?? this.#options.get(folded.replace("--no-", "--"));
    if (option !== undefined) {
      this.#take(option, name, option.kind ? glued : null);
      return;
    }
    this.#meant(name, glued, [folded, name]);
  }

  /** A cluster: flags, then perhaps one option whose value is the rest or the next argument. */
  #short(arg: string): void {
    const whole = this.#options.get(arg);
    if (whole !== undefined) {
      this.#take(whole, arg, null);
      return;
    }
    if (this.table.digits !== undefined && DIGIT.test(arg.charAt(1)) && this.#digits(arg)) {
      return;
    }
    const letters = Array.from(arg.slice(1));
    if (this.table.style === "config" && !letters.every((letter) => this.#options.has(`-${letter}`))) {
      this.#long(`-${arg}`);
      return;
    }
    this.#cluster(letters);
  }

  #cluster(letters: readonly string[]): void {
    let index = 0;
    while (index < letters.length) {
      if (this.#reading.said.length > MOST_OPTIONS) {
        throw new Unreadable("there are too many options");
      }
      // zip has options of two letters, which go before those of one
      const pair = `-${letters.slice(index, index + 2).join("")}`;
      const two = this.#options.get(pair);
      const letter = two === undefined ? `-${letters[index]}` : pair;
      const option = two ?? this.#options.get(letter);
      const after = index + (two === undefined ? 1 : Math.min(2, letters.length - index));
      if (option === undefined) {
        this.#reading.unknown.push([letter, letters.slice(after).join("") || null]);
        this.#perhaps(letters.slice(after));
        return;
      }
      if (option.kind !== undefined) {
        const behind = letters.slice(after).join("");
        this.#take(option, letter, (this.table.equals ? withoutPrefix(behind, "=") : behind) || null);
        return;
      }
      this.#reading.said.push(said(option, letter));
      index = after;
    }
  }

  /** Behind a letter that is not known: its value, or further letters. What they would mean counts as well. */
  #perhaps(letters: readonly string[]): void {
    this.#doubtfulLetters += letters.length;
    if (this.#doubtfulLetters > MOST_LETTERS) {
      throw new Unreadable("there are too many options that are not known");
    }
    for (const [index, letter] of letters.entries()) {
      const option = this.#options.get(`-${letter}${letters[index + 1] ?? ""}`) ?? this.#options.get(`-${letter}`);
      if (option === undefined) {
        continue;
      }
      let value: string | null = null;
      if (option.kind !== undefined) {
        const following = option.glued_only ? null : (this.args[this.#at] ?? null);
        const behind = letters.slice(index + option.name.length - 1).join("");
        value = withoutPrefix(behind, "=") || following;
      }
      this.#reading.said.push(said(option, option.name, value, true));
      if (option.kind !== undefined) {
        return;
      }
    }
  }

  /** `-20`, `-5q`, `-1f`: a number, then letters that are flags of their own. */
  #digits(arg: string): boolean {
    const found = DIGITS.fullmatch(arg);
    for (const letter of found?.groups.g2 ?? "") {
      if (this.table.digits?.includes(letter)) {
        continue;
      }
      const option = this.#options.get(`-${letter}`);
      if (option === undefined) {
        this.#reading.unknown.push([`-${letter}`, null]);
      } else {
        this.#reading.said.push(said(option, `-${letter}`));
      }
    }
    return found !== undefined;
  }

  /** `tar xPf`: letters first, their values follow in order. */
  #oldCluster(cluster: string): void {
    const letters = Array.from(cluster);
    if (this.#reading.said.length + letters.length > MOST_OPTIONS) {
      throw new Unreadable("there are too many options");
    }
    for (const [index, letter] of letters.entries()) {
      const option = this.#options.get(`-${letter}`);
      const glued = letters.slice(index + 1).join("");
      if (option === undefined) {
        this.#reading.unknown.push([`-${letter}`, null]);
      } else if (option.kind === "number" && NUMBER.test(glued) && this.table.style === "apart") {
        this.#take(option, `-${letter}`, glued); // tree -L2
        return;
      } else if (option.kind === undefined || option.glued_only) {
        this.#reading.said.push(said(option, `-${letter}`));
      } else {
        this.#take(option, `-${letter}`, null);
      }
    }
  }

  /** Go: one dash or two, the value behind `=` or, except for flags, in the next argument. */
  #single(arg: string): void {
    const [spelled, equals, value] = partition(arg, "=");
    const name = spelled.startsWith("--") ? spelled.slice(1) : spelled;
    const option = this.#options.get(name);
    if (option === undefined) {
      this.#reading.unknown.push([name, equals ? value : null]);
    } else if (option.kind === undefined) {
      this.#reading.said.push(said(option, name)); // a flag takes =true and =false
      if (option.stops) {
        this.#stop();
      }
    } else {
      this.#take(option, name, equals ? value : null);
    }
  }

  /** gcc: the whole name, `name=value`, or the longest known name with the value glued on. */
  #prefix(arg: string): void {
    const whole = this.#options.get(arg);
    if (whole !== undefined) {
      this.#take(whole, arg, null);
      return;
    }
    const [name, equals, value] = partition(arg, "=");
    const named = equals ? this.#options.get(name) : undefined;
    if (named?.kind !== undefined) {
      this.#take(named, name, value);
      return;
    }
    const longest = Math.max(0, ...[...this.#options.keys()].map((one) => one.length));
    for (let end = Math.min(arg.length - 1, longest); end > 1; end -= 1) {
      const option = this.#options.get(arg.slice(0, end));
      if (option?.kind !== undefined) {
        this.#take(option, arg.slice(0, end), arg.slice(end));
        return;
      }
    }
    this.#reading.unknown.push([name, equals ? value : null]);
  }
}
