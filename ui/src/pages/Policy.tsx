// The rules: what would happen if an agent made a call, and which files of rules are in force. Checking runs nothing and
// records nothing.

import type { CheckAnswer, RuleLayer } from "@protocol";
import { useRef, useState } from "react";
import type { Problem } from "../api";
import { Lines } from "../text/Lines";
import { visible } from "../text/visible";
import { type Asked, CheckForm } from "./CheckForm";
import { CheckResult } from "./CheckResult";
import { Plain } from "./facts";
import { asProblem, Empty, Trouble, useLoaded, Waiting } from "./loading";
import type { ProjectPageProps } from "./props";
import { Title } from "./Title";

export function Policy(props: ProjectPageProps) {
  const { api, projectId } = props;
  const layers = useLoaded(() => api.policy(projectId), projectId);
  const widest = layers.value?.widest_mode ?? null;
  return (
    <>
      <header className="page-head">
        <Title>Policy</Title>
      </header>
      <Check {...props} widest={widest} />
      <section className="page-section">
        <h2>Rules in force</h2>
        <p>
          Of all rules that fit, the strictest wins: deny, then ask, then allow. Their order and their file do not
          matter.
        </p>
        {widest !== null && (
          <p>
            Widest mode an agent may have here: <strong>{widest}</strong>
            {widest === "sandbox"
              ? ". A message that asks for full is held to sandbox."
              : ". A message may ask for full."}
          </p>
        )}
        {layers.value === null && layers.busy && <Waiting what="Reading the rules…" />}
        {layers.problem && <Trouble problem={layers.problem} again={layers.again} />}
        {layers.value !== null && <Layers layers={layers.value.layers} />}
      </section>
      <section className="page-section">
        <h2>Write rules</h2>
        <p>
          For everyone who works on this project: <code>.byleave/policy.toml</code> in the workspace. What it denies or
          asks about counts at once; what it loosens counts after <code>byleave trust</code>. For yourself:{" "}
          <code>policy.toml</code> in your configuration directory. See docs/policy.md.
        </p>
        <p className="page-note">No tool can write there, so an agent cannot change its own rules.</p>
      </section>
    </>
  );
}

function Check({ widest, ...props }: ProjectPageProps & { widest: "sandbox" | "full" | null }) {
  const { api, projectId, state } = props;
  const catalogue = useLoaded(() => api.tools(projectId), projectId);
  const [answer, setAnswer] = useState<{ asked: Asked; told: CheckAnswer } | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const turn = useRef(0);
  const check = (asked: Asked) => {
    turn.current += 1;
    const mine = turn.current;
    setBusy(true);
    setProblem(null);
    const body = { ...asked, session_id: asked.session_id ?? null };
    api.check(projectId, body).then(
      (told) => {
        if (mine !== turn.current) return;
        setAnswer({ asked, told });
        setBusy(false);
      },
      (error) => {
        if (mine !== turn.current) return;
        setAnswer(null);
        setProblem(asProblem(error));
        setBusy(false);
      },
    );
  };
  return (
    <section className="page-section" aria-labelledby="page-check-title">
      <h2 id="page-check-title">What would happen if…</h2>
      <p>Describe a call an agent could make. Nothing runs, and nothing is put on record.</p>
      {catalogue.value === null && catalogue.busy && <Waiting what="Reading which tools there are…" />}
      {catalogue.problem && <Trouble problem={catalogue.problem} again={catalogue.again} />}
      {catalogue.value !== null && (
        <CheckForm
          tools={catalogue.value.tools}
          sessionId={state.sessionId}
          widest={widest}
          busy={busy}
          check={check}
        />
      )}
      <div aria-live="polite" aria-busy={busy}>
        {answer && <CheckResult asked={answer.asked} answer={answer.told} />}
      </div>
      {problem && <Trouble problem={problem} />}
    </section>
  );
}

const LAYERS: Record<string, string> = {
  "built-in": "Byleave’s own",
  organisation: "the organisation’s, on the server",
  user: "yours, on your machine",
  device: "the machine’s",
  project: "the project’s, from the repository",
};

function Layers({ layers }: { layers: RuleLayer[] }) {
  if (layers.length === 0) {
    return (
      <Empty title="No rule file is in force.">
        <p>The gate judges every call by itself. A machine tells its rules when it connects.</p>
      </Empty>
    );
  }
  return (
    <ul className="page-cards">
      {layers.map((layer) => (
        <li key={`${layer.layer} ${layer.source} ${layer.client_id}`} className="page-card">
          <Layer layer={layer} />
        </li>
      ))}
    </ul>
  );
}

function Layer({ layer }: { layer: RuleLayer }) {
  return (
    <>
      <h3>
        {layer.layer} <span className="page-note">{LAYERS[layer.layer]}</span>
      </h3>
      <p className="page-row">
        <code>
          <Plain text={layer.source} />
        </code>
        <span className={layer.trusted ? "page-tag" : "page-tag page-tag-waits"}>
          {layer.trusted ? "trusted" : "not trusted: only what tightens counts"}
        </span>
        {layer.client_id && (
          <span className="page-note">
            told by machine <Plain text={layer.client_id} />
          </span>
        )}
      </p>
      {layer.text.trim() === "" ? (
        <p className="page-note">No text: nothing is written there, or it is built in.</p>
      ) : (
        <details className="page-fold">
          <summary>The text</summary>
          <Lines text={layer.text} label={`Rules of ${visible(layer.source)}`} />
        </details>
      )}
    </>
  );
}
