// Text to policy: reads one layer's TOML, and refuses it whole when anything in it is not understood. Each rule's own
// examples (`match`, `not_match`) are checked here. Everything comes in as text: nothing here opens a file.

import { parse, TomlError } from "smol-toml";
import { bareCall, type Call, callOf, FILE_TOOLS } from "./calls.js";
import { hiddenIn, hiddenInProse } from "./characters.js";
import { CommandValidator, ownName } from "./commands.js";
import { toolName } from "./parameters.js";
import { climbsOut, quoted } from "./paths.js";
import { pattern as patternNamed } from "./patterns.js";
import { type Action, type Layer, type LayerPolicy, type Mode, Rule } from "./policy.js";
import { Fit, Pattern } from "./rules.js";
import { splitLine } from "./shell_words.js";
import { halfCharacter, length, once, partition, startsWithAny, strip, trim, words } from "./strings.js";
import { commandTable, listOf, mapOf, numberOf, PARAMETERS } from "./tables.js";

const MAX_POLICY_CHARACTERS = numberOf("policies.MAX_POLICY_CHARACTERS");
const MAX_RULES = numberOf("policy_text.MAX_RULES");
const MAX_PATTERNS = numberOf("policy_text.MAX_PATTERNS");
const MAX_TEXT = numberOf("policy_text.MAX_TEXT");
const TOP = listOf("policy_text.TOP");
const KEYS = listOf("policy_text.KEYS");
const COMMAND_NAME = patternNamed("policy_text.COMMAND_NAME");
const SYNONYMS = mapOf<readonly string[]>("synonyms.GROUPS");
const COMMAND_HINT = 'write the words of the line: command = ["git", ["push", "pull"]]';
const PATHS_HINT = "paths are from the workspace, such as src/** or *.pem";

/** A policy that cannot be used: the message names the file, the rule and the field. */
export class PolicyError extends Error {
  override readonly name = "PolicyError";

  constructor(
    message: string,
    readonly hint: string | undefined,
  ) {
    super(message);
  }
}

type Table = Readonly<Record<string, unknown>>;

/** One layer from its text. What an untrusted project's file would loosen is held back. */
export function parsePolicy(text: string, layer: Layer, source: string, trusted = true): LayerPolicy {
  const reader = new Reader(source, layer);
  const data = reader.toml(text);
  reader.known(data, TOP, "");
  const entries = data.rule ?? [];
  if (!Array.isArray(entries) || !entries.every(isTable)) {
    throw reader.wrong("`rule` is not a list of tables.", "begin each rule with [[rule]]");
  }
  if (entries.length > MAX_RULES) {
    throw reader.wrong(`There are ${entries.length} rules; at most ${MAX_RULES} are read.`, "merge some of them");
  }
  const rules = entries.map((entry, index) => reader.rule(index + 1, entry));
  if (rules.reduce((sum, rule) => sum + rule.pattern.paths.length, 0) > MAX_PATTERNS) {
    throw reader.wrong(`There are more than ${MAX_PATTERNS} paths in all rules together.`, "use wider patterns");
  }
  const turnedOn = reader.commands(data);
  return { layer, source, rules, turnedOn, widestMode: reader.mode(data), trusted: trusted || layer !== "project" };
}

function isTable(value: unknown): value is Table {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date);
}

/** A subcommand under every name it has; just the one it was given when it has no other. */
function allNames(command: string, sub: string): readonly string[] {
  const groups = (SYNONYMS.get(command) ?? []).map((group) => group.split(" "));
  return groups.find(([first]) => first === sub) ?? groups.find((group) => group.includes(sub)) ?? [sub];
}

/** Reads one file; knows what to call it in errors. */
class Reader {
  constructor(
    readonly source: string,
    readonly layer: Layer,
  ) {}

  wrong(what: string, hint?: string, rule?: number): PolicyError {
    const where = quoted(this.source, 200).slice(1, -1) + (rule === undefined ? "" : `, rule ${rule}`);
    return new PolicyError(`${where}: ${what}`, hint);
  }

  toml(given: string): Table {
    if (length(given) > MAX_POLICY_CHARACTERS) {
      throw this.wrong(`It is longer than ${MAX_POLICY_CHARACTERS / 1024} kB.`);
    }
    const text = given.replaceAll("\r\n", "\n");
    if (hiddenInProse(text) !== undefined) {
      throw this.wrong("It holds an invisible character.", "a rule must be what it looks like: remove it");
    }
    try {
      return parse(text, { maxDepth: 100 });
    } catch (error) {
      if (!(error instanceof TomlError)) {
        throw error;
      }
      throw this.wrong(`It is not TOML: ${error.message.split("\n")[0]}.`, "see docs/policy.md for the form");
    }
  }

  known(data: Table, keys: readonly string[], what: string, rule?: number): void {
    const odd = Object.keys(data).find((key) => !keys.includes(key));
    if (odd !== undefined) {
      const misplaced = rule !== undefined && TOP.includes(odd);
      const hint = misplaced ? `write \`${odd}\` above the first [[rule]]` : `known: ${keys.join(", ")}`;
      throw this.wrong(`${quoted(odd, 60)} is not a key${what}.`, hint, rule);
    }
  }

  commands(data: Table): readonly string[] {
    const names = this.#texts(data, "commands");
    if (names.length > 0 && this.layer === "organisation") {
      throw this.wrong("`commands` loosens, and the organisation's rules only tighten.", "leave it out");
    }
    for (const name of names) {
      if (!COMMAND_NAME.fits(name)) {
        throw this.wrong(`${quoted(name, 60)} in \`commands\` is not the plain name of a command.`);
      }
      const table = commandTable(name) ?? commandTable(partition(name, ".")[0]);
      if (table?.level === "REFUSE") {
        throw this.wrong(`The command '${name}' is never allowed, whatever a policy says.`, "leave it out");
      }
    }
    return once(names);
  }

  mode(data: Table): Mode {
    const value = data.mode ?? "full";
    if (value !== "sandbox" && value !== "full") {
      throw this.wrong("`mode` is neither 'sandbox' nor 'full'.", "it is the widest mode you permit");
    }
    return value;
  }

  rule(number: number, entry: Table): Rule {
    this.known(entry, KEYS, " of a rule", number);
    const { action } = entry;
    if (action !== "allow" && action !== "ask" && action !== "deny") {
      throw this.wrong("`action` is not allow, ask or deny.", 'write action = "ask"', number);
    }
    const pattern = new Pattern(
      this.#tool(entry, number),
      this.#command(entry, number, action),
      this.#options(entry, number),
      this.#paths(entry, number),
    );
    this.#sensible(pattern, action, number);
    const because = this.#sentence(entry, "because", number);
    const instead = this.#sentence(entry, "instead", number);
    const rule = new Rule(this.layer, number, action, pattern, textOf(entry, action), because, instead);
    this.#examples(entry, rule);
    return rule;
  }

  /** Refuse combinations that cannot mean what they seem to. */
  #sensible({ tool, command, options, paths }: Pattern, action: Action, number: number): void {
    const [commands, about] = [command.length > 0, command.length > 0 || options.length > 0];
    if (tool === null && !about && paths.length === 0) {
      throw this.wrong("It is about every call.", "say which: tool, command, options or paths", number);
    }
    if (about && tool !== null && tool !== "execute_command") {
      throw this.wrong(`${tool} takes no command.`, "leave out `tool`", number);
    }
    if (paths.length > 0 && tool === "search_web") {
      throw this.wrong("search_web has no path.", "leave out `paths`", number);
    }
    if (action !== "allow") {
      return;
    }
    if (this.layer === "organisation") {
      throw this.wrong("The organisation's rules only tighten, so none may allow.", "use ask or deny", number);
    }
    if (options.length > 0) {
      throw this.wrong("An allow cannot be about options.", "allow the command, ask for the options", number);
    }
    if (paths.length > 0 && !FILE_TOOLS.has(tool ?? "")) {
      const hint = `add tool, one of ${[...FILE_TOOLS].sort().join(", ")}; what a command opens cannot be told from paths`;
      throw this.wrong("An allow with paths needs the tool it is about.", hint, number);
    }
    if (tool === "execute_command" && !commands) {
      throw this.wrong("It would allow every command.", "name the command", number);
    }
  }

  #tool(entry: Table, number: number): string | null {
    if (entry.tool === undefined) {
      return null;
    }
    const name = typeof entry.tool === "string" ? toolName(entry.tool) : undefined;
    if (name === undefined) {
      throw this.wrong("`tool` is not the name of a tool.", `one of: ${[...PARAMETERS.keys()].join(", ")}`, number);
    }
    return name;
  }

  #command(entry: Table, number: number, action: Action): string[][] {
    const given = entry.command;
    if (given === undefined) {
      return [];
    }
    if (!Array.isArray(given) || given.length === 0 || given.length > 32) {
      throw this.wrong("`command` is not a list of words.", COMMAND_HINT, number);
    }
    const found = given.map((word: unknown) => this.#alternatives(word, number));
    const names = (found[0] ?? []).map(ownName);
    for (const name of names) {
      if (!COMMAND_NAME.fits(name)) {
        throw this.wrong(
          `${quoted(name, 60)} in \`command\` is not the plain name of a command.`,
          COMMAND_HINT,
          number,
        );
      }
    }
    const [, subs, ...others] = found;
    if (subs === undefined) {
      return [names];
    }
    const meant = once(names.flatMap((name) => subs.flatMap((sub) => allNames(name, sub))));
    return [names, action === "allow" ? subs : meant, ...others];
  }

  #alternatives(word: unknown, number: number): string[] {
    const alternatives: unknown[] = Array.isArray(word) ? word : [word];
    const texts = alternatives.filter((one): one is string => typeof one === "string" && one !== "");
    if (texts.length === 0 || texts.length !== alternatives.length) {
      throw this.wrong("A word of `command` is neither a text nor a list of texts.", COMMAND_HINT, number);
    }
    return texts.map((one) => this.#plain(one, "command", number));
  }

  #options(entry: Table, number: number): string[] {
    const options = this.#texts(entry, "options", number);
    const odd = options.find((one) => !one.startsWith("-") || one.includes("=") || length(one) < 2);
    if (odd !== undefined) {
      throw this.wrong(`${quoted(odd, 60)} in \`options\` is not an option.`, "such as --force", number);
    }
    return options;
  }

  #paths(entry: Table, number: number): string[] {
    const paths = this.#texts(entry, "paths", number);
    for (const path of paths) {
      const names = path.split("/");
      if (startsWithAny(path, ["~", "!", "//"]) || path.includes("\\") || names.includes("..") || climbsOut(path)) {
        throw this.wrong(`${quoted(path, 60)} in \`paths\` is not a pattern of the workspace.`, PATHS_HINT, number);
      }
      if (length(path) > 200 || trim(path, "/.") === "") {
        throw this.wrong(`${quoted(path, 60)} in \`paths\` is too long or names nothing.`, PATHS_HINT, number);
      }
      if (names.some((part) => part.includes("**") && part !== "**")) {
        throw this.wrong(`\`**\` in ${quoted(path, 60)} does not stand between slashes.`, PATHS_HINT, number);
      }
    }
    return paths;
  }

  #sentence(entry: Table, key: string, number: number): string | null {
    const text = entry[key];
    if (text === undefined) {
      return null;
    }
    if (typeof text !== "string" || strip(text) === "" || length(text) > MAX_TEXT) {
      throw this.wrong(`\`${key}\` is not a text of at most ${MAX_TEXT} characters.`, undefined, number);
    }
    return this.#plain(words(text).join(" "), key, number);
  }

  #texts(data: Table, key: string, number?: number): string[] {
    const given = data[key];
    if (given === undefined) {
      return [];
    }
    const hint = `write a list: ${key} = ["…"]`;
    if (!Array.isArray(given) || given.length === 0) {
      throw this.wrong(`\`${key}\` is not a list of texts.`, hint, number);
    }
    return given.map((one: unknown) => {
      if (typeof one !== "string" || one === "") {
        throw this.wrong(`\`${key}\` holds something that is not a text.`, hint, number);
      }
      return this.#plain(one, key, number);
    });
  }

  #plain(text: string, key: string, number?: number): string {
    if (hiddenIn(text) !== undefined || halfCharacter(text) || length(text) > 1000) {
      throw this.wrong(`\`${key}\` holds an invisible character or is too long.`, undefined, number);
    }
    return text;
  }

  #examples(entry: Table, { action, number, pattern, text }: Rule): void {
    for (const key of ["match", "not_match"]) {
      for (const example of this.#texts(entry, key, number)) {
        const call = this.#call(example, number);
        const fits = action === "allow" ? pattern.fitsStrictly(call) : pattern.fit(call) === Fit.YES;
        if (fits !== (key === "match")) {
          const hint = `correct the rule (${text}) or the example`;
          const what = fits ? "fits" : "does not fit";
          throw this.wrong(`${quoted(example)} of \`${key}\` ${what} the rule.`, hint, number);
        }
      }
    }
  }

  #call(example: string, number: number): Call {
    const [name, ...others] = splitLine(example) ?? [];
    if (name === undefined) {
      throw this.wrong(`The example ${quoted(example)} cannot be read.`, "quote as in a shell", number);
    }
    if (!PARAMETERS.has(name)) {
      const { understood } = new CommandValidator([name]).judge(name, others, null);
      return callOf("execute_command", { command: name, args: others }, understood, null);
    }
    const [path] = others;
    if (FILE_TOOLS.has(name) && path !== undefined && others.length === 1) {
      return callOf(name, { path, recursive: false, pattern: "*", glob: null }, null, null);
    }
    if (!FILE_TOOLS.has(name) && name !== "execute_command") {
      return bareCall(name);
    }
    throw this.wrong(`The example ${quoted(example)} is not a call.`, "such as write_file src/a.py", number);
  }
}

/** The rule on one line, as its author wrote it. */
function textOf(entry: Table, action: Action): string {
  const command = (entry.command ?? []) as (string | string[])[];
  const said = command.map((word) => (Array.isArray(word) ? word.join("|") : word));
  const tool = said.length === 0 && entry.tool !== undefined ? [String(entry.tool)] : [];
  const parts = [action, ...tool, ...said];
  if (entry.options !== undefined) {
    parts.push(`with ${(entry.options as string[]).join(" or ")}`);
  }
  if (entry.paths !== undefined) {
    parts.push(`in ${(entry.paths as string[]).join(", ")}`);
  }
  const text = Array.from(parts.join(" "));
  return text.length <= 160 ? text.join("") : `${text.slice(0, 159).join("")}…`;
}
