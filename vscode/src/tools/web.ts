// search_web: one query to the one provider the owner configured, and a bounded answer. Each provider is a request and a
// way to read its JSON; the query and the key go to the host that was configured and nowhere else (`fetching`). A hit is a
// stranger's text: what is no plain web address is left out, and hidden characters are made visible. No page behind a hit
// is fetched.

import { isIPv6 } from "node:net";
import type { SearchWebResult, WebHit } from "@protocol";
import { safeText } from "../gate/index.js";
import { ConfigurationError, ToolFailure } from "./errors.js";
import { BoundedWeb, type JsonObject, type WebOptions, type WebRequest } from "./fetching.js";
import { firstCharacters, repr } from "./words.js";

const MAX_TITLE = 300;
const MAX_SNIPPET = 2000;
const MAX_URL = 2000;
const HINT =
  "Set byleave.search.searxngUrl in the settings, or give a key for Tavily or Brave Search with the command `Byleave: Set a Key for Web Search`.";
/** What Python splits words at. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are among it
const BLANKS = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;

export type ProviderName = "searxng" | "tavily" | "brave";

export interface WebSettings {
  /** Who answers; null: the first with a key or an address. */
  readonly provider: ProviderName | null;
  readonly searxngUrl: string | null;
  readonly tavilyUrl: string;
  readonly tavilyKey: string | null;
  readonly braveUrl: string;
  readonly braveKey: string | null;
  /** Whether a provider's name may lead to a private address. */
  readonly allowPrivate: boolean;
}

export const NO_WEB: WebSettings = {
  provider: null,
  searxngUrl: null,
  tavilyUrl: "https://api.tavily.com",
  tavilyKey: null,
  braveUrl: "https://api.search.brave.com",
  braveKey: null,
  allowPrivate: false,
};

export interface WebParams {
  readonly query: string;
  readonly max_results: number;
}

interface Provider {
  readonly request: WebRequest;
  read(answer: JsonObject): unknown;
  readonly snippet: string;
}

/** Ask the configured provider. */
export async function searchWeb(
  settings: WebSettings,
  params: WebParams,
  signal?: AbortSignal,
  options: WebOptions = {},
): Promise<SearchWebResult> {
  const { read, request, snippet } = configured(settings, params);
  const web = new BoundedWeb({ allowPrivate: settings.allowPrivate, ...options });
  const answer = await web.ask(request, signal);
  return { success: true, error: null, results: hitsIn(read(answer), snippet, params.max_results) };
}

function configured(settings: WebSettings, params: WebParams): Provider {
  const known: Record<ProviderName, Provider | undefined> = {
    searxng: searxng(settings, params),
    tavily: tavily(settings, params),
    brave: brave(settings, params),
  };
  const { provider: wanted } = settings;
  const found = wanted === null ? (known.searxng ?? known.tavily ?? known.brave) : known[wanted];
  if (found !== undefined) {
    return found;
  }
  throw wanted === null
    ? new ToolFailure("No web search provider is configured.", HINT)
    : new ConfigurationError(`The web search provider ${repr(wanted)} has no URL or key.`, HINT);
}

function searxng({ searxngUrl }: WebSettings, { query }: WebParams): Provider | undefined {
  return searxngUrl
    ? {
        request: {
          name: "SearXNG",
          method: "GET",
          url: `${bare(searxngUrl)}/search`,
          setting: "byleave.search.searxngUrl",
          query: { q: query, format: "json" },
        },
        read: (answer) => answer.results,
        snippet: "content",
      }
    : undefined;
}

function tavily({ tavilyKey, tavilyUrl }: WebSettings, { max_results, query }: WebParams): Provider | undefined {
  return tavilyKey
    ? {
        request: {
          name: "Tavily",
          method: "POST",
          url: `${bare(tavilyUrl)}/search`,
          setting: "byleave.search.tavilyUrl",
          keys: { Authorization: `Bearer ${tavilyKey}` },
          body: { query, max_results },
        },
        read: (answer) => answer.results,
        snippet: "content",
      }
    : undefined;
}

function brave({ braveKey, braveUrl }: WebSettings, { max_results, query }: WebParams): Provider | undefined {
  return braveKey
    ? {
        request: {
          name: "Brave Search",
          method: "GET",
          url: `${bare(braveUrl)}/res/v1/web/search`,
          setting: "byleave.search.braveUrl",
          keys: { "X-Subscription-Token": braveKey },
          query: { q: query, count: String(max_results) },
        },
        read: ({ web }) => (isObject(web) ? web.results : undefined),
        snippet: "description",
      }
    : undefined;
}

function bare(url: string): string {
  return url.replace(/\/+$/, "");
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Read hits out of a stranger's JSON; what is no hit with a plain web address is left out. */
export function hitsIn(found: unknown, snippetKey: string, most: number): WebHit[] {
  const hits: WebHit[] = [];
  for (const entry of Array.isArray(found) ? found : []) {
    if (isObject(entry) && typeof entry.url === "string" && isPlain(entry.url)) {
      const snippet = line(entry[snippetKey], MAX_SNIPPET);
      hits.push({ title: line(entry.title, MAX_TITLE), url: entry.url, snippet });
    }
  }
  return hits.slice(0, most);
}

/** Whether it is a web address that shows where it leads: nothing hidden in it, no user before the host. */
function isPlain(url: string): boolean {
  if (firstCharacters(url, MAX_URL) !== url || /[ \\]/.test(url) || safeText(url) !== url) {
    return false;
  }
  const authority = /^https?:\/\/([^/?#]+)/i.exec(url)?.[1] ?? "";
  // What becomes a separator when a name is brought to its usual form could lead elsewhere.
  if (authority.includes("@") || /[/?#@:]/.test(authority.replace(/[:@]/g, "").normalize("NFKC"))) {
    return false;
  }
  if (/[[\]]/.test(authority)) {
    const inside = /^\[([^[\]]*)\](?::.*)?$/.exec(authority)?.[1] ?? "";
    return isIPv6(inside) || /^v[0-9a-f]+\..+$/i.test(inside);
  }
  return /^[^:]/.test(authority);
}

/** One line in which nothing is hidden. */
function line(text: unknown, limit: number): string {
  if (typeof text !== "string") {
    return "";
  }
  const words = firstCharacters(text, 4 * limit).split(BLANKS);
  return firstCharacters(safeText(words.filter((word) => word !== "").join(" ")), limit);
}
