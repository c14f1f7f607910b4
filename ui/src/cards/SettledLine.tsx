// How a question ended, in the place of its buttons: by whom, where, and why. It goes away when the person says so; who
// shows the card may take it away later.

import { useEffect, useRef, useState } from "react";
import type { Settled } from "../state/model";
import { oneLine, visible } from "../text/visible";
import { answeredIn, whoIs } from "../text/words";

/** `Allowed by you here.` */
export function settledWords({ status, by, from, here, question }: Settled): string {
  if (status === "timeout") return "Nobody answered in time; nothing ran.";
  if (status === "cancelled") return "Withdrawn: nothing waits for it any more.";
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
  /** What the server said when our answer came second. */
  second: string | null;
  /** The keyboard was in what this replaces. */
  takeFocus: boolean;
  onDismiss: () => void;
}

export function SettledLine({ settled, second, takeFocus, onDismiss }: SettledLineProps) {
  const line = useRef<HTMLDivElement>(null);
  const [take] = useState(takeFocus);
  useEffect(() => {
    if (take) line.current?.focus();
  }, [take]);
  return (
    <div className="card-settled" data-status={settled.status} tabIndex={-1} ref={line}>
      <p role="status">
        <strong>{settledWords(settled)}</strong>
        {settled.reason && (
          <>
            {" "}
            Reason: <bdi>{visible(settled.reason)}</bdi>
          </>
        )}
        {second && <span className="card-aside"> Your answer came second: {second}</span>}
      </p>
      <button type="button" onClick={onDismiss}>
        Dismiss
      </button>
    </div>
  );
}
