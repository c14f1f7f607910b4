// Signs another device in: asks the server for a link that works once, and says what it is. The link is shown only here
// and is kept nowhere.

import type { SignInLink } from "@protocol";
import { useEffect, useRef, useState } from "react";
import type { Api } from "../api";
import { span } from "../text/words";
import { Popover } from "./Popover";

const LOOPBACK = /^(localhost|127\.|\[::1\])/;

export function DeviceLink({ api, complain }: { api: Api; complain: (error: unknown) => void }) {
  return (
    <Popover label="Open on another device…" title="Open on another device" className="app-device">
      {() => <Panel api={api} complain={complain} />}
    </Popover>
  );
}

function Panel({ api, complain }: { api: Api; complain: (error: unknown) => void }) {
  const [link, setLink] = useState<SignInLink | null>(null);
  const [busy, setBusy] = useState(false);
  const [copied, setCopied] = useState(false);
  const buttons = useRef<HTMLDivElement>(null);
  // The rail is short and scrolls: what the person asked for comes into sight.
  // biome-ignore lint/correctness/useExhaustiveDependencies: when it opens, and when the link is there.
  useEffect(() => {
    buttons.current?.scrollIntoView({ block: "nearest" }); // newer browsers give a promise back, which is no clean-up
  }, [link]);
  const make = async () => {
    setBusy(true);
    setCopied(false);
    try {
      setLink(await api.signInLink());
    } catch (error) {
      complain(error);
    } finally {
      setBusy(false);
    }
  };
  const address = link ? new URL(link.path, location.origin).href : "";
  return (
    <>
      <h2>Open on another device</h2>
      <p>
        A link signs one browser in as you, with chat and approvals. Whoever opens it first is in: give it to nobody
        else.
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
      <div className="app-buttons" ref={buttons}>
        {link && (
          <button
            type="button"
            className="app-button app-button-main"
            onClick={() => navigator.clipboard.writeText(address).then(() => setCopied(true), complain)}
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
    </>
  );
}
