// One call, with everything the record holds of it, its result, and the way to undo what it changed. The record is read
// again when the live state says that the call went on.

import type { Execution as Record_ } from "@protocol";
import { useEffect, useRef, useState } from "react";
import { FileName } from "../cards/EffectLines";
import { changedCount, changedFiles, isolationFacts, warnings, weaknesses } from "../cards/effects";
import { Parameters } from "../cards/Parameters";
import { ResultView } from "../cards/ResultView";
import type { ToolCall } from "../state/model";
import { Lines } from "../text/Lines";
import { Sentences } from "../text/Sentences";
import { advice, asker, callSummary, counted, duration, outcome, saidOf, verb, whoIs } from "../text/words";
import { Copyable, type Fact, Facts, Plain, Risk, When } from "./facts";
import { LetBy, toneOf } from "./History";
import { Link } from "./Link";
import { Trouble, useLoaded, Waiting } from "./loading";
import type { ProjectPageProps } from "./props";
import { liveCalls } from "./recent";
import { Title } from "./Title";
import { UndoPanel } from "./UndoPanel";
import { actorWords, isEnded } from "./words";

export function Execution(props: ProjectPageProps & { toolId: string }) {
  const { api, state, toolId, go } = props;
  const call = liveCalls(state).get(toolId);
  const record = useLoaded(() => api.execution(toolId), toolId);
  const { again } = record;
  const heard = useRef(call?.status);
  useEffect(() => {
    if (heard.current === call?.status) return;
    heard.current = call?.status;
    again();
  }, [call?.status, again]);
  return (
    <>
      <nav aria-label="Back" className="page-back">
        <Link to={{ page: "history", tool: null }} go={go}>
          ← All calls
        </Link>
      </nav>
      {record.value === null && record.busy && <Waiting what="Reading the record…" />}
      {record.problem && <Trouble problem={record.problem} again={again} />}
      {record.value !== null && <Detail {...props} row={record.value} call={call} />}
    </>
  );
}

/** Whether there may be something to undo: it ran on a machine, with a tool that changes files. */
export function mayUndo(row: Record_): boolean {
  if (row.client_id === null || !isEnded(row.status)) return false;
  if (row.tool_name === "write_file") return row.status === "completed" || row.error_type === "interrupted";
  return row.tool_name === "execute_command" && row.result?.changed_count !== 0;
}

type DetailProps = ProjectPageProps & { row: Record_; call: ToolCall | undefined };

function Detail(props: DetailProps) {
  const { row, state, host } = props;
  const undone = props.call?.undone ?? null;
  const said = row.error ? saidOf(row.error) : null;
  const [undoing, setUndoing] = useState(false);
  return (
    <article>
      <header className="page-head">
        <Title className="page-call">
          <span className="page-tool">{verb(row.tool_name)}</span>{" "}
          <code>
            <bdi>{callSummary(row.tool_name, row.tool_params)}</bdi>
          </code>
        </Title>
        {mayUndo(row) && !undoing && (
          <button type="button" className="page-button" onClick={() => setUndoing(true)}>
            Undo…
          </button>
        )}
      </header>
      <p className="page-row">
        <Risk level={row.risk_level} />
        <span className={toneOf(row)}>{outcome(row.status, row.error_type, row.execution_time_ms)}</span>
        <When at={row.created_at} />
      </p>
      {undone && (
        <p className="page-remark">
          Undone by <Plain text={actorWords(undone.by, state.me?.user_id ?? null)} />: {counted(undone.files, "file")}.
        </p>
      )}
      {undoing && (
        <UndoPanel {...props} toolId={row.tool_id} clientId={row.client_id} close={() => setUndoing(false)} />
      )}
      {said && (
        <section className="page-section">
          <h2>{neverRan(row) ? "Why it did not run" : "What went wrong"}</h2>
          <Lines start={null} text={said.what} label="What went wrong" />
          {said.hint && (
            <p>
              <Sentences text={said.hint} />
            </p>
          )}
          {advice(row.error_type) && <p>{advice(row.error_type)}</p>}
        </section>
      )}
      <section className="page-section">
        <h2>Parameters</h2>
        <Parameters toolName={row.tool_name} params={row.tool_params} given />
      </section>
      {row.edit && (
        <section className="page-section">
          <h2>As the agent asked</h2>
          <Parameters toolName={row.tool_name} params={row.edit.asked} given />
        </section>
      )}
      <Reasons row={row} />
      {row.result !== null && (
        <section className="page-section">
          <h2>Result</h2>
          <ResultView toolName={row.tool_name} result={row.result} host={host} />
          <Effects result={row.result} host={host} />
        </section>
      )}
      <section className="page-section">
        <h2>Record</h2>
        <Facts facts={recordFacts(props)} />
      </section>
    </article>
  );
}

const neverRan = ({ status, error_type }: Record_) => status === "rejected" || error_type === "refused";

function Reasons({ row }: { row: Record_ }) {
  // A refusal says its reason as what went wrong; nobody needs to read it twice.
  const [first, ...others] = row.reasons;
  if (others.length === 0 && first !== undefined && row.error !== null && first === saidOf(row.error).what) return null;
  return (
    <section className="page-section">
      <h2>Why {row.risk_level.toLowerCase()} risk</h2>
      <ul className="page-reasons">
        {row.reasons.map((reason) => (
          <li key={reason}>
            <Plain text={reason} />
          </li>
        ))}
      </ul>
      {row.reasons.length === 0 && <p className="page-note">No reason is on record.</p>}
    </section>
  );
}

/** What the machine told of it beside the result: every file it changed, and what held it. */
function Effects({ result, host }: { result: Record<string, unknown>; host: ProjectPageProps["host"] }) {
  const files = changedFiles(result);
  const held = isolationFacts(result);
  const weak = weaknesses(result);
  const told = warnings(result);
  const more = changedCount(result) - files.length;
  return (
    <Facts
      facts={[
        ["Warning", told.length > 0 && <span className="page-alarm">{told.join(" ")}</span>],
        [
          "Changed files",
          files.length > 0 && (
            <ul className="page-paths">
              {files.map(({ path, change }) => (
                <li key={path}>
                  <FileName path={path} host={host} gone={change === "deleted"} /> {change}
                </li>
              ))}
              {more > 0 && <li>and {counted(more, "more file")}</li>}
            </ul>
          ),
        ],
        ["Isolation", held && `It was ${held}.`],
        ["Weaker there", weak.length > 0 && weak.join(" ")],
      ]}
    />
  );
}

function recordFacts({ row, state, go, call }: DetailProps): Fact[] {
  const when = (at: string | null) => at && <When at={at} />;
  const id = (value: string | null, name: string) => value && <Copyable text={value} name={name} />;
  return [
    ["Tool", <Plain key="tool" text={row.tool_name} />],
    ["State", `${row.status}${row.error_type ? ` (${row.error_type})` : ""}`],
    ["Asked a person", row.requires_approval ? "yes" : "no"],
    ["Changed", row.edit && `by ${whoIs(row.edit.edited_by, state.me?.user_id ?? null)}, before it was decided`],
    ["Allowed", <LetBy key="let" row={row} state={state} call={call} />],
    ["Mode", row.mode],
    ["Began", when(row.created_at)],
    ["Allowed at", when(row.approved_at)],
    ["Ended", when(row.completed_at)],
    ["Took", row.execution_time_ms === null ? null : duration(row.execution_time_ms)],
    ["User", <Plain key="user" text={row.user_id} />],
    ["Called by", row.agent_id && <Plain text={asker(row.agent_id)} />],
    [
      "Conversation",
      <Link key="session" to={{ page: "chat", session: row.session_id }} go={go}>
        {row.session_id === state.sessionId ? "the one open now" : "open it"}
      </Link>,
    ],
    ["Call", id(row.tool_id, "the call’s id")],
    ["Approval", id(row.approval_id, "the approval’s id")],
    ["Run", id(row.run_id, "the run’s id")],
    ["Conversation id", id(row.session_id, "the conversation’s id")],
    ["Project", id(row.project_id, "the project’s id")],
    ["Machine", id(row.client_id, "the machine’s id")],
    ["Digest", id(row.digest, "the digest")],
  ];
}
