// What the gate says of a call: a level, and findings a person can read. A verdict is the strictest of its findings, so
// combining is taking the highest; there is no other way to combine.

import type { Level } from "./tables.js";

export type { Level } from "./tables.js";

const RANKS: Readonly<Record<Level, number>> = { LOW: 0, MEDIUM: 1, HIGH: 2, REFUSE: 3 };

/** One reason for a level, in words a person understands. */
export interface Finding {
  readonly level: Level;
  readonly reason: string;
  /** Which rule found it: `commands.find.-delete`, `paths.outside`, … */
  readonly rule: string;
  /** What an agent could do instead. */
  readonly instead?: string | undefined;
  /** Asked about in `full` mode too. */
  readonly alwaysAsks?: boolean | undefined;
}

/** How a table read a line. */
export interface Understood {
  readonly command: string;
  readonly options: readonly (readonly [string, string | null])[];
  readonly operands: readonly string[];
  readonly subcommand?: Understood;
}

/** The gate's answer for one call. */
export interface Verdict {
  readonly level: Level;
  /** Strictest first; never empty. */
  readonly findings: readonly Finding[];
  /** Whether what would run needs the network; an approval then grants it. */
  readonly network: boolean;
  /** With REFUSE: `invalid` for a malformed call, `refused` for a well-formed one that may not run. */
  readonly errorType: "invalid" | "refused" | null;
  readonly understood: Understood | null;
  /** The owner's rule that waives the question this level alone would ask. */
  readonly waivedBy: string | null;
  /** Files of the workspace whose content would run: an approval shows them and is bound to them. */
  readonly runs: readonly string[];
}

export function rank(level: Level): number {
  return RANKS[level];
}

export function strictest(...levels: Level[]): Level {
  return levels.reduce((one, other) => (RANKS[other] > RANKS[one] ? other : one));
}

export function alwaysAsks(verdict: Verdict): boolean {
  return verdict.findings.some((finding) => finding.alwaysAsks === true);
}

/** What a refused agent is told. */
export function message(verdict: Verdict): string {
  return verdict.findings[0]?.reason ?? "";
}

/** Combine findings: the strictest decides. */
export function verdictOf(
  findings: readonly Finding[],
  more: Partial<Omit<Verdict, "findings" | "level">> = {},
): Verdict {
  const ordered = findings.toSorted((one, other) => RANKS[other.level] - RANKS[one.level]);
  const level = ordered[0]?.level ?? "REFUSE";
  return {
    level,
    findings: ordered,
    network: more.network ?? false,
    errorType: more.errorType ?? (level === "REFUSE" ? "refused" : null),
    understood: more.understood ?? null,
    waivedBy: more.waivedBy ?? null,
    runs: more.runs ?? [],
  };
}
