// The gate's tables as the Python source has them, generated into tables.json. What each command's options and operands
// mean, the lists and limits, and every regular expression. Nothing here judges; an entry that is missing is an error.

import data from "./tables.json";

export type Level = "LOW" | "MEDIUM" | "HIGH" | "REFUSE";
export type Style = "gnu" | "find" | "tar" | "echo" | "prefix" | "config" | "single" | "apart";
/** What a value is: text, a path that is read, a program … */
export type Kind = string;

/** One option under one of its names. */
export interface Option {
  readonly name: string;
  /** Undefined: it takes no value. */
  readonly kind?: Kind;
  readonly glued_only?: boolean;
  readonly level?: Level;
  readonly because?: string;
  readonly instead?: string;
  readonly network?: boolean;
  readonly always_asks?: boolean;
  readonly stops?: boolean;
  readonly offline_with?: readonly string[];
  readonly until?: boolean;
  readonly unless?: string;
  readonly never?: string;
  readonly never_because?: string;
  readonly operands?: Kind;
  readonly same_as?: string;
}

interface TableFields {
  readonly name: string;
  readonly does: string;
  readonly level: Level;
  readonly style: Style;
  readonly operands?: readonly Kind[];
  readonly repeats?: boolean;
  readonly least?: number;
  readonly lacking?: string;
  readonly lacking_level?: Level;
  readonly answers?: readonly string[];
  readonly most?: number;
  readonly beyond?: string;
  readonly first_given_by?: readonly string[];
  readonly last?: Kind;
  readonly last_given_by?: readonly string[];
  readonly never?: string;
  readonly never_because?: string;
  readonly digits?: string;
  readonly plus_follows?: boolean;
  readonly dashes_end?: boolean;
  readonly equals?: boolean;
  readonly stops_at_operand?: boolean;
  readonly because?: string;
  readonly instead?: string;
  readonly network?: boolean;
  readonly always_asks?: boolean;
  readonly after?: Kind;
  readonly settings?: readonly string[];
}

/** What is known of one command or subcommand. */
export interface CommandTable extends Omit<TableFields, "options"> {
  readonly options: ReadonlyMap<string, Option>;
  readonly longNames: readonly string[];
  readonly modules: ReadonlyMap<string, Option>;
  readonly subs: ReadonlyMap<string, CommandTable>;
}

interface RawTable extends TableFields {
  readonly options: readonly (number | string)[];
  readonly modules?: Readonly<Record<string, number>>;
  readonly subs?: Readonly<Record<string, RawTable | string>>;
}

export interface NameGroup {
  readonly because?: string;
  readonly directories?: readonly string[];
  readonly files?: readonly string[];
  readonly patterns?: readonly string[];
  readonly paths?: readonly string[];
}

export interface SecretGroup extends NameGroup {
  readonly data_stems: readonly string[];
  readonly data_endings: readonly string[];
  readonly never: readonly string[];
  readonly never_endings: readonly string[];
}

/** A secret that is known by its form; with `part`, the group g1 is what is masked. */
export interface Format {
  readonly where: "key" | "place" | "word";
  readonly kind: string;
  readonly needle: string;
  readonly pattern: string;
  readonly part?: boolean;
  readonly also?: string;
  readonly sign?: string;
}

/** The form of one parameter. */
export interface Parameter {
  readonly type: "string" | "integer" | "boolean" | "array";
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly enum?: readonly string[];
  readonly nullable?: boolean;
  readonly default?: string | number | boolean | null;
}

export interface ParameterForm {
  readonly required: readonly string[];
  readonly fields: Readonly<Record<string, Parameter>>;
}

interface Data {
  readonly patterns: Readonly<Record<string, string>>;
  readonly values: Readonly<Record<string, unknown>>;
  readonly parameters: Readonly<Record<string, ParameterForm>>;
  readonly names: {
    readonly protected: readonly NameGroup[];
    readonly trusted: readonly NameGroup[];
    readonly secrets: SecretGroup;
  };
  readonly casefold: Readonly<Record<string, string>>;
  readonly formats: readonly Format[];
  readonly options: readonly Omit<Option, "name">[];
  readonly commands: Readonly<Record<string, RawTable>>;
}

const DATA = data as unknown as Data;

export const NAMES = DATA.names;
export const FORMATS = DATA.formats;
export const CASEFOLD: ReadonlyMap<string, string> = new Map(Object.entries(DATA.casefold));
/** The parameters of each tool, in the order of the catalogue. */
export const PARAMETERS: ReadonlyMap<string, ParameterForm> = new Map(Object.entries(DATA.parameters));

function value(name: string): unknown {
  if (!Object.hasOwn(DATA.values, name)) {
    throw new Error(`The gate's tables have no ${name}.`);
  }
  return DATA.values[name];
}

export function numberOf(name: string): number {
  return value(name) as number;
}

export function textOf(name: string): string {
  return value(name) as string;
}

export function listOf(name: string): readonly string[] {
  return value(name) as readonly string[];
}

export function setOf(name: string): ReadonlySet<string> {
  return new Set(listOf(name));
}

export function mapOf<T>(name: string): ReadonlyMap<string, T> {
  return new Map(Object.entries(value(name) as Record<string, T>));
}

/** The source of a regular expression, for the flag `u`. */
export function patternSource(name: string): string {
  const source = DATA.patterns[name];
  if (source === undefined) {
    throw new Error(`The gate's tables have no pattern ${name}.`);
  }
  return source;
}

const BUILT = new Map<string, CommandTable>();

/** The table of a command; built when it is first asked for. */
export function commandTable(name: string): CommandTable | undefined {
  const built = BUILT.get(name);
  if (built !== undefined || !Object.hasOwn(DATA.commands, name)) {
    return built;
  }
  const table = build(DATA.commands[name] as RawTable);
  BUILT.set(name, table);
  return table;
}

export function commandNames(): string[] {
  return Object.keys(DATA.commands);
}

function build(raw: RawTable): CommandTable {
  const { options: grouped, modules: named, subs: below, ...fields } = raw;
  const options = new Map<string, Option>();
  for (let at = 0; at < grouped.length; at += 2) {
    for (const name of String(grouped[at + 1]).split(" ")) {
      options.set(name, option(name, Number(grouped[at])));
    }
  }
  const subs = new Map<string, CommandTable>();
  for (const [name, sub] of Object.entries(below ?? {})) {
    const table = typeof sub === "string" ? (subs.get(sub) as CommandTable) : build(sub);
    subs.set(name, typeof sub === "string" ? { ...table, name: `${raw.name} ${name}` } : table);
  }
  return {
    ...fields,
    options,
    longNames: [...options.keys()].filter((name) => name.startsWith("--")).sort(),
    modules: new Map(Object.entries(named ?? {}).map(([name, kind]) => [name, option(name, kind)])),
    subs,
  };
}

function option(name: string, kind: number): Option {
  const fields = DATA.options[kind];
  if (fields === undefined) {
    throw new Error(`The gate's tables have no option of kind ${kind}.`);
  }
  return { name, ...fields };
}
