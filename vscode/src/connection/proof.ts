// Whether what answers at an address of this machine is the server a token is from, found out before the token is sent. A
// port belongs to whoever takes it first. It is asked to prove that it can sign our token, which it is shown without its
// signature: who cannot sign it has learnt nothing. The proof names the address it was given at, so nobody can pass on
// the real server's. Over https the certificate says who answers; a token that another party signed cannot be proven so.

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { ProofBody, ServerProof } from "@protocol";
import { loopbackOf } from "../host/address.js";
import { ConfigurationError } from "../tools/errors.js";

/** One question, and whether an answer to it is right. */
export interface ProofQuestion {
  readonly body: string;
  isAnsweredBy(text: string): boolean;
}

/** What a server must prove, for one token. */
export class Proof {
  /** Whether it can prove anything by this token, should it be on this machine. */
  readonly possible: boolean;
  readonly port: number;
  readonly #claims: string;
  readonly #key: Buffer;

  constructor(
    readonly origin: string,
    token: string,
  ) {
    const at = token.lastIndexOf(".");
    this.port = Number(new URL(origin).port || "80");
    this.#claims = token.slice(0, Math.max(at, 0));
    this.#key = Buffer.from(token.slice(at + 1), "base64url");
    this.possible = origin.startsWith("http:") && signedBySecret(this.#claims);
  }

  /** A question for what stands at a host, by number: a name could lead elsewhere the next time. */
  question(host: string): ProofQuestion {
    const challenge = randomBytes(32).toString("base64url");
    const body: ProofBody = { claims: this.#claims, challenge };
    return {
      body: JSON.stringify(body),
      isAnsweredBy: (text) => {
        const told = proofIn(text);
        return told !== null && this.#isRight(told, challenge) && told.port === this.port && isAt(told.host, host);
      },
    };
  }

  #isRight(told: ServerProof, challenge: string): boolean {
    const message = `byleave server proof 1\n${challenge}\n${told.host}\n${told.port}\n`;
    const right = createHmac("sha256", this.#key).update(message).digest();
    const given = Buffer.from(told.proof, "hex");
    return given.length === right.length && timingSafeEqual(given, right);
  }

  unproven(): ConfigurationError {
    return new ConfigurationError(
      `What answers at ${this.origin} did not prove that it is the server your token is from, so the token was not sent.`,
      "Does another program use this port? Start your server again, or sign in anew if its secret changed. Through a tunnel use the same port on both sides; through a proxy use https.",
    );
  }

  /** It says that it is not meant (421), and so does not say who it is. */
  misdirected(): ConfigurationError {
    const { hostname } = new URL(this.origin);
    return new ConfigurationError(
      `What answers at ${this.origin} says that this is not its name, and proves nothing under it, so the token was not sent.`,
      `If this is your server, use its own address (http://127.0.0.1:${this.port}), or start it with ${hostname} added to BYLEAVE_ALLOWED_HOSTS.`,
    );
  }
}

/** In a container it was reached at an address of that; at another loopback address it is another server. */
function isAt(told: string, host: string): boolean {
  const here = loopbackOf(`http://${bracketed(told)}`);
  return here.length === 0 || (here.length === 1 && here[0] === host);
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
