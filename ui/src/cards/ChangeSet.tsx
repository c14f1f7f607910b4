// Several writes that wait together in one conversation, as one change set: a list of files, each with its own answer, and
// one answer for all of them. Each answer is sent for its own approval with its own digest; what fails is said.

import { ChevronRight, MessageSquareX, Pencil, SquareArrowOutUpRight } from "lucide-react";
import { type ComponentProps, useCallback, useEffect, useId, useRef, useState } from "react";
import type { Api } from "../api";
import type { Host } from "../host";
import { More } from "../parts/More";
import type { Question, Settled } from "../state/model";
import "../styles/cards.css";
import { oneLine } from "../text/visible";
import { counted } from "../text/words";
import { Armed, MoreBelow, Reason, useDisarm } from "./Answers";
import { Asker, Unsaid, useLockOn, useTall } from "./ApprovalCard";
import { headline, isGrave } from "./asked";
import { Countdown, useSecondsLeft } from "./Countdown";
import { Details } from "./Details";
import { Counts, compared } from "./DiffView";
import { type Answer, answer, type Trouble } from "./deciding";
import { Edited } from "./Edited";
import { EditPanel } from "./EditPanel";
import { type Guard, useGuard } from "./guard";
import { Masked, shownOf } from "./Masked";
import { Problem } from "./Problem";
import { Risk } from "./Risk";
import { Ended } from "./SettledLine";
import { Warnings } from "./Warnings";
import { useChange, WriteShown } from "./WriteShown";

/** So many files are open at once; of more only the first is. */
const MOST_OPEN = 6;
/** So many differences are asked for at once; the others when they are opened. */
const MOST_ASKED = 20;

export interface Member {
  question: Question;
  settled: Settled | null;
}

interface ChangeSetProps {
  members: Member[];
  api: Api;
  host: Host;
  projectId: string;
  now: () => number;
  elsewhere: string | null;
  onDecided: (settled: Settled) => void;
  /** Shows one of them by itself, with every way to answer. */
  alone: (id: string) => void;
}

interface Amount {
  added: number;
  removed: number;
}

export function ChangeSet(props: ChangeSetProps) {
  const { members, api, host, projectId, now, elsewhere, onDecided, alone } = props;
  const guard = useGuard();
  const { states, send } = useSending(api, projectId, onDecided);
  const [opened, setOpened] = useState<"armed" | "reason" | null>(null);
  const [reason, setReason] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const [amounts, setAmounts] = useState<Record<string, Amount>>({});
  const waiting = members.filter(({ settled }) => settled === null).map(({ question }) => question);
  const first = soonest(waiting);
  const left = useSecondsLeft(first?.deadline ?? "", now, first !== null);
  const high = waiting.filter(isGrave);
  const sending = waiting.some(({ id }) => states[id]?.sending);
  const off = sending || waiting.length === 0 || left === 0;
  const leave = useDisarm(opened === "armed", () => setOpened(null));
  useLockOn(waiting.map(({ id, tool_ids }) => `${id} ${tool_ids.length}`).join(), guard.lock);
  const open = (wanted: typeof opened) => {
    setOpened(wanted);
    guard.lock();
  };
  const all = async (given: Answer) => {
    setOpened(null);
    for (const question of waiting) await send(question, given);
  };
  const allow = () => void all({ status: "approved", terms: {} });
  const deny = () => void all({ status: "rejected", reason: opened === "reason" ? reason : null });
  const report = useCallback((id: string, amount: Amount) => setAmounts((known) => ({ ...known, [id]: amount })), []);
  const total = Object.values(amounts).reduce(
    (sum, each) => ({ added: sum.added + each.added, removed: sum.removed + each.removed }),
    { added: 0, removed: 0 },
  );
  const lead = members[0]?.question;
  const head = useTall();
  const failed = waiting.filter(({ id }) => states[id]?.problem).length;
  return (
    <article
      className="card card-question card-set"
      data-settled={waiting.length === 0 ? "all" : undefined}
      aria-label={`Change set: ${counted(members.length, "file")}`}
      tabIndex={-1}
    >
      <header className="card-question-head" ref={head}>
        {lead && <Asker question={{ ...lead, edit: null }} elsewhere={elsewhere} />}
        <h2 className="card-asked">
          <span className="card-asked-verb">Change {counted(members.length, "file")}</span>
        </h2>
        <div className="card-chips">
          <Risk level={members.some(({ question }) => isGrave(question)) ? "HIGH" : (lead?.risk_level ?? "MEDIUM")} />
          <Counts {...total} />
        </div>
      </header>
      <ul className="card-set-files">
        {members.map((member, index) => (
          <FileOfSet
            key={member.question.id}
            {...member}
            api={api}
            host={host}
            projectId={projectId}
            now={now}
            guard={guard}
            openAtFirst={members.length <= MOST_OPEN || index === 0}
            eager={index < MOST_ASKED}
            sending={states[member.question.id]?.sending ?? null}
            problem={states[member.question.id]?.problem ?? null}
            send={(given) => void send(member.question, given)}
            report={report}
            alone={alone}
          />
        ))}
      </ul>
      {first && (
        <footer className="card-answers" data-armed={opened === "armed" && !off ? "" : undefined} {...leave}>
          {opened === "armed" && !off && (
            <Armed guard={guard} confirm={allow} back={() => open(null)} yes={`Yes, allow all ${waiting.length}`}>
              High risk: {high.map(({ tool_params }) => oneLine(String(tool_params.path))).join(", ")}. Written
              immediately.
            </Armed>
          )}
          {opened === "reason" && (
            <Reason
              value={reason}
              change={setReason}
              field={field}
              back={() => open(null)}
              off={off || !guard.open}
              deny={deny}
            />
          )}
          <MoreBelow />
          <div role="alert">
            {failed > 0 && !sending && (
              <p className="card-caution">
                {counted(failed, "answer")} could not be sent; see the {failed === 1 ? "file" : "files"} above.
              </p>
            )}
          </div>
          <div className="card-row">
            <Countdown left={left} of={first.timeout_seconds} />
            {/* biome-ignore lint/a11y/useSemanticElements: buttons are no set of fields */}
            <div className="card-buttons" role="group" aria-label="Your answer for all">
              <button className="card-deny" aria-keyshortcuts="d" {...guard.button(deny, off)}>
                Deny all
              </button>
              <span className="card-pair">
                <button
                  className={high.length > 0 ? "card-allow card-first" : "card-allow"}
                  aria-keyshortcuts="a"
                  aria-expanded={high.length > 0 ? opened === "armed" : undefined}
                  {...guard.button(high.length > 0 ? () => open(opened === "armed" ? null : "armed") : allow, off)}
                >
                  {sending ? "Sending…" : `Allow all ${waiting.length}${high.length > 0 ? "…" : ""}`}
                </button>
                <More
                  label="More ways to answer"
                  className={high.length > 0 ? "card-more card-first" : "card-more"}
                  disabled={off}
                  back={() => field.current}
                  items={[{ text: "Deny all with a reason…", icon: MessageSquareX, open: () => open("reason") }]}
                />
              </span>
            </div>
          </div>
        </footer>
      )}
    </article>
  );
}

/** The one that ends first. */
function soonest(questions: readonly Question[]): Question | null {
  return questions.reduce<Question | null>(
    (first, each) => (first === null || Date.parse(each.deadline) < Date.parse(first.deadline) ? each : first),
    null,
  );
}

interface Sending {
  sending: "approved" | "rejected" | null;
  problem: Trouble | null;
}

/** Sends answers, one for each question at a time. */
function useSending(api: Api, projectId: string, onDecided: (settled: Settled) => void) {
  const [states, setStates] = useState<Record<string, Sending>>({});
  const busy = useRef(new Set<string>());
  const send = async (question: Question, given: Answer) => {
    const { id } = question;
    if (busy.current.has(id)) return;
    busy.current.add(id);
    setStates((known) => ({ ...known, [id]: { sending: given.status, problem: null } }));
    const told = await answer(question, api, projectId, given);
    busy.current.delete(id);
    setStates((known) => ({ ...known, [id]: { sending: null, problem: "problem" in told ? told.problem : null } }));
    if ("settled" in told) onDecided(told.settled);
  };
  return { states, send };
}

interface FileOfSetProps extends Member {
  api: Api;
  host: Host;
  projectId: string;
  now: () => number;
  guard: Guard;
  openAtFirst: boolean;
  /** Its difference is asked for although it is not open. */
  eager: boolean;
  sending: "approved" | "rejected" | null;
  problem: Trouble | null;
  send: (given: Answer) => void;
  report: (id: string, amount: Amount) => void;
  alone: (id: string) => void;
}

function FileOfSet(props: FileOfSetProps) {
  const { question, settled, api, host, guard, openAtFirst, eager, sending, problem, send, report, alone } = props;
  const { projectId, now } = props;
  const [chosen, setOpen] = useState<boolean | null>(null);
  const open = chosen ?? openAtFirst;
  const [armed, setArmed] = useState(false);
  const [editing, setEditing] = useState(false);
  const body = useId();
  const loaded = useChange(question, api, guard.lock, eager || open);
  const change = loaded && "change" in loaded ? loaded.change : null;
  const found = change ? compared(change.change) : null;
  const { id } = question;
  useEffect(() => {
    if (found) report(id, { added: found.added, removed: found.removed });
  }, [found, id, report]);
  const { verb, what } = headline(question, change);
  const high = isGrave(question);
  const off = sending !== null || settled !== null;
  const leave = useDisarm(armed, () => setArmed(false));
  const allow = () => send({ status: "approved", terms: {} });
  const step = () => {
    if (!high) return allow();
    setArmed(!armed);
    guard.lock();
  };
  return (
    <li className="card-set-file" data-approval={id} data-settled={settled?.status} tabIndex={-1} {...leave}>
      <div className="card-set-head">
        <button
          type="button"
          className="card-set-toggle"
          aria-expanded={open && settled === null}
          aria-controls={body}
          onClick={() => {
            setOpen(!open);
            guard.lock();
          }}
        >
          <ChevronRight size={14} aria-hidden="true" />
          <span className="card-set-verb">{verb}</span> <bdi className="card-path">{what}</bdi>
        </button>
        {found && <Counts added={found.added} removed={found.removed} />}
        {high && <Risk level="HIGH" />}
        {settled ? (
          <Ended settled={settled} />
        ) : (
          <span className="card-buttons">
            <button
              aria-label={`Deny ${what}`}
              {...guard.button(() => send({ status: "rejected", reason: null }), off)}
            >
              {sending === "rejected" ? "Sending…" : "Deny"}
            </button>
            <span className="card-pair">
              <button aria-label={`Allow ${what}${high ? "…" : ""}`} {...guard.button(step, off)}>
                {sending === "approved" ? "Sending…" : high ? "Allow…" : "Allow"}
              </button>
              <More
                label={`More ways to answer for ${what}`}
                className="card-more"
                disabled={off}
                items={[
                  { text: "Edit before allowing…", icon: Pencil, open: () => setEditing(true) },
                  { text: "Review on its own", icon: SquareArrowOutUpRight, open: () => alone(id) },
                ]}
              />
            </span>
          </span>
        )}
      </div>
      {armed && !off && (
        <Armed guard={guard} confirm={allow} back={() => setArmed(false)} yes={`Yes, allow ${what}`}>
          High risk. Written immediately.
        </Armed>
      )}
      <Problem problem={problem} />
      {editing && settled === null && (
        <TimedEdit question={question} {...{ api, projectId, now }} close={() => setEditing(false)} />
      )}
      {settled === null && <Warnings question={question} />}
      <div id={body} className="card-set-body" hidden={!open || settled !== null}>
        {open && settled === null && (
          <>
            <Unsaid question={question} />
            <Edited question={question} change={change} host={host} />
            {question.edit && <p className="card-part-title">The file as it would change</p>}
            <WriteShown question={question} loaded={loaded} api={api} host={host} moved={guard.lock} />
            <Masked question={question} shown={shownOf(question, change)} api={api} />
            <Details question={question} />
          </>
        )}
      </div>
    </li>
  );
}

/** How much time is left for one of a set is of interest only while it is edited. */
function TimedEdit({ now, ...panel }: Omit<ComponentProps<typeof EditPanel>, "left"> & { now: () => number }) {
  return <EditPanel {...panel} left={useSecondsLeft(panel.question.deadline, now, true)} />;
}
