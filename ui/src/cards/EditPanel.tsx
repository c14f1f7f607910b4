// A call that waits, changed by the person before they answer. What is sent is judged anew by the server, which then asks
// about exactly that: nothing here allows anything. What is masked is never edited as its mask.

import type { EditableCall, EditBody } from "@protocol";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { type Api, Problem as Failed } from "../api";
import { Sheet } from "../parts/Sheet";
import type { Question } from "../state/model";
import { oneLine, visible } from "../text/visible";
import { Countdown } from "./Countdown";
import type { Trouble } from "./deciding";
import { Problem } from "./Problem";

const LONGEST_SECONDS = 300;

/** Whether there is something in it that a person can change. */
export const isEditable = ({ tool_name }: Question): boolean =>
  ["write_file", "execute_command", "search_web"].includes(tool_name);

interface EditPanelProps {
  question: Question;
  projectId: string;
  api: Api;
  /** Seconds. */
  left: number;
  close: () => void;
  /** Where the focus goes then. */
  back?: () => HTMLElement | null;
}

export function EditPanel({ question, projectId, api, left, close, back }: EditPanelProps) {
  const [call, setCall] = useState<EditableCall | null>(null);
  const [problem, setProblem] = useState<Trouble | null>(null);
  const [text, setText] = useState("");
  const [seconds, setSeconds] = useState("");
  const [sending, setSending] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const load = async (reveal: boolean) => {
    setProblem(null);
    try {
      const found = await api.editable(question.id, reveal);
      if (found.digest !== question.digest) throw new Failed("What came belongs to another call.", 0);
      setCall(found);
      setText(lineFeeds(textOf(found) ?? ""));
      setSeconds(String(found.timeout ?? ""));
    } catch (error) {
      setProblem(troubleOf(error));
    }
  };
  const first = useRef(load);
  useEffect(() => void first.current(false), []);
  const before = call && textOf(call);
  useEffect(() => {
    if (before !== null) field.current?.focus();
  }, [before]);
  const body = call && changed(question, call, text, seconds);
  const wrong = call?.timeout != null && !isTime(seconds);
  const off = sending || left === 0 || body === null || wrong;
  const send = async () => {
    if (off || !body) return;
    setSending(true);
    setProblem(null);
    try {
      const told = await api.edit(projectId, question.id, body);
      // The machine may have found what nobody can be asked about: then the call is over, and this says why.
      if (told.approval_id === null && left > 0) setProblem({ message: visible(told.message), hint: null });
      else close();
    } catch (error) {
      setProblem(troubleOf(error));
    }
    setSending(false);
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.repeat) return;
    event.preventDefault();
    void send();
  };
  const label = LABELS[question.tool_name] ?? "Text";
  return (
    <Sheet title="Edit before allowing" wide close={close} back={back}>
      <p className="card-aside">
        Nothing runs yet. Your version is checked again and shown to you first; the agent is told what you changed.
      </p>
      {call === null && problem === null && (
        <p className="card-loading" role="status">
          Loading…
        </p>
      )}
      {call?.masked && before === null && (
        <p className="card-told">
          A part of it is masked because it looks secret. It must be shown to be edited.{" "}
          <button type="button" onClick={() => void load(true)}>
            Show and edit
          </button>
        </p>
      )}
      {call && before !== null && (
        <label className="card-field">
          <span>{question.tool_name === "write_file" ? oneLine(String(question.tool_params.path)) : label}</span>
          <textarea
            ref={field}
            className={question.tool_name === "write_file" ? "card-edit card-edit-file" : "card-edit"}
            aria-label={label}
            value={text}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={pressed}
            spellCheck={false}
            autoComplete="off"
            autoCapitalize="off"
            wrap={question.tool_name === "write_file" ? "off" : "soft"}
          />
          {question.tool_name === "execute_command" && (
            <span className="card-widest">One command. There is no shell: quote words that hold blanks.</span>
          )}
        </label>
      )}
      {call?.timeout != null && before !== null && (
        <label className="card-field card-edit-time">
          <span>Time limit in seconds</span>
          <input
            inputMode="numeric"
            value={seconds}
            aria-invalid={wrong}
            onChange={(event) => setSeconds(event.target.value.trim())}
          />
        </label>
      )}
      {wrong && <p className="card-bad">Enter a number from 1 to {LONGEST_SECONDS}.</p>}
      <Problem problem={problem} />
      <div className="card-row">
        <Countdown left={left} of={question.timeout_seconds} />
        <div className="card-buttons">
          <button type="button" onClick={close}>
            Back
          </button>
          <button type="button" className="card-review" aria-disabled={off} onClick={() => void send()}>
            {sending ? "Checking…" : "Review the change"}
          </button>
        </div>
      </div>
    </Sheet>
  );
}

const LABELS: Record<string, string> = {
  write_file: "Content",
  execute_command: "Command line",
  search_web: "Search for",
};

const textOf = ({ content, line, query }: EditableCall): string | null => content ?? line ?? query ?? null;

// A field holds line feeds alone.
const lineFeeds = (text: string) => text.replace(/\r\n?/g, "\n");

/** The text in the line ends that it had; mixed ones become line feeds where the person changed it. */
function asBefore(text: string, before: string): string {
  if (text === lineFeeds(before)) return before;
  return before.includes("\r\n") && !/(^|[^\r])\n|\r(?!\n)/.test(before) ? text.replaceAll("\n", "\r\n") : text;
}

const isTime = (seconds: string) =>
  /^\d{1,3}$/.test(seconds) && Number(seconds) >= 1 && Number(seconds) <= LONGEST_SECONDS;

/** What to send; null while nothing is changed. */
export function changed(question: Question, call: EditableCall, text: string, seconds: string): EditBody | null {
  const before = textOf(call);
  if (before === null) return null;
  const now = asBefore(text, before);
  const timeout = call.timeout != null && Number(seconds) !== call.timeout ? Number(seconds) : undefined;
  if (now === before && timeout === undefined) return null;
  const name = call.content != null ? "content" : call.line != null ? "line" : "query";
  return {
    digest: question.digest,
    calls: Math.max(1, question.tool_ids.length),
    ...(now === before ? {} : { [name]: now }),
    ...(timeout === undefined ? {} : { timeout }),
  };
}

function troubleOf(error: unknown): Trouble {
  const { message, hint } = error instanceof Failed ? error : new Failed(String(error), 0);
  return { message: visible(message), hint: hint === null ? null : visible(hint) };
}
