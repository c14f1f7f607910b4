// Two ways of reading arguments that are like no other command's: echo's, and find's expression, in which every primary
// has its own number of values.

import { Reading, said, Unreadable } from "./reading.js";
import { type CommandTable, type Option, setOf } from "./tables.js";

const PUNCTUATION = setOf("options.FIND_PUNCTUATION");
const LINKS = new Set(["-H", "-L", "-P"]);

export function readEcho(table: CommandTable, args: readonly string[]): Reading {
  const reading = new Reading();
  for (const [index, arg] of args.entries()) {
    const option = table.options.get(arg);
    if (option === undefined) {
      reading.operands.push(...args.slice(index));
      break;
    }
    reading.said.push(said(option, arg));
  }
  return reading;
}

/** Start points, then the expression. */
export function readFind(table: CommandTable, args: readonly string[]): Reading {
  const reading = new Reading();
  let at = 0;
  let expression = false;
  while (at < args.length) {
    const arg = args[at] as string;
    at += 1;
    if (PUNCTUATION.has(arg)) {
      expression = true;
    } else if (arg === "--" && !expression) {
      // Ends nothing: what follows is read as before.
    } else if (!arg.startsWith("-") || arg === "-") {
      // GNU find takes a late operand as an error; older ones as a start point.
      reading.operands.push(arg);
      if (expression) {
        reading.unknown.push([arg, null]);
      }
    } else {
      at = primary(table, args, at, arg, reading);
      expression = expression || !LINKS.has(arg);
    }
  }
  return reading;
}

function primary(table: CommandTable, args: readonly string[], start: number, arg: string, reading: Reading): number {
  let at = start;
  let option = table.options.get(arg);
  const optimise = table.options.get("-O");
  if (option === undefined && arg.startsWith("-O") && optimise !== undefined) {
    reading.said.push(said(optimise, "-O", arg.slice(2)));
    return at;
  }
  if (option === undefined && arg.startsWith("-newer") && Array.from(arg).length === 8) {
    // -newerXY: a time with Y = t, otherwise a file to compare with
    option = { name: arg, kind: arg.endsWith("t") ? "text" : "path-name" } satisfies Option;
  }
  if (option === undefined) {
    reading.unknown.push([arg, null]);
    return at;
  }
  if (option.until) {
    const found = args.findIndex((one, index) => index >= at && (one === ";" || one === "+"));
    const end = found < 0 ? args.length - 1 : found;
    reading.said.push(said(option, arg, args.slice(at, Math.max(end, 0)).join(" ")));
    return end + 1;
  }
  let value: string | null = null;
  if (option.kind !== undefined) {
    if (at >= args.length) {
      throw new Unreadable(`${arg} needs a value`);
    }
    value = args[at] as string;
    at += 1;
  }
  reading.said.push(said(option, arg, value));
  return arg === "-fprintf" ? at + 1 : at; // the format; only the file matters
}
