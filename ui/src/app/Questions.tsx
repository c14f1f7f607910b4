// What waits for a decision, pinned above the composer in the order it came, from every session of the project. A card
// that was answered stays where it was. Nothing here takes the focus unless the person asked to be taken to a question.

import { memo, type ReactNode, type RefObject, useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Api } from "../api";
import { ApprovalCard } from "../cards/ApprovalCard";
import { Risk } from "../cards/Risk";
import type { Host } from "../host";
import type { Question, Session, Settled } from "../state/model";
import { oneLine, shortened, visible } from "../text/visible";
import { Boundary } from "./Boundary";
import { useSteadyHeight } from "./steady";

/** A question the person asked to be taken to: null is the first that waits. `count` goes up with each asking. */
export interface Wanted {
  id: string | null;
  count: number;
}

interface Props {
  questions: Question[];
  settled: Settled[];
  sessions: Session[];
  sessionId: string | null;
  projectId: string;
  api: Api;
  host: Host;
  now: () => number;
  /** Whether the chat is what is shown. */
  active: boolean;
  wanted: Wanted;
  onDecided: (settled: Settled) => void;
  onDismiss: (approvalId: string) => void;
}

const STAYS_SECONDS = 10;
/** So many of those that wait are whole cards; the others are lines until they are opened or it is their turn. */
export const MOST_CARDS = 4;
/** And so many are lines; the rest is a number. */
export const MOST_LINES = 100;
/** So many that were answered elsewhere stay for a while, and only fewer are whole; of the person's own answers, the last. */
const MOST_ELSEWHERE = 3;
const LONGEST_LINE = 200;
const AT_TOP_PIXELS = 16;

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
  if (title) return `Another conversation: ${visible(title)}`;
  return question.session_id === null ? "Asked outside of any conversation" : "Another conversation";
}

export const Questions = memo(function Questions(props: Props) {
  const { questions, settled, sessions, sessionId, onDismiss } = props;
  const panel = useRef<HTMLElement>(null);
  const shown = useMemo(() => inOrder(questions, settled), [questions, settled]);
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  useLeaving(panel, settled, onDismiss);
  const release = useSteadyHeight(panel, questions, settled);
  const goTo = useCallback(
    (id: string) => {
      setOpened((before) => new Set(before).add(id));
      release();
      // After it is there as a card, and after a page that was left has let the focus go.
      setTimeout(() => {
        const card = panel.current?.querySelector<HTMLElement>(`[data-card="${id}"] > .card-question`);
        card?.focus({ preventScroll: true });
        card?.scrollIntoView({ block: "nearest" });
      }, 0);
    },
    [release],
  );
  useWanted(props.wanted, props.active, questions, goTo);
  if (shown.length === 0) return null;

  const ends = new Map(settled.map((each) => [each.question.id, each]));
  const waiting = shown.filter(({ id }) => !ends.has(id)).map(({ id }) => id);
  const whole = new Set([...ends.keys(), ...opened, ...questions.slice(0, MOST_CARDS).map(({ id }) => id)]);
  const many = settled.filter(({ here }) => !here).length >= MOST_ELSEWHERE;
  const lines = questions.filter(({ id }) => !whole.has(id));
  const left = new Set(lines.slice(MOST_LINES).map(({ id }) => id));
  return (
    <>
      <section
        className="app-questions"
        id="app-questions"
        aria-label="Waiting for your decision"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard.
        tabIndex={0}
        ref={panel}
      >
        {shown.map((question) => {
          if (left.has(question.id)) return null;
          const end = ends.get(question.id) ?? null;
          const elsewhere = whose(question, sessionId, sessions);
          if (!whole.has(question.id)) {
            return (
              <Boundary key={question.id} instead={() => <CardFailed />}>
                <Line question={question} elsewhere={elsewhere} open={goTo} />
              </Boundary>
            );
          }
          return (
            // What the person just answered is folded, as are many at once: the next question must not hide below them.
            <div
              key={question.id}
              data-card={question.id}
              data-first={question.id === questions[0]?.id || undefined}
              className={end && (end.here || many) ? "app-card app-card-folded" : "app-card"}
            >
              <Boundary instead={() => <CardFailed />}>
                <ApprovalCard
                  question={question}
                  api={props.api}
                  host={props.host}
                  projectId={props.projectId}
                  now={props.now}
                  elsewhere={elsewhere}
                  place={waiting.length > 1 ? { at: waiting.indexOf(question.id) + 1, of: waiting.length } : null}
                  settled={end}
                  onDecided={props.onDecided}
                  onDismiss={() => onDismiss(question.id)}
                />
              </Boundary>
            </div>
          );
        })}
        {left.size > 0 && <p className="app-muted">And {left.size} more: each comes up as others are answered.</p>}
      </section>
      <Foot panel={panel} questions={questions} next={goTo} />
    </>
  );
});

/** One that is not shown whole yet: enough to know what it is, and nothing that decides. */
const Line = memo(function Line({ question, elsewhere, open }: LineProps) {
  return (
    <button
      type="button"
      className="app-question-line"
      aria-expanded={false}
      data-line={question.id}
      onClick={() => open(question.id)}
    >
      <Risk level={question.risk_level} />
      <bdi className="app-question-what">
        {shortened(oneLine(question.description.split("\n")[0] ?? ""), LONGEST_LINE)}
      </bdi>
      {elsewhere !== null && <bdi className="app-muted">{shortened(oneLine(elsewhere), 60)}</bdi>}
      <span className="app-question-open">Open</span>
    </button>
  );
});

interface LineProps {
  question: Question;
  elsewhere: string | null;
  open: (id: string) => void;
}

interface FootProps {
  panel: RefObject<HTMLElement | null>;
  questions: Question[];
  next: (id: string) => void;
}

/** Always there and always as tall: what it says changes, and nothing above it moves. */
function Foot({ panel, questions, next }: FootProps): ReactNode {
  const more = questions.length - 1;
  const toNext = () => {
    const seen = panel.current?.getBoundingClientRect();
    const below = questions.find(({ id }) => {
      const place = panel.current?.querySelector(`[data-card="${id}"], [data-line="${id}"]`)?.getBoundingClientRect();
      // One that begins at the top is the one that is looked at, however far it reaches below.
      return seen && place && place.bottom > seen.bottom + 1 && place.top > seen.top + AT_TOP_PIXELS;
    });
    const found = below ?? questions[0];
    if (found) next(found.id);
  };
  return (
    <p className="app-questions-foot app-muted">
      {more > 0 ? (
        <>
          <span>{questions.length} wait, the oldest first.</span>
          <button type="button" className="app-plain" onClick={toNext}>
            Show the next ↓
          </button>
        </>
      ) : (
        questions.length > 0 && <span>Unanswered in time, it does not run.</span>
      )}
    </p>
  );
}

/** Takes the person to the question they asked for, once the chat is what is shown. */
function useWanted(wanted: Wanted, active: boolean, questions: Question[], goTo: (id: string) => void): void {
  const done = useRef(wanted.count);
  useEffect(() => {
    if (!active || wanted.count === done.current) return;
    done.current = wanted.count;
    const found = questions.find(({ id }) => id === wanted.id) ?? questions[0];
    if (found) goTo(found.id);
  }, [wanted, active, questions, goTo]);
}

/** Takes settled cards away after a while, unless the person is at them: a card alone cannot know when it lost the focus. */
function useLeaving(panel: RefObject<HTMLElement | null>, settled: Settled[], dismiss: (id: string) => void): void {
  useEffect(() => {
    // More would take the place of the question that comes next.
    const ids = (mine: boolean) => settled.filter(({ here }) => here === mine).map(({ question }) => question.id);
    const over = [...ids(true).slice(0, -1), ...ids(false).slice(0, -MOST_ELSEWHERE)];
    for (const id of over) if (!isAt(panel.current, id)) dismiss(id);
  }, [panel, settled, dismiss]);
  // Kept over changes of the list: what is answered meanwhile is no reason for the others to stay.
  const ages = useRef(new Map<string, number>());
  useEffect(() => {
    const seconds = ages.current;
    for (const id of seconds.keys()) if (!settled.some(({ question }) => question.id === id)) seconds.delete(id);
    if (settled.length === 0) return;
    const timer = setInterval(() => {
      for (const { question } of settled) {
        const age = isAt(panel.current, question.id) ? 0 : (seconds.get(question.id) ?? 0) + 1;
        seconds.set(question.id, age);
        if (age >= STAYS_SECONDS) dismiss(question.id);
      }
    }, 1000);
    return () => clearInterval(timer);
  }, [panel, settled, dismiss]);
}

/** Whether the person is at this card, with the pointer or the keyboard. */
function isAt(panel: HTMLElement | null, id: string): boolean {
  return panel?.querySelector(`[data-card="${id}"]`)?.matches(":hover, :focus-within") ?? false;
}

function CardFailed() {
  return (
    <p className="app-remark app-remark-error" role="alert">
      A question cannot be shown here, so it cannot be answered here. Answer it in the terminal, or let its time run
      out: then nothing runs.
    </p>
  );
}
