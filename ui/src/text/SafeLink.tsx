// A link out of text from elsewhere: only to the web or to a mailbox, in a new window that knows nothing of this one, and
// with where it leads in sight. Anything else stays text. It never follows anything by itself.

import type { ReactNode } from "react";
import { flat } from "./flat";
import { oneLine, shortened } from "./visible";

const LONGEST = 90;

export interface SafeAddress {
  href: string;
  /** Where it leads, as people read it: the host comes first and nothing before it can pass for one. */
  shown: string;
}

/** The address when it may be followed; null when not. */
export function safeAddress(href: string): SafeAddress | null {
  let url: URL;
  try {
    url = new URL(href);
  } catch {
    return null;
  }
  if (url.protocol === "mailto:") {
    return { href: url.href, shown: shortened(oneLine(decoded(url.pathname)), LONGEST) };
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  // A name before the host makes one host look like another.
  if (url.username || url.password) return null;
  const path = url.pathname === "/" && !url.search && !url.hash ? "" : `${url.pathname}${url.search}${url.hash}`;
  return { href: url.href, shown: shortened(oneLine(`${url.host}${path}`), LONGEST) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function SafeLink({ href, children }: { href: string; children: ReactNode }) {
  const safe = safeAddress(href);
  const said = flat(children);
  if (!safe) {
    const target = shortened(oneLine(href), LONGEST);
    return (
      <span className="text-nolink">
        <bdi>{children}</bdi>
        {target && target !== said && <span className="text-target"> ({target})</span>}
      </span>
    );
  }
  const bare = said.replace(/^https?:\/\/|^mailto:/, "").replace(/\/$/, "");
  return (
    <>
      <a href={safe.href} target="_blank" rel="noopener noreferrer nofollow" title={oneLine(safe.href)}>
        <bdi>{children}</bdi>
      </a>
      {bare !== safe.shown.replace(/\/$/, "") && <bdi className="text-target"> ({safe.shown})</bdi>}
    </>
  );
}
