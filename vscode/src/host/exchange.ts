// A one-time link exchanged for a token of this editor's own. The code goes to the server of the link and to no other, and
// nothing else is sent with it. A link that did not work says what to do: most are simply too old.

import type { ExchangedToken } from "@protocol";
import { oneLine, shortened } from "../../../ui/src/text/visible.js";
import type { SignInLink } from "./address.js";

const ANSWER_MS = 30_000;

export type Exchanged =
  | { readonly kind: "token"; readonly token: string; readonly user: string }
  | { readonly kind: "problem"; readonly words: string };

export async function exchange({ origin, code }: SignInLink): Promise<Exchanged> {
  let answer: Response;
  let told: unknown;
  try {
    answer = await fetch(`${origin}/signin/exchange`, {
      method: "POST",
      redirect: "error",
      headers: { "Content-Type": "application/json", Accept: "application/json" },
      body: JSON.stringify({ code }),
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    told = parsed(await answer.text());
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
      `What answers at ${origin} gives no token for a link (${answer.status}). Is it an Assent server of this version? A token works too: \`assent token --user NAME\` prints one.`,
    );
  }
  return problem(shortened(oneLine(typeof hint === "string" ? `${detail} ${hint}` : detail), 500));
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
