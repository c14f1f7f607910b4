// Masks secrets in text and JSON before they leave this machine or reach a log. Known by their form, by the name before
// them, or as the data of a Kubernetes Secret. If masking itself fails, the text is withheld, never passed on raw: that is
// a property of the functions here, so that no caller has to think of it.

import { wholeCharacters } from "./characters.js";
import { type Match, pattern } from "./patterns.js";
import { MASK_PREFIX, maskFormats, OPTION_NAME, PLACEHOLDER } from "./secret_formats.js";
import { maskNamed, tellingField } from "./secret_names.js";
import { first, length, rpartition, trim } from "./strings.js";
import { mapOf, numberOf, textOf } from "./tables.js";

export const WITHHELD = textOf("secrets.WITHHELD");
const MAX_DEPTH = numberOf("secrets.MAX_DEPTH");
const SHORTEST = numberOf("secrets.SHORTEST");
const SHORT = numberOf("secrets.SHORT");
const SUSPECT = pattern("secrets.SUSPECT");
const CONTROL_SEQUENCE = pattern("secrets.CONTROL_SEQUENCE");
const MANIFEST = pattern("secrets.MANIFEST");
const MANIFEST_DATA = pattern("secrets.MANIFEST_DATA");
const MANIFEST_ENTRY = pattern("secrets.MANIFEST_ENTRY");
const MANIFEST_JSON = pattern("secrets.MANIFEST_JSON");
const MANIFEST_JSON_DATA = pattern("secrets.MANIFEST_JSON_DATA");
const JSON_ENTRY = pattern("secrets.JSON_ENTRY");
const USER_AND_PASSWORD = pattern("secrets.USER_AND_PASSWORD");
const GLUED = mapOf<string>("secrets.GLUED");
const APART = mapOf<readonly string[]>("secrets.APART");

function orWithheld<T>(mask: () => T, withheld: T): T {
  try {
    return mask();
  } catch {
    return withheld; // The boundary: whatever went wrong, the raw text must not pass.
  }
}

/** The text with what looks like a secret replaced by `[masked:…]`. Half a character becomes U+FFFD. */
export function maskText(text: string): string {
  return orWithheld(() => masked(text), WITHHELD);
}

/** As `maskText` for every text in a JSON value; values under names such as `password` are masked whole. */
export function maskValue(value: unknown): unknown {
  return orWithheld(() => maskedValue(value, 0), WITHHELD);
}

/** A command and its arguments, masked one by one, by what stands before each and by what the command is. */
export function maskArguments(args: readonly string[]): string[] {
  return orWithheld(() => maskedCommand(args), [WITHHELD]);
}

function masked(given: string): string {
  const text = wholeCharacters(given);
  const size = length(text);
  if (size < SHORTEST || (size < SHORT && !SUSPECT.search(text))) {
    return text;
  }
  if (text.includes("\x1b") || text.includes("\x9b")) {
    // Colours stand between a name and its value, and touch the key they highlight.
    const plain = CONTROL_SEQUENCE.sub(text, () => "");
    const without = maskedPlain(plain);
    if (without !== plain) {
      return without;
    }
  }
  return maskedPlain(text);
}

function maskedPlain(text: string): string {
  const forms = maskFormats(text, lowered(text));
  const lower = lowered(forms);
  const named = maskNamed(forms, lower);
  return lower.includes("kind") && named.includes("Secret") ? maskedManifest(named) : named;
}

/** In lower case and of the same length; one letter, the dotted capital I, would become two. */
function lowered(text: string): string {
  const lower = text.toLowerCase();
  return lower.length === text.length ? lower : text.replaceAll("\u0130", "I").toLowerCase();
}

/** A Kubernetes Secret: whatever its entries are called, all of them are secret. */
function maskedManifest(given: string): string {
  let text = given;
  if (MANIFEST.search(text)) {
    const parts = text.split("\n---");
    text = parts.map((part) => (MANIFEST.search(part) ? MANIFEST_DATA.sub(part, maskedBlock) : part)).join("\n---");
  }
  if (MANIFEST_JSON.search(text)) {
    text = MANIFEST_JSON_DATA.sub(text, (data) => JSON_ENTRY.sub(data.text, maskedEntry));
  }
  return text;
}

function maskedBlock(data: Match): string {
  const start = data.span("block") - data.start;
  return data.text.slice(0, start) + MANIFEST_ENTRY.sub(data.groups.block ?? "", maskedEntry);
}

function maskedEntry(entry: Match): string {
  const name = entry.groups.g1 ?? entry.groups.g3 ?? "";
  const bare = trim(entry.groups.g2 ?? entry.groups.g4 ?? "", "\"'");
  return length(bare) < 3 || PLACEHOLDER.match(bare) ? entry.text : `${name}${MASK_PREFIX}secret]`;
}

function maskedValue(value: unknown, depth: number): unknown {
  if (typeof value === "string") {
    return masked(value);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  if (depth > MAX_DEPTH) {
    return WITHHELD;
  }
  if (Array.isArray(value)) {
    return maskedList(value, depth + 1);
  }
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [masked(key), maskedField(key, item, depth + 1)]),
  );
}

function maskedField(key: string, value: unknown, depth: number): unknown {
  if (typeof value === "string" && value !== "" && tellingField(key) && !PLACEHOLDER.match(value)) {
    return `${MASK_PREFIX}${wholeCharacters(first(key.toLowerCase(), 40))}]`;
  }
  return maskedValue(value, depth);
}

/** Items of a list; one behind an option such as `--token` is what the option says it is. */
function maskedList(values: readonly unknown[], depth: number): unknown[] {
  return values.map((item, at) => {
    const before = values[at - 1];
    const named = typeof before === "string" && typeof item === "string" && OPTION_NAME.fits(before);
    return named && item !== "" && !item.startsWith("-") ? `${MASK_PREFIX}option]` : maskedValue(item, depth);
  });
}

function maskedCommand(args: readonly string[]): string[] {
  const shown = maskedList(args, 1) as string[];
  const command = rpartition(args[0] ?? "", "/")[2];
  const glued = GLUED.get(command);
  const apart = APART.get(command) ?? [];
  return shown.map((one, at) => {
    const [argument, before] = [args[at] as string, args[at - 1]];
    if (before !== undefined && apart.includes(before)) {
      return command === "curl" ? maskedLogin(argument) : `${MASK_PREFIX}option]`;
    }
    const hides = at > 0 && glued !== undefined && argument.startsWith(glued) && argument.length > glued.length;
    return hides ? `${glued}${MASK_PREFIX}option]` : one;
  });
}

function maskedLogin(argument: string): string {
  const found = USER_AND_PASSWORD.fullmatch(argument);
  return found === undefined ? masked(argument) : `${found.groups.g1}${MASK_PREFIX}option]`;
}
