// How a question ended, in the place of its buttons: by whom, where, and why. Who shows it takes it away.

import { Ban, Check, Clock, Pencil } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import type { Settled } from "../state/model";
import { oneLine, visible } from "../text/visible";
import { answeredIn, whoIs } from "../text/words";

/** `Allowed by you here.` */
export function settledWords({ status, by, from, here, question }: Settled): string {
  if (status === "timeout") return "Nobody answered in time. Nothing ran.";
  if (status === "cancelled" && by) return `Changed by ${whoIs(by, question.user_id)}. It is asked again.`;
  if (status === "cancelled") return "Withdrawn by the agent.";
  const done = status === "approved" ? "Allowed" : "Denied";
  if (here) return `${done} by you here.`;
  const [kind = "", ...rest] = (by ?? "").split(":");
  const where = from ? answeredIn(from) : "in the terminal or elsewhere";
  if (kind === "person") return `${done} by ${whoIs(by, question.user_id)}, ${where}.`;
  if (kind === "grant") return `${done} by grant ${oneLine(rest.join(":"))}.`;
  return `${done}${by ? ` by ${oneLine(by)}` : ""}, elsewhere.`;
}

interface SettledLineProps {
  settled: Settled;
  /** The keyboard was in what this replaces. */
  takeFocus: boolean;
}

export function SettledLine({ settled, takeFocus }: SettledLineProps) {
  const line = useRef<HTMLDivElement>(null);
  const [take] = useState(takeFocus);
  useEffect(() => {
    if (take) line.current?.focus({ preventScroll: true });
  }, [take]);
  return (
    <div className="card-settled" data-status={settled.status} tabIndex={-1} ref={line}>
      <Ended settled={settled} />
    </div>
  );
}

const SIGNS = { approved: Check, rejected: Ban, timeout: Clock, cancelled: Ban };

/** The words alone. */
export function Ended({ settled }: { settled: Settled }) {
  const Sign = settled.status === "cancelled" && settled.by ? Pencil : SIGNS[settled.status];
  return (
    <p role="status" className="card-ended" data-status={settled.status}>
      <Sign size={15} aria-hidden="true" />
      <span>
        <strong>{settledWords(settled)}</strong>
        {settled.reason && (
          <>
            {" "}
            Reason: <bdi>{visible(settled.reason)}</bdi>
          </>
        )}
        {settled.second && <span className="card-aside"> Your answer came second: {settled.second}</span>}
      </span>
    </p>
  );
}
