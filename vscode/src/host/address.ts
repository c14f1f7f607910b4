// What an address of a server says of itself, without asking anybody. A token belongs to one origin and goes to no other.

/** The origin of a server, `https://assent.example.com`; null when the text is no address of one. */
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

/** Whether the server is this machine. */
export function isLoopback(origin: string): boolean {
  const name = new URL(origin).hostname;
  return name === "localhost" || name.endsWith(".localhost") || name === "[::1]" || /^127(\.\d{1,3}){3}$/.test(name);
}

/** Why a text cannot be a token; null when it may be one. */
export function tokenProblem(text: string): string | null {
  if (text === "") return "Paste the token.";
  if (/\/signin\?/.test(text)) {
    return "This is a link for a browser. The editor needs a token: `assent token --user NAME` prints one.";
  }
  return /^[\x21-\x7e]{1,16384}$/.test(text) ? null : "This is no token: it holds characters that no token has.";
}
