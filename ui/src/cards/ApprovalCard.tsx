// A question that waits for a decision: what will happen, how risky and why, exactly what with, and the ways to answer.
// It never takes the focus, never answers by itself, and stays in its place when it is settled, saying by whom.

import { useRef } from "react";
import type { Api } from "../api";
import type { Host } from "../host";
import type { Question, Settled } from "../state/model";
import "../styles/cards.css";
import { oneLine, shortened, visible } from "../text/visible";
import { counted } from "../text/words";
import { Answers } from "./Answers";
import { Countdown, useSecondsLeft } from "./Countdown";
import { useDeciding } from "./deciding";
import { useGuard } from "./guard";
import { Inspected } from "./Inspected";
import { Parameters } from "./Parameters";
import { Risk } from "./Risk";
import { SettledLine } from "./SettledLine";
import { WriteShown } from "./WriteShown";

interface ApprovalCardProps {
  question: Question;
  api: Api;
  host: Host;
  projectId: string;
  /** The server's clock, in milliseconds. */
  now: () => number;
  /** The other conversation it was asked in; null when it is the one on the screen. */
  elsewhere: string | null;
  settled: Settled | null;
  onDecided: (settled: Settled) => void;
  onDismiss: () => void;
}

export function ApprovalCard(props: ApprovalCardProps) {
  const { question, api, host, projectId, now, elsewhere, settled, onDecided, onDismiss } = props;
  const guard = useGuard();
  const deciding = useDeciding(question, api, projectId, onDecided);
  const left = useSecondsLeft(question.deadline, now, settled === null);
  // What had the focus may go away without a word: the last that was heard of it holds.
  const focused = useRef(false);
  const byKeyboard = useRef(false);
  const isWrite = question.tool_name === "write_file";
  const lines = descriptionLines(question);
  return (
    <article
      className="card card-question"
      data-risk={question.risk_level}
      data-approval={question.id}
      data-settled={settled?.status}
      aria-label={`Question: ${lines[0]}`}
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
      <header className="card-question-head">
        <Risk level={question.risk_level} />
        <h2>
          <bdi>{lines[0]}</bdi>
        </h2>
        {settled === null && <Countdown left={left} of={question.timeout_seconds} />}
      </header>
      <div className="card-question-body">
        {lines.slice(1).map((line, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: they never change
          <p key={index} className={line.startsWith("Note: ") ? "card-caution" : undefined}>
            <bdi>{line}</bdi>
          </p>
        ))}
        <Why question={question} />
        {isWrite && <WriteShown question={question} api={api} host={host} moved={guard.lock} />}
        <Asker question={question} elsewhere={elsewhere} />
        <section className="card-part">
          <p className="card-part-title">Parameters, exactly</p>
          <Parameters
            toolName={question.tool_name}
            params={question.tool_params}
            elsewhere={isWrite ? { content: "shown above" } : {}}
          />
        </section>
        <Inspected inspection={question.inspection} folded={isWrite} />
      </div>
      {settled === null ? (
        <Answers
          question={question}
          projectId={projectId}
          api={api}
          guard={guard}
          deciding={deciding}
          expired={left === 0}
        />
      ) : (
        <SettledLine
          settled={settled}
          second={deciding.second}
          takeFocus={focused.current && byKeyboard.current}
          onDismiss={onDismiss}
        />
      )}
    </article>
  );
}

/** What would happen. Reasons and content have places of their own. */
function descriptionLines(question: Question): string[] {
  const reasons = new Set(question.findings.map((finding) => finding.reason));
  const content = question.tool_params.content;
  const below = (line: string) => reasons.has(line) || (Boolean(content) && line.startsWith("Content: "));
  return question.description
    .split("\n")
    .filter((line, index) => index === 0 || !below(line))
    .map((line) => shortened(visible(line), 2000));
}

function Why({ question }: { question: Question }) {
  return (
    <ul className="card-why">
      {question.findings.map((finding, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: they never change
        <li key={index}>
          <bdi>{visible(finding.reason)}</bdi> <code className="card-rule-name">{oneLine(finding.rule)}</code>
          {finding.always_asks && <span className="card-aside"> It asks every time.</span>}
          {finding.instead && <div className="card-aside">Instead: {visible(finding.instead)}</div>}
        </li>
      ))}
      <li>{question.network ? "It may use the network." : "It gets no network."}</li>
    </ul>
  );
}

function Asker({ question, elsewhere }: { question: Question; elsewhere: string | null }) {
  const calls = question.tool_ids.length;
  return (
    <p className="card-aside">
      {question.agent_id ? `Asked by agent ${oneLine(question.agent_id)}` : "Asked by an agent"}
      {elsewhere !== null && (
        <>
          , elsewhere: <bdi>{oneLine(elsewhere)}</bdi>
        </>
      )}
      .{calls > 1 && ` ${counted(calls, "identical call")} wait for this one answer.`}
    </p>
  );
}
