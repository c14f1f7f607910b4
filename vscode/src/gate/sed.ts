// What a sed script would do, read without running it: does it write, read other files, or run a program? Only the plain
// part of the language is understood for sure; what several versions of sed read differently is never called certain, and
// what cannot be read at all is said to be so. It never searches the text for words.

import { type Pattern, pattern } from "./patterns.js";
import { strip } from "./strings.js";
import { setOf } from "./tables.js";

const PLAIN = setOf("sed.PLAIN");
const WITH_NUMBER = setOf("sed.WITH_NUMBER");
const UNCERTAIN_LINES = setOf("sed.UNCERTAIN_LINES");
const NAMES_FILE = setOf("sed.NAMES_FILE");
const DELIMITERS = setOf("sed.DELIMITERS");
const TERMINALS = setOf("sed.TERMINALS");
const ADDRESS = pattern("sed.ADDRESS");
const NUMBER = pattern("sed.NUMBER");
const BLANK = pattern("sed.BLANK");
const SPACE = pattern("sed.SPACE");
const FLAG = /^[gpiImM0-9]$/;

class Unclear extends Error {}

export interface SedScript {
  /** Every part was understood, and every sed understands it so. */
  certain: boolean;
  /** False: what comes after some point is not known. */
  readable: boolean;
  runs: boolean;
  readonly writes: string[];
  readonly reads: string[];
}

/** Read one script, or one of several pieces of it. */
export function readScript(text: string): SedScript {
  const reader = new Reader(text);
  try {
    reader.read();
  } catch (error) {
    if (!(error instanceof Unclear)) {
      throw error;
    }
    reader.script.readable = false;
  }
  return reader.script;
}

class Reader {
  readonly script: SedScript = { certain: true, readable: true, runs: false, writes: [], reads: [] };
  #at = 0;

  constructor(readonly text: string) {}

  read(): void {
    this.#skip(BLANK);
    while (this.#at < this.text.length) {
      this.#addresses();
      this.#command();
      this.#skip(BLANK);
    }
  }

  #skip(what: Pattern): void {
    this.#at = what.match(this.text, this.#at)?.end ?? this.#at;
  }

  #next(): string {
    if (this.#at >= this.text.length) {
      throw new Unclear();
    }
    this.#at += 1;
    return this.text.charAt(this.#at - 1);
  }

  #peek(): string {
    return this.text.charAt(this.#at);
  }

  #addresses(): void {
    if (!this.#address()) {
      return;
    }
    this.#skip(SPACE);
    if (this.#peek() === ",") {
      this.#at += 1;
      this.#skip(SPACE);
      if (!this.#address()) {
        throw new Unclear();
      }
    }
    this.#skip(SPACE);
  }

  #address(): boolean {
    const found = ADDRESS.match(this.text, this.#at);
    if (found !== undefined) {
      this.#at = found.end;
      return true;
    }
    if (this.#peek() === "/") {
      this.#at += 1;
      this.#pattern("/");
    } else if (this.#peek() === "\\") {
      this.#at += 1;
      this.#pattern(this.#delimiter());
    } else {
      return false;
    }
    while (this.#peek() === "I" || this.#peek() === "M") {
      this.#at += 1;
    }
    return true;
  }

  #delimiter(): string {
    const character = this.#next();
    if (!DELIMITERS.has(character)) {
      throw new Unclear();
    }
    return character;
  }

  /** A regular expression up to its delimiter; brackets may hide one from some seds and not from others. */
  #pattern(delimiter: string): void {
    for (let character = this.#next(); character !== delimiter; character = this.#next()) {
      if (character === "\n") {
        throw new Unclear();
      }
      if (character === "\\") {
        this.#escaped();
      } else if (character === "[") {
        this.#brackets(delimiter);
      }
    }
  }

  #brackets(delimiter: string): void {
    if (this.#peek() === "^") {
      this.#at += 1;
    }
    if (this.#peek() === "]") {
      this.#at += 1;
    }
    for (let character = this.#next(); character !== "]"; character = this.#next()) {
      if (character === delimiter || character === "\n") {
        throw new Unclear();
      }
      if (character === "\\") {
        this.#escaped();
      } else if (character === "[" && [":", ".", "="].includes(this.#peek())) {
        const closing = this.text.indexOf(`${this.#peek()}]`, this.#at + 1);
        if (closing < 0 || this.text.slice(this.#at, closing + 2).includes(delimiter)) {
          throw new Unclear();
        }
        this.#at = closing + 2;
      }
    }
  }

  #escaped(): void {
    if (this.#next() === "\n") {
      throw new Unclear();
    }
  }

  #replacement(delimiter: string): void {
    for (let character = this.#next(); character !== delimiter; character = this.#next()) {
      if (character === "\n") {
        throw new Unclear();
      }
      if (character === "\\") {
        this.#escaped();
      }
    }
  }

  #command(): void {
    while (["!", " ", "\t"].includes(this.#peek())) {
      this.#at += 1;
    }
    const command = this.#next();
    if (command === "{" || command === "}") {
      return;
    }
    if (command === "#") {
      this.#line();
    } else if (PLAIN.has(command)) {
      this.#end();
    } else if (WITH_NUMBER.has(command)) {
      this.#skip(NUMBER);
      this.#end();
    } else if (command === "s") {
      this.#substitute();
    } else if (command === "y") {
      const delimiter = this.#delimiter();
      this.#replacement(delimiter);
      this.#replacement(delimiter);
      this.#end();
    } else {
      this.#doubtful(command);
    }
  }

  #doubtful(command: string): void {
    this.script.certain = false;
    if (command === "e") {
      this.script.runs = true;
      this.#line();
    } else if (NAMES_FILE.has(command)) {
      this.#file(command);
    } else if (command === "F") {
      this.#end();
    } else if (UNCERTAIN_LINES.has(command)) {
      this.#semicolonOrLine(command);
    } else {
      throw new Unclear();
    }
  }

  /** A label ends at a semicolon for some; what follows is read as commands, which is the stricter way. */
  #semicolonOrLine(command: string): void {
    if ("aic".includes(command)) {
      if (this.text.indexOf("\\", this.#at) >= 0) {
        throw new Unclear();
      }
      this.#line();
      return;
    }
    while (!["", "\n", ";", "}"].includes(this.#peek())) {
      this.#at += 1;
    }
  }

  #file(command: string): void {
    const name = strip(this.#line());
    if (!TERMINALS.has(name)) {
      ("rR".includes(command) ? this.script.reads : this.script.writes).push(name);
    }
  }

  #line(): string {
    const end = this.text.indexOf("\n", this.#at);
    const line = end < 0 ? this.text.slice(this.#at) : this.text.slice(this.#at, end);
    this.#at += line.length;
    return line;
  }

  #substitute(): void {
    const delimiter = this.#delimiter();
    this.#pattern(delimiter);
    this.#replacement(delimiter);
    while (FLAG.test(this.#peek())) {
      this.#at += 1;
    }
    if (this.#peek() === "e") {
      this.script.certain = false;
      this.script.runs = true;
      throw new Unclear();
    }
    if (this.#peek() === "w") {
      this.#at += 1;
      this.script.certain = false;
      this.#file("w");
      return;
    }
    this.#end();
  }

  /** After a command only a separator may come. */
  #end(): void {
    this.#skip(SPACE);
    if (!["", "\n", ";", "}", "#"].includes(this.#peek())) {
      throw new Unclear();
    }
  }
}
