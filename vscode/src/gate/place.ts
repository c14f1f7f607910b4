// Where a value of a command line stood, and findings about it.

import type { CommandTable, Level } from "./tables.js";
import type { Finding } from "./verdicts.js";

export class Place {
  constructor(
    readonly table: CommandTable,
    readonly workspace: string | null,
    /** The option it belongs to; null for an operand. */
    readonly option: string | null = null,
  ) {}

  finding(level: Level, reason: string, instead?: string, alwaysAsks = false): Finding {
    const rule = `commands.${this.table.name.replaceAll(" ", ".")}.${this.option || "operand"}`;
    return { level, reason, rule, instead, alwaysAsks };
  }
}

export type Judge = (value: string, place: Place) => readonly Finding[];

export const NOTHING: readonly Finding[] = [];
