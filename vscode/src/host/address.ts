// What an address of a server says of itself, without asking anybody. A token belongs to one origin and goes to no other.

/** The origin of a server, `https://byleave.example.com`; null when the text is no address of one. */
export function originOf(text: string): string | null {
  let url: URL;
  try {
    url = new URL(text.trim());
  } catch {
    return null;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "" || url.pathname !== "/") {
    return null;
  }
  return url.origin;
}

/** A one-time link as `byleave up` and `byleave link` print it. */
export interface SignInLink {
  readonly origin: string;
  readonly code: string;
}

/** The server and the code of a one-time link; null when the text is none. */
export function linkOf(text: string): SignInLink | null {
  const found = /^(https?:\/\/[^/?#\\\s]+)\/sign-?in\?code=([\w-]{1,200})$/i.exec(text.trim());
  const origin = originOf(found?.[1] ?? "");
  return origin === null ? null : { origin, code: found?.[2] ?? "" };
}

/** Whether the server is this machine. For words and offers only: the engine decides by where a connection really leads. */
export function isLoopback(origin: string): boolean {
  // URL has written every spelling of a number in one way.
  const name = new URL(origin).hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "");
  return /^(localhost|.+\.localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|::1?|::ffff:7f[\da-f]{2}:[\da-f]{1,4})$/.test(name);
}

/** Why a text cannot be a token; null when it may be one. */
export function tokenProblem(text: string): string | null {
  if (text === "") return "Paste the token.";
  return /^[\x21-\x7e]{1,16384}$/.test(text) ? null : "This is no token: it holds characters that no token has.";
}
