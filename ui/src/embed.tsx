// The chat inside another team's page: `mountByleave(element, …)` puts it there and gives back how to take it away. The
// token is handed on with each request and is never stored; the page around it is left as it is.

import "./styles/tokens.css";
import "./styles/app.css";
import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import { BearerHost, type Token } from "./bearer_host";
import type { Waiting } from "./host";

export interface Options {
  /** The server's address, `https://byleave.example.com`. */
  server: string;
  /** A token, or how to get one: then it is asked for before each request. */
  token: Token;
  /** Which project to open; left out: the last one, or the first. */
  projectId?: string | undefined;
  /** What waits, whenever it changes: for a badge of your own. */
  onWaiting?: ((waiting: Waiting) => void) | undefined;
  /** `false` when your page brings the style sheet itself. */
  styles?: boolean | undefined;
}

export function mountByleave(element: HTMLElement, options: Options): () => void {
  if (options.styles !== false) addStyles(element.ownerDocument, options.server);
  const place = element.ownerDocument.createElement("div");
  place.className = "byleave";
  element.append(place);
  const root = createRoot(place);
  root.render(<App host={new BearerHost(options)} projectId={options.projectId ?? null} />);
  return () => {
    root.unmount();
    place.remove();
  };
}

function addStyles(page: Document, server: string): void {
  const address = `${server.replace(/\/+$/, "")}/page/byleave.css`;
  if ([...page.querySelectorAll("link")].some((link) => link.getAttribute("href") === address)) return;
  const link = page.createElement("link");
  link.rel = "stylesheet";
  link.href = address;
  page.head.append(link);
}
