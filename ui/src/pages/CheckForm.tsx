// The form of "what would happen if…": a tool and its parameters, or a command line that is split into words before anyone
// is asked, so that a person sees what would be handed over. It only collects; the gate answers.

import type { AgentMode, CheckBody, ToolInfo } from "@protocol";
import { type FormEvent, useId, useState } from "react";
import { Choose } from "../parts/Choose";
import { visible } from "../text/visible";
import { Words } from "./facts";
import { type Field, fieldsOf, paramsOf, type Typed } from "./fields";
import { shellWords, splitLine } from "./splitting";

export type Asked = CheckBody & { mode: AgentMode };

interface Example {
  name: string;
  tool: string;
  line?: string;
  typed?: Typed;
}

const EXAMPLES: Example[] = [
  { name: "git status", tool: "execute_command", line: "git status" },
  { name: "find -delete", tool: "execute_command", line: 'find . -name "*.log" -delete' },
  { name: "rm -rf build", tool: "execute_command", line: "rm -rf build" },
  { name: "force-push", tool: "execute_command", line: "git push --force origin main" },
  { name: "run a script", tool: "execute_command", line: "python tools/build.py" },
  { name: "read .env", tool: "read_file", typed: { path: ".env" } },
  { name: "read outside", tool: "read_file", typed: { path: "../../etc/passwd" } },
  { name: "write package.json", tool: "write_file", typed: { path: "package.json", content: "{}" } },
];

interface Props {
  tools: ToolInfo[];
  sessionId: string | null;
  widest: AgentMode | null;
  busy: boolean;
  check: (asked: Asked) => void;
}

interface Draft {
  tool: string;
  line: string;
  typed: Typed;
}

export function CheckForm({ tools, sessionId, widest, busy, check }: Props) {
  const first = tools.find((tool) => tool.name === "execute_command") ?? tools[0];
  const [draft, setDraft] = useState<Draft>({ tool: first?.name ?? "", line: "", typed: {} });
  const [mode, setMode] = useState<AgentMode>("sandbox");
  const [here, setHere] = useState(false);
  const info = tools.find((tool) => tool.name === draft.tool);
  const fields = info ? fieldsOf(info.parameters) : [];
  const isCommand = draft.tool === "execute_command";
  const ask = (what: Draft, params: Record<string, unknown>) =>
    check({ tool_name: what.tool, tool_params: params, mode, session_id: here ? sessionId : null });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const params = isCommand ? commandParams(draft.line) : paramsOf(fields, draft.typed);
    if (params !== null) ask(draft, params);
  };
  const show = (example: Example) => {
    const next = { tool: example.tool, line: example.line ?? "", typed: example.typed ?? {} };
    setDraft(next);
    const params = example.line === undefined ? { ...next.typed } : commandParams(next.line);
    if (params !== null) ask(next, params);
  };
  return (
    <form className="page-form" onSubmit={submit}>
      <div className="page-narrow">
        <Choose
          label="Tool"
          value={draft.tool}
          choices={tools.map((tool) => ({ value: tool.name, text: visible(tool.name) }))}
          choose={(tool) => setDraft({ ...draft, tool, typed: {} })}
        />
      </div>
      {isCommand ? (
        <CommandLine line={draft.line} change={(line) => setDraft({ ...draft, line })} />
      ) : (
        fields.map((field) => (
          <FieldInput
            key={`${draft.tool} ${field.name}`}
            field={field}
            value={draft.typed[field.name]}
            change={(value) => setDraft({ ...draft, typed: { ...draft.typed, [field.name]: value } })}
          />
        ))
      )}
      <div className="page-row">
        <fieldset className="page-choice">
          <legend>Mode of the agent</legend>
          <label>
            <input type="radio" name="mode" checked={mode === "sandbox"} onChange={() => setMode("sandbox")} /> sandbox
          </label>
          <label>
            <input type="radio" name="mode" checked={mode === "full"} onChange={() => setMode("full")} /> full
          </label>
        </fieldset>
        <label className="page-tick">
          <input
            type="checkbox"
            checked={here}
            disabled={sessionId === null}
            onChange={(event) => setHere(event.target.checked)}
          />{" "}
          Count the open conversation’s grants
        </label>
      </div>
      {mode === "full" && widest === "sandbox" && (
        <p className="page-note">The rules in force hold agents to sandbox; a message cannot ask for full here.</p>
      )}
      <div className="page-row">
        <button
          type="submit"
          className="page-button page-button-main"
          disabled={busy || (isCommand && !ready(draft.line))}
        >
          {busy ? "Checking…" : "Check"}
        </button>
      </div>
      <section className="page-examples" aria-label="Examples">
        <span className="page-note">Try:</span>
        {EXAMPLES.filter((example) => tools.some((tool) => tool.name === example.tool)).map((example) => (
          <button key={example.name} type="button" className="page-small-button" onClick={() => show(example)}>
            {example.name}
          </button>
        ))}
      </section>
    </form>
  );
}

const ready = (line: string): boolean => commandParams(line) !== null;

/** The call the line stands for; null when it is empty or cannot be split. */
function commandParams(line: string): { command: string; args: string[] } | null {
  const [command, ...args] = splitLine(line).words ?? [];
  return command === undefined ? null : { command, args };
}

function CommandLine({ line, change }: { line: string; change: (line: string) => void }) {
  const id = useId();
  const split = splitLine(line);
  const shell = split.words ? shellWords(split.words) : [];
  return (
    <div className="page-field">
      <label htmlFor={id}>Command line</label>
      <input
        id={id}
        type="text"
        className="page-code-input"
        value={line}
        autoComplete="off"
        autoCapitalize="off"
        spellCheck={false}
        placeholder='git commit -m "two words"'
        aria-invalid={split.problem !== null}
        aria-describedby={`${id}-told`}
        onChange={(event) => change(event.target.value)}
      />
      <div id={`${id}-told`} className="page-field-told">
        {split.problem !== null && <p className="page-alarm">{visible(split.problem)}</p>}
        {split.words !== null && split.words.length > 0 && (
          <Words words={split.words} label="The words, one box each" />
        )}
        {shell.length > 0 && (
          <p className="page-alarm">
            {shell.map((word) => visible(word)).join(" ")} would be handed to the program as written: there is no shell
            to act on it.
          </p>
        )}
        <p className="page-note">
          No shell is involved: quotes only group words; nothing is expanded, piped or redirected. Each box is one word,
          as the program gets it.
        </p>
      </div>
    </div>
  );
}

interface FieldProps {
  field: Field;
  value: string | boolean | undefined;
  change: (value: string | boolean) => void;
}

function FieldInput({ field, value, change }: FieldProps) {
  const id = useId();
  const text = typeof value === "string" ? value : "";
  const described = { id, "aria-describedby": `${id}-told` };
  const shared = { ...described, "aria-required": field.required };
  if (field.kind === "yes") {
    const on = typeof value === "boolean" ? value : field.usual === "true";
    return (
      <p className="page-tick">
        <input {...described} type="checkbox" checked={on} onChange={(event) => change(event.target.checked)} />{" "}
        <label htmlFor={id}>{visible(field.name)}</label>{" "}
        <span id={`${id}-told`} className="page-note">
          {visible(field.description)}
        </span>
      </p>
    );
  }
  if (field.kind === "choice") {
    return (
      <div className="page-narrow">
        <Choose
          label={visible(field.name)}
          value={text || field.usual}
          choices={field.choices.map((choice) => ({ value: choice, text: visible(choice) }))}
          choose={change}
        />
        <p className="page-note">{visible(field.description)}</p>
      </div>
    );
  }
  return (
    <div className="page-field">
      <label htmlFor={id}>
        {visible(field.name)}
        {field.required ? "" : " (may stay empty)"}
      </label>
      {field.kind === "text" ? (
        <textarea
          className="page-code-input"
          {...shared}
          rows={4}
          value={text}
          spellCheck={false}
          onChange={(event) => change(event.target.value)}
        />
      ) : (
        <input
          {...shared}
          type="text"
          inputMode={field.kind === "number" ? "numeric" : "text"}
          value={text}
          placeholder={field.usual}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => change(event.target.value)}
        />
      )}
      <p id={`${id}-told`} className="page-note">
        {visible(field.description)}
      </p>
    </div>
  );
}
