// What an argv says, as one of the readers understood it. It decides nothing; what cannot be read at all is `Unreadable`,
// which the gate refuses, and what is not known is handed on as unknown, which is never LOW.

import type { Option } from "./tables.js";

/** The arguments do not fit the command's own grammar. */
export class Unreadable extends Error {}

/** One option as it was given. */
export interface Said {
  readonly option: Option;
  readonly spelled: string;
  readonly value: string | null;
  /** Perhaps meant, not surely. */
  readonly abbreviated: boolean;
}

export class Reading {
  readonly said: Said[] = [];
  /** Options the table does not have, with the value glued to them. */
  readonly unknown: [string, string | null][] = [];
  /** Arguments of the program that the command starts. */
  readonly rest: string[] = [];

  constructor(readonly operands: string[] = []) {}
}

export function said(option: Option, spelled: string, value: string | null = null, abbreviated = false): Said {
  return { option, spelled, value, abbreviated };
}
