// Signs another device in: asks the server for a link that works once, and says what it is. The link is shown only here
// and is kept nowhere.

import type { SignInLink } from "@protocol";
import { useState } from "react";
import type { Api } from "../api";
import { told } from "../cards/told";
import { span } from "../text/words";

const LOOPBACK = /^(localhost|127\.|\[::1\])/;

export function DeviceLink({ api }: { api: Api }) {
  const [link, setLink] = useState<SignInLink | null>(null);
  const [busy, setBusy] = useState(false);
  const [copied, setCopied] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const make = async () => {
    setBusy(true);
    setCopied(false);
    setProblem(null);
    try {
      setLink(await api.signInLink());
    } catch (error) {
      setProblem(told(error));
    } finally {
      setBusy(false);
    }
  };
  const address = link ? new URL(link.path, location.origin).href : "";
  return (
    <section className="app-device">
      <h3>Open on another device</h3>
      <p>
        A link signs one browser in as you, with chat and approvals. The first to open it is in, so share it with
        nobody.
      </p>
      {LOOPBACK.test(location.host) && (
        <p className="app-muted">
          This server is reached at {location.host}: the link works on this machine only, or through a tunnel to it.
        </p>
      )}
      {link && (
        <>
          <input
            className="app-link"
            readOnly
            value={address}
            aria-label="Sign-in link"
            onFocus={(event) => event.target.select()}
          />
          <p className="app-muted" role="status">
            {copied ? "Copied. " : ""}Works once, within {span(link.expires_in_seconds)}.
          </p>
        </>
      )}
      {problem && (
        <p className="app-warning-text" role="alert">
          {problem}
        </p>
      )}
      <div className="app-buttons">
        {link && (
          <button
            type="button"
            className="app-button app-button-main"
            onClick={() =>
              navigator.clipboard.writeText(address).then(
                () => setCopied(true),
                (error) => setProblem(told(error)),
              )
            }
          >
            Copy
          </button>
        )}
        <button
          type="button"
          className={link ? "app-button" : "app-button app-button-main"}
          disabled={busy}
          onClick={make}
        >
          {link ? "Make another" : "Make a link"}
        </button>
      </div>
    </section>
  );
}
