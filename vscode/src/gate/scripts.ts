// Which files of the workspace a command would run: what an approval shows, and is bound to. Server and client name them
// from the line alone, so they name the same ones. Where a name could mean several files it names every file that would
// decide, also those that are missing now. Nothing here looks at a disk.

import { ownName } from "./commands.js";
import { endsWithAny, once, partition, rpartition, trimEnd, trimStart, withoutPrefix } from "./strings.js";
import { listOf, numberOf, setOf } from "./tables.js";
import type { Understood } from "./verdicts.js";

/** Stands for a line whose files cannot be told: a directory holds no content, so looking at it fails. */
const UNKNOWN = listOf("scripts.UNKNOWN");
const MAX_SEEN_FILES = numberOf("inspections.MAX_SEEN_FILES");
const PYTHON_FILES = listOf("scripts.PYTHON_FILES");
const SCRIPT_MODULES = setOf("scripts.SCRIPT_MODULES");
const PIP_BUILDS = listOf("scripts.PIP_BUILDS");
const NODE_FILES = listOf("scripts.NODE_FILES");
const NODE_LOADS = listOf("scripts.NODE_LOADS");
const NODE_READS = listOf("scripts.NODE_READS");
const NODE_CODE = setOf("scripts.NODE_CODE");
const NPM_RUNS_NOTHING = setOf("scripts.NPM_RUNS_NOTHING");
const NPM_RUNS_SCRIPTS = setOf("scripts.NPM_RUNS_SCRIPTS");
const NPM_INSTALLS = setOf("scripts.NPM_INSTALLS");
const PYTEST_SETTINGS = listOf("scripts.PYTEST_SETTINGS");
const MAKEFILES = listOf("scripts.MAKEFILES");
const CARGO_RUNS_NOTHING = new Set(["new", "init", "help", "version", "search"]);
const NODE_WORDS = new Set(["-", "inspect", "debug"]);
const NPM_CLEAN = new Set(["ci", "clean-install", "ic", "install-clean"]);

/** A command line as its table read it. */
class Line {
  readonly options: (readonly [string, string | null])[] = [];
  readonly operands: string[];

  constructor(
    readonly args: readonly string[],
    understood: Understood,
  ) {
    this.operands = [...understood.operands];
    for (let reading: Understood | undefined = understood; reading !== undefined; ) {
      this.options.push(...reading.options);
      reading = reading.subcommand;
      if (reading !== undefined && this.operands.length === 1) {
        this.operands.push(...reading.operands); // where the command stops at its subcommand
      }
    }
  }

  /** The values of an option under any of its names, abbreviations too. */
  values(...names: readonly string[]): string[] {
    return this.options.flatMap(([spelled, value]) => {
      const meant = (name: string) => name === spelled || (name.startsWith("--") && name.startsWith(spelled));
      const known = names.includes(spelled) || (Array.from(spelled).length > 2 && names.some(meant));
      return value !== null && known ? [value] : [];
    });
  }

  has(names: ReadonlySet<string>): boolean {
    return this.options.some(([spelled]) => names.has(spelled));
  }
}

/** The files whose content this command would run, from the workspace; empty when it runs none. */
export function runs(
  command: string,
  args: readonly string[],
  understood: Understood | null,
  workspace: string | null,
): string[] {
  const runner = RUNNERS.get(ownName(command));
  if (runner === undefined || understood === null) {
    return []; // a line that could not be read is refused
  }
  return once(runner(new Line(args, understood)).map((path) => plain(path, workspace))).slice(0, MAX_SEEN_FILES);
}

/** Whether it is the command's own business to rewrite the files it runs, as `npm install` does package.json. */
export function changesWhatItRuns(command: string, args: readonly string[], understood: Understood | null): boolean {
  if (command !== "npm" || understood === null) {
    return false;
  }
  const subcommand = new Line(args, understood).operands[0] ?? "";
  return !NPM_RUNS_SCRIPTS.has(subcommand) && !NPM_CLEAN.has(subcommand);
}

/** A path from the workspace, without empty parts. `..` stays: behind a link it leads elsewhere than it looks. */
function plain(path: string, workspace: string | null): string {
  const root = trimEnd(workspace ?? "", "/");
  const below = root !== "" && path.startsWith(`${root}/`) ? trimStart(path.slice(root.length), "/") : path;
  const parts = below.split("/").filter((part) => part !== "" && part !== ".");
  return (below.startsWith("/") ? "/" : "") + parts.join("/") || ".";
}

function join(directory: string, ...names: readonly string[]): string[] {
  return names.map((name) => (directory === "" ? name : `${directory}/${name}`));
}

function few(found: string[]): string[] {
  return new Set(found).size <= MAX_SEEN_FILES ? found : [...UNKNOWN];
}

function python(line: Line): string[] {
  if (line.has(new Set(["-c"]))) {
    return [];
  }
  const [module] = line.values("-m");
  if (module !== undefined) {
    // With -I or -P the workspace is not searched for modules.
    const found = line.has(new Set(["-I", "-P"])) ? [] : moduleFiles(module);
    return [...found, ...pointedAt(partition(module, ".")[0], line.args)];
  }
  const [script] = line.operands;
  if (!script || script === "-") {
    return script === "" ? ["", "/__main__.py", "/__main__.pyc"] : [];
  }
  return endsWithAny(script, PYTHON_FILES) ? [script] : [script, `${script}/__main__.py`, `${script}/__main__.pyc`];
}

/** Files that a module runs because its own arguments name them. */
function pointedAt(module: string, args: readonly string[]): string[] {
  if (module === "pip") {
    return localPackages(args);
  }
  const endings = [...PYTHON_FILES, ".txt", ".md", ".rst"];
  return SCRIPT_MODULES.has(module) ? args.filter((arg) => endsWithAny(arg, endings)) : [];
}

/** What builds a package that pip takes from the workspace. */
function localPackages(args: readonly string[]): string[] {
  return args.flatMap((arg) => {
    const name = partition(arg, "[")[0];
    const local = !arg.startsWith("-") && !arg.includes(":") && (name === "." || name.includes("/"));
    return local ? join(name === "." ? "" : trimEnd(name, "/"), ...PIP_BUILDS) : [];
  });
}

/** Where `python -m` looks for a module in the workspace, before it looks elsewhere. */
function moduleFiles(name: string): string[] {
  const parts = name.split(".");
  if (parts.includes("") || name.includes("/")) {
    return []; // no module is called that
  }
  const path = parts.join("/");
  const found = [`${path}.py`, `${path}/__init__.py`, `${path}/__main__.py`];
  for (let depth = 1; depth < parts.length; depth += 1) {
    const above = parts.slice(0, depth).join("/");
    found.push(`${above}/__init__.py`, `${above}.py`);
  }
  return found.length <= MAX_SEEN_FILES ? found : [...UNKNOWN];
}

function node(line: Line): string[] {
  const found = line.values(...NODE_READS);
  for (const value of line.values(...NODE_LOADS)) {
    if (value.includes("/") || endsWithAny(value, NODE_FILES)) {
      found.push(...nodeFile(withoutPrefix(value, "file:"), false)); // else the name of a package
    }
  }
  if (line.values("--run").length > 0) {
    found.push("package.json");
  }
  if (line.has(NODE_CODE)) {
    return found;
  }
  let operands = line.operands.slice(0, 1);
  if (operands[0] === "inspect" || operands[0] === "debug" || unread(line)) {
    // Which argument is the script is not certain: each of them counts.
    operands = line.args.filter((arg) => !arg.startsWith("-")).slice(0, 4);
  }
  found.push(...operands.filter((one) => !NODE_WORDS.has(one)).flatMap((one) => nodeFile(one, true)));
  return few(found);
}

/** What node would load for a name: the file, the file with an ending, or what the directory says. */
function nodeFile(name: string, entry: boolean): string[] {
  if (endsWithAny(name, NODE_FILES)) {
    return [name];
  }
  const found = [name, `${name}.js`, `${name}.json`, `${name}.node`];
  return entry ? [...found, ...join(name, "package.json", "index.js", "index.json", "index.node")] : found;
}

/** Whether an option before the script is one the table does not have: it may have taken the next argument. */
function unread(line: Line): boolean {
  const known = new Set(line.options.map(([spelled]) => spelled));
  for (const arg of line.args) {
    if (arg === line.operands[0]) {
      return false;
    }
    const short = Array.from(arg).slice(0, 2).join("");
    if (arg.startsWith("-") && arg !== "-" && !known.has(partition(arg, "=")[0]) && !known.has(short)) {
      return true;
    }
  }
  return false;
}

function npm(line: Line): string[] {
  const [subcommand, object] = line.operands;
  const looks = NPM_RUNS_NOTHING.has(subcommand ?? "") || (subcommand === "pkg" && object === "get");
  if (subcommand === undefined || (looks && !unread(line))) {
    return [];
  }
  const names = ["package.json", ".npmrc"];
  if (NPM_INSTALLS.has(subcommand)) {
    names.push("binding.gyp"); // built, and so run, where there is one
  }
  if (subcommand === "start" || subcommand === "restart") {
    names.push("server.js"); // what `npm start` runs without a script of that name
  }
  const directories = line.values("-C", "--prefix");
  const found = (directories.length > 0 ? directories : [""]).flatMap((directory) => join(directory, ...names));
  for (const member of line.values("-w", "--workspace")) {
    found.push(`${member}/package.json`, `packages/${rpartition(member, "/")[2]}/package.json`);
  }
  return few(found);
}

function make(line: Line): string[] {
  const given = line.values("-f", "--file", "--makefile");
  return join(line.values("-C", "--directory").join("/"), ...(given.length > 0 ? given : MAKEFILES));
}

function pytest(line: Line): string[] {
  const found = [...line.values("-c", "--config-file"), ...PYTEST_SETTINGS];
  for (const operand of line.operands) {
    let path = trimEnd(partition(operand, "::")[0], "/");
    if (path.endsWith(".py")) {
      found.push(path);
      path = rpartition(path, "/")[0];
    }
    found.push(...join(path, "conftest.py"));
  }
  return found;
}

function cargo(line: Line): string[] {
  const [subcommand] = line.operands;
  if (subcommand === undefined || CARGO_RUNS_NOTHING.has(subcommand)) {
    return [];
  }
  const [manifest] = line.values("--manifest-path");
  const directory = manifest === undefined ? line.values("-C").join("/") : rpartition(manifest, "/")[0];
  return join(directory, "Cargo.toml", "build.rs", ".cargo/config.toml");
}

function pip(line: Line): string[] {
  const packages = [...line.operands.slice(1), ...line.values("-e", "--editable")];
  return [...line.values("-r", "--requirement"), ...localPackages(packages)];
}

const RUNNERS: ReadonlyMap<string, (line: Line) => string[]> = new Map([
  ["python", python],
  ["node", node],
  ["npm", npm],
  ["make", make],
  ["pytest", pytest],
  ["cargo", cargo],
  // Only the files that the line itself names: `go run x.go`.
  ["go", (line: Line) => line.operands.slice(1).filter((operand) => operand.endsWith(".go"))],
  ["pip", pip],
  ["sed", (line: Line) => line.values("-f", "--file")],
]);
