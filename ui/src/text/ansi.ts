// What a terminal would show of a command's output, as lines of runs with a look each. Only colours, bold and underline
// are obeyed; a carriage return and a backspace overwrite the line. Links, titles, the clipboard, cursor moves and clears
// are dropped; what is no known sequence is made visible. Work is linear, and runs are capped: a bomb ends up plain.

import { visible } from "./visible";

/** Colours by the sixteen names every terminal knows: 0 none, 1 to 8 normal, 9 to 16 bright. */
export interface Look {
  front: number;
  back: number;
  bold: boolean;
  underline: boolean;
  /** Whether it came on the stream for errors. */
  err: boolean;
}

export interface Run {
  text: string;
  look: Look;
}

export type OutputLine = Run[];

const MOST_RUNS = 20_000;
const MOST_RUNS_IN_LINE = 400;
const LONGEST_STRING = 2048;

// biome-ignore-start lint/suspicious/noControlCharactersInRegex: controls are what these look for
const SPECIAL = /[\u0007\u0008\u000a\u000d\u001b]/g;
const CSI = /\u001b\[([0-?]{0,64})[ -/]{0,8}([@-~])/y;
const STRING = new RegExp(`\\u001b[\\]PX^_][^\\u0007\\u001b\\n]{0,${LONGEST_STRING}}(?:\\u0007|\\u001b\\\\)`, "y");
const SHORT = /\u001b(?:[ -/]{1,2}[0-~]|[0-Z\\^-~])/y;
const UNFINISHED = new RegExp(
  `\\u001b(?:\\[[0-?]{0,64}[ -/]{0,8}|[\\]PX^_][^\\u0007\\u001b\\n]{0,${LONGEST_STRING}}\\u001b?|[ -/]{0,2})?$`,
  "y",
);
// biome-ignore-end lint/suspicious/noControlCharactersInRegex: as above

export class Screen {
  readonly lines: OutputLine[] = [[]];
  #look: Look = { front: 0, back: 0, bold: false, underline: false, err: false };
  #runs = 0;
  /** Once something overwrites a line it is held character by character until it ends. */
  #cells: { text: string[]; looks: Look[] } | null = null;
  #cursor = 0;
  #carry = "";

  /** Text as it came; a sequence may begin in one piece and end in the next. */
  feed(piece: string, err: boolean): void {
    if (err !== this.#look.err) this.#look = { ...this.#look, err };
    const text = this.#carry + piece;
    this.#carry = "";
    let at = 0;
    while (at < text.length) {
      SPECIAL.lastIndex = at;
      const special = SPECIAL.exec(text);
      const end = special ? special.index : text.length;
      if (end > at) this.#write(text.slice(at, end));
      if (!special) return;
      at = this.#obey(text, end);
    }
  }

  /** No more comes: what was left of a sequence is shown. */
  end(): OutputLine[] {
    if (this.#carry !== "\r") this.#write(this.#carry);
    this.#carry = "";
    this.#close();
    return this.lines;
  }

  #obey(text: string, at: number): number {
    switch (text[at]) {
      case "\n":
        this.#close();
        this.lines.push([]);
        return at + 1;
      case "\r": {
        let next = at + 1;
        while (text[next] === "\r") next += 1;
        // At the end of a line it says nothing; at the end of a piece nobody knows yet.
        if (text[next] === "\n") return next;
        if (next === text.length) this.#carry = "\r";
        else this.#moveTo(0);
        return next;
      }
      case "\b":
        this.#moveTo(this.#place() - 1);
        return at + 1;
      case "\u0007":
        return at + 1;
      default:
        return this.#escape(text, at);
    }
  }

  #escape(text: string, at: number): number {
    const csi = match(CSI, text, at);
    if (csi) {
      const [all = "", params = "", final] = csi;
      if (final === "m" && /^[\d;:]*$/.test(params)) this.#look = restyled(this.#look, params);
      else if (final === "K") this.#erase(params);
      return at + all.length;
    }
    const other = match(STRING, text, at) ?? match(SHORT, text, at);
    if (other) return at + other[0].length;
    if (match(UNFINISHED, text, at)) {
      this.#carry = text.slice(at);
      return text.length;
    }
    this.#write("\u001b");
    return at + 1;
  }

  #place(): number {
    if (this.#cells) return this.#cursor;
    return this.#line().reduce((length, run) => length + run.text.length, 0);
  }

  #line(): OutputLine {
    return this.lines[this.lines.length - 1] as OutputLine; // there is always one
  }

  #moveTo(place: number): void {
    if (!this.#cells) {
      const cells = { text: [] as string[], looks: [] as Look[] };
      for (const run of this.#line()) {
        for (const character of run.text) {
          cells.text.push(character);
          cells.looks.push(run.look);
        }
      }
      this.#cells = cells;
      this.#cursor = cells.text.length;
      if (place > 0) place = this.#cursor - 1;
    }
    this.#cursor = Math.max(0, place);
  }

  // `\r` and then a clear of the line is how progress is shown; further than the line nothing is erased.
  #erase(params: string): void {
    if (!this.#cells || (params !== "" && params !== "0" && params !== "2")) return;
    const keep = params === "2" ? 0 : this.#cursor;
    this.#cells.text.length = Math.min(keep, this.#cells.text.length);
    this.#cells.looks.length = this.#cells.text.length;
    this.#cursor = Math.min(this.#cursor, keep);
  }

  #write(raw: string): void {
    if (raw === "") return;
    const text = visible(raw);
    const cells = this.#cells;
    if (!cells) {
      this.#add(this.#line(), text, this.#look);
      return;
    }
    for (const character of text) {
      cells.text[this.#cursor] = character;
      cells.looks[this.#cursor] = this.#look;
      this.#cursor += 1;
    }
  }

  #add(line: OutputLine, text: string, look: Look): void {
    const last = line[line.length - 1];
    const full = this.#runs >= MOST_RUNS || line.length >= MOST_RUNS_IN_LINE;
    if (last && (full || same(last.look, look))) {
      last.text += text;
      return;
    }
    this.#runs += 1;
    line.push({ text, look: full ? { ...PLAIN, err: look.err } : look });
  }

  #close(): void {
    const cells = this.#cells;
    if (!cells) return;
    const line = this.#line();
    this.#runs -= line.length;
    line.length = 0;
    let from = 0;
    for (let at = 1; at <= cells.text.length; at += 1) {
      const look = cells.looks[from] as Look;
      if (at < cells.text.length && same(cells.looks[at] as Look, look)) continue;
      this.#add(line, cells.text.slice(from, at).join(""), look);
      from = at;
    }
    this.#cells = null;
  }
}

const PLAIN: Look = { front: 0, back: 0, bold: false, underline: false, err: false };

function match(pattern: RegExp, text: string, at: number): RegExpExecArray | null {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

function same(one: Look, other: Look): boolean {
  return (
    one === other ||
    (one.front === other.front &&
      one.back === other.back &&
      one.bold === other.bold &&
      one.underline === other.underline &&
      one.err === other.err)
  );
}

/** The look after one `ESC [ … m`. What it does not know changes nothing; nothing can hide text. */
export function restyled(look: Look, params: string): Look {
  const codes = params
    .split(/[;:]/)
    .slice(0, 32)
    .map((each) => Number(each || "0"));
  const next = { ...look };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] as number;
    if (code === 0) Object.assign(next, PLAIN, { err: look.err });
    else if (code === 1) next.bold = true;
    else if (code === 22) next.bold = false;
    else if (code === 4) next.underline = true;
    else if (code === 24) next.underline = false;
    else if (code >= 30 && code <= 37) next.front = code - 29;
    else if (code === 39) next.front = 0;
    else if (code >= 40 && code <= 47) next.back = code - 39;
    else if (code === 49) next.back = 0;
    else if (code >= 90 && code <= 97) next.front = code - 81;
    else if (code >= 100 && code <= 107) next.back = code - 91;
    else if (code === 38 || code === 48) {
      const { colour, used } = extended(codes, at + 1);
      if (code === 38) next.front = colour;
      else next.back = colour;
      at += used;
    }
  }
  return next;
}

function extended(codes: number[], at: number): { colour: number; used: number } {
  if (codes[at] === 5) return { colour: indexed(codes[at + 1] ?? 0), used: 2 };
  if (codes[at] === 2) return { colour: nearest(codes[at + 1] ?? 0, codes[at + 2] ?? 0, codes[at + 3] ?? 0), used: 4 };
  return { colour: 0, used: 0 };
}

function indexed(index: number): number {
  if (index < 16) return index + 1;
  if (index >= 232) {
    const grey = 8 + (Math.min(index, 255) - 232) * 10;
    return nearest(grey, grey, grey);
  }
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

const PALETTE = [
  [0, 0, 0],
  [205, 0, 0],
  [0, 205, 0],
  [205, 205, 0],
  [0, 0, 238],
  [205, 0, 205],
  [0, 205, 205],
  [229, 229, 229],
  [127, 127, 127],
  [255, 0, 0],
  [0, 255, 0],
  [255, 255, 0],
  [92, 92, 255],
  [255, 0, 255],
  [0, 255, 255],
  [255, 255, 255],
] as const;

function nearest(red: number, green: number, blue: number): number {
  let best = 0;
  let least = Number.POSITIVE_INFINITY;
  PALETTE.forEach(([r, g, b], index) => {
    const distance = (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2;
    if (distance < least) {
      least = distance;
      best = index + 1;
    }
  });
  return best;
}
