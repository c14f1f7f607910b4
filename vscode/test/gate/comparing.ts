// Holds the TypeScript gate against vectors that the Python one wrote: each function gives what differs, a line each. A
// difference is `weaker` when it lets more pass than Python does; nothing may be, and `other` ones are counted.

import { createHash } from "node:crypto";
import { directoryOf, pathAbove, pathFits, pathFitsCarelessly } from "../../src/gate/globs.js";
import * as gate from "../../src/gate/index.js";
import { splitLine } from "../../src/gate/shell_words.js";
import { canonicalJson } from "../../src/protocol/digests.js";

export type Row = readonly [readonly unknown[], string, (readonly string[])?];

export interface Calls {
  readonly workspace: string;
  readonly allowed: readonly string[] | null;
  readonly isolated: boolean;
  readonly rows: readonly Row[];
}

export interface PolicyCase {
  readonly layers: readonly (readonly [gate.Layer, string, boolean])[];
  readonly error?: string;
  readonly hint?: string | null;
  readonly mode?: string;
  readonly commands?: readonly string[];
  readonly rows?: readonly Row[];
}

/** A text that may hold a made-up secret, in pieces, so that no scanner takes it for a real one. */
type Chunks = readonly string[];

export interface Texts {
  readonly safe: readonly (readonly [string, string, string, string])[];
  readonly masked: readonly (readonly [Chunks, Chunks])[];
  readonly arguments: readonly (readonly [readonly Chunks[], readonly Chunks[]])[];
  readonly words: readonly (readonly [string, readonly string[] | null])[];
  readonly streams: readonly (readonly [readonly Chunks[], readonly Chunks[]])[];
}

export interface Paths {
  readonly workspace: string;
  readonly paths: readonly (readonly [string, string, string, string])[];
  readonly globs: readonly (readonly [string, string, string])[];
}

export interface Differences {
  readonly weaker: string[];
  readonly other: string[];
  compared: number;
}

export function none(): Differences {
  return { weaker: [], other: [], compared: 0 };
}

const RANKS = "LMHR";

/** What Python keeps of a verdict, made from ours. */
export function outcome({ toolName, params, verdict }: gate.Judgement): [string, readonly string[]] {
  const findings = verdict.findings.map((finding) => {
    const reason = finding.rule === "tools.params" ? "" : finding.reason;
    return [finding.level, finding.rule, reason, finding.instead ?? null, finding.alwaysAsks ?? false];
  });
  const seen = [toolName, params, findings, verdict.understood, verdict.waivedBy];
  const digest = createHash("sha256").update(canonicalJson(seen), "ascii").digest("hex").slice(0, 8);
  const flags = [
    gate.alwaysAsks(verdict) ? "a" : "",
    verdict.network ? "n" : "",
    verdict.waivedBy === null ? "" : "w",
    verdict.errorType?.slice(0, 1) ?? "",
  ];
  return [`${verdict.level.slice(0, 1)} ${flags.join("")} ${digest}`, verdict.runs];
}

function compareRow(
  judge: gate.Gate,
  row: Row,
  calls: Pick<Calls, "workspace" | "isolated">,
  found: Differences,
): void {
  const [call, expected, runs = []] = row;
  const isTool = call.length === 2 && typeof call[1] === "object";
  const [name, params] = isTool ? call : ["execute_command", { command: call[0], args: call.slice(1) }];
  const judged = judge.judge(name, params, calls);
  const [got, files] = outcome(judged);
  found.compared += 1;
  const same = got === expected && JSON.stringify(files) === JSON.stringify(runs);
  if (same) {
    return;
  }
  const said = `${JSON.stringify(call).slice(0, 400)}: ${got} ${JSON.stringify(files)}, Python ${expected} ${JSON.stringify(runs)}`;
  const [ours, theirs] = [RANKS.indexOf(got.charAt(0)), RANKS.indexOf(expected.charAt(0))];
  const asked = (text: string) => (text.split(" ")[1] ?? "").includes("a");
  const waived = (text: string) => (text.split(" ")[1] ?? "").includes("w");
  const weaker = ours < theirs || (ours < 3 && asked(expected) && !asked(got)) || (waived(got) && !waived(expected));
  (weaker ? found.weaker : found.other).push(said);
}

export function compareCalls(calls: Calls): Differences {
  const judge = new gate.Gate(calls.allowed === null ? {} : { allowedCommands: calls.allowed });
  const found = none();
  for (const row of calls.rows) {
    compareRow(judge, row, calls, found);
  }
  return found;
}

export function comparePolicies(cases: readonly PolicyCase[], workspace: string): Differences {
  const found = none();
  for (const one of cases) {
    let policy: gate.Policy;
    try {
      policy = new gate.Policy(
        one.layers.map(([layer, text, trusted]) => gate.parsePolicy(text, layer, "policy.toml", trusted)),
      );
    } catch (error) {
      found.compared += 1;
      if (!(error instanceof gate.PolicyError)) {
        throw error;
      }
      const same = one.error === "TOML" ? error.message.includes("It is not TOML") : error.message === one.error;
      if (!same || (one.error !== "TOML" && (error.hint ?? null) !== one.hint)) {
        found.other.push(
          `${JSON.stringify(one.layers)}: ${error.message} (${error.hint}), Python ${one.error} (${one.hint})`,
        );
      }
      continue;
    }
    if (one.error !== undefined) {
      found.weaker.push(`${JSON.stringify(one.layers)}: read, Python ${one.error}`);
      continue;
    }
    if (policy.widestMode !== one.mode || [...policy.commands].sort().join() !== one.commands?.join()) {
      found.weaker.push(`${JSON.stringify(one.layers)}: ${policy.widestMode} ${[...policy.commands]}`);
    }
    const judge = new gate.Gate({ policy });
    for (const row of one.rows ?? []) {
      compareRow(judge, row, { workspace, isolated: true }, found);
    }
  }
  return found;
}

function compareText(found: Differences, what: string, got: unknown, expected: unknown): void {
  found.compared += 1;
  if (JSON.stringify(got) !== JSON.stringify(expected)) {
    found.other.push(`${what}: ${JSON.stringify(got)}, Python ${JSON.stringify(expected)}`);
  }
}

function whole(chunks: Chunks): string {
  return chunks.join("");
}

export function compareTexts(texts: Texts): Differences {
  const found = none();
  for (const [text, safe, lines, quoted] of texts.safe) {
    compareText(found, "safeText", gate.safeText(text), safe);
    compareText(found, "safeLines", gate.safeLines(text), lines);
    compareText(found, "quote", gate.quote(text), quoted);
  }
  for (const [text, masked] of texts.masked.map((row) => row.map(whole))) {
    compareText(found, `maskText ${JSON.stringify(text)}`, gate.maskText(text ?? ""), masked);
  }
  for (const [line, masked] of texts.arguments.map((row) => row.map((one) => one.map(whole)))) {
    compareText(found, `maskArguments ${line}`, gate.maskArguments(line ?? []), masked);
  }
  for (const [line, words] of texts.words) {
    compareText(found, `splitLine ${JSON.stringify(line)}`, splitLine(line) ?? null, words);
  }
  for (const [pieces = [], masked] of texts.streams.map((row) => row.map((one) => one.map(whole)))) {
    const stream = new gate.MaskedStream();
    const got = pieces.map((piece) => stream.feed(piece));
    compareText(found, `MaskedStream ${JSON.stringify(pieces)}`, [...got, stream.end()], masked);
  }
  return found;
}

export function comparePaths({ workspace, paths, globs }: Paths): Differences {
  const found = none();
  const bits = (...answers: boolean[]) => answers.map((answer) => (answer ? "1" : "0")).join("");
  const checked = (path: string, writes: boolean) => {
    const { relative, refusal } = gate.checkPath(path, workspace, writes);
    return refusal === undefined ? `=${relative}` : refusal.rule;
  };
  for (const [path, reads, writes, names] of paths) {
    const known = [gate.protectedName(path) !== undefined, gate.trustedName(path) !== undefined, gate.secretName(path)];
    compareText(found, path, [checked(path, false), checked(path, true), bits(...known)], [reads, writes, names]);
  }
  for (const [glob, path, expected] of globs) {
    const got = [pathFits(glob, path), pathFitsCarelessly(glob, path), pathAbove(path, glob), directoryOf(path, glob)];
    compareText(found, `${glob} ${path}`, bits(...got), expected);
  }
  return found;
}
