// Taking back what a call did to files, in two steps: the machine that ran it says what an undo would do, file by file;
// then, and only for exactly that plan, it is carried out. Where something stands in the way it says what, and does nothing.

import type { Machine, ShownChange, UndoAnswer, UndoBody, UndoPlan } from "@protocol";
import { useEffect, useId, useRef, useState } from "react";
import { type Api, Problem, passing } from "../api";
import { DiffView } from "../cards/DiffView";
import type { Host } from "../host";
import { visible } from "../text/visible";
import { counted } from "../text/words";
import { Deliberate } from "./Deliberate";
import { Copyable, Plain } from "./facts";
import { Link } from "./Link";
import { asProblem, Trouble, useLoaded, Waiting } from "./loading";
import type { PageProps } from "./props";

interface Props {
  toolId: string;
  /** The machine that ran the call. */
  clientId: string | null;
  state: PageProps["state"];
  api: Api;
  host: Host;
  go: PageProps["go"];
  close: () => void;
}

export function UndoPanel(props: Props) {
  const { toolId, clientId, api, state, close } = props;
  const heading = useRef<HTMLHeadingElement>(null);
  const [done, setDone] = useState<UndoAnswer | null>(null);
  const machine = state.machines.find(({ client_id }) => client_id === clientId);
  const here = machine !== undefined;
  // Its own list of changes is in the editor, and `byleave undo` knows nothing of it.
  const inEditor = machine?.editor === "vscode";
  // A machine that comes back is asked at once; while it stays, nothing is asked again by itself.
  const plan = useLoaded(() => api.undoPlan(toolId), `${toolId} ${here}`);
  useEffect(() => heading.current?.focus(), []);
  return (
    <section className="page-section page-undo" aria-label="Undo">
      <header className="page-head">
        <h2 ref={heading} tabIndex={-1}>
          {done ? "Undone" : "Undo this call?"}
        </h2>
        <button type="button" className="page-button" onClick={close}>
          Close
        </button>
      </header>
      {done ? (
        <Done answer={done} inEditor={inEditor} />
      ) : (
        <>
          {plan.busy && <Waiting what="Asking the machine what an undo would do…" />}
          {plan.problem && (
            <>
              <Trouble problem={here ? plan.problem : unhinted(plan.problem)} again={plan.again} retry="Ask again" />
              <WhereItIs toolId={toolId} clientId={clientId} machines={state.machines} />
            </>
          )}
          {plan.value && !plan.busy && !plan.problem && (
            <Planned
              key={plan.value.plan}
              {...props}
              what={{ since: "this call", before: "the call" }}
              plan={plan.value}
              inEditor={inEditor}
              again={plan.again}
              undo={(body) => api.undo(toolId, body)}
              finish={setDone}
            />
          )}
        </>
      )}
    </section>
  );
}

/** Without what to do where the machine is not here: what is below says it for this call. */
function unhinted(problem: Problem): Problem {
  const { message, status, hint, state } = problem;
  return new Problem(message, status, state === "disconnected" ? null : hint, state);
}

/** When the machine cannot be asked: which one it is, and what can be done there. */
function WhereItIs({ toolId, clientId, machines }: { toolId: string; clientId: string | null; machines: Machine[] }) {
  if (machines.some((machine) => machine.client_id === clientId)) return null;
  return (
    <div className="page-remark">
      <p>
        {machines.length === 0
          ? "No machine is connected. What the call replaced is kept on the machine that ran it, and only there."
          : "Another machine is connected. The call ran on a different one, and what it replaced is kept only there."}
        {clientId && (
          <>
            {" "}
            That one is{" "}
            <code>
              <Plain text={clientId} />
            </code>
            .
          </>
        )}
      </p>
      <p>
        Connect it (<code>byleave up</code> or <code>byleave connect</code> there, or open the folder in VS Code); this
        page then asks it by itself. Or, there and without a server: in VS Code, Undo This Change in its list Changed by
        Agents; else, in the workspace: <Copyable text={`byleave undo ${toolId}`} name="the command" />
      </p>
    </div>
  );
}

interface PlannedProps<Answer> {
  plan: UndoPlan;
  /** What is undone, in words: changed since *this call*, as before *the call*. */
  what: { since: string; before: string };
  inEditor: boolean;
  host: Host;
  go: PageProps["go"];
  again: () => void;
  undo: (body: UndoBody) => Promise<Answer>;
  finish: (answer: Answer) => void;
}

/** What an undo would do, file by file, and the button for exactly that. */
export function Planned<Answer>({ plan, what, inEditor, host, go, again, undo: act, finish }: PlannedProps<Answer>) {
  const conflicts = plan.conflicts ?? [];
  const lost = Object.entries(plan.lost ?? {});
  const [partial, setPartial] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const partialId = useId();
  const undo = () => {
    setBusy(true);
    setProblem(null);
    act({ plan: plan.plan, partial: lost.length > 0 && partial }).then(finish, (error) => {
      // Whether it was done is not known: the machine is asked what there is to undo now.
      if (passing(error)) again();
      setProblem(asProblem(error));
      setBusy(false);
    });
  };
  // A directory that the call made goes as well, which has no text; then "files" would be wrong.
  const isFile = ({ before, after, unshown, note }: ShownChange) =>
    !note || (before ?? after ?? unshown ?? null) !== null;
  const noun = plan.files.every(isFile) ? "file" : "path";
  const files = counted(plan.total_files, noun);
  return (
    <>
      <Told plan={plan} what={what} go={go} />
      {plan.total_files > 0 && (
        <>
          <p>
            Preview of the undo: {plan.total_files === 1 ? `this ${noun}` : `these ${files}`} as before {what.before}.
          </p>
          <ul className="page-changes">
            {plan.files.map((change) => (
              <li key={change.path}>
                <DiffView change={change} host={host} />
              </li>
            ))}
          </ul>
          {plan.total_files > plan.files.length && (
            <p className="page-alarm">
              {counted(plan.total_files - plan.files.length, "more file")} would change too and cannot be shown here.
              {!inEditor && (
                <>
                  {" "}
                  <code>byleave undo</code> on the machine shows all of them.
                </>
              )}
            </p>
          )}
        </>
      )}
      {plan.total_files > 0 && conflicts.length === 0 && (
        <>
          {lost.length > 0 && (
            <p className="page-check">
              <input
                id={partialId}
                type="checkbox"
                checked={partial}
                onChange={(event) => setPartial(event.target.checked)}
              />{" "}
              <label htmlFor={partialId}>
                Undo the rest, and leave {lost.length === 1 ? "the one" : `these ${lost.length}`} above as is.
              </label>
            </p>
          )}
          <div className="page-row page-act">
            <Deliberate
              className="page-button page-button-bad"
              disabled={busy || (lost.length > 0 && !partial)}
              onPress={undo}
            >
              {busy ? "Undoing…" : `Undo ${plan.total_files === 1 ? `this ${noun}` : `these ${files}`}`}
            </Deliberate>
            <span className="page-note">Done only if everything is still exactly as shown.</span>
          </div>
        </>
      )}
      {problem && <Trouble problem={problem} again={again} retry="Ask the machine again" />}
    </>
  );
}

/** What stands in the way or should be known, before any file. */
function Told({ plan, what, go }: Pick<PlannedProps<unknown>, "plan" | "what" | "go">) {
  const conflicts = plan.conflicts ?? [];
  const lost = Object.entries(plan.lost ?? {});
  const left = plan.left ?? [];
  const together = plan.together ?? [];
  const nothing = plan.total_files === 0 && conflicts.length === 0 && lost.length === 0;
  return (
    <>
      {nothing && (
        <p className="page-remark">There is nothing to undo: every file is already as it was before {what.before}.</p>
      )}
      {conflicts.length > 0 && (
        <div className="page-verdict page-verdict-bad" role="alert">
          <p className="page-verdict-word">Cannot be undone now</p>
          <p>Changed since {what.since}:</p>
          <Paths paths={conflicts} />
          <p>
            Undo the later calls that changed them first. What you changed yourself is yours to merge. Nothing was
            touched.
          </p>
        </div>
      )}
      {lost.length > 0 && (
        <div className="page-remark">
          <p>
            <strong>This cannot be brought back:</strong>
          </p>
          <ul>
            {lost.map(([path, why]) => (
              <li key={path}>
                <code>
                  <Plain text={path} />
                </code>
                : <Plain text={why} />
              </li>
            ))}
          </ul>
        </div>
      )}
      {left.length > 0 && (
        <div className="page-remark">
          <p>Left as they are:</p>
          <Paths paths={left} />
        </div>
      )}
      {together.length > 0 && (
        <div className="page-remark">
          <p>These calls ran at the same time; some of this may be their doing:</p>
          <ul>
            {together.map((other) => (
              <li key={other}>
                <Link to={{ page: "history", tool: other }} go={go}>
                  {visible(other)}
                </Link>
              </li>
            ))}
          </ul>
        </div>
      )}
      {(plan.notes ?? []).map((note) => (
        <p key={note} className="page-remark">
          <Plain text={note} />
        </p>
      ))}
    </>
  );
}

function Paths({ paths }: { paths: string[] }) {
  return (
    <ul>
      {paths.map((path) => (
        <li key={path}>
          <code>
            <Plain text={path} />
          </code>
        </li>
      ))}
    </ul>
  );
}

function Done({ answer, inEditor }: { answer: UndoAnswer; inEditor: boolean }) {
  return (
    <div className="page-verdict page-verdict-ok" role="status">
      <p className="page-verdict-word">
        {answer.state === "undoing"
          ? "It is being undone"
          : answer.undo_id === null
            ? "Nothing had to change"
            : "It is as before the call"}
      </p>
      <p>
        <Plain text={answer.message} />
      </p>
      {answer.undo_id && !inEditor && (
        <p>
          To take that back, on the machine and in the workspace:{" "}
          <Copyable text={`byleave undo ${answer.undo_id}`} name="the command" />
        </p>
      )}
      {answer.undo_id && inEditor && (
        <p>
          To take that back, in VS Code: Bring It Back, in the message it shows now, or later the command{" "}
          <code>Byleave: Bring Back What Was Undone</code>.
        </p>
      )}
    </div>
  );
}
