// The conversations of the project: find one by its title or by what was said in it, see what waits in each, open it, and
// do with it what can be done with a whole one.

import type { FoundSession, Session } from "@protocol";
import { Fragment, type ReactNode, useEffect, useState } from "react";
import { ConversationMenu } from "../conversation/ConversationMenu";
import { oneLine, visible } from "../text/visible";
import { counted } from "../text/words";
import { Plain, When } from "./facts";
import { Link } from "./Link";
import { Empty, Trouble, useLoaded } from "./loading";
import type { ProjectPageProps } from "./props";
import { Title } from "./Title";

const PAUSE_MS = 200;
const LONGEST = 200;

export function Sessions({ state, api, projectId, go, manage }: ProjectPageProps) {
  const [sought, setSought] = useState("");
  const wanted = useLater(sought.trim().slice(0, LONGEST));
  const titles = state.sessions.map(({ session_id, title }) => `${session_id} ${title}`).join("\n");
  const search = useLoaded(
    async () => (wanted === "" ? null : api.search(projectId, wanted)),
    JSON.stringify([projectId, wanted, wanted === "" ? "" : titles]),
  );
  const known = new Set(state.sessions.map(({ session_id }) => session_id));
  const all: FoundSession[] = state.sessions.map((session) => ({ session, messages: 0, excerpt: null }));
  // One that was deleted meanwhile is not found any more.
  const found =
    wanted === "" ? all : (search.value?.found ?? []).filter(({ session }) => known.has(session.session_id));
  const shown = found.sort((one, other) => other.session.created_at.localeCompare(one.session.created_at));
  const waits = new Map<string | null, number>();
  for (const question of state.questions) waits.set(question.session_id, (waits.get(question.session_id) ?? 0) + 1);
  const searching = wanted !== "" && search.value === null && !search.problem;
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
            <span>Find in titles and messages</span>
            <input type="search" value={sought} onChange={(event) => setSought(event.target.value)} />
          </label>
          <p className="page-note" role="status">
            {searching
              ? "Searching…"
              : wanted === ""
                ? counted(shown.length, "conversation")
                : `${counted(shown.length, "conversation")} found${search.value?.complete === false ? "; give more words to see others" : ""}`}
          </p>
          {search.problem && <Trouble problem={search.problem} again={search.again} />}
          <ul className="page-list">
            {shown.map(({ session, messages, excerpt }) => (
              <li key={session.session_id} className="page-list-row">
                <Link to={{ page: "chat", session: session.session_id }} go={go} className="page-list-link">
                  <span className="page-list-title">
                    <Named session={session} sought={wanted} />
                  </span>
                  <span className="page-list-note">
                    <When at={session.created_at} />
                    {session.session_id === state.sessionId && <span className="page-tag">open now</span>}
                    <Waits count={waits.get(session.session_id) ?? 0} />
                  </span>
                  {excerpt !== null && (
                    <span className="page-excerpt">
                      <bdi>
                        <Marked text={oneLine(excerpt)} sought={wanted} />
                      </bdi>
                      {messages > 1 && <span className="page-note"> in {counted(messages, "message")}</span>}
                    </span>
                  )}
                </Link>
                {manage && (
                  <ConversationMenu
                    session={session}
                    label={`Manage ${visible(session.title) || "Untitled"}`}
                    className="app-close"
                    manage={manage}
                  />
                )}
              </li>
            ))}
          </ul>
          {shown.length === 0 && !searching && !search.problem && (
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

/** A value once it has not changed for a moment. */
function useLater(value: string): string {
  const [later, setLater] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setLater(value), value === "" ? 0 : PAUSE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return later;
}

function Named({ session, sought }: { session: Session; sought: string }) {
  if (!session.title) return "Untitled";
  if (sought === "") return <Plain text={session.title} />;
  return (
    <bdi>
      <Marked text={oneLine(session.title)} sought={sought} />
    </bdi>
  );
}

/** A text with what was sought in it marked. */
function Marked({ text, sought }: { text: string; sought: string }): ReactNode {
  const words = sought.split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = text.split(new RegExp(`(${words.join("\\s+")})`, "giu"));
  return parts.map((part, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: the place of a part is what it is
    <Fragment key={index}>{index % 2 === 1 ? <mark>{part}</mark> : part}</Fragment>
  ));
}

function Waits({ count }: { count: number }) {
  if (count === 0) return null;
  return <span className="page-tag page-tag-waits">{count} to review</span>;
}
