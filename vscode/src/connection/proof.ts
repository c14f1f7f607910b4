// Whether what answers at an address of this machine is the server a token is from, found out before the token is sent. A
// port belongs to whoever takes it first. It is asked to prove that it can sign our token, which it is shown without its
// signature: who cannot sign it has learnt nothing. The proof names the address it was given at, so nobody can pass on
// the real server's. Over https the certificate says who answers; a token that another party signed cannot be proven so.

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { ProofBody, ServerProof } from "@protocol";
import { isLoopback } from "../host/address.js";
import { ConfigurationError, UnreachableError } from "../tools/errors.js";

const ANSWER_MS = 10_000;
/** As long as a connection that nobody uses stays open: what answers on a new one may be another. */
export const LASTS_MS = 4000;
const LONGEST = 4096;

/** What is known of one server, for one token. */
export class Proof {
  readonly needed: boolean;
  readonly #origin: string;
  readonly #claims: string;
  readonly #key: Buffer;
  readonly #lasts: number;
  #proven: string;
  #seen: number | null = null;

  constructor(origin: string, token: string, lasts = LASTS_MS) {
    const at = token.lastIndexOf(".");
    this.#origin = origin;
    this.#proven = origin;
    this.#claims = token.slice(0, Math.max(at, 0));
    this.#key = Buffer.from(token.slice(at + 1), "base64url");
    this.#lasts = lasts;
    this.needed = origin.startsWith("http:") && isLoopback(origin) && signedBySecret(this.#claims);
  }

  /** It has just answered. */
  seen(): void {
    if (this.#seen !== null) this.#seen = performance.now();
  }

  /** It is gone, or may be: whatever answers next must prove itself. */
  lost(): void {
    this.#seen = null;
  }

  /**
   * The origin to send to once it is proven: by number, for a name could lead elsewhere the next time. Rejects with a
   * ConfigurationError when it is not proven, and as `fetch` does when nothing answers.
   */
  async ensure(anew = false): Promise<string> {
    if (!this.needed) return this.#origin;
    if (anew || this.#seen === null || performance.now() - this.#seen > this.#lasts) {
      this.#seen = null;
      await this.#find();
    }
    return this.#proven;
  }

  async #find(): Promise<void> {
    const name = new URL(this.#origin).hostname;
    const [first, second] = name.endsWith("localhost") ? ["127.0.0.1", "[::1]"] : [name];
    try {
      await this.#prove(first as string);
    } catch (error) {
      if (second === undefined || error instanceof ConfigurationError) throw error;
      await this.#prove(second);
    }
  }

  async #prove(host: string): Promise<void> {
    const url = new URL(this.#origin);
    url.hostname = host;
    const challenge = randomBytes(32).toString("base64url");
    const told = await this.#ask(url, { claims: this.#claims, challenge });
    const message = `assent server proof 1\n${challenge}\n${told.host}\n${told.port}\n`;
    const right = createHmac("sha256", this.#key).update(message).digest();
    const given = Buffer.from(told.proof, "hex");
    const port = Number(url.port || "80");
    const bare = host.replace(/^\[|\]$/g, "");
    // In a container it was reached at an address of that; at another loopback address it is another server.
    const here = told.port === port && (told.host === bare || !isLoopback(`http://${bracketed(told.host)}`));
    if (given.length !== right.length || !timingSafeEqual(given, right) || !here) throw this.#unproven();
    this.#proven = url.origin;
    this.#seen = performance.now();
  }

  async #ask(origin: URL, body: ProofBody): Promise<ServerProof> {
    const answer = await fetch(new URL("/proof", origin), {
      method: "POST",
      redirect: "manual",
      headers: { "Content-Type": "application/json", Accept: "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    if (answer.status >= 500) {
      await answer.body?.cancel();
      throw new UnreachableError(`The server at ${this.#origin} could not answer (${answer.status}).`);
    }
    const told = proofIn((await answer.text()).slice(0, LONGEST));
    if (told === null) throw this.#unproven();
    return told;
  }

  #unproven(): ConfigurationError {
    return new ConfigurationError(
      `What answers at ${this.#origin} did not prove that it is the server your token is from, so the token was not sent.`,
      "Does another program use this port? Start your server again, or sign in anew if its secret changed. Through a tunnel use the same port on both sides; through a proxy use https.",
    );
  }
}

/** Whether this is the beginning of a token that a server signs with its own secret. */
function signedBySecret(claims: string): boolean {
  const [head = "", rest = ""] = claims.split(".");
  try {
    const header = JSON.parse(Buffer.from(head, "base64url").toString("utf8")) as { alg?: unknown } | null;
    return rest !== "" && header?.alg === "HS256";
  } catch {
    return false;
  }
}

function proofIn(text: string): ServerProof | null {
  try {
    const told = JSON.parse(text) as Partial<ServerProof> | null;
    const fits = typeof told?.host === "string" && typeof told.port === "number" && typeof told.proof === "string";
    return fits && URL.canParse(`http://${bracketed(told.host as string)}`) ? (told as ServerProof) : null;
  } catch {
    return null;
  }
}

function bracketed(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}
