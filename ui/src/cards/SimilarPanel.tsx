// An answer for calls like this one. Nothing is chosen for the person, and what is saved is exactly the rule whose words
// the server gave: a rule that was changed must be read by the server before it can be allowed.

import type { GrantPreview, GrantRule, GrantTerms, Suggestion } from "@protocol";
import { useEffect, useId, useRef, useState } from "react";
import type { Api } from "../api";
import { Choose } from "../parts/Choose";
import { Sheet } from "../parts/Sheet";
import type { Question } from "../state/model";
import { visible } from "../text/visible";
import { theAsker } from "../text/words";
import type { PanelProps } from "./EverythingPanel";
import { useGuard } from "./guard";
import { Problem } from "./Problem";
import { readRule, ruleLine } from "./rules";
import { Spans } from "./Spans";
import { told } from "./told";

const LOOK_AGAIN_MILLISECONDS = 300;
const MOST_USES = 10_000;
const MOST_EXAMPLES = 10;

interface SimilarPanelProps extends Omit<PanelProps, "allow"> {
  allow: (terms: GrantTerms, scope: Reach) => void;
  /** What the person chose already: this, in the whole project. */
  always?: Suggestion | undefined;
  question: Question;
  projectId: string;
  api: Api;
}

type Reach = "class" | "project";

const REACHES = [
  { value: "class", text: "This conversation" },
  { value: "project", text: "This project" },
] as const;
/** Usual minutes. */
const USUAL = { class: 480, project: 7 * 1440 } as const;

interface Looked {
  /** The rule that was read by the server and may be saved; null while none is. */
  rule: GrantRule | null;
  found: GrantPreview | null;
  problem: string | null;
}

const NOTHING: Looked = { rule: null, found: null, problem: null };

export function SimilarPanel(props: SimilarPanelProps) {
  const { question, projectId, api, disabled, problem, allow, close, back, always } = props;
  const guard = useGuard();
  const [chosen, setChosen] = useState<Suggestion | null>(null);
  const [line, setLine] = useState("");
  const [reach, setReach] = useState<Reach>(always ? "project" : "class");
  const [minutes, setMinutes] = useState<number>(USUAL[reach]);
  const [uses, setUses] = useState("");
  const { looked, look } = usePreview(api, projectId);
  const name = useId();
  const usesProblem = problemWithUses(uses);
  const choose = (suggestion: Suggestion) => {
    const text = ruleLine(suggestion.rule) ?? "";
    setChosen(suggestion);
    setLine(text);
    look(text, suggestion.rule, 0);
  };
  const edit = (text: string, suggestion: Suggestion) => {
    setLine(text);
    look(text, suggestion.rule, LOOK_AGAIN_MILLISECONDS);
  };
  const start = useRef(choose);
  useEffect(() => {
    if (always) start.current(always);
  }, [always]);
  const extend = (wanted: Reach) => {
    setReach(wanted);
    setMinutes(USUAL[wanted]);
    guard.lock();
  };
  const save = () => {
    if (!looked.rule) return;
    allow({ rule: looked.rule, expires_in_seconds: minutes * 60, max_uses: uses === "" ? null : Number(uses) }, reach);
  };
  return (
    <Sheet
      title={always ? "Always allow exactly this in this project" : "Allow similar calls"}
      close={close}
      back={back}
    >
      {always ? (
        <div>
          <strong>{visible(always.text)}</strong>
          <span className="card-widest">Widest effect: {visible(always.widest)}</span>
        </div>
      ) : (
        <div role="radiogroup" aria-label="Allow without asking" className="card-choices">
          {question.suggestions.map((suggestion, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: they never change
            <label key={index} className="card-choice">
              <input type="radio" name={name} checked={chosen === suggestion} onChange={() => choose(suggestion)} />
              <span>
                <strong>{visible(suggestion.text)}</strong>
                <span className="card-widest">Widest effect: {visible(suggestion.widest)}</span>
              </span>
            </label>
          ))}
        </div>
      )}
      {chosen && (
        <>
          {!always && ruleLine(chosen.rule) !== null && (
            <label className="card-field">
              <span>Rule (you can edit it)</span>
              <input
                className="card-rule"
                value={line}
                onChange={(event) => edit(event.target.value, chosen)}
                onKeyDown={(event) => event.key === "Enter" && event.preventDefault()}
                spellCheck={false}
                autoComplete="off"
                autoCapitalize="off"
              />
              <span className="card-widest">
                {chosen.rule.tool === "execute_command"
                  ? "Words of the command; ... at the end lets anything follow."
                  : "Space-separated path patterns."}
              </span>
            </label>
          )}
          <Preview looked={looked} offered={chosen} />
          <div className="card-limits">
            {!always && <Choose label="In" value={reach} choices={REACHES} choose={extend} />}
            <Spans value={minutes} choose={setMinutes} long={reach === "project"} />
            <label className="card-field">
              <span>Number of times</span>
              <input
                inputMode="numeric"
                placeholder="no limit"
                value={uses}
                aria-invalid={usesProblem !== null}
                onChange={(event) => setUses(event.target.value.trim())}
              />
            </label>
          </div>
          {usesProblem && <p className="card-bad">{usesProblem}</p>}
          <p className="card-aside">
            Only for <bdi>{theAsker(question.agent_id)}</bdi>
            {reach === "project" ? ", in all its conversations of this project" : ", in this conversation"}. Manage in
            Grants.
          </p>
        </>
      )}
      <Problem problem={problem} />
      <div className="card-buttons">
        <button type="button" onClick={close}>
          Back
        </button>
        <button
          className="card-allow"
          {...guard.button(save, disabled || looked.rule === null || usesProblem !== null)}
        >
          {always ? "Always allow this" : "Allow this and similar"}
        </button>
      </div>
    </Sheet>
  );
}

function problemWithUses(uses: string): string | null {
  if (uses === "") return null;
  const count = Number(uses);
  if (/^\d+$/.test(uses) && count >= 1 && count <= MOST_USES) return null;
  return "Enter a number from 1 to 10,000, or leave it empty for no limit.";
}

/** Asks the server what a rule would have covered; only the answer to the last question counts. */
function usePreview(api: Api, projectId: string) {
  const [looked, setLooked] = useState<Looked>(NOTHING);
  const turn = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const ask = async (line: string, rule: GrantRule) => {
    const mine = turn.current;
    const settle = (found: Looked) => mine === turn.current && setLooked(found);
    try {
      const read = readRule(line, rule);
      const found = await api.previewGrant(projectId, read);
      settle({ rule: found.problem ? null : read, found, problem: null });
    } catch (error) {
      settle({ ...NOTHING, problem: told(error) });
    }
  };
  const look = (line: string, rule: GrantRule, after: number) => {
    turn.current += 1;
    setLooked(NOTHING);
    clearTimeout(timer.current);
    if (after === 0) void ask(line, rule);
    else timer.current = setTimeout(() => void ask(line, rule), after);
  };
  return { looked, look };
}

function Preview({ looked: { found, problem }, offered }: { looked: Looked; offered: Suggestion }) {
  return (
    <div className="card-preview" aria-live="polite">
      {problem && <p className="card-bad">{problem}</p>}
      {!problem && !found && <p className="card-aside">Checking your last calls…</p>}
      {found && (
        <>
          {/* A rule as it was offered has its words beside its button. */}
          {found.text !== offered.text && (
            <p>
              Changed: {visible(found.text)}
              <span className="card-widest">Widest effect: {visible(found.widest)}</span>
            </p>
          )}
          <p className={found.refused.length ? "card-bad" : undefined}>{visible(found.sentence)}</p>
          {found.refused.length > 0 && (
            <ul>
              {found.refused.slice(0, MOST_EXAMPLES).map((call) => (
                <li key={call.tool_id} className="card-bad">
                  You denied: <bdi>{visible(call.description)}</bdi>
                </li>
              ))}
            </ul>
          )}
          {found.examples.length > 0 && (
            <details>
              <summary>Calls it would have covered</summary>
              <ul>
                {found.examples.slice(0, MOST_EXAMPLES).map((call) => (
                  <li key={call.tool_id}>
                    <bdi>{visible(call.description)}</bdi>
                  </li>
                ))}
              </ul>
            </details>
          )}
          {found.problem && <p className="card-bad">This cannot be allowed: {visible(found.problem)}</p>}
        </>
      )}
    </div>
  );
}
