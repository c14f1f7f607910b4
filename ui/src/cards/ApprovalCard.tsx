// A question that waits for a decision: what will happen, how risky and why, exactly what with, and the ways to answer.
// It never takes the focus, never answers by itself, and stays in its place when it is settled, saying by whom.

import type { SeenFile } from "@protocol";
import { useRef, useState } from "react";
import type { Api } from "../api";
import type { Host } from "../host";
import type { Question, Settled } from "../state/model";
import "../styles/cards.css";
import { oneLine, visible } from "../text/visible";
import { counted } from "../text/words";
import { Answers } from "./Answers";
import { asked } from "./asked";
import { Countdown, type Place, useSecondsLeft } from "./Countdown";
import { useDeciding } from "./deciding";
import { useGuard } from "./guard";
import { Headline } from "./Headline";
import { Inspected } from "./Inspected";
import { Masked } from "./Masked";
import { Parameters } from "./Parameters";
import { Risk } from "./Risk";
import { SettledLine } from "./SettledLine";
import { useChange, WriteShown } from "./WriteShown";

interface ApprovalCardProps {
  question: Question;
  api: Api;
  host: Host;
  projectId: string;
  /** The server's clock, in milliseconds. */
  now: () => number;
  /** Where it was asked, as a sentence; null when it is the conversation on the screen. */
  elsewhere: string | null;
  /** Which of those that wait it is; null where it is the only one. */
  place?: Place | null;
  settled: Settled | null;
  onDecided: (settled: Settled) => void;
  onDismiss: () => void;
}

export function ApprovalCard(props: ApprovalCardProps) {
  const { question, api, host, projectId, now, elsewhere, place, settled, onDecided, onDismiss } = props;
  const guard = useGuard();
  const deciding = useDeciding(question, api, projectId, onDecided);
  const left = useSecondsLeft(question.deadline, now, settled === null);
  // What had the focus may go away without a word: the last that was heard of it holds.
  const focused = useRef(false);
  const byKeyboard = useRef(false);
  const [panel, setPanel] = useState<"similar" | "everything">();
  const isWrite = question.tool_name === "write_file";
  const loaded = useChange(question, api, guard.lock);
  const { headline, lines } = asked(question, loaded && "change" in loaded ? loaded.change : null);
  return (
    <article
      className="card card-question"
      data-risk={question.risk_level}
      data-approval={question.id}
      data-settled={settled?.status}
      data-panel={settled === null ? panel : undefined}
      aria-label={`Question: ${headline}`}
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
        {elsewhere !== null && (
          <p className="card-whose">
            <bdi>{oneLine(elsewhere)}</bdi>
          </p>
        )}
        <Risk level={question.risk_level} />
        <Headline text={headline} />
        {settled === null && <Countdown left={left} of={question.timeout_seconds} place={place ?? null} />}
        <p className="card-scarce">More below: scroll, or make room.</p>
      </header>
      {/* Of one box: what sticks to the end of it never covers what is asked. */}
      <div className="card-question-rest">
        <div className="card-question-body">
          {lines.map((line, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: they never change
            <p key={index} className={line.startsWith("Note: ") ? "card-caution" : undefined}>
              <bdi>{line}</bdi>
            </p>
          ))}
          {/* What a write changes is what is to be judged: nothing that can wait comes before it. */}
          {isWrite && <WriteShown question={question} loaded={loaded} api={api} host={host} moved={guard.lock} />}
          <Why question={question} />
          <Asker question={question} />
          <Exactly question={question} />
          <Masked question={question} shown={shownOf(question, loaded)} api={api} />
          <Inspected inspection={question.inspection} folded={isWrite} />
        </div>
        {settled === null ? (
          <Answers
            question={question}
            projectId={projectId}
            api={api}
            guard={guard}
            deciding={deciding}
            headline={headline}
            expired={left === 0}
            onPanel={setPanel}
          />
        ) : (
          <SettledLine
            settled={settled}
            second={deciding.second}
            takeFocus={focused.current && byKeyboard.current}
            onDismiss={onDismiss}
          />
        )}
      </div>
    </article>
  );
}

/** What of a call is shown, and may be masked: a write's content is in its difference, where there is one. */
function shownOf({ tool_params, inspection }: Question, loaded: ReturnType<typeof useChange>): string {
  const after = loaded && "change" in loaded ? loaded.change.change.after : null;
  const files: readonly SeenFile[] = inspection?.files ?? [];
  const texts = [...Object.values(tool_params).flat().map(String), ...files.map((file) => file.text ?? "")];
  return after ?? texts.join("\n");
}

function Why({ question }: { question: Question }) {
  // Only a command could have a network, so only of one it is news that it has none.
  const network = question.network
    ? "It may use the network."
    : question.tool_name === "execute_command" && "It gets no network.";
  if (question.findings.length === 0 && !network) return null;
  return (
    <ul className="card-why">
      {question.findings.map((finding, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: they never change
        <li key={index}>
          <bdi>{visible(finding.reason)}</bdi>{" "}
          <span className="card-aside">
            (rule <code className="card-rule-name">{oneLine(finding.rule)}</code>)
          </span>
          {finding.always_asks && <span className="card-aside"> It asks every time.</span>}
          {finding.instead && <div className="card-aside">Instead: {visible(finding.instead)}</div>}
        </li>
      ))}
      {network && <li>{network}</li>}
    </ul>
  );
}

function Asker({ question }: { question: Question }) {
  const calls = question.tool_ids.length;
  return (
    <p className="card-aside">
      {question.agent_id ? `Asked by the agent “${oneLine(question.agent_id)}”` : "Asked by an agent"}.
      {calls > 1 && ` ${counted(calls, "identical call")} wait for this one answer.`}
    </p>
  );
}

const SAID_BY_WRITE = new Set(["path", "content", "content_size", "mode"]);

/** All parameters. Those of a write stand in the heading and in the difference already: they are there when asked for. */
function Exactly({ question }: { question: Question }) {
  const isWrite = question.tool_name === "write_file";
  const elsewhere: Record<string, string> = isWrite ? { content: "shown above" } : {};
  const title = "Parameters, exactly";
  const list = <Parameters toolName={question.tool_name} params={question.tool_params} elsewhere={elsewhere} />;
  if (isWrite && Object.keys(question.tool_params).every((name) => SAID_BY_WRITE.has(name))) {
    return (
      <details className="card-part card-fold">
        <summary className="card-part-title">{title}</summary>
        {list}
      </details>
    );
  }
  return (
    <section className="card-part">
      <p className="card-part-title">{title}</p>
      {list}
    </section>
  );
}
