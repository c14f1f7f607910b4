// The owner's rules: what a policy says of a call, whatever the order of its rules and layers. Of all rules that fit, the
// strictest wins. A deny refuses and an ask always asks; both only add findings. An allow adds nothing: it is named, and
// the gate lets it waive the question that a risk level alone would ask. Nothing here opens a file.

import { type Call, cut, namesIn } from "./calls.js";
import { Fit, type Pattern } from "./rules.js";
import { numberOf } from "./tables.js";
import { type Finding, rank } from "./verdicts.js";

export type Layer = "built-in" | "organisation" | "user" | "device" | "project";
export type Action = "allow" | "ask" | "deny";
export type Mode = "sandbox" | "full";

const MOST_COMPARED = numberOf("policy.MOST_COMPARED");
const MAX_FINDINGS = numberOf("policy.MAX_FINDINGS");

/** One rule of one layer. */
export class Rule {
  constructor(
    readonly layer: Layer,
    /** Counted from 1, in its file. */
    readonly number: number,
    readonly action: Action,
    readonly pattern: Pattern,
    /** The rule on one line. */
    readonly text: string,
    readonly because: string | null = null,
    readonly instead: string | null = null,
  ) {}

  get name(): string {
    return `${this.layer}.${this.number}`;
  }

  get label(): string {
    return `${this.name}: ${this.text}`;
  }

  /** What an ask or a deny says of a call; undefined when it is not about it. */
  finding(call: Call): Finding | undefined {
    const sure = this.pattern.fit(call);
    if (sure === Fit.NO) {
      return undefined;
    }
    const denies = this.action === "deny" && sure === Fit.YES;
    return {
      level: denies ? "REFUSE" : "MEDIUM",
      reason: this.#reason(sure),
      rule: `policy.${this.name}`,
      instead: this.instead ?? undefined,
      alwaysAsks: !denies,
    };
  }

  #reason(sure: Fit): string {
    const { action, because, name, pattern, text } = this;
    if (sure === Fit.PERHAPS) {
      const does = action === "deny" ? "denies" : "asks about";
      const why = because ? ` ${this.#said(because)}` : "";
      return pattern.paths.length > 0
        ? `It could reach ${listed(pattern.paths)}, which rule ${name} ${does}.${why}`
        : `It could be what rule ${name} ${does} under another name (${text}).${why}`;
    }
    if (because) {
      return this.#said(because);
    }
    return `Rule ${name} ${action === "deny" ? "denies this" : "wants this asked"} (${text}).`;
  }

  #said(because: string): string {
    // The words of a repository's file must not pass for the owner's or for ours.
    return this.layer === "project" ? `The project's own rule says: ${because}` : because;
  }
}

function listed(paths: readonly string[]): string {
  const more = paths.length > 3 ? ` and ${paths.length - 3} more` : "";
  return (
    paths
      .slice(0, 3)
      .map((path) => `'${path}'`)
      .join(", ") + more
  );
}

/** One layer, parsed. */
export interface LayerPolicy {
  readonly layer: Layer;
  readonly source: string;
  /** All of them, also those held back. */
  readonly rules: readonly Rule[];
  /** Commands it turns on. */
  readonly turnedOn: readonly string[];
  readonly widestMode: Mode;
  /** What loosens counts only when the layer is trusted. */
  readonly trusted: boolean;
}

/** What a policy says of one call. */
export interface PolicyOpinion {
  /** Strictest first. */
  readonly findings: readonly Finding[];
  /** A rule that allows it; it waives a question of risk and nothing else. */
  readonly allow: Rule | undefined;
}

/** All layers together. */
export class Policy {
  /** Commands that are turned on. */
  readonly commands: ReadonlySet<string>;
  /** The widest mode an agent may have here. */
  readonly widestMode: Mode;
  readonly #rules: readonly Rule[];
  readonly #mostNames: number;

  constructor(readonly layers: readonly LayerPolicy[] = []) {
    this.#rules = layers.flatMap(({ rules, trusted }) => rules.filter((rule) => trusted || rule.action !== "allow"));
    this.commands = new Set(layers.flatMap((layer) => (layer.trusted ? layer.turnedOn : [])));
    this.widestMode = layers.some((layer) => layer.widestMode === "sandbox") ? "sandbox" : "full";
    const globs = this.#rules.reduce((sum, rule) => sum + rule.pattern.paths.length, 0);
    this.#mostNames = Math.floor(MOST_COMPARED / Math.max(globs, 1));
  }

  get hasRules(): boolean {
    return this.#rules.length > 0;
  }

  /** Denials of paths for a tool, whatever else the call says: what a search or a listing must pass over. */
  pathDenials(tool: string): Rule[] {
    return this.#rules.filter(({ action, pattern }) => {
      const about = pattern.command.length === 0 && (pattern.tool === null || pattern.tool === tool);
      return about && action === "deny" && pattern.paths.length > 0 && pattern.options.length === 0;
    });
  }

  /** What the rules say of one call. */
  judge(given: Call): PolicyOpinion {
    const call = namesIn(given) > this.#mostNames ? cut(given, this.#mostNames) : given;
    const found = new Map<string, Finding>();
    let allow: Rule | undefined;
    for (const rule of this.#candidates(call)) {
      if (rule.action === "allow") {
        allow ??= rule.pattern.fitsStrictly(call) ? rule : undefined;
        continue;
      }
      const finding = rule.finding(call);
      const key = `${finding?.level} ${finding?.reason}`;
      if (finding !== undefined && !found.has(key)) {
        found.set(key, finding);
      }
    }
    const strictest = [...found.values()].sort((one, other) => rank(other.level) - rank(one.level));
    return { findings: strictest.slice(0, MAX_FINDINGS), allow };
  }

  /** In the order of the Python side: rules about any tool, about this tool, about this command, and its other name. */
  #candidates(call: Call): Rule[] {
    const about = (tool: string | null) =>
      this.#rules.filter(({ pattern }) => pattern.command.length === 0 && pattern.tool === tool);
    const named = (command: string | undefined) =>
      command === undefined ? [] : this.#rules.filter(({ pattern }) => pattern.command[0]?.includes(command) === true);
    return [...about(null), ...about(call.tool), ...named(call.argv[0]), ...named(call.also?.argv[0])];
  }
}

export const NO_POLICY = new Policy();
