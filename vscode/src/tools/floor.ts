// The owner's floor on the disk: what the rules deny to a tool stays out of its reach, however it gets there. The gate
// judges the words of a call; `Floor` keeps the same denials true afterwards: what a listing or a search passes over, what
// a file tool opened under another name, and what the sandbox must cover so that no command can open it. Patterns mean what
// they mean to the gate. Where it cannot look everywhere it says so and nothing runs.

import { closeSync, constants, lstatSync, readdirSync, realpathSync } from "node:fs";
import { directoryOf } from "../gate/globs.js";
import { type Policy, pathFitsCarelessly, type Rule } from "../gate/index.js";
import { PathValidationError, RefusedError } from "./errors.js";
import { O_DIRECTORY, type Opened, type PathValidator } from "./PathValidator.js";
import { repr, visibleName } from "./words.js";

const COMMANDS = "execute_command";
const MAX_ENTRIES = 50_000;
const MAX_MILLISECONDS = 3_000;
const MAX_DEPTH = 128;

export class Floor {
  readonly #rules = new Map<string, readonly Rule[]>();

  constructor(private readonly policy: Policy) {}

  #of(tool: string): readonly Rule[] {
    let rules = this.#rules.get(tool);
    if (rules === undefined) {
      rules = this.policy.pathDenials(tool);
      this.#rules.set(tool, rules);
    }
    return rules;
  }

  #rule(relative: string, tool: string): Rule | undefined {
    // What a pattern says of all that lies in a directory, it says of the directory.
    const fits = (glob: string) => pathFitsCarelessly(glob, relative) || directoryOf(relative, glob);
    return this.#of(tool).find((rule) => rule.pattern.paths.some(fits));
  }

  /** Whether anything is denied to a tool. */
  guards(tool: string): boolean {
    return this.#of(tool).length > 0;
  }

  /** Whether a path from the workspace, or a directory above it, is denied to a tool. */
  forbids(relative: string, tool: string): boolean {
    return this.guards(tool) && relative !== "." && this.#rule(relative, tool) !== undefined;
  }

  /** Throw for a denied path, in the words of the rule. */
  refuse(relative: string, tool: string): void {
    const rule = this.guards(tool) ? this.#rule(relative, tool) : undefined;
    if (rule !== undefined) {
      const because = rule.because ? ` ${rule.because}` : "";
      throw new PathValidationError(
        `${repr(visibleName(relative))} is denied by rule ${rule.name}.${because}`,
        rule.instead,
      );
    }
  }

  /** What is there and denied to commands: paths from the workspace, each a file or a directory with all in it. */
  masked(paths: PathValidator): string[] {
    const [first] = this.#of(COMMANDS);
    if (first === undefined) {
      return [];
    }
    if (this.#rule(".", COMMANDS) !== undefined) {
      throw new RefusedError(
        `Rule ${first.name} (${first.text}) denies the whole workspace, so no command can run in it.`,
        "deny the directories it is about",
      );
    }
    const found = new Set<string>();
    const until = performance.now() + MAX_MILLISECONDS;
    let left = MAX_ENTRIES;
    const enter = (here: Opened, depth: number): void => {
      for (const entry of readdirSync(here.base, { withFileTypes: true })) {
        left -= 1;
        if (left < 0 || depth > MAX_DEPTH || performance.now() > until) {
          throw tooMuch(first);
        }
        const real = here.real === "." ? entry.name : `${here.real}/${entry.name}`;
        const forbidden = this.forbids(real, COMMANDS);
        if ((forbidden || entry.isDirectory()) && isMangled(here, entry.name)) {
          throw unspeakable(first, real);
        }
        if (forbidden) {
          this.#cover(paths, real, entry.isSymbolicLink(), found);
        } else if (entry.isDirectory()) {
          this.#descend(paths, here, entry.name, real, found, (child) => enter(child, depth + 1));
        }
      }
    };
    paths.with(".", constants.O_RDONLY | O_DIRECTORY, (opened) => enter(opened, 0));
    return [...found].sort();
  }

  #cover(paths: PathValidator, real: string, isLink: boolean, found: Set<string>): void {
    if (!isLink) {
      found.add(real);
      return;
    }
    // A link is covered where it leads; one that leads out leads nowhere in the sandbox.
    const behind = quietly(() => realpathSync(`${paths.root}/${real}`));
    if (behind === paths.root) {
      throw new RefusedError(
        `${repr(visibleName(real))} is denied and links to the whole workspace, so no command can run in it.`,
        "remove the link",
      );
    }
    if (behind?.startsWith(`${paths.root}/`)) {
      found.add(behind.slice(paths.root.length + 1));
    }
  }

  #descend(
    paths: PathValidator,
    here: Opened,
    name: string,
    real: string,
    found: Set<string>,
    enter: (child: Opened) => void,
  ): void {
    const child = quietly(() => paths.child(here, name, constants.O_RDONLY | O_DIRECTORY));
    if (child === undefined) {
      found.add(real); // not ours to look into, or another mount: what is in it cannot be told, so all of it is covered
      return;
    }
    try {
      enter(child);
    } finally {
      closeSync(child.fd);
    }
  }
}

/** Whether a name is no UTF-8: as a text it names nothing, so neither we nor the sandbox could reach what it stands for. */
function isMangled(here: Opened, name: string): boolean {
  return name.includes("\ufffd") && lstatSync(`${here.base}/${name}`, { throwIfNoEntry: false }) === undefined;
}

function unspeakable(rule: Rule, real: string): RefusedError {
  return new RefusedError(
    `The name ${repr(visibleName(real))} is not UTF-8, so what rule ${rule.name} denies there cannot be hidden from a command; nothing was run.`,
    "rename it",
  );
}

function tooMuch(rule: Rule): RefusedError {
  return new RefusedError(
    `Rule ${rule.name} denies ${repr(rule.pattern.paths[0] as string)}, and there is too much here to look through for it before a command; nothing was run.`,
    "write it narrower, or deny one directory: 'secrets/**'",
  );
}

function quietly<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch {
    return undefined;
  }
}
