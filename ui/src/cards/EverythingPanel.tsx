// The widest answer there is, behind its warning. It allows nothing before the person says that they have read it.

import type { GrantTerms } from "@protocol";
import { useState } from "react";
import { Sheet } from "../parts/Sheet";
import type { Trouble } from "./deciding";
import { useGuard } from "./guard";
import { Problem } from "./Problem";
import { Spans } from "./Spans";

export const WARNING =
  "The agent won't ask, even for high-risk actions. You'll still be asked about secrets, startup files, destructive " +
  "commands and your own rules.";

export interface PanelProps {
  disabled: boolean;
  problem: Trouble | null;
  allow: (terms: GrantTerms) => void;
  close: () => void;
  /** Where the focus goes then. */
  back: () => HTMLElement | null;
}

export function EverythingPanel({ disabled, problem, allow, close, back }: PanelProps) {
  const guard = useGuard();
  const [sure, setSure] = useState(false);
  const [minutes, setMinutes] = useState(60);
  const save = () => allow({ warned: true, expires_in_seconds: minutes * 60 });
  return (
    <Sheet title="Allow everything in this conversation" close={close} back={back}>
      <p className="card-caution">{WARNING}</p>
      <Spans value={minutes} choose={setMinutes} />
      <p className="card-aside">It expires by itself. Manage in Grants.</p>
      <label className="card-choice">
        <input type="checkbox" checked={sure} onChange={(event) => setSure(event.target.checked)} />
        <span>I have read this.</span>
      </label>
      <Problem problem={problem} />
      <div className="card-buttons">
        <button type="button" onClick={close}>
          Back
        </button>
        <button className="card-allow card-really" {...guard.button(save, disabled || !sure)}>
          Allow everything
        </button>
      </div>
    </Sheet>
  );
}
