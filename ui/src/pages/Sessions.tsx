// The conversations of the project: find one, see what waits in each, open it, begin a new one.

import { useState } from "react";
import { visible } from "../text/visible";
import { counted } from "../text/words";
import { Plain, When } from "./facts";
import { Link } from "./Link";
import { Empty } from "./loading";
import type { ProjectPageProps } from "./props";
import { Title } from "./Title";

export function Sessions({ state, go }: ProjectPageProps) {
  const [sought, setSought] = useState("");
  const wanted = sought.trim().toLowerCase();
  const found = [...state.sessions]
    .filter((session) => `${visible(session.title)} ${session.session_id}`.toLowerCase().includes(wanted))
    .sort((one, other) => other.created_at.localeCompare(one.created_at));
  const waits = new Map<string | null, number>();
  for (const question of state.questions) waits.set(question.session_id, (waits.get(question.session_id) ?? 0) + 1);
  return (
    <>
      <header className="page-head">
        <Title>Conversations</Title>
        <button
          type="button"
          className="page-button page-button-main"
          onClick={() => go({ page: "chat", session: null })}
        >
          New conversation
        </button>
      </header>
      {state.sessions.length === 0 ? (
        <Empty title="No conversation yet.">
          <p>
            Begin one and write what the agent should do. Whatever it wants to do on your machine is shown to you first.
          </p>
        </Empty>
      ) : (
        <>
          <label className="page-search">
            <span>Find a conversation</span>
            <input type="search" value={sought} onChange={(event) => setSought(event.target.value)} />
          </label>
          <p className="page-note" role="status">
            {wanted === ""
              ? counted(found.length, "conversation")
              : `${found.length} of ${state.sessions.length} shown`}
          </p>
          <ul className="page-list">
            {found.map((session) => (
              <li key={session.session_id}>
                <Link to={{ page: "chat", session: session.session_id }} go={go} className="page-list-link">
                  <span className="page-list-title">{session.title ? <Plain text={session.title} /> : "Untitled"}</span>
                  <span className="page-list-note">
                    <When at={session.created_at} />
                    {session.session_id === state.sessionId && <span className="page-tag">open now</span>}
                    <Waits count={waits.get(session.session_id) ?? 0} />
                  </span>
                </Link>
              </li>
            ))}
          </ul>
          {found.length === 0 && (
            <Empty title="No match.">
              <button type="button" className="page-button" onClick={() => setSought("")}>
                Show all
              </button>
            </Empty>
          )}
        </>
      )}
    </>
  );
}

function Waits({ count }: { count: number }) {
  if (count === 0) return null;
  return <span className="page-tag page-tag-waits">{count} to review</span>;
}
