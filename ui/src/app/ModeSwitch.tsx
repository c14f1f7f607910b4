// How much the agent must ask in the next message: sandbox or full. Full answers most questions beforehand, so it takes
// a second step that says what it means, is never remembered, and is not offered where the agent may not have it.

import type { AgentInfo, AgentMode } from "@protocol";
import { useState } from "react";
import { Deliberate } from "../pages/Deliberate";
import { Popover } from "./Popover";

interface Props {
  agent: AgentInfo;
  mode: AgentMode;
  mayApprove: boolean;
  choose: (mode: AgentMode) => void;
}

export function ModeSwitch({ agent, mode, mayApprove, choose }: Props) {
  return (
    <Popover
      label={
        <>
          Mode: <strong>{mode}</strong>
        </>
      }
      title="Mode"
      className={`app-mode app-mode-${mode}`}
    >
      {(close) => (
        <Choice
          agent={agent}
          mode={mode}
          mayApprove={mayApprove}
          choose={(chosen) => {
            choose(chosen);
            close();
          }}
        />
      )}
    </Popover>
  );
}

function Choice({ agent, mode, mayApprove, choose }: Props) {
  const [sure, setSure] = useState(false);
  const refusal =
    agent.widest_mode === "sandbox"
      ? `The agent ${agent.name} works in sandbox mode only.`
      : mayApprove
        ? null
        : "Full mode needs somebody who may approve; you may not.";
  return (
    <>
      <h2>How much the agent must ask</h2>
      <section className="app-mode-choice">
        <h3>Sandbox{mode === "sandbox" && <span className="app-tag">now</span>}</h3>
        <p>Reading goes on by itself. You are asked before a file is written or a command runs that is not harmless.</p>
        {mode !== "sandbox" && (
          <button type="button" className="app-button app-button-main" onClick={() => choose("sandbox")}>
            Back to sandbox
          </button>
        )}
      </section>
      <section className="app-mode-choice">
        <h3>Full{mode === "full" && <span className="app-tag app-tag-high">now</span>}</h3>
        <p>
          Writes and commands run without asking you. You are still asked about secrets, files that run later and the
          catastrophic. Everything is recorded.
        </p>
        {refusal !== null && <p className="app-muted">{refusal}</p>}
        {refusal === null && mode !== "full" && !sure && (
          <button type="button" className="app-button" onClick={() => setSure(true)}>
            Switch to full…
          </button>
        )}
        {refusal === null && mode !== "full" && sure && (
          <div className="app-warning" role="alert">
            <p>
              From the next message on, <strong>{agent.name}</strong> changes files and runs programs on your machine
              without a question. It counts for this page until you switch back or reload.
            </p>
            <Deliberate className="app-button app-button-bad" onPress={() => choose("full")}>
              Yes, work in full mode
            </Deliberate>
            <button type="button" className="app-button" onClick={() => setSure(false)}>
              Stay in sandbox
            </button>
          </div>
        )}
      </section>
    </>
  );
}
