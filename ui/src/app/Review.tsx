// What waits for a decision, in the main column: one question or one change set at a time, then the others as lines, all in
// one scroller. Nothing here takes the focus unless the person asked to be taken to a question.

import { ChevronLeft, ChevronRight } from "lucide-react";
import { type KeyboardEvent, memo, type RefObject, useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Api } from "../api";
import { ApprovalCard } from "../cards/ApprovalCard";
import { headline, headlineText } from "../cards/asked";
import { ChangeSet } from "../cards/ChangeSet";
import { Risk } from "../cards/Risk";
import { Ended } from "../cards/SettledLine";
import type { Host } from "../host";
import type { Question, Session, Settled } from "../state/model";
import { oneLine, shortened, visible } from "../text/visible";
import { Boundary } from "./Boundary";
import { groups, type Held, hold, NONE, turnTo } from "./queue";

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
  /** Whether it is what is shown. */
  active: boolean;
  wanted: Wanted;
  onDecided: (settled: Settled) => void;
  onDismiss: (approvalId: string) => void;
}

const STAYS_MS = 2000;
/** That somebody else was first is to be read, and so is what one was just looking at. */
const READ_MS = 10_000;
const LOOK_MS = 250;
/** So many of the others are lines; the rest is a number. */
export const MOST_LINES = 100;
const LONGEST_LINE = 200;

/** Whose question it is, when it is not of the conversation on the screen. */
export function whose(question: Question, sessionId: string | null, sessions: readonly Session[]): string | null {
  if (question.session_id === sessionId && sessionId !== null) return null;
  const title = sessions.find((each) => each.session_id === question.session_id)?.title;
  if (title) return `Another conversation: ${visible(title)}`;
  return question.session_id === null ? "Outside any conversation" : "Another conversation";
}

export const Review = memo(function Review(props: Props) {
  const { questions, settled, sessions, sessionId, onDismiss } = props;
  const panel = useRef<HTMLElement>(null);
  const [before, setHeld] = useState<Held>(NONE);
  const changed = useMemo(
    () => new Set(settled.filter(({ status, by }) => status === "cancelled" && by).map(({ question }) => question.id)),
    [settled],
  );
  const held = hold(before, questions, performance.now(), changed);
  if (held !== before) setHeld(held);
  useLeaving(panel, settled, onDismiss);
  const goTo = useCallback((found: Held | null) => {
    if (!found) return;
    setHeld(found);
    // After it is there, and after a page that was left has let the focus go.
    setTimeout(() => {
      panel.current?.scrollTo?.({ top: 0 });
      panel.current?.querySelector<HTMLElement>(".card-question")?.focus({ preventScroll: true });
    }, 0);
  }, []);
  const turn = (id: string, alone = false) => goTo(turnTo(id, questions, performance.now(), alone));
  useWanted(props.wanted, props.active, questions, goTo);
  useFocusOnNext(panel, held);
  useMoreBelow(panel);

  const ends = useMemo(() => new Map(settled.map((each) => [each.question.id, each])), [settled]);
  const shown = held.questions.filter(({ id }) => ends.has(id) || questions.some((each) => each.id === id));
  const ids = new Set(shown.map(({ id }) => id));
  const others = groups(questions.filter(({ id }) => !ids.has(id)));
  const [lead] = shown;
  const gone = settled.filter(({ question }) => !ids.has(question.id));
  const card = { api: props.api, host: props.host, projectId: props.projectId, now: props.now };
  const at = lead ? others.filter(([first]) => first && isBefore(first, lead)).length : 0;
  const places = others.length + 1;
  const step = (by: number) => {
    const next = (at + by + places) % places;
    const other = others[next < at ? next : next - 1]?.[0];
    if (next !== at && other) turn(other.id);
  };
  return (
    <section
      className="app-review"
      aria-label="Waiting for your decision"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard.
      tabIndex={0}
      ref={panel}
      onKeyDown={(event) => pressed(event, step)}
    >
      {lead && (
        <div key={lead.id} data-card={lead.id} className="app-card">
          {others.length > 0 && (
            <nav className="app-places" aria-label="Questions">
              <button type="button" aria-label="Previous" title="Previous (P)" onClick={() => step(-1)}>
                <ChevronLeft size={16} aria-hidden="true" />
              </button>
              <span>
                {at + 1} of {places}
              </span>
              <button type="button" aria-label="Next" title="Next (N)" onClick={() => step(1)}>
                <ChevronRight size={16} aria-hidden="true" />
              </button>
            </nav>
          )}
          <Boundary instead={() => <CardFailed />}>
            {held.questions.length > 1 ? (
              <ChangeSet
                {...card}
                members={shown.map((question) => ({ question, settled: ends.get(question.id) ?? null }))}
                elsewhere={whose(lead, sessionId, sessions)}
                onDecided={props.onDecided}
                alone={(id) => turn(id, true)}
              />
            ) : (
              <ApprovalCard
                {...card}
                question={lead}
                elsewhere={whose(lead, sessionId, sessions)}
                settled={ends.get(lead.id) ?? null}
                onDecided={props.onDecided}
              />
            )}
          </Boundary>
        </div>
      )}
      {others.length > 0 && (
        <div className="app-next">
          <p className="app-label">Also waiting</p>
          {others.slice(0, MOST_LINES).map((group) => (
            <Boundary key={group[0]?.id} instead={() => <CardFailed />}>
              <Line group={group} elsewhere={group[0] ? whose(group[0], sessionId, sessions) : null} open={turn} />
            </Boundary>
          ))}
          {others.length > MOST_LINES && (
            <p className="app-muted">And {others.length - MOST_LINES} more, as others are answered.</p>
          )}
        </div>
      )}
      {gone.map((each) => (
        <div key={each.question.id} className="app-gone" data-card={each.question.id}>
          <Ended settled={each} />
          <bdi className="app-muted">{shortened(headlineText(headline(each.question)), LONGEST_LINE)}</bdi>
        </div>
      ))}
    </section>
  );
});

const isBefore = (one: Question, other: Question) =>
  (one.created_at.localeCompare(other.created_at) || one.id.localeCompare(other.id)) < 0;

/** Next, previous and details at once; allow and deny only get the focus, and are then pressed. */
function pressed(event: KeyboardEvent<HTMLElement>, step: (by: number) => void): void {
  const target = event.target as HTMLElement;
  const panel = event.currentTarget;
  if (event.defaultPrevented || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!panel.contains(target) || target.closest("input, textarea, select, [contenteditable]")) return;
  const answers = panel.querySelector(".card-question > .card-answers");
  const focus = (what: string) => answers?.querySelector<HTMLElement>(what)?.focus();
  const details = panel.querySelector<HTMLDetailsElement>(".card-details");
  const keys: Record<string, () => void> = {
    n: () => step(1),
    p: () => step(-1),
    a: () => focus(".card-allow:not(.card-really)"),
    d: () => focus(".card-deny"),
    v: () => details?.toggleAttribute("open"),
    // It only opens a field.
    e: () => answers?.querySelector<HTMLElement>(".card-pencil")?.click(),
  };
  const act = Object.hasOwn(keys, event.key) ? keys[event.key] : undefined;
  if (!act) return;
  event.preventDefault();
  act();
}

/** One that is not shown whole: enough to know what it is, and nothing that decides. */
const Line = memo(function Line({ group, elsewhere, open }: LineProps) {
  const [question] = group;
  if (!question) return null;
  const high = group.some(({ risk_level }) => risk_level === "HIGH");
  return (
    <button type="button" className="app-question-line" data-line={question.id} onClick={() => open(question.id)}>
      <bdi className="app-question-what">
        {group.length > 1
          ? `Change ${group.length} files`
          : shortened(oneLine(headlineText(headline(question))), LONGEST_LINE)}
      </bdi>
      {elsewhere !== null && <bdi className="app-muted">{shortened(oneLine(elsewhere), 60)}</bdi>}
      <Risk level={high ? "HIGH" : question.risk_level} />
    </button>
  );
});

interface LineProps {
  group: readonly Question[];
  elsewhere: string | null;
  open: (id: string) => void;
}

/** Takes the person to the question they asked for, once it is what is shown. */
function useWanted(wanted: Wanted, active: boolean, questions: Question[], goTo: (held: Held | null) => void): void {
  // It comes and goes with what waits: what was asked for before is done.
  const done = useRef(wanted.count);
  useEffect(() => {
    if (!active || wanted.count === done.current) return;
    done.current = wanted.count;
    const found = questions.find(({ id }) => id === wanted.id) ?? questions[0];
    if (found) goTo(turnTo(found.id, questions, performance.now()));
  }, [wanted, active, questions, goTo]);
}

const isLost = (): boolean => document.activeElement === null || document.activeElement === document.body;

/** Who answered with the keyboard goes on with it at the next question. */
function useFocusOnNext(panel: RefObject<HTMLElement | null>, held: Held): void {
  const lead = held.questions[0]?.id;
  const before = useRef(lead);
  const inside = useRef(false);
  useEffect(() => {
    const element = panel.current;
    if (!element) return;
    const came = (event: FocusEvent) => {
      inside.current = (event.target as Element).matches(":focus-visible");
    };
    element.addEventListener("focusin", came);
    return () => {
      element.removeEventListener("focusin", came);
      // Nothing waits any more: reading goes on in the conversation.
      if (inside.current && isLost()) {
        document.querySelector<HTMLElement>("section.app-scroll")?.focus({ preventScroll: true });
      }
    };
  }, [panel]);
  useEffect(() => {
    if (before.current === lead) return;
    before.current = lead;
    if (inside.current && isLost()) {
      panel.current?.querySelector<HTMLElement>(".card-question")?.focus({ preventScroll: true });
    }
    panel.current?.scrollTo?.({ top: 0 });
  }, [lead, panel]);
}

/** Says on the panel whether a part of what is asked is still below. */
function useMoreBelow(panel: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const element = panel.current;
    if (!element || typeof ResizeObserver === "undefined") return;
    const look = () => {
      const end = element.querySelector(".card-question")?.getBoundingClientRect().bottom ?? 0;
      element.toggleAttribute("data-more", end > element.getBoundingClientRect().bottom + 8);
    };
    const resized = new ResizeObserver(look);
    const observe = () => {
      resized.disconnect();
      resized.observe(element);
      for (const child of element.children) resized.observe(child);
    };
    const changed = new MutationObserver(observe);
    changed.observe(element, { childList: true });
    observe();
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      resized.disconnect();
      changed.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, [panel]);
}

/** What is answered folds into the conversation after a moment; what somebody else answered stays a while for who is at it. */
function useLeaving(panel: RefObject<HTMLElement | null>, settled: Settled[], dismiss: (id: string) => void): void {
  const ages = useRef(new Map<string, number>());
  useEffect(() => {
    const known = ages.current;
    for (const id of known.keys()) if (!settled.some(({ question }) => question.id === id)) known.delete(id);
    if (settled.length === 0) return;
    const timer = setInterval(() => {
      for (const { question, here, second } of settled) {
        const age = (known.get(question.id) ?? 0) + LOOK_MS;
        known.set(question.id, age);
        const isRead = Boolean(second) || (!here && isAt(panel.current, question.id));
        if (age >= (isRead ? READ_MS : STAYS_MS)) dismiss(question.id);
      }
    }, LOOK_MS);
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
      A question cannot be shown here, so it cannot be answered here. Answer it in the terminal, or let it expire: then
      nothing runs.
    </p>
  );
}
