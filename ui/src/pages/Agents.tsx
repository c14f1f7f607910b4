// The agents that work on messages here: what each is for, its model, its tools, and how much it must ask. Read only; the
// mode of the next message is chosen in the conversation.

import type { AgentInfo, AgentMode } from "@protocol";
import { Facts, Plain } from "./facts";
import { Empty } from "./loading";
import type { ProjectPageProps } from "./props";
import { Title } from "./Title";

const MEANING: Record<AgentMode, string> = {
  sandbox: "reads freely; writes and commands ask you first",
  full: "asks nothing but what always asks: secrets, files that run or are trusted later, and rules of yours that ask",
};

export function Agents({ state }: ProjectPageProps) {
  return (
    <>
      <header className="page-head">
        <Title>Agents and models</Title>
      </header>
      {state.agents.length === 0 ? (
        <Empty title="No agent works on messages here.">
          <p>
            Agents that run elsewhere can still call tools through this server. To have one work on messages, set{" "}
            <code>BYLEAVE_MODEL</code> for the server: see docs/agents.md.
          </p>
        </Empty>
      ) : (
        <ul className="page-cards">
          {state.agents.map((agent) => (
            <li key={agent.name} className="page-card">
              <Agent
                agent={agent}
                chosen={state.modes[agent.name] ?? agent.mode}
                current={agent.name === state.agent}
              />
            </li>
          ))}
        </ul>
      )}
      <section className="page-section">
        <h2>What the modes mean</h2>
        <Facts
          facts={[
            ["sandbox", `The agent ${MEANING.sandbox}.`],
            ["full", `The agent ${MEANING.full}.`],
          ]}
        />
        <p className="page-note">
          In both, the bounds of the workspace, the isolation of commands, refusals and the record stay as they are. A
          machine’s owner can forbid full altogether with <code>mode = "sandbox"</code> in a rule file.
        </p>
      </section>
      <section className="page-section">
        <h2>Add an agent</h2>
        <p>
          Whoever runs the server writes it into the TOML file that <code>BYLEAVE_AGENTS</code> names, and starts the
          server again: name, description, model, widest mode, tools. See docs/agents.md.
        </p>
      </section>
    </>
  );
}

function Agent({ agent, chosen, current }: { agent: AgentInfo; chosen: AgentMode; current: boolean }) {
  return (
    <>
      <h2>
        <Plain text={agent.name} /> {current && <span className="page-tag">active agent</span>}
      </h2>
      {agent.description && (
        <p>
          <Plain text={agent.description} />
        </p>
      )}
      <Facts
        facts={[
          [
            "Model",
            <code key="model">
              <Plain text={agent.model} />
            </code>,
          ],
          ["Mode now", <ModeWords key="mode" mode={chosen} />],
          ["Mode by default", agent.mode],
          ["Widest mode", agent.widest_mode],
          ["Tools", <ToolNames key="tools" names={agent.tools} />],
        ]}
      />
    </>
  );
}

function ModeWords({ mode }: { mode: AgentMode }) {
  return (
    <>
      <strong>{mode}</strong>: {MEANING[mode]}
    </>
  );
}

function ToolNames({ names }: { names: string[] }) {
  if (names.length === 0) return <>none: it can only talk</>;
  return (
    <ul className="page-words" aria-label="Tools">
      {names.map((name) => (
        <li key={name} className="page-word">
          <Plain text={name} />
        </li>
      ))}
    </ul>
  );
}
