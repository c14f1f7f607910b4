// One tool call of the conversation: what it does, how risky it is, how it stands and who let it; the rest when opened.
// It decides nothing: the one thing it can do to a call is to stop it.

import type { Grant } from "@protocol";
import { type ReactNode, useEffect, useId, useState } from "react";
import type { Api } from "../api";
import type { Host } from "../host";
import type { ToolCall } from "../state/model";
import { Sentences } from "../text/Sentences";
import "../styles/cards.css";
import { Output } from "../text/Output";
import { oneLine, shortened, visible } from "../text/visible";
import { advice, callSummary, counted, deniedBy, duration, letBy, outcome, saidOf, verb, whoIs } from "../text/words";
import { EffectDetails, EffectLines } from "./EffectLines";
import { changedCount } from "./effects";
import { useOpened } from "./opened";
import { Parameters } from "./Parameters";
import { ResultView } from "./ResultView";
import { Risk } from "./Risk";
import { told } from "./told";

interface ToolCardProps {
  call: ToolCall;
  api: Api;
  host: Host;
  userId: string | null;
  grants: Grant[];
  /** Where its undo is offered; null where it is not. */
  undoHref: string | null;
  /** The server's clock, for how long it has been running; without it that is not said. */
  now?: () => number;
}

const RUNS = new Set(["executing", "approved"]);
const OVER = new Set(["completed", "failed"]);

export function ToolCard({ call, api, host, userId, grants, undoHref, now }: ToolCardProps) {
  const live = call.status === "executing" && call.output.length > 0;
  const [open, toggle] = useOpened(host, call.id, live);
  const body = useId();
  const by =
    call.status === "rejected"
      ? deniedBy(call.deniedBy, userId, call.deniedFrom ?? null)
      : letBy(call.approvedBy, userId, grants);
  const running = call.status === "executing" && call.began !== null && now;
  const state = running ? <Running at={call.began ?? call.at} now={now} /> : stateOf(call);
  return (
    <article
      className="card card-tool"
      data-status={stopped(call) ? "stopped" : call.status}
      data-tool={oneLine(call.toolName)}
    >
      <div className="card-head">
        <button type="button" className="card-toggle" aria-expanded={open} aria-controls={body} onClick={toggle}>
          <span className="card-verb">{verb(call.toolName)}</span>{" "}
          <bdi className="card-what">{callSummary(call.toolName, call.params)}</bdi>
        </button>
        <Stop call={call} api={api} />
      </div>
      <div className="card-facts">
        {call.riskLevel !== "LOW" && <Risk level={call.riskLevel} />}
        <span className={failed(call) ? "card-state card-bad" : "card-state"}>{state}</span>
        {call.edit && <span className="card-by">changed by {whoIs(call.edit.edited_by, userId)}</span>}
        {by && <span className="card-by">{by}</span>}
        {call.undone && (
          <span className="card-undone">
            undone by {whoIs(call.undone.by, userId)} ({counted(call.undone.files, "file")})
          </span>
        )}
        {undoHref && undoable(call) && (
          <a className="card-undo" href={undoHref}>
            Undo…
          </a>
        )}
      </div>
      {call.error && <Trouble call={call} error={call.error} />}
      {call.result && <EffectLines result={call.result} />}
      <div id={body} className="card-body" hidden={!open}>
        {open && <Body call={call} api={api} host={host} live={live} />}
      </div>
    </article>
  );
}

function stateOf(call: ToolCall): string {
  if (call.status === "executing" && call.began === null) return "waiting for other calls on the machine";
  return outcome(call.status, call.errorType, call.milliseconds);
}

/** By a person, or by the agent itself: no fault. */
const stopped = ({ status, errorType }: ToolCall) => status === "failed" && errorType === "cancelled";

const failed = (call: ToolCall) => (call.status === "failed" && !stopped(call)) || call.status === "timeout";

function undoable(call: ToolCall): boolean {
  if (call.undone || !OVER.has(call.status) || !call.result) return false;
  return changedCount(call.result) > 0 || (call.toolName === "write_file" && call.status === "completed");
}

function Running({ at, now }: { at: number; now: () => number }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.floor(Math.max(0, now() - at) / 1000);
  return <>running… {seconds > 0 && (seconds < 60 ? `${seconds} s` : duration(seconds * 1000))}</>;
}

function Trouble({ call, error }: { call: ToolCall; error: string }) {
  // That a person denied it, and who, is said by how the call stands: only the reason is left.
  const denied = call.status === "rejected" && call.deniedBy !== null;
  const said = saidOf(error);
  const what = denied ? call.deniedFor && `Reason: ${call.deniedFor}` : said.what;
  const hint = denied ? null : said.hint;
  const todo = advice(call.errorType);
  if (!what && !hint && !todo) return null;
  return (
    <div className="card-trouble">
      {what && (
        <p className={failed(call) ? undefined : "card-hint"}>
          <bdi>{shortened(visible(what), 4000)}</bdi>
        </p>
      )}
      {hint && (
        <p className="card-hint">
          <bdi>
            <Sentences text={shortened(hint, 4000)} />
          </bdi>
        </p>
      )}
      {todo && <p className="card-hint">{todo}</p>}
    </div>
  );
}

function Stop({ call, api }: { call: ToolCall; api: Api }) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  if (!RUNS.has(call.status)) return null;
  const stop = async () => {
    if (busy) return;
    setBusy(true);
    setProblem(null);
    try {
      await api.stopTool(call.id);
    } catch (error) {
      setBusy(false);
      setProblem(told(error));
    }
  };
  return (
    <>
      <button type="button" className="card-stop" aria-disabled={busy} onClick={stop}>
        {busy ? "Stopping…" : call.toolName === "execute_command" ? "Stop the command" : "Stop the call"}
      </button>
      {problem && (
        <p className="card-bad" role="alert">
          {problem}
        </p>
      )}
    </>
  );
}

interface BodyProps {
  call: ToolCall;
  api: Api;
  host: Host;
  live: boolean;
}

function Body({ call, api, host, live }: BodyProps) {
  const [whole, setWhole] = useState<Record<string, unknown> | null>(null);
  const result = whole ?? call.result;
  return (
    <>
      <Part title="Parameters">
        <Parameters toolName={call.toolName} params={call.params} given />
      </Part>
      {call.edit && (
        <Part title="As the agent asked">
          <Parameters toolName={call.toolName} params={call.edit.asked} given />
        </Part>
      )}
      {live && (
        <Part title="Output so far">
          <Output pieces={call.output} live label="Output so far" />
        </Part>
      )}
      {result && (
        <Part title="Result">
          <ResultView toolName={call.toolName} result={result} host={host} params={call.params} />
          {call.resultShortened && !whole && <LoadAll call={call} api={api} loaded={setWhole} />}
        </Part>
      )}
      {result && <EffectDetails result={result} host={host} />}
      {!live && !result && !call.error && <p className="card-aside">There is no result yet.</p>}
    </>
  );
}

interface LoadAllProps {
  call: ToolCall;
  api: Api;
  loaded: (result: Record<string, unknown>) => void;
}

function LoadAll({ call, api, loaded }: LoadAllProps) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const load = async () => {
    if (busy) return;
    setBusy(true);
    setProblem(null);
    try {
      const { result } = await api.execution(call.id);
      if (result) loaded(result);
      else setProblem("The record holds no result for it.");
    } catch (error) {
      setProblem(told(error));
    }
    setBusy(false);
  };
  return (
    <p className="card-told">
      Only a part is here.{" "}
      <button type="button" aria-disabled={busy} onClick={load}>
        {busy ? "Loading…" : "Load all"}
      </button>{" "}
      {problem && <span role="alert">{problem}</span>}
    </p>
  );
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="card-part">
      <p className="card-part-title">{title}</p>
      {children}
    </section>
  );
}
