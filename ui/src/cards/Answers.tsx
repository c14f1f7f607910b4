// The ways to answer a question. No button that allows is ever focused by itself; what allows waits until nothing moves, takes no
// held key, and for HIGH needs a second, separate press that says what will happen.

import { type FocusEvent, type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import type { Api } from "../api";
import type { Question } from "../state/model";
import { Sentences } from "../text/Sentences";
import type { Deciding } from "./deciding";
import { EverythingPanel } from "./EverythingPanel";
import type { Guard } from "./guard";
import { SimilarPanel } from "./SimilarPanel";

const ARMED_MILLISECONDS = 10_000;
const LONGEST_REASON = 1000;

type Panel = "armed" | "similar" | "everything" | null;

interface AnswersProps {
  question: Question;
  projectId: string;
  api: Api;
  guard: Guard;
  deciding: Deciding;
  /** What would happen. */
  headline: string;
  expired: boolean;
  /** Which rule is being read, if one is. */
  onPanel: (panel: "similar" | "everything" | undefined) => void;
}

export function Answers(props: AnswersProps) {
  const { question, projectId, api, guard, deciding, headline, expired, onPanel } = props;
  const [panel, setPanel] = useState<Panel>(null);
  const [reason, setReason] = useState("");
  const id = useId();
  const off = expired || deciding.sending !== null || deciding.second !== null;
  const high = question.risk_level === "HIGH";
  const always = high || question.findings.some((finding) => finding.always_asks);
  const leave = useDisarm(panel === "armed", () => setPanel(null));
  const open = (wanted: Panel) => {
    setPanel(panel === wanted ? null : wanted);
    guard.lock();
  };
  const row = useRef<HTMLDivElement>(null);
  const back = () => {
    // To what opened it, which decides nothing: the keyboard goes on from there.
    row.current?.querySelector<HTMLElement>(`[data-opens="${panel}"]`)?.focus();
    open(null);
  };
  const opener = (wanted: Panel, text: string): ReactNode => (
    <button
      data-opens={wanted}
      aria-expanded={panel === wanted}
      aria-controls={`${id}-panel`}
      {...guard.button(() => open(wanted), off)}
    >
      {text}
    </button>
  );
  const deny = () => deciding.reject(reason);
  const denyByEnter = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.nativeEvent.isComposing) return;
    event.preventDefault();
    if (!event.repeat && !off && guard.open) deny();
  };
  const tall = panel === "similar" || panel === "everything" ? panel : undefined;
  const opened = useRef<HTMLDivElement>(null);
  useEffect(() => {
    onPanel(tall);
    // What the person asked for comes into sight.
    if (tall) opened.current?.scrollIntoView?.({ block: "nearest" });
  }, [tall, onPanel]);
  return (
    <div className="card-answers" data-panel={tall} data-armed={panel === "armed" && !off ? "" : undefined} {...leave}>
      {/* biome-ignore lint/a11y/useSemanticElements: buttons are no set of fields */}
      <div className="card-row" role="group" aria-label="Your answer" ref={row}>
        <button
          className={high ? "card-allow card-first" : "card-allow"}
          aria-expanded={high ? panel === "armed" : undefined}
          {...guard.button(high ? () => open("armed") : () => deciding.approve({}), off)}
        >
          {deciding.sending === "approved" ? "Sending…" : high ? "Allow once…" : "Allow once"}
        </button>
        {!always && question.session_id && question.suggestions.length > 0 && opener("similar", "Allow similar…")}
        {question.session_id && opener("everything", "Allow all in this session…")}
        <span className="card-deny-group">
          <button className="card-deny" {...guard.button(deny, off)}>
            {deciding.sending === "rejected" ? "Sending…" : "Deny"}
          </button>
          <input
            className="card-reason"
            placeholder="Reason to deny, told to the agent"
            aria-label="Reason to deny, told to the agent; Enter denies"
            maxLength={LONGEST_REASON}
            value={reason}
            onChange={(event) => setReason(event.target.value)}
            onKeyDown={denyByEnter}
            autoComplete="off"
          />
        </span>
      </div>
      <div id={`${id}-panel`} ref={opened}>
        {panel === "armed" && !off && (
          <Armed
            question={question}
            headline={headline}
            guard={guard}
            confirm={() => deciding.approve({})}
            back={() => setPanel(null)}
          />
        )}
        {panel === "similar" && (
          <SimilarPanel
            question={question}
            projectId={projectId}
            api={api}
            guard={guard}
            disabled={off}
            allow={(terms) => deciding.approve({ scope: "class", terms })}
            back={back}
          />
        )}
        {panel === "everything" && (
          <EverythingPanel
            guard={guard}
            disabled={off}
            allow={(terms) => deciding.approve({ scope: "session", terms })}
            back={back}
          />
        )}
      </div>
      <div role="alert">
        {deciding.problem && (
          <p className="card-caution">
            <Sentences text={deciding.problem.message} />{" "}
            {deciding.problem.hint && (
              <span>
                <Sentences text={deciding.problem.hint} />
              </span>
            )}
          </p>
        )}
      </div>
    </div>
  );
}

interface ArmedProps {
  question: Question;
  headline: string;
  guard: Guard;
  confirm: () => void;
  back: () => void;
}

function Armed({ question, headline, guard, confirm, back }: ArmedProps) {
  const network = question.network
    ? ", with the network"
    : question.tool_name === "execute_command"
      ? ", without the network"
      : "";
  return (
    <div className="card-panel card-grave">
      <p role="status">
        This is HIGH. It will happen at once{network}
        <span className="card-again">
          :{" "}
          <strong>
            <bdi>{headline}</bdi>
          </strong>
        </span>
      </p>
      <div className="card-row">
        <button className="card-allow card-really" {...guard.button(confirm)}>
          Yes, allow it once
        </button>
        <button type="button" onClick={back}>
          Back
        </button>
      </div>
    </div>
  );
}

/** What was armed is not left lying around: it ends after a while, and when the person turns to something else. */
function useDisarm(armed: boolean, disarm: () => void) {
  const end = useRef(disarm);
  end.current = disarm;
  const pressing = useRef(false);
  useEffect(() => {
    if (!armed) return;
    const timer = setTimeout(() => end.current(), ARMED_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [armed]);
  return {
    // Where a press gives a button no focus, the press itself says that the person is still here.
    onPointerDown: () => {
      pressing.current = true;
    },
    onPointerUp: () => {
      pressing.current = false;
    },
    onBlur: (event: FocusEvent) => {
      const stays = pressing.current || event.currentTarget.contains(event.relatedTarget);
      if (armed && !stays) end.current();
    },
  };
}
