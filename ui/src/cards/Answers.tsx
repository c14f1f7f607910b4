// The ways to answer a question. No button that allows is ever focused by itself; what allows waits until nothing moves, takes no
// held key, and for HIGH needs a second, separate press that says what will happen.

import { ArrowDown, CalendarClock, Infinity as Endless, Files, MessageSquareX, Pencil } from "lucide-react";
import {
  type FocusEvent,
  type KeyboardEvent,
  type ReactNode,
  type RefObject,
  useEffect,
  useRef,
  useState,
} from "react";
import type { Api } from "../api";
import { More, type MoreItem } from "../parts/More";
import type { Question } from "../state/model";
import { type Headline, isGrave } from "./asked";
import { Countdown } from "./Countdown";
import type { Deciding } from "./deciding";
import { EditPanel, isEditable } from "./EditPanel";
import { EverythingPanel } from "./EverythingPanel";
import type { Guard } from "./guard";
import { Problem } from "./Problem";
import { SimilarPanel } from "./SimilarPanel";

const ARMED_MILLISECONDS = 10_000;
const LONGEST_REASON = 1000;

type Opened = "armed" | "similar" | "always" | "everything" | "reason" | "edit" | null;

interface AnswersProps {
  question: Question;
  projectId: string;
  api: Api;
  guard: Guard;
  deciding: Deciding;
  /** What would happen. */
  words: Headline;
  /** Seconds. */
  left: number;
}

export function Answers({ question, projectId, api, guard, deciding, words, left }: AnswersProps) {
  const [opened, setOpened] = useState<Opened>(null);
  const [reason, setReason] = useState("");
  const row = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const off = left === 0 || deciding.sending !== null || deciding.over;
  const high = isGrave(question);
  const always = question.risk_level === "HIGH" || question.findings.some((finding) => finding.always_asks);
  const leave = useDisarm(opened === "armed", () => setOpened(null));
  const open = (wanted: Opened) => {
    setOpened(wanted);
    guard.lock();
  };
  const deny = () => deciding.reject(opened === "reason" ? reason : "");
  const exact = question.suggestions.find(({ rule }) => rule.exact);
  const items: MoreItem[] = [
    ...(!always && question.session_id && question.suggestions.length > 0
      ? [{ text: "Allow similar…", icon: Files, open: () => open("similar") }]
      : []),
    ...(!always && question.session_id && exact
      ? [{ text: "Always allow exactly this in this project…", icon: CalendarClock, open: () => open("always") }]
      : []),
    ...(question.session_id
      ? [{ text: "Allow everything in this conversation…", icon: Endless, open: () => open("everything") }]
      : []),
    { text: "Deny with a reason…", icon: MessageSquareX, open: () => open("reason"), apart: true },
  ];
  // The keyboard goes on from what opened it, which decides nothing.
  const back = () => row.current?.querySelector<HTMLElement>(".card-more") ?? null;
  return (
    <footer className="card-answers" data-armed={opened === "armed" && !off ? "" : undefined} {...leave}>
      <MoreBelow />
      {opened === "armed" && !off && (
        <Armed guard={guard} confirm={() => deciding.approve({})} back={() => open(null)} yes="Yes, allow once">
          {question.risk_level === "HIGH" ? "High risk" : "Read the warning first"}.{" "}
          {question.tool_name === "write_file" ? "Written" : "Runs"} immediately{networkWords(question)}.
          <span className="card-said">
            {" "}
            {words.verb} {words.what}
          </span>
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
      <Problem problem={deciding.problem} />
      <div className="card-row">
        <Countdown left={left} of={question.timeout_seconds} />
        {/* biome-ignore lint/a11y/useSemanticElements: buttons are no set of fields */}
        <div className="card-buttons" role="group" aria-label="Your answer" ref={row}>
          {isEditable(question) && (
            <button
              type="button"
              className="card-pencil"
              aria-label="Edit before allowing"
              title="Edit before allowing (E)"
              aria-keyshortcuts="e"
              disabled={off}
              onClick={() => open("edit")}
            >
              <Pencil size={15} aria-hidden="true" />
            </button>
          )}
          <button className="card-deny" aria-keyshortcuts="d" {...guard.button(deny, off)}>
            {deciding.sending === "rejected" ? "Sending…" : "Deny"}
          </button>
          <span className="card-pair">
            <button
              className={high ? "card-allow card-first" : "card-allow"}
              aria-expanded={high ? opened === "armed" : undefined}
              aria-keyshortcuts="a"
              {...guard.button(
                high ? () => open(opened === "armed" ? null : "armed") : () => deciding.approve({}),
                off,
              )}
            >
              {deciding.sending === "approved" ? "Sending…" : high ? "Allow once…" : "Allow once"}
            </button>
            <More
              label="More ways to answer"
              className={high ? "card-more card-first" : "card-more"}
              items={items}
              disabled={off}
              back={() => field.current}
            />
          </span>
        </div>
      </div>
      {opened === "edit" && (
        <EditPanel
          question={question}
          projectId={projectId}
          api={api}
          left={left}
          close={() => open(null)}
          back={() => row.current?.querySelector<HTMLElement>(".card-pencil") ?? null}
        />
      )}
      {(opened === "similar" || opened === "always") && (
        <SimilarPanel
          always={opened === "always" ? exact : undefined}
          question={question}
          projectId={projectId}
          api={api}
          disabled={off}
          problem={deciding.problem}
          allow={(terms, scope) => deciding.approve({ scope, terms })}
          close={() => open(null)}
          back={back}
        />
      )}
      {opened === "everything" && (
        <EverythingPanel
          disabled={off}
          problem={deciding.problem}
          allow={(terms) => deciding.approve({ scope: "session", terms })}
          close={() => open(null)}
          back={back}
        />
      )}
    </footer>
  );
}

function networkWords({ network, tool_name }: Question): string {
  if (network) return ", with the network";
  return tool_name === "execute_command" ? ", without the network" : "";
}

/** Seen while a part of what is asked is out of sight; who uses the keyboard scrolls with its keys. */
export function MoreBelow() {
  return (
    <button
      type="button"
      className="card-below"
      tabIndex={-1}
      aria-hidden="true"
      onClick={({ currentTarget }) => {
        const panel = currentTarget.closest(".app-review");
        panel?.scrollBy({ top: panel.clientHeight * 0.6 });
      }}
    >
      More below <ArrowDown size={13} aria-hidden="true" />
    </button>
  );
}

interface ReasonProps {
  value: string;
  change: (reason: string) => void;
  field: RefObject<HTMLInputElement | null>;
  off: boolean;
  deny: () => void;
  back: () => void;
}

export function Reason({ value, change, field, off, deny, back }: ReasonProps) {
  useEffect(() => field.current?.focus(), [field]);
  const pressed = (event: KeyboardEvent) => {
    if (event.key === "Escape") back();
    if (event.key !== "Enter" || event.nativeEvent.isComposing) return;
    event.preventDefault();
    if (!event.repeat && !off) deny();
  };
  return (
    <input
      className="card-reason"
      ref={field}
      placeholder="Reason to deny, told to the agent"
      aria-label="Reason to deny, told to the agent; Enter denies"
      maxLength={LONGEST_REASON}
      value={value}
      onChange={(event) => change(event.target.value)}
      onKeyDown={pressed}
      autoComplete="off"
    />
  );
}

interface ArmedProps {
  guard: Guard;
  confirm: () => void;
  back: () => void;
  yes: string;
  children: ReactNode;
}

/** The second step. Its button never stands where the first one was pressed. */
export function Armed({ guard, confirm, back, yes, children }: ArmedProps) {
  return (
    <div className="card-armed">
      <p role="status">{children}</p>
      <div className="card-buttons">
        <button type="button" onClick={back}>
          Back
        </button>
        <button className="card-allow card-really" {...guard.button(confirm)}>
          {yes}
        </button>
      </div>
    </div>
  );
}

/** What was armed is not left lying around: it ends after a while, and when the person turns to something else. */
export function useDisarm(armed: boolean, disarm: () => void) {
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
