// The main column: what waits for a decision, else the conversation, and the place to write. While something waits, the
// conversation is folded away behind a button. It stays in the page while another one is shown, so that its place is kept.

import { ListChecks, MessagesSquare } from "lucide-react";
import { useCallback, useEffect, useRef, useState } from "react";
import { Choose } from "../parts/Choose";
import type { Chat } from "../state/chat";
import type { AppState, Entry, Usage } from "../state/model";
import { Sentences } from "../text/Sentences";
import { visible } from "../text/visible";
import { dollars, moment, thousands } from "../text/words";
import { Composer } from "./Composer";
import { Conversation } from "./Conversation";
import { EntryView } from "./EntryView";
import { HowToConnect } from "./Machines";
import { ModeSwitch } from "./ModeSwitch";
import { Review, type Wanted } from "./Review";

const EXAMPLES = ["read package.json and tell me the version", "list src", "write notes.md: buy milk"];

interface Props {
  chat: Chat;
  state: AppState;
  now: number;
  /** Whether the chat is what is shown. */
  active: boolean;
  wanted: Wanted;
  /** How often the person went to a conversation: that is then what they want to see. */
  visits: number;
  showGrants: () => void;
}

export function ChatPane({ chat, state, now, active, wanted, visits, showGrants }: Props) {
  const { api, host, now: clock } = chat;
  const { grants, projectId, me } = state;
  const userId = me?.user_id ?? null;
  const [offered, setOffered] = useState({ text: "", count: 0 });
  const row = useCallback(
    (entry: Entry) => <EntryView entry={entry} api={api} host={host} userId={userId} grants={grants} now={clock} />,
    [api, host, userId, grants, clock],
  );
  const loadOlder = useCallback((asked?: boolean) => void chat.loadOlder(asked), [chat]);
  const agent = state.agents.find((each) => each.name === state.agent);
  const mode = agent && (state.modes[agent.name] ?? agent.mode);
  const [reviewing, toggle] = useReviewing(state, wanted, visits);
  const waits = state.questions.length + state.settled.length > 0;
  return (
    <>
      <Everything state={state} now={now} showGrants={showGrants} />
      {state.machinesKnown && state.machines.length === 0 && projectId !== null && (
        <div className="app-banner">
          <HowToConnect projectId={projectId} kind={host.kind} />
        </div>
      )}
      {state.trouble !== null && <Trouble text={state.trouble} tryAgain={chat.tryAgain} />}
      <div className="app-stage">
        {/* Still laid out while it is folded, so that the place in it is kept. */}
        <div className={reviewing ? "app-fold app-folded" : "app-fold"} inert={reviewing}>
          <Conversation
            sessionId={state.sessionId}
            entries={state.entries}
            loading={state.loading}
            older={state.older}
            loadingOlder={state.loadingOlder}
            olderTrouble={state.olderTrouble}
            loadOlder={loadOlder}
            row={row}
            empty={
              // What could not be read is not empty: only a conversation that is there, or a new one, is introduced.
              state.trouble === null || state.sessionId === null ? (
                <Intro offer={(text) => setOffered(({ count }) => ({ text, count: count + 1 }))} />
              ) : null
            }
          />
        </div>
        {waits && projectId !== null && (
          <div className={reviewing ? "app-fold" : "app-fold app-folded"} inert={!reviewing}>
            <Review
              questions={state.questions}
              settled={state.settled}
              sessions={state.sessions}
              sessionId={state.sessionId}
              projectId={projectId}
              api={api}
              host={host}
              now={clock}
              active={active && reviewing}
              wanted={wanted}
              onDecided={chat.decided}
              onDismiss={chat.dismiss}
            />
          </div>
        )}
      </div>
      {projectId !== null && (
        <div className="app-below">
          {me?.chat === false ? (
            <p className="app-banner">
              This server has no chat agent. You are still asked here about the calls of other agents.
            </p>
          ) : (
            <Composer
              host={host}
              projectId={projectId}
              sessionId={state.sessionId}
              ready={state.sessionId !== null || !state.loading}
              begun={state.begun}
              returned={state.returned}
              working={state.runId !== null}
              send={(content) => chat.post(content)}
              files={(query) => api.files(projectId, query)}
              stop={() => void chat.stop()}
              offered={offered}
              slim={reviewing}
              lead={waits && <Toggle reviewing={reviewing} toggle={toggle} />}
            >
              {state.agents.length > 1 && (
                <Choose
                  label="Agent"
                  quiet
                  value={state.agent}
                  choices={state.agents.map(({ name, description }) => ({
                    value: name,
                    text: visible(name),
                    hint: visible(description),
                  }))}
                  choose={(name) => chat.pickAgent(name)}
                />
              )}
              {agent && (agent.models ?? []).length > 1 && (
                <Choose
                  label="Model"
                  quiet
                  value={agent.models.find((each) => each === state.model) ?? agent.models[0] ?? ""}
                  choices={agent.models.map((name) => ({ value: name, text: visible(name) }))}
                  choose={(name) => chat.pickModel(name)}
                />
              )}
              {agent && mode && (
                <ModeSwitch
                  key={agent.name}
                  agent={agent}
                  mode={mode}
                  mayApprove={me?.scopes.includes("approve") ?? false}
                  choose={(chosen) => chat.setMode(agent.name, chosen)}
                />
              )}
              {state.runId !== null && (
                <Working asks={state.questions.some((each) => each.session_id === state.sessionId)} />
              )}
              {state.usage && <Used usage={state.usage} />}
            </Composer>
          )}
        </div>
      )}
    </>
  );
}

/** Whether the questions that wait are what is shown, and how to turn to the conversation and back. */
function useReviewing(state: AppState, wanted: Wanted, visits: number): [reviewing: boolean, toggle: () => void] {
  const [chatOpen, setChatOpen] = useState(false);
  const waits = state.questions.length + state.settled.length > 0;
  useEffect(() => {
    if (!waits) setChatOpen(false);
  }, [waits]);
  useEffect(() => {
    if (wanted.count > 0) setChatOpen(false);
  }, [wanted]);
  const visited = useRef(visits);
  useEffect(() => {
    if (visited.current === visits) return;
    visited.current = visits;
    // Where a question waits, that is what one goes there for.
    setChatOpen(waits && !state.questions.some((question) => question.session_id === state.sessionId));
  }, [visits, waits, state.questions, state.sessionId]);
  return [waits && !chatOpen, () => setChatOpen(!chatOpen)];
}

function Toggle({ reviewing, toggle }: { reviewing: boolean; toggle: () => void }) {
  const Icon = reviewing ? MessagesSquare : ListChecks;
  return (
    <button type="button" className="app-button app-fold-button" onClick={toggle}>
      <Icon size={16} aria-hidden="true" />
      <span>{reviewing ? "Show chat" : "Back to review"}</span>
    </button>
  );
}

/** Everything in this conversation is allowed: that is never to be forgotten. */
function Everything({ state, now, showGrants }: { state: AppState; now: number; showGrants: () => void }) {
  const grant = state.grants.find(
    (each) =>
      each.scope === "session" &&
      each.session_id === state.sessionId &&
      each.status === "active" &&
      Date.parse(each.expires_at) > now,
  );
  if (!grant) return null;
  return (
    <div className="app-banner app-banner-high" role="status">
      <p>
        <strong>Everything in this conversation is allowed</strong> until {moment(grant.expires_at)}. The agent won't
        ask.
      </p>
      <button type="button" className="app-button" onClick={showGrants}>
        See and revoke
      </button>
    </div>
  );
}

/** The truth is the server's record: where it could not be read, what is shown may be less than there is. */
function Trouble({ text, tryAgain }: { text: string; tryAgain: () => void }) {
  return (
    <div className="app-banner app-trouble" role="status">
      <p>
        Not everything could be read: <Sentences text={text} /> <span className="app-muted">Trying again.</span>
      </p>
      <button type="button" className="app-button" onClick={tryAgain}>
        Try again
      </button>
    </div>
  );
}

function Working({ asks }: { asks: boolean }) {
  return (
    <span className="app-working" role="status">
      <span className="app-dot" aria-hidden="true" />
      {asks ? "Waiting for you" : "Working…"}
    </span>
  );
}

function Intro({ offer }: { offer: (text: string) => void }) {
  return (
    <div className="app-intro">
      <h2>What should the agent do?</h2>
      <p>
        It works in one directory of your machine. Reads run automatically. Before anything changes, you see exactly
        what would happen and decide.
      </p>
      <ul>
        {EXAMPLES.map((example) => (
          <li key={example}>
            <button type="button" className="app-example" onClick={() => offer(example)}>
              {example}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Used({ usage }: { usage: Usage }) {
  const { requests, inputTokens, outputTokens, cost } = usage;
  return (
    <span className="app-usage app-muted" title="What the last run used of its model">
      {thousands(inputTokens)} tokens in, {thousands(outputTokens)} out, {requests}{" "}
      {requests === 1 ? "answer" : "answers"}
      {cost !== null && `, ${dollars(cost)}`}
    </span>
  );
}
