// What waits for a decision, pinned above the composer in the order it came, from every session of the project. A card
// that was answered stays where it was. Nothing here takes the focus.

import { memo, type RefObject, useEffect, useMemo, useRef } from "react";
import type { Api } from "../api";
import { ApprovalCard } from "../cards/ApprovalCard";
import type { Host } from "../host";
import type { Question, Session, Settled } from "../state/model";
import { visible } from "../text/visible";
import { Boundary } from "./Boundary";

interface Props {
  questions: Question[];
  settled: Settled[];
  sessions: Session[];
  sessionId: string | null;
  projectId: string;
  api: Api;
  host: Host;
  now: () => number;
  onDecided: (settled: Settled) => void;
  onDismiss: (approvalId: string) => void;
}

const STAYS_SECONDS = 10;

/** Those that wait and those that were just answered, each where it came. */
export function inOrder(questions: readonly Question[], settled: readonly Settled[]): Question[] {
  return [...questions, ...settled.map((each) => each.question)].sort(
    (one, other) => one.created_at.localeCompare(other.created_at) || one.id.localeCompare(other.id),
  );
}

/** Whose question it is, when it is not of the conversation on the screen. */
export function whose(question: Question, sessionId: string | null, sessions: readonly Session[]): string | null {
  if (question.session_id === sessionId && sessionId !== null) return null;
  const title = sessions.find((each) => each.session_id === question.session_id)?.title;
  if (title) return visible(title);
  return question.session_id === null ? "a call outside of any conversation" : "another conversation";
}

export const Questions = memo(function Questions(props: Props) {
  const { questions, settled, sessions, sessionId, onDismiss } = props;
  const panel = useRef<HTMLElement>(null);
  const shown = useMemo(() => inOrder(questions, settled), [questions, settled]);
  useLeaving(panel, settled, onDismiss);
  if (shown.length === 0) return null;
  return (
    <section
      className="app-questions"
      id="app-questions"
      aria-label="Waiting for your decision"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard.
      tabIndex={0}
      ref={panel}
    >
      {shown.map((question) => {
        const end = settled.find((each) => each.question.id === question.id) ?? null;
        return (
          // What the person just answered is folded: the next question must not hide below it.
          <div
            key={question.id}
            data-card={question.id}
            className={end?.here ? "app-card app-card-folded" : "app-card"}
          >
            <Boundary instead={() => <CardFailed />}>
              <ApprovalCard
                question={question}
                api={props.api}
                host={props.host}
                projectId={props.projectId}
                now={props.now}
                elsewhere={whose(question, sessionId, sessions)}
                settled={end}
                onDecided={props.onDecided}
                onDismiss={() => onDismiss(question.id)}
              />
            </Boundary>
          </div>
        );
      })}
    </section>
  );
});

/** Takes settled cards away after a while, unless the person is at them: a card alone cannot know when it lost the focus. */
function useLeaving(panel: RefObject<HTMLElement | null>, settled: Settled[], dismiss: (id: string) => void): void {
  // Kept over changes of the list: what is answered meanwhile is no reason for the others to stay.
  const ages = useRef(new Map<string, number>());
  useEffect(() => {
    const seconds = ages.current;
    for (const id of seconds.keys()) if (!settled.some(({ question }) => question.id === id)) seconds.delete(id);
    if (settled.length === 0) return;
    const timer = setInterval(() => {
      for (const { question } of settled) {
        const card = panel.current?.querySelector(`[data-card="${question.id}"]`);
        const age = card?.matches(":hover, :focus-within") ? 0 : (seconds.get(question.id) ?? 0) + 1;
        seconds.set(question.id, age);
        if (age >= STAYS_SECONDS) dismiss(question.id);
      }
    }, 1000);
    return () => clearInterval(timer);
  }, [panel, settled, dismiss]);
}

function CardFailed() {
  return (
    <p className="app-remark app-remark-error" role="alert">
      A question cannot be shown here, so it cannot be answered here. Answer it in the terminal, or let its time run
      out: then nothing runs.
    </p>
  );
}
