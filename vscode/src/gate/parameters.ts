// The form of a call: does the tool exist, do its parameters fit the form that the tables give of them, and is every text
// in them one that a file system or program can be given? What a call may do is the gate's business.

import { quoted } from "./paths.js";
import { halfCharacter, length } from "./strings.js";
import { mapOf, PARAMETERS, type Parameter } from "./tables.js";
import type { Finding } from "./verdicts.js";

export type Value = string | number | boolean | null | readonly string[];
export type Params = Readonly<Record<string, Value>>;

const SCRIPT_NAMES = mapOf<string>("tools.SCRIPT_NAMES");
const MAX_NESTING = 10_000;

/** The canonical name of a tool, if there is one. */
export function toolName(given: string): string | undefined {
  const name = SCRIPT_NAMES.get(given) ?? given;
  return PARAMETERS.has(name) ? name : undefined;
}

export const TOOL_HINT = `use one of: ${[...PARAMETERS.keys()].join(", ")}`;

export function invalid(reason: string, rule: string, instead?: string): Finding {
  return { level: "REFUSE", reason, rule, instead };
}

export function half(where: string): Finding {
  return invalid(`${where} holds half a character (a lone surrogate).`, "tools.unicode", "send valid Unicode");
}

/** The parameters of a known tool with their defaults, or what is wrong with them. */
export function validated(name: string, given: unknown): { params: Params } | { wrong: Finding } {
  const form = PARAMETERS.get(name);
  if (form === undefined || typeof given !== "object" || given === null || Array.isArray(given)) {
    return { wrong: invalid(`The parameters of ${name} are not an object.`, "tools.params") };
  }
  const values = new Map(Object.entries(given));
  const wrong = halfIn(values) ?? unknownIn(name, values);
  if (wrong !== undefined) {
    return { wrong };
  }
  const params: Record<string, Value> = {};
  for (const [field, parameter] of Object.entries(form.fields)) {
    if (!values.has(field)) {
      if (form.required.includes(field)) {
        return { wrong: invalid(`Parameter '${field}' of ${name}: Field required.`, "tools.params") };
      }
      params[field] = parameter.default === undefined ? [] : parameter.default;
      continue;
    }
    const value = values.get(field);
    const complaint = misfit(value, parameter);
    if (complaint !== undefined) {
      return { wrong: invalid(`Parameter '${field}' of ${name}: ${complaint}.`, "tools.params") };
    }
    params[field] = value as Value;
  }
  const nul = unspeakable(name, params);
  return nul === undefined ? { params } : { wrong: nul };
}

function unknownIn(name: string, values: ReadonlyMap<string, unknown>): Finding | undefined {
  const fields = Object.keys(PARAMETERS.get(name)?.fields ?? {});
  const unknown = [...values.keys()].find((key) => !fields.includes(key));
  if (unknown === undefined) {
    return undefined;
  }
  const reason = `${name} has no parameter ${quoted(unknown, 60)}.`;
  return invalid(reason, "tools.params", `it takes: ${fields.join(", ")}`);
}

/** Why a value does not fit. */
function misfit(value: unknown, form: Parameter): string | undefined {
  if (value === null && form.nullable) {
    return undefined;
  }
  switch (form.type) {
    case "string":
      return misfitText(value, form);
    case "integer":
      return misfitNumber(value, form);
    case "boolean":
      return typeof value === "boolean" ? undefined : "Input should be a valid boolean";
    case "array":
      return Array.isArray(value) && value.every((item) => typeof item === "string")
        ? undefined
        : "Input should be a list of texts";
  }
}

function misfitText(value: unknown, form: Parameter): string | undefined {
  if (typeof value !== "string") {
    return "Input should be a valid string";
  }
  if (form.enum !== undefined && !form.enum.includes(value)) {
    return `Input should be ${form.enum.map((one) => `'${one}'`).join(" or ")}`;
  }
  const size = form.minLength === undefined && form.maxLength === undefined ? 0 : length(value);
  if (form.minLength !== undefined && size < form.minLength) {
    return "String should have at least 1 character";
  }
  return form.maxLength !== undefined && size > form.maxLength
    ? `String should have at most ${form.maxLength} characters`
    : undefined;
}

function misfitNumber(value: unknown, form: Parameter): string | undefined {
  // A number that JavaScript cannot hold exactly is none that two sides could agree on.
  if (typeof value !== "number" || !Number.isSafeInteger(value)) {
    return "Input should be a valid integer";
  }
  if (form.minimum !== undefined && value < form.minimum) {
    return `Input should be greater than or equal to ${form.minimum}`;
  }
  return form.maximum !== undefined && value > form.maximum
    ? `Input should be less than or equal to ${form.maximum}`
    : undefined;
}

/** Text that no file system or program can be given: a NUL byte outside a file's content. */
function unspeakable(name: string, params: Params): Finding | undefined {
  for (const [field, value] of Object.entries(params)) {
    const texts: readonly unknown[] = Array.isArray(value) ? value : [value];
    if (field !== "content" && texts.some((text) => typeof text === "string" && text.includes("\0"))) {
      return invalid(`Parameter '${field}' of ${name} holds a NUL byte.`, "tools.params");
    }
  }
  return undefined;
}

/** Half a character in any text of the parameters, however deep: no record, screen or program can hold it. */
function halfIn(values: ReadonlyMap<string, unknown>): Finding | undefined {
  for (const [field, value] of values) {
    if (halfCharacter(field)) {
      return half("The name of a parameter");
    }
    if (halfWithin(value)) {
      return half(`\`${quoted(field, 60).slice(1, -1)}\``);
    }
  }
  return undefined;
}

function halfWithin(value: unknown): boolean {
  const open: unknown[] = [value];
  const seen = new Set<unknown>();
  for (let one = open.pop(); one !== undefined || open.length > 0; one = open.pop()) {
    if (typeof one === "string" && halfCharacter(one)) {
      return true;
    }
    if (typeof one === "object" && one !== null && !seen.has(one)) {
      seen.add(one); // a value may hold itself
      if (seen.size > MAX_NESTING) {
        return true; // nothing that a tool takes
      }
      for (const [key, inner] of Object.entries(one)) {
        open.push(key, inner);
      }
    }
  }
  return false;
}
