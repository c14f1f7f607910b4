// What is shown to somebody who is not signed in: nothing of anybody, and how to get in.

import { type FormEvent, useEffect, useState } from "react";
import type { Host } from "../host";
import { keepsKeys } from "../page_key";
import { reload } from "./reload";

/** The name of the identity provider that signs people in; null while it is not known, or there is none. */
function useProvider(asks: boolean): string | null {
  const [name, setName] = useState<string | null>(null);
  useEffect(() => {
    if (!asks) return;
    fetch("/signin/ways")
      .then(async (answer) => setName(answer.ok ? (await answer.json()).provider : null))
      .catch(() => {}); // A link still signs in.
  }, [asks]);
  return name;
}

export function SignedOut({ kind }: { kind: Host["kind"] }) {
  const provider = useProvider(kind === "browser");
  return (
    <main className="app-signed-out">
      <div className="app-sheet">
        <p className="app-brand">
          <span className="app-mark" aria-hidden="true" />
          Byleave
        </p>
        <h1>You are not signed in</h1>
        {kind === "browser" ? (
          <>
            {provider === null ? (
              <LinkHelp />
            ) : (
              <>
                <button
                  type="button"
                  className="app-button app-button-main"
                  onClick={() => location.assign("/signin/provider")}
                >
                  Sign in with {provider}
                </button>
                <p>
                  Another account? <a href="/signin/provider/out">Sign out of {provider}</a> first. A link from{" "}
                  <code>byleave link</code> signs you in, too.
                </p>
              </>
            )}
            <form className="app-buttons" onSubmit={follow}>
              <input className="app-link" name="link" aria-label="Sign-in link" placeholder="Paste a link" required />
              <button type="submit" className="app-button">
                Sign in
              </button>
            </form>
            {!keepsKeys() && (
              <p role="alert">
                This browser keeps nothing for this page, so no link can sign it in. Allow site data (local storage) for
                this address first.
              </p>
            )}
            <p>Pending requests wait; unanswered ones expire without running.</p>
          </>
        ) : (
          <p>The token was not accepted. The page around this chat must give a new one.</p>
        )}
        <button
          type="button"
          className={provider === null ? "app-button app-button-main" : "app-button"}
          onClick={reload}
        >
          Try again
        </button>
      </div>
    </main>
  );
}

/** An app on the home screen has no address bar to paste a link into. Only its code counts: it is this server's to know. */
function follow(event: FormEvent<HTMLFormElement>): void {
  event.preventDefault();
  const typed = String(new FormData(event.currentTarget).get("link")).trim();
  const code = /[?&]code=([\w-]+)/.exec(typed)?.[1] ?? typed;
  location.assign(`/signin?code=${encodeURIComponent(code)}`);
}

function LinkHelp() {
  return (
    <>
      <p>A link signs this browser in. It works once and for ten minutes.</p>
      <ul>
        <li>
          In a terminal where Byleave runs: <code>byleave link</code> prints one, <code>byleave link --qr</code> a code
          to scan.
        </li>
        <li>
          On a device that is signed in: choose <strong>Use your phone</strong> in its menu.
        </li>
      </ul>
    </>
  );
}
