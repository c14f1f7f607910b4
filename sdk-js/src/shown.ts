// What a model is shown of a call, and the key that makes a repeated call the same call.

import { CATALOGUE } from "./catalogue.js";
import { CallerError, hintOf } from "./errors.js";
import type { ToolResponse } from "./protocol.js";

/** Limit of one result shown to a model; the record has the whole. */
const MODEL_CHARACTERS = 100_000;
/** Tried in order until a result fits: characters of a text, items of a list. */
const SHORTER = [
  [60_000, 400],
  [20_000, 150],
  [6_000, 50],
  [1_000, 20],
  [100, 5],
] as const;

export type ToolName = keyof typeof CATALOGUE;

/** The names of the tools to offer; all six by default. */
export function namesOf(tools: readonly ToolName[] | undefined): ToolName[] {
  const all = Object.keys(CATALOGUE) as ToolName[];
  const unknown = tools?.find((name) => !all.includes(name));
  if (unknown) throw new CallerError(`There is no tool '${unknown}'.`, `the tools are ${all.join(", ")}`);
  return tools ? [...tools] : all;
}

/** The text of an ended call: its result as JSON, shortened if it is long, or why it did not complete. */
export function textOf(response: ToolResponse): string {
  if (response.status === "completed") {
    return resultText({ ...(response.edited && { changed_by_user: response.edited }), ...response.result });
  }
  const hint = hintOf(response);
  const lines = [response.error ?? `The call ended as ${response.status}.`];
  if (hint) lines.push(`hint: ${hint}`);
  if (response.edited) lines.push(response.edited);
  if (response.result && Object.keys(response.result).length) lines.push(resultText(response.result));
  return lines.join("\n");
}

function resultText(result: Record<string, unknown>): string {
  const whole = JSON.stringify(result);
  if (whole.length <= MODEL_CHARACTERS) return whole;
  const how =
    result.encoding === "base64"
      ? "A picture or a PDF cannot be shown here."
      : "content" in result
        ? "Parts were left out; read it in pieces with start_line and end_line."
        : "Parts were left out; ask for less at once.";
  for (const [characters, items] of SHORTER) {
    const text = JSON.stringify({ ...(shorten(result, characters, items) as object), shortened: how });
    if (text.length <= MODEL_CHARACTERS) return text;
  }
  return "The result is too long to show; ask for less at once.";
}

function shorten(value: unknown, characters: number, items: number): unknown {
  if (typeof value === "string" && value.length > characters) {
    const half = Math.floor(characters / 2);
    return `${value.slice(0, half)}\n… ${value.length - 2 * half} characters left out …\n${value.slice(-half)}`;
  }
  if (Array.isArray(value)) return value.slice(0, items).map((item) => shorten(item, characters, items));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, shorten(item, characters, items)]));
  }
  return value;
}

/**
 * The key of a call: the same for the same call of the same conversation, none without a conversation.
 *
 * It includes the parameters, because models restart their call numbers: another call with an old number must never get
 * the older result.
 */
export async function callKey(
  scope: string | undefined,
  callId: string | undefined,
  toolName: string,
  params: unknown,
): Promise<string | undefined> {
  if (!scope || !callId) return undefined;
  const text = JSON.stringify([scope, callId, toolName, sorted(params)]);
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The value with the keys of its objects in order: a database may reorder those of a stored conversation. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([key, item]) => [key, sorted(item)]),
  );
}
