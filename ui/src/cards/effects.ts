// What a call left behind, in sentences: the files it changed, what a person should know of them, and what held it while
// it ran. All of it is told by the machine that ran it, and none of it is believed to have a shape.

import { oneLine, shortened } from "../text/visible";
import { counted } from "../text/words";
import { type Fields, fieldsOf, listOf, numberOf, textOf, textsOf } from "./reading";

const NAMED = 5;
const SHORT = 120;
const MOST_WARNINGS = 20;

export interface Changed {
  path: string;
  change: string;
}

/** The files a result names as changed. */
export function changedFiles(result: Fields): Changed[] {
  return listOf(result.changed)
    .map(fieldsOf)
    .flatMap((each) => {
      const path = textOf(each.path);
      return path === null ? [] : [{ path, change: oneLine(textOf(each.change) ?? "changed") }];
    });
}

export function changedCount(result: Fields): number {
  return Math.max(changedFiles(result).length, numberOf(result.changed_count) ?? 0);
}

// Between quotes where it is no plain word, so that one name cannot pass for two.
export const quoted = (path: string) =>
  /^[\w@%+=:./-]+$/.test(path) ? path : `'${oneLine(path).replaceAll("'", "\\'")}'`;

/** Which files changed, on one line; empty where none did. */
export function changedLine(result: Fields): string {
  const count = changedCount(result);
  if (count === 0) return "";
  const names = changedFiles(result)
    .slice(0, NAMED)
    .map(({ path, change }) => shortened(quoted(path), SHORT) + (change === "changed" ? "" : ` (${change})`));
  if (count > names.length) names.push(`${count - names.length} more`);
  return `changed ${counted(count, "file")}: ${names.join(", ")}`;
}

/** What a person should know, such as that a changed file runs later. */
export function warnings(result: Fields): string[] {
  return textsOf(result.warnings)
    .slice(0, MOST_WARNINGS)
    .map((each) => shortened(oneLine(each), 1000));
}

/** Everything that is weaker than full isolation, in sentences; nothing where nothing is. */
export function weaknesses(result: Fields): string[] {
  const isolation = fieldsOf(result.isolation);
  if (Object.keys(isolation).length === 0) return [];
  const told = textsOf(isolation.degraded).slice(0, MOST_WARNINGS).map(oneLine);
  if (bare(isolation)) return ["It ran without isolation.", ...told];
  if (isolation.backend !== "bwrap") return [`It was held by ${oneLine(String(isolation.backend))} alone.`, ...told];
  return told;
}

export function bare(isolation: Fields): boolean {
  return isolation.isolated === false || isolation.backend === "none";
}

/** The first words of it, for a card that is closed. */
export function isolationLine(result: Fields): string {
  const told = weaknesses(result);
  if (told.length === 0) return "";
  const first = shortened((told[0] ?? "").split(/: |\. |\.$/)[0] ?? "", SHORT);
  const more = told.length > 1 ? ` (${told.length - 1} more)` : "";
  return bare(fieldsOf(result.isolation))
    ? `${first}${more}`
    : `Isolation is weaker than it should be: ${first}${more}`;
}

/** What held it, for the opened card: the backend, the file system, the network. */
export function isolationFacts(result: Fields): string {
  const isolation = fieldsOf(result.isolation);
  if (Object.keys(isolation).length === 0 || bare(isolation)) return "";
  const net = isolation.net === "none" ? "no network" : isolation.net === "host" ? "with the network" : "";
  return [`held by ${oneLine(String(isolation.backend))}`, net].filter(Boolean).join(", ");
}
