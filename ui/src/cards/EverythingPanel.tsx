// The widest answer there is, behind its warning. It allows nothing before the person says that they have read it.

import type { GrantTerms } from "@protocol";
import { useState } from "react";
import type { Guard } from "./guard";
import { Spans } from "./Spans";

/** The server's words (EVERYTHING_WARNING), with where to revoke it here. */
export const WARNING =
  "The agent will then write files and run programs on this machine without asking, also what is HIGH; only what " +
  "always asks (secrets, files that run later, the catastrophic, your own ask rules) still does. It ends with its time " +
  "or when you revoke it under Grants.";

interface EverythingPanelProps {
  guard: Guard;
  disabled: boolean;
  allow: (terms: GrantTerms) => void;
  back: () => void;
}

export function EverythingPanel({ guard, disabled, allow, back }: EverythingPanelProps) {
  const [sure, setSure] = useState(false);
  const [minutes, setMinutes] = useState(60);
  const save = () => allow({ warned: true, expires_in_seconds: minutes * 60 });
  return (
    <fieldset className="card-panel card-grave">
      <legend>Everything in this conversation</legend>
      <p className="card-bad">{WARNING}</p>
      <label className="card-choice">
        <input type="checkbox" checked={sure} onChange={(event) => setSure(event.target.checked)} />
        <span>I have read this.</span>
      </label>
      <Spans value={minutes} choose={setMinutes} />
      <div className="card-row">
        <button className="card-allow card-really" {...guard.button(save, disabled || !sure)}>
          Allow everything
        </button>
        <button type="button" onClick={back}>
          Back
        </button>
      </div>
    </fieldset>
  );
}
