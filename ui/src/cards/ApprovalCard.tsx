// A question that waits for a decision: what will happen, how risky it is, exactly what with, and the ways to answer. It
// never takes the focus and never answers by itself. Nothing of it is cut off: what is long makes the page longer.

import { type RefObject, useEffect, useRef } from "react";
import type { Api } from "../api";
import type { Host } from "../host";
import type { Question, Settled } from "../state/model";
import "../styles/cards.css";
import { oneLine } from "../text/visible";
import { asker, counted, whoIs } from "../text/words";
import { Answers } from "./Answers";
import { headline, headlineText, isGrave, unsaid } from "./asked";
import { Chips } from "./Chips";
import { useSecondsLeft } from "./Countdown";
import { Details } from "./Details";
import { Counts, compared } from "./DiffView";
import { useDeciding } from "./deciding";
import { Edited } from "./Edited";
import { useGuard } from "./guard";
import { Headline } from "./Headline";
import { Inspected } from "./Inspected";
import { Masked, shownOf } from "./Masked";
import { Parameters } from "./Parameters";
import { SettledLine } from "./SettledLine";
import { Warnings } from "./Warnings";
import { useChange, WriteShown } from "./WriteShown";

/** What of the height a heading may keep while one reads below it. */
const MOST_OF_ROOM = 0.55;

interface ApprovalCardProps {
  question: Question;
  api: Api;
  host: Host;
  projectId: string;
  /** The server's clock, in milliseconds. */
  now: () => number;
  /** Where it was asked, as a sentence; null when it is the conversation on the screen. */
  elsewhere: string | null;
  settled: Settled | null;
  onDecided: (settled: Settled) => void;
}

export function ApprovalCard(props: ApprovalCardProps) {
  const { question, api, host, projectId, now, elsewhere, settled, onDecided } = props;
  const guard = useGuard();
  const deciding = useDeciding(question, api, projectId, onDecided);
  const left = useSecondsLeft(question.deadline, now, settled === null);
  // What had the focus may go away without a word: the last that was heard of it holds.
  const focused = useRef(false);
  const byKeyboard = useRef(false);
  const isWrite = question.tool_name === "write_file";
  const loaded = useChange(question, api, guard.lock);
  const change = loaded && "change" in loaded ? loaded.change : null;
  const found = change ? compared(change.change) : null;
  const words = headline(question, change);
  const path = isWrite && words.verb !== "Create" ? String(question.tool_params.path) : null;
  const calls = question.tool_ids.length;
  const head = useTall();
  useLockOn(calls, guard.lock);
  return (
    <article
      className="card card-question"
      data-risk={isGrave(question) ? "HIGH" : question.risk_level}
      data-approval={question.id}
      data-settled={settled?.status}
      aria-label={`Question: ${headlineText(words)}`}
      // The focus comes here only when the person asks to be taken to it: a key pressed here decides nothing.
      tabIndex={-1}
      onFocus={() => {
        focused.current = true;
      }}
      onBlur={(event) => {
        focused.current = event.currentTarget.contains(event.relatedTarget);
      }}
      onKeyDown={() => {
        byKeyboard.current = true;
      }}
      onPointerDown={() => {
        byKeyboard.current = false;
      }}
    >
      <header className="card-question-head" ref={head}>
        <Asker question={question} elsewhere={elsewhere} />
        <Headline words={words} file={path} host={host} />
        <Chips question={question}>{found && <Counts added={found.added} removed={found.removed} />}</Chips>
      </header>
      <div className="card-question-body">
        <Warnings question={question} />
        {calls > 1 && <p className="card-told">Your answer counts for {counted(calls, "identical call")}.</p>}
        <Unsaid question={question} />
        <Edited question={question} change={change} host={host} />
        {isWrite && question.edit && <p className="card-part-title">The file as it would change</p>}
        {isWrite && <WriteShown question={question} loaded={loaded} api={api} host={host} moved={guard.lock} />}
        <Inspected question={question} />
        <Masked question={question} shown={shownOf(question, change)} api={api} />
        <Details question={question} />
      </div>
      {settled === null ? (
        <Answers
          question={question}
          projectId={projectId}
          api={api}
          guard={guard}
          deciding={deciding}
          words={words}
          left={left}
        />
      ) : (
        <SettledLine settled={settled} takeFocus={focused.current && byKeyboard.current} />
      )}
    </article>
  );
}

/** What of a call stands nowhere else on its card. */
export function Unsaid({ question }: { question: Question }) {
  const params = unsaid(question);
  if (Object.keys(params).length === 0) return null;
  return <Parameters toolName={question.tool_name} params={params} named />;
}

/** Marks a heading that takes so much of the room that it must scroll with the rest. */
export function useTall(): RefObject<HTMLElement | null> {
  const head = useRef<HTMLElement>(null);
  useEffect(() => {
    const element = head.current;
    const around = element?.closest(".app-review");
    if (!element || !around || typeof ResizeObserver === "undefined") return;
    const watching = new ResizeObserver(() => {
      element.toggleAttribute("data-tall", element.offsetHeight > around.clientHeight * MOST_OF_ROOM);
    });
    watching.observe(element);
    watching.observe(around);
    return () => watching.disconnect();
  }, []);
  return head;
}

/** Presses do not count for a moment once the answer would count for something else. */
export function useLockOn(what: unknown, lock: () => void): void {
  const before = useRef(what);
  useEffect(() => {
    if (before.current === what) return;
    before.current = what;
    lock();
  }, [what, lock]);
}

/** Who asks, in one quiet line; of another conversation it says so before anything else. */
export function Asker({ question, elsewhere }: { question: Question; elsewhere: string | null }) {
  return (
    <p className="card-asker">
      {elsewhere !== null && (
        <>
          <bdi className="card-whose">{oneLine(elsewhere)}</bdi>
          {" · "}
        </>
      )}
      Asked by <bdi>{asker(question.agent_id)}</bdi>
      {question.edit && <> · changed by {whoIs(question.edit.edited_by, question.user_id)}</>}
    </p>
  );
}
