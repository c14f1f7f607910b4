// Where the person is, kept after the `#` of the address so that the server serves one page and a webview works too.
// Only reads and writes routes; moving there is the app's business.

export type Route =
  | { page: "chat"; session: string | null; question?: string }
  | { page: "sessions" }
  | { page: "history"; tool: string | null }
  | { page: "grants" }
  | { page: "policy" }
  | { page: "audit" }
  | { page: "agents" };

export type PageName = Route["page"];

const IDENTIFIER = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;

/** `#/history/exec_1` → the route; whatever is not one of ours is the chat. */
export function readRoute(hash: string): Route {
  const [page = "", detail = ""] = hash.replace(/^#\/?/, "").split("/");
  const id = IDENTIFIER.test(detail) ? detail : null;
  switch (page) {
    case "sessions":
    case "grants":
    case "policy":
    case "audit":
    case "agents":
      return { page };
    case "history":
      return { page, tool: id };
    case "review":
      return id ? { page: "chat", session: null, question: id } : { page: "chat", session: null };
    default:
      return { page: "chat", session: page === "chat" ? id : null };
  }
}

export function routeHash(route: Route): string {
  if (route.page === "chat" && route.question) return `#/review/${route.question}`;
  if (route.page === "chat") return route.session ? `#/chat/${route.session}` : "#/chat";
  if (route.page === "history") return route.tool ? `#/history/${route.tool}` : "#/history";
  return `#/${route.page}`;
}
