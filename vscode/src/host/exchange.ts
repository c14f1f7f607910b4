// A one-time link exchanged for a token of this editor's own. The code goes to the server of the link and to no other, on
// this machine by number, and nothing else is sent with it. A link that did not work says what to do: most are simply too
// old.

import type { ExchangedToken } from "@protocol";
import { oneLine, shortened } from "../../../ui/src/text/visible.js";
import { boundedText } from "../connection/bounded.js";
import { loopbackOf, type SignInLink } from "./address.js";

const ANSWER_MS = 30_000;
const MAX_BYTES = 64 * 1024;

export type Exchanged =
  | { readonly kind: "token"; readonly token: string; readonly user: string }
  | { readonly kind: "problem"; readonly words: string };

export async function exchange({ origin, code }: SignInLink): Promise<Exchanged> {
  let answer: Response;
  let told: unknown;
  try {
    answer = await send(origin, code);
    told = parsed((await boundedText(answer.body, MAX_BYTES)) ?? "");
  } catch {
    return problem(
      `Nothing answers at ${origin}. Is the server of this link still running? Start it, then get a new link.`,
    );
  }
  const { token, user_id, detail, hint } = (told ?? {}) as Partial<ExchangedToken> & {
    detail?: unknown;
    hint?: unknown;
  };
  if (answer.ok && typeof token === "string" && typeof user_id === "string") {
    return { kind: "token", token, user: shortened(oneLine(user_id), 200) };
  }
  if (typeof detail !== "string" || answer.status === 404 || answer.status === 405) {
    return problem(
      `What answers at ${origin} gives no token for a link (${answer.status}). Is it a Byleave server of this version? A token works too: "byleave token --user NAME" prints one.`,
    );
  }
  return problem(shortened(oneLine(typeof hint === "string" ? `${detail} ${hint}` : detail), 500));
}

/** A name of this machine stands for two addresses, where two may listen: the second only where nobody does at the first. */
async function send(origin: string, code: string): Promise<Response> {
  const [first, second] = origin.startsWith("http:") ? loopbackOf(origin) : [];
  try {
    return await post(origin, first, code);
  } catch (error) {
    if (second === undefined || (error as { cause?: { code?: unknown } }).cause?.code !== "ECONNREFUSED") throw error;
    return await post(origin, second, code);
  }
}

function post(origin: string, number: string | undefined, code: string): Promise<Response> {
  const url = new URL("/signin/exchange", origin);
  if (number !== undefined) url.hostname = number.includes(":") ? `[${number}]` : number;
  return fetch(url, {
    method: "POST",
    redirect: "error",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify({ code }),
    signal: AbortSignal.timeout(ANSWER_MS),
  });
}

function problem(words: string): Exchanged {
  return { kind: "problem", words };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
