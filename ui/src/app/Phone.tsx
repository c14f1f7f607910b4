// Signs a phone or another device in: asks the server for a link that works once, and shows it as a code to scan. The link
// is shown only here and is kept nowhere.

import type { PhoneLink } from "@protocol";
import { useState } from "react";
import { type Api, Problem } from "../api";
import { told } from "../cards/told";
import { Sheet } from "../parts/Sheet";
import { span } from "../text/words";

export function Phone({ api, close }: { api: Api; close: () => void }) {
  const [link, setLink] = useState<PhoneLink | null>(null);
  const [busy, setBusy] = useState(false);
  const [copied, setCopied] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const make = async () => {
    setBusy(true);
    setCopied(false);
    setProblem(null);
    try {
      setLink(await linkFor(api, setProblem));
    } catch (error) {
      setProblem(told(error));
    } finally {
      setBusy(false);
    }
  };
  const copy = () =>
    navigator.clipboard.writeText(link?.url ?? "").then(
      () => setCopied(true),
      (error) => setProblem(told(error)),
    );
  return (
    <Sheet title="Use your phone" close={close}>
      <p>
        Scan a code to see and approve requests from your phone, or from another device. It signs one device in as you,
        with chat and approvals. The first to open it is in, so show it to nobody.
      </p>
      {link && (
        <>
          {link.qr.length > 0 && <Code rows={link.qr} />}
          <input
            className="app-link"
            readOnly
            value={link.url}
            aria-label="Sign-in link"
            onFocus={(event) => event.target.select()}
          />
          <p className="app-muted" role="status">
            {copied ? "Copied. " : ""}Works once, within {span(link.expires_in_seconds)}.
            {link.qr.length > 0 && link.url.startsWith("http:") && " Notifications on the phone need https."}
          </p>
        </>
      )}
      {problem && (
        <p className="app-warning-text" role="alert">
          {problem}
        </p>
      )}
      <div className="app-buttons">
        {/* Browsers give the clipboard to pages of https only. */}
        {link && "clipboard" in navigator && (
          <button type="button" className="app-button app-button-main" onClick={copy}>
            Copy
          </button>
        )}
        <button
          type="button"
          className={link ? "app-button" : "app-button app-button-main"}
          disabled={busy}
          onClick={make}
        >
          {link ? "Make another" : "Show a code"}
        </button>
      </div>
    </Sheet>
  );
}

/** A link a phone can open; where there is none, why, and one for this machine. */
async function linkFor(api: Api, say: (problem: string) => void): Promise<PhoneLink> {
  try {
    return await api.phoneLink();
  } catch (error) {
    if (!(error instanceof Problem) || error.state !== "local") throw error;
    say(`${told(error)} The link below works on this machine only.`);
    const { path, expires_in_seconds } = await api.signInLink();
    return { url: new URL(path, location.origin).href, qr: [], expires_in_seconds };
  }
}

/** Dark on light in every theme: that is what cameras read. */
function Code({ rows }: { rows: readonly string[] }) {
  const size = rows.length + 8;
  const dark = rows.flatMap((row, y) => [...row].map((one, x) => (one === "1" ? `M${x + 4} ${y + 4}h1v1h-1z` : "")));
  return (
    <svg
      className="app-qr"
      viewBox={`0 0 ${size} ${size}`}
      role="img"
      aria-label="Code to scan"
      shapeRendering="crispEdges"
    >
      <path fill="#fff" d={`M0 0h${size}v${size}H0z`} />
      <path d={dark.join("")} />
    </svg>
  );
}
