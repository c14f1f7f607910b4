// What a person changed in a call, beside what the agent asked for.

import type { WriteChange } from "@protocol";
import type { Host } from "../host";
import type { Question } from "../state/model";
import { whoIs, wholeSummary } from "../text/words";
import { timeLimit } from "./asked";
import { DiffView } from "./DiffView";

interface EditedProps {
  question: Question;
  /** What the write does; null while it is not known. */
  change: WriteChange | null;
  host: Host;
}

export function Edited({ question, change, host }: EditedProps) {
  const { edit, tool_name, tool_params, user_id } = question;
  if (!edit) return null;
  const asked = { ...question, tool_params: edit.asked };
  const limits = timeLimit(asked) === timeLimit(question) ? null : [timeLimit(asked), timeLimit(question)];
  return (
    <section className="card-part card-edited">
      <p className="card-part-title">
        Changed by {whoIs(edit.edited_by, user_id)} <span className="card-aside">− as the agent asked, + now</span>
      </p>
      {tool_name !== "write_file" ? (
        <dl className="card-edits">
          <Side sign="−" title="The agent asked" text={line(asked, limits?.[0])} />
          <Side sign="+" title="As changed" text={line(question, limits?.[1])} />
        </dl>
      ) : change?.asked != null && change.change.after != null ? (
        <DiffView
          change={{ path: String(tool_params.path), kind: "change", before: change.asked, after: change.change.after }}
          named
          host={host}
        />
      ) : (
        <p className="card-told">The content is not the agent's.</p>
      )}
    </section>
  );
}

const line = ({ tool_name, tool_params }: Question, limit: string | null | undefined): string =>
  `${wholeSummary(tool_name, tool_params)}${limit ? ` · ${limit}` : ""}`;

function Side({ sign, title, text }: { sign: string; title: string; text: string }) {
  return (
    <div data-side={sign === "+" ? "after" : "before"}>
      <dt>
        <span aria-hidden="true">{sign}</span>
        <span className="card-said">{title}</span>
      </dt>
      <dd>
        <bdi className="card-path">{text}</bdi>
      </dd>
    </div>
  );
}
