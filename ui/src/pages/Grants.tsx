// What was allowed beyond one call: what is in force first, each with its limits, and taken back in two presses. What has
// ended stays below, with why. The list is the store's, so it is live; a grant just taken back is shown so at once, because
// the server has said so.

import type { Grant } from "@protocol";
import { useState } from "react";
import type { Problem } from "../api";
import { moment, span, theAsker } from "../text/words";
import { Deliberate } from "./Deliberate";
import { type Fact, Facts, Plain, useServerNow, Values, When } from "./facts";
import { Link } from "./Link";
import { asProblem, Empty, Trouble } from "./loading";
import type { ProjectPageProps } from "./props";
import { Title } from "./Title";
import { actorWords } from "./words";

const TICK_MS = 5000;

export function Grants({ state, api, go }: ProjectPageProps) {
  const now = useServerNow(state.serverAhead, TICK_MS);
  const [ended, setEnded] = useState<Record<string, Grant>>({});
  const grants = state.grants.map((grant) => (grant.status === "active" ? (ended[grant.id] ?? grant) : grant));
  const active = grants.filter((grant) => inForce(grant, now));
  const over = grants.filter((grant) => !inForce(grant, now));
  const shared = { now, userId: state.me?.user_id ?? null, sessionId: state.sessionId, go };
  return (
    <>
      <header className="page-head">
        <Title>Grants</Title>
      </header>
      <p className="page-lead">
        What you allowed beyond one call. Calls that a grant covers run without asking; they are in the history all the
        same.
      </p>
      {active.length === 0 ? (
        <Empty title="No grant is in force.">
          <p>
            Every call that needs a yes asks for it. “Allow similar…” on a question makes a grant, with limits you
            choose.
          </p>
        </Empty>
      ) : (
        <ul className="page-cards" aria-label="In force">
          {active.map((grant) => (
            <li key={grant.id} className={grant.scope === "session" ? "page-card page-card-alarm" : "page-card"}>
              <GrantWords grant={grant} {...shared} />
              <Revoke
                grant={grant}
                revoke={async () => {
                  const told = await api.revoke(grant.id);
                  setEnded((before) => ({ ...before, [told.id]: told }));
                }}
              />
            </li>
          ))}
        </ul>
      )}
      {over.length > 0 && (
        <details className="page-fold">
          <summary>Ended: {over.length}</summary>
          <ul className="page-cards" aria-label="Ended">
            {over.map((grant) => (
              <li key={grant.id} className="page-card page-card-over">
                <GrantWords grant={grant} {...shared} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

export function inForce(grant: Grant, now: number): boolean {
  return grant.status === "active" && Date.parse(grant.expires_at) > now;
}

interface WordsProps {
  grant: Grant;
  now: number;
  userId: string | null;
  sessionId: string | null;
  go: ProjectPageProps["go"];
}

function GrantWords({ grant, now, userId, sessionId, go }: WordsProps) {
  const active = inForce(grant, now);
  const facts: Fact[] = [
    ["Covers", COVERS[grant.scope]],
    ["For", `${theAsker(grant.agent_id)} only`],
    [
      grant.scope === "project" ? "Given in" : "Conversation",
      <Link key="session" to={{ page: "chat", session: grant.session_id }} go={go}>
        {grant.session_id === sessionId ? "the one open now" : "another conversation"}
      </Link>,
    ],
    ["Used", usesWords(grant)],
    active ? ["Ends", endWords(grant, now)] : ["Ended", <Ending key="ended" grant={grant} userId={userId} />],
    ["Given", <Given key="given" grant={grant} userId={userId} />],
  ];
  return (
    <div className="page-grant">
      <h2>
        <Plain text={grant.text} />
      </h2>
      {grant.scope === "session" && active && (
        <p className="page-alarm">
          Nothing in that conversation asks, except what always asks. Take it back when you are done.
        </p>
      )}
      <Facts facts={facts} />
      {grant.rule !== null && (
        <details className="page-fold">
          <summary>Raw rule</summary>
          <Values values={{ ...grant.rule }} />
        </details>
      )}
    </div>
  );
}

const COVERS: Record<Grant["scope"], string> = {
  once: "one call",
  class: "calls of this kind in one conversation",
  session: "everything in one conversation",
  project: "calls of this kind in every conversation of this project",
};

function endWords({ scope, expires_at }: Grant, now: number): string {
  const left = span((Date.parse(expires_at) - now) / 1000);
  return scope === "project" ? `in ${left}, on ${moment(expires_at, now)}` : `in ${left}, or with the conversation`;
}

function usesWords({ uses, max_uses }: Grant): string {
  const used = uses === 0 ? "never" : uses === 1 ? "once" : `${uses} times`;
  return max_uses === null ? `${used}; no limit` : `${used}; ${Math.max(0, max_uses - uses)} of ${max_uses} left`;
}

function Given({ grant, userId }: { grant: Grant; userId: string | null }) {
  return (
    <>
      by <Plain text={actorWords(grant.created_by, userId)} />, <When at={grant.created_at} />
    </>
  );
}

function Ending({ grant, userId }: { grant: Grant; userId: string | null }) {
  if (grant.status === "used_up") return <>used up</>;
  if (grant.status !== "revoked")
    return (
      <>
        its time was over, <When at={grant.expires_at} />
      </>
    );
  return (
    <>
      taken back by <Plain text={actorWords(grant.revoked_by, userId)} />
      {grant.revoked_at && (
        <>
          , <When at={grant.revoked_at} />
        </>
      )}
    </>
  );
}

function Revoke({ grant, revoke }: { grant: Grant; revoke: () => Promise<void> }) {
  const [asked, setAsked] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const press = () => {
    setBusy(true);
    setProblem(null);
    revoke().catch((error) => {
      setProblem(asProblem(error));
      setBusy(false);
    });
  };
  if (!asked) {
    return (
      <button type="button" className="page-button" aria-label={`Revoke: ${grant.text}`} onClick={() => setAsked(true)}>
        Revoke…
      </button>
    );
  }
  return (
    <section className="page-confirm" aria-label="Revoke this grant?">
      <p>The next call it would have covered asks you again. What already runs is not stopped.</p>
      <div className="page-row">
        <Deliberate className="page-button page-button-bad" disabled={busy} onPress={press}>
          {busy ? "Revoking…" : "Revoke it"}
        </Deliberate>
        <button type="button" className="page-button" onClick={() => setAsked(false)}>
          Keep it
        </button>
      </div>
      {problem && <Trouble problem={problem} />}
    </section>
  );
}
