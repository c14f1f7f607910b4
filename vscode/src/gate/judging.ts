// Findings over one reading of a command line, and over the reading of its subcommand. It asks the table what each option
// and operand is, and the judges of their kinds what that means. What is not in the table rises; nothing is guessed at.

import { isRemote, judgeValue } from "./arguments.js";
import { read } from "./options.js";
import { quoted } from "./paths.js";
import { patternOf } from "./patterns.js";
import { Place } from "./place.js";
import { Reading, type Said } from "./reading.js";
import { endsWithAny, partition, rpartition, trimEnd } from "./strings.js";
import { type CommandTable, commandTable, type Kind, type Level } from "./tables.js";
import { type Finding, strictest, type Understood } from "./verdicts.js";

const REMOTES: ReadonlySet<Kind> = new Set(["remote", "target", "origin"]);

export function ruleOf(table: CommandTable): string {
  return `commands.${table.name.replaceAll(" ", ".")}`;
}

function base(table: CommandTable): Finding {
  return {
    level: table.level,
    reason: table.because ?? `${table.name} ${table.does}.`,
    rule: ruleOf(table),
    instead: table.instead,
    alwaysAsks: table.always_asks ?? false,
  };
}

function meets(names: readonly string[] | undefined, given: ReadonlySet<string>): boolean {
  return (names ?? []).some((name) => given.has(name));
}

export class LineJudge {
  readonly findings: Finding[] = [];
  network: boolean;
  understood: Understood;
  readonly #place: Place;

  constructor(
    readonly table: CommandTable,
    readonly reading: Reading,
    readonly workspace: string | null,
    /** Options given before the subcommand. */
    readonly given: ReadonlySet<string> = new Set(),
  ) {
    this.network = table.network ?? false;
    this.#place = new Place(table, workspace);
    this.understood = {
      command: table.name,
      options: reading.said.map((said) => [said.spelled, said.value] as const),
      operands: [...reading.operands],
    };
  }

  run(): void {
    const { reading, table } = this;
    const [opening] = reading.operands;
    if (opening === undefined || !table.subs.has(opening)) {
      this.findings.push(base(table));
    }
    for (const said of reading.said) {
      this.#option(said);
    }
    for (const [name, value] of reading.unknown) {
      this.#unknown(name, value);
    }
    if (!(table.subs.size > 0 && this.#subcommand())) {
      this.#operands();
    }
    if (table.subs.size === 0) {
      for (const arg of reading.rest) {
        this.#judge(table.after ?? "loose", arg);
      }
    }
  }

  #judge(kind: Kind, value: string, place = this.#place): void {
    this.findings.push(...judgeValue(kind, value, place));
  }

  #option(said: Said): void {
    const { option, value, spelled } = said;
    const harmless = option.unless !== undefined && value !== null && patternOf(option.unless).fits(value);
    const level = option.level ?? "LOW";
    if ((level !== "LOW" || option.because) && !harmless) {
      const reason = `${spelled}: ${option.because ?? "changes what the command does"}`;
      const rule = `${ruleOf(this.table)}.${option.name}`;
      this.findings.push({ level, reason, rule, instead: option.instead, alwaysAsks: option.always_asks ?? false });
    }
    if (said.abbreviated && spelled !== option.name) {
      const reason = `${spelled} is an abbreviation, perhaps of ${option.name}.`;
      this.findings.push({ level: "MEDIUM", reason, rule: "commands.abbreviated", instead: "spell options in full" });
    }
    if (value !== null && option.kind !== undefined && !harmless) {
      const place = new Place(this.table, this.workspace, spelled);
      if (option.never !== undefined && patternOf(option.never).search(value)) {
        this.findings.push(place.finding("REFUSE", `${spelled}: ${option.never_because}`));
      }
      this.#judge(option.kind, value, place);
      if (option.kind === "module") {
        this.#module(value);
      }
      this.network ||= REMOTES.has(option.kind) && isRemote(value);
    }
    this.network ||= option.network ?? false;
  }

  #module(name: string): void {
    const module = this.table.modules.get(partition(name, ".")[0]);
    const table = module?.same_as === undefined ? undefined : commandTable(module.same_as);
    if (table !== undefined) {
      const inner = new LineJudge(table, read(table, this.reading.rest), this.workspace);
      inner.run();
      this.findings.push(...inner.findings);
      this.network ||= inner.network;
    }
    if (module?.network) {
      const [opening] = this.reading.rest;
      this.network ||= opening === undefined || !(module.offline_with ?? []).includes(opening);
    }
  }

  #unknown(name: string, value: string | null): void {
    const { table } = this;
    const reason = `${quoted(name, 60)} is not an option known of ${table.name}.`;
    this.findings.push({ level: strictest("MEDIUM", table.level), reason, rule: `${ruleOf(table)}.unknown` });
    if (value !== null) {
      this.#judge("tree", value); // it may be written
    }
  }

  /** Judge the first operand as a subcommand; false when it is none and the table goes on by itself. */
  #subcommand(): boolean {
    const { table, reading } = this;
    const [name, ...others] = reading.operands;
    if (name === undefined) {
      return false;
    }
    const sub = table.subs.get(name);
    if (sub !== undefined) {
      this.#inner(sub, table.stops_at_operand ? read(sub, reading.rest) : new Reading(others));
      if (table.style === "config") {
        this.#doubtfulSubcommands();
      }
      return true;
    }
    if (table.name.includes(" ")) {
      return false;
    }
    const rule = `${ruleOf(table)}.subcommand`;
    if (name.includes("/")) {
      const reason = `${quoted(name, 60)} is no subcommand: ${table.name} would run a program of that name.`;
      this.findings.push({ level: "REFUSE", reason, rule });
    }
    const reason = `${quoted(name, 60)} is not a subcommand known of ${table.name}; it may be an alias.`;
    this.findings.push({ level: "HIGH", reason, rule });
    for (const arg of [...reading.operands, ...reading.rest]) {
      this.#judge("loose", arg);
    }
    if (table.style === "config") {
      this.#perhapsMeant(name);
    }
    return true;
  }

  #inner(sub: CommandTable, reading: Reading): void {
    const given = new Set(this.reading.said.map((said) => said.option.name));
    const judge = new LineJudge(sub, reading, this.workspace, given);
    judge.run();
    this.findings.push(...judge.findings);
    this.network ||= judge.network;
    this.understood = { ...this.understood, subcommand: judge.understood };
  }

  /** npm gives an option it does not know the next word; the subcommand is then a later one. */
  #doubtfulSubcommands(): void {
    const swallowed = this.reading.unknown.filter(([, value]) => value === null).length;
    for (const name of this.reading.operands.slice(1, 1 + swallowed)) {
      const sub = this.table.subs.get(name);
      if (sub !== undefined) {
        this.#inner(sub, new Reading());
      }
    }
  }

  /** npm takes `exe` for `exec`, and `true` for the value of a flag before it: the strictest of them decides. */
  #perhapsMeant(name: string): void {
    const { subs } = this.table;
    const meant = [...subs.keys()].filter((full) => name !== "" && full.startsWith(name));
    meant.push(...this.reading.operands.slice(1).filter((word) => subs.has(word)));
    for (const full of meant) {
      this.#inner(subs.get(full) as CommandTable, new Reading());
    }
  }

  #operands(): void {
    const { table, reading } = this;
    const names = new Set([...reading.said.map((item) => item.option.name), ...this.given]);
    const surely = new Set(reading.said.filter((item) => !item.abbreviated).map((item) => item.option.name));
    // Where an option was not understood, which operand is which is not certain either.
    const doubtful = reading.unknown.length > 0 || reading.said.some((item) => item.abbreviated);
    const turned = reading.said.find((item) => item.option.operands !== undefined)?.option.operands;
    const kinds = (table.operands ?? []).slice(meets(table.first_given_by, names) ? 1 : 0);
    let { operands } = reading;
    this.#amount(operands.length, surely);
    if (table.last !== undefined && operands.length > 1 && !meets(table.last_given_by, surely)) {
      operands = operands.slice(0, -1);
    }
    for (const [index, operand] of operands.entries()) {
      const kind = this.#kind(kinds, index, operand);
      const meant = turned !== undefined && kind === "path-read" ? turned : kind;
      this.#operand(meant, operand);
      if (doubtful && meant !== "loose") {
        this.#judge("loose", operand);
      }
    }
    if (table.last !== undefined) {
      this.#destination(table.last);
    }
  }

  #kind(kinds: readonly Kind[], index: number, operand: string): Kind {
    const kind = kinds[index] ?? (this.table.repeats ? kinds.at(-1) : undefined);
    if (kind === undefined) {
      this.#note("MEDIUM", `${quoted(operand, 60)} is one operand more than ${this.table.name} takes.`);
    }
    return kind ?? "loose";
  }

  #amount(count: number, surely: ReadonlySet<string>): void {
    const { table } = this;
    if (count < (table.least ?? 0) && !meets(table.answers, surely)) {
      const reason = table.lacking ?? `Without an operand ${table.name} runs what it is given as input.`;
      this.#note(table.lacking_level ?? "HIGH", reason);
    }
    if (table.most !== undefined && count > table.most) {
      this.#note("HIGH", table.beyond ?? `${table.name} has more operands than are understood.`, true);
    }
  }

  /** Where the other operands go: also the name each would have there, which the command line does not show. */
  #destination(kind: Kind): void {
    const { operands, said } = this.reading;
    const last = operands.at(-1) ?? "";
    let sources = operands.slice(0, -1);
    const named = said.filter((item) => (this.table.last_given_by ?? []).includes(item.option.name));
    let given = named.filter((item) => !item.abbreviated).flatMap((item) => item.value ?? []);
    let shown = false;
    if (given.length > 0) {
      sources = operands;
    } else if (sources.length > 0) {
      given = [last, ...named.flatMap((item) => item.value ?? [])];
      shown = true;
      this.#judge(kind, last);
    }
    const surely = !shown || endsWithAny(last, ["/", "/."]) || last === "." || sources.length > 1;
    for (const place of given) {
      for (const source of sources) {
        const name = `${trimEnd(place, "/") || "."}/${rpartition(trimEnd(source, "/"), "/")[2]}`;
        const found = judgeValue(surely ? kind : "path-make", name, this.#place);
        // `b.txt` is hardly a directory: what would be in it matters only where it is refused
        const counts = surely || !Array.from(place).slice(1).includes(".");
        this.findings.push(...found.filter((item) => counts || item.level === "REFUSE"));
      }
    }
  }

  #operand(kind: Kind, operand: string): void {
    const { never, never_because } = this.table;
    if (never !== undefined && patternOf(never).search(operand)) {
      this.findings.push(this.#place.finding("REFUSE", `${quoted(operand, 80)}: ${never_because}`));
    }
    if (REMOTES.has(kind) && isRemote(operand)) {
      this.network = true;
    }
    this.#judge(kind, operand);
  }

  #note(level: Level, reason: string, alwaysAsks = false): void {
    const rule = `${ruleOf(this.table)}.operands`;
    this.findings.push({ level: strictest(level, this.table.level), reason, rule, alwaysAsks });
  }
}
