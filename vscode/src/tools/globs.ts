// Globs and .gitignore rules as ripgrep reads them, for the search that does without it. `*` and `?` stop at a slash, `**`
// does not, `{a,b}` is either; the last rule of a file that fits decides, and the deepest file with an opinion. Names are
// bytes: they come as text with one character for each byte. However many stars an agent writes, a name is compared in
// time proportional to both. Nothing here reads a file.

const STAR = "[^/]*";
const [PREFIX, SUFFIX, MIDDLE] = ["(?:/?|.*/)", "/.*", "(?:/|/.*/)"];

/** A glob that ripgrep would not take. */
export class GlobError extends Error {}

/** A text as its bytes, one character each. */
export function bytesOf(text: string): string {
  return Buffer.from(text).toString("latin1");
}

/** Whether a whole path (or, `ofNames`, a name) fits a glob; both as bytes. */
export function globFits(glob: string, ofNames = false): (bytes: string) => boolean {
  const expression = new RegExp(`^(?:${new Glob(glob, ofNames).translated()})$`, "s");
  return (bytes) => expression.test(bytes);
}

class Glob {
  #at = 0;
  #groups = 0;
  #branches: string[][] | undefined;
  readonly #whole: string[] = [];

  constructor(
    private readonly glob: string,
    private readonly ofNames: boolean,
  ) {}

  translated(): string {
    while (this.#at < this.glob.length) {
      this.#step(this.#next());
    }
    if (this.#branches !== undefined) {
      throw new GlobError("a brace is not closed");
    }
    return this.#whole.length === 1 && this.#whole[0] === PREFIX ? ".*" : this.#joined(this.#whole);
  }

  get #tokens(): string[] {
    return this.#branches?.at(-1) ?? this.#whole;
  }

  #next(): string {
    this.#at += 1;
    return this.glob[this.#at - 1] as string;
  }

  #peek(): string {
    return this.glob[this.#at] ?? "";
  }

  #step(char: string): void {
    switch (char) {
      case "?":
        this.#tokens.push("[^/]");
        break;
      case "*":
        this.#star();
        break;
      case "[":
        this.#class();
        break;
      case "{":
        if (this.#branches !== undefined) {
          throw new GlobError("braces within braces");
        }
        this.#branches = [[]];
        break;
      case ",":
        if (this.#branches === undefined) {
          this.#whole.push(",");
        } else {
          this.#branches.push([]);
        }
        break;
      case "}":
        this.#close();
        break;
      case "\\":
        if (this.#peek() === "") {
          throw new GlobError("it ends in a backslash");
        }
        this.#tokens.push(escaped(this.#next()));
        break;
      default:
        this.#tokens.push(escaped(char));
    }
  }

  #close(): void {
    if (this.#branches === undefined) {
      throw new GlobError("a brace was not opened");
    }
    const branches = this.#branches.map((tokens) => this.#joined(tokens)).filter((found) => found !== "");
    this.#branches = undefined;
    if (branches.length > 0) {
      this.#whole.push(`(?:${branches.join("|")})`);
    }
  }

  #star(): void {
    const before = this.glob[this.#at - 2] ?? "";
    if (this.#peek() !== "*") {
      this.#tokens.push(STAR);
      return;
    }
    this.#at += 1;
    const after = this.#peek();
    const inBraces = this.#branches !== undefined;
    if (this.#tokens.length === 0) {
      this.#tokens.push(after === "" || after === "/" ? PREFIX : STAR);
      this.#at += after === "/" ? 1 : 0;
      return;
    }
    const ends = after === "" || (inBraces && (after === "," || after === "}"));
    const begins = before === "/" || (inBraces && (before === "," || before === "{"));
    if (!begins || !(ends || after === "/")) {
      this.#tokens.push(STAR);
      return;
    }
    this.#at += after === "/" ? 1 : 0;
    const last = this.#tokens.pop() as string;
    this.#tokens.push(last === PREFIX || last === SUFFIX ? last : ends ? SUFFIX : MIDDLE);
  }

  /** `[a-c]`: no escapes in it, and a `]` that comes first is itself. */
  #class(): void {
    // Looked at and then taken for good: what opens the class is never given back.
    const found = /^(?=([!^]?))\1(?=(\]?))\2([^\]]*)\]/s.exec(this.glob.slice(this.#at));
    if (found === null) {
      throw new GlobError("a bracket is not closed");
    }
    this.#at += found[0].length;
    const inside = rangesOf(`${found[2]}${found[3]}`);
    const one = `[${found[1] === "" ? "" : "^"}${inside}]`;
    // One that may be a slash ends what a star takes.
    this.#tokens.push(this.ofNames || !new RegExp(one, "s").test("/") ? one : `(?:${one})`);
  }

  /** Tokens as one expression that does not try in vain: between two stars, the first fit counts for good. */
  #joined(tokens: readonly string[]): string {
    let made = "";
    for (let at = 0; at < tokens.length; ) {
      if (tokens[at] !== STAR) {
        made += tokens[at];
        at += 1;
        continue;
      }
      while (tokens[at] === STAR) {
        at += 1;
      }
      let end = at;
      while (end < tokens.length && tokens[end] !== STAR && !/^(?:\(\?:|\/\.\*)/.test(tokens[end] as string)) {
        end += 1;
      }
      if (end > at && tokens[end] === STAR) {
        this.#groups += 1;
        const name = `g${this.#groups}`;
        made += `(?=(?<${name}>[^/]*?${tokens.slice(at, end).join("")}))\\k<${name}>`;
        at = end;
      } else {
        made += STAR;
      }
    }
    return made;
  }
}

function rangesOf(letters: string): string {
  const ranges: [number, number][] = [];
  let inRange = false;
  for (const letter of letters) {
    const code = letter.charCodeAt(0);
    const last = ranges.at(-1);
    if (letter === "-" && last !== undefined && !inRange) {
      inRange = true;
    } else if (inRange && last !== undefined) {
      last[1] = code;
      inRange = false;
      if (code < last[0]) {
        throw new GlobError("a range goes backwards");
      }
    } else {
      ranges.push([code, code]);
    }
  }
  if (inRange) {
    ranges.push([45, 45]);
  }
  return ranges.map(([first, last]) => `${hex(first)}-${hex(last)}`).join("");
}

function hex(code: number): string {
  return `\\x${code.toString(16).padStart(2, "0")}`;
}

function escaped(char: string): string {
  return /[\w/]/.test(char) ? char : hex(char.charCodeAt(0));
}

interface IgnoreRule {
  readonly fits: (bytes: string) => boolean;
  readonly ignores: boolean;
  readonly onlyDirectories: boolean;
}

/** One .gitignore. `strip` and `add` turn a path told from the searched directory into one told from the file's. */
export interface Ignore {
  readonly rules: readonly IgnoreRule[];
  readonly strip: string;
  readonly add: string;
}

/** The rules of a .gitignore, given as bytes; a line that is no rule is left out. */
export function ignoreRules(bytes: Buffer): IgnoreRule[] {
  const rules: IgnoreRule[] = [];
  const text = bytes.toString("latin1").replace(/^\xef\xbb\xbf/, "");
  for (const raw of text.split("\n")) {
    const line = raw.replace(/\r$/, "");
    if (!isText(line)) {
      break; // ripgrep reads no further
    }
    try {
      const rule = ruleOf(line);
      if (rule !== undefined) {
        rules.push(rule);
      }
    } catch (error) {
      if (!(error instanceof GlobError)) {
        throw error;
      }
    }
  }
  return rules;
}

function isText(bytes: string): boolean {
  const data = Buffer.from(bytes, "latin1");
  return Buffer.from(data.toString("utf8")).equals(data);
}

function ruleOf(given: string): IgnoreRule | undefined {
  let line = given.endsWith("\\ ") ? given : given.trimEnd();
  if (line === "" || line.startsWith("#")) {
    return undefined;
  }
  const escapedFirst = /^\\[!#]/.test(line);
  const negated = line.startsWith("!");
  line = escapedFirst || negated ? line.slice(1) : line;
  const anchored = line.startsWith("/");
  line = anchored && !escapedFirst ? line.slice(1) : line;
  const onlyDirectories = line.endsWith("/");
  line = onlyDirectories ? line.slice(0, -1).replace(/\\$/, "") : line;
  if (!anchored && !line.includes("/") && line !== "**") {
    line = `**/${line}`;
  }
  if (line.endsWith("/**")) {
    line += "/*"; // what is inside, not the directory itself
  }
  return { fits: globFits(line), ignores: !negated, onlyDirectories };
}

/** The deepest .gitignore with an opinion decides; in it, the last rule that fits. */
export function isIgnored(path: string, isDirectory: boolean, ignores: readonly Ignore[]): boolean {
  for (const { add, rules, strip } of ignores.toReversed()) {
    const told = add + (path.startsWith(strip) ? path.slice(strip.length) : path);
    const rule = rules.findLast((one) => (isDirectory || !one.onlyDirectories) && one.fits(told));
    if (rule !== undefined) {
      return rule.ignores;
    }
  }
  return false;
}
