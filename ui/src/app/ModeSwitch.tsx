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
      title="Approval mode"
      side="top"
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
      ? `The agent ${agent.name} only works in sandbox mode.`
      : mayApprove
        ? null
        : "Full mode needs a person who may approve.";
  return (
    <>
      <h2>Approval mode</h2>
      <section className="app-mode-choice">
        <h3>Sandbox{mode === "sandbox" && <span className="app-tag">now</span>}</h3>
        <p>Reads run automatically. The agent asks before it writes a file or runs a command that could do harm.</p>
        {mode !== "sandbox" && (
          <button type="button" className="app-button app-button-main" onClick={() => choose("sandbox")}>
            Back to sandbox
          </button>
        )}
      </section>
      <section className="app-mode-choice">
        <h3>Full{mode === "full" && <span className="app-tag app-tag-high">now</span>}</h3>
        <p>
          The agent won't ask, even for high-risk actions. You'll still be asked about secrets, startup files and
          destructive commands. Everything is recorded.
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
              without asking. This page stays in full mode until you switch back or reload.
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
