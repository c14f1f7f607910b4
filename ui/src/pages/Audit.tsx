// The audit chain of the project, newest first, and its verification. The page computes nothing of the chain itself: it
// shows what the server found, in words nobody can overlook when it does not hold.

import type { AuditCheck, AuditEntry } from "@protocol";
import { useState } from "react";
import type { Problem } from "../api";
import { visible } from "../text/visible";
import { counted, thousands } from "../text/words";
import { Copyable, Facts, Plain, Values, When } from "./facts";
import { Link } from "./Link";
import { asProblem, Trouble, usePaged } from "./loading";
import type { ProjectPageProps } from "./props";
import { RecordPage } from "./RecordPage";
import { actionWords, actorWords } from "./words";

const PAGE = 50;

export function Audit(props: ProjectPageProps) {
  const { api, projectId, state, go } = props;
  const record = usePaged(async (from) => {
    const page = await api.audit(projectId, PAGE, from === null ? undefined : Number(from));
    return { items: page.entries, total: page.total_count, next: page.next_before?.toString() ?? null };
  }, projectId);
  return (
    <RecordPage
      title="Audit"
      record={record}
      waiting="Reading the chain…"
      shown={record.items ?? []}
      keyOf={(entry) => entry.seq}
      row={(entry) => <Row entry={entry} userId={state.me?.user_id ?? null} go={go} />}
      columns={["Link", "When", "Who", "What", "About", "Hash"]}
      caption={`${thousands(record.items?.length ?? 0)} of ${counted(record.total, "link")}, newest first`}
      className="page-audit"
      nothing={{
        title: "Nothing is on record yet.",
        words: <p>The first link is written with the first thing that happens in this project.</p>,
      }}
    >
      <p className="page-lead">
        Everything that happened in this project, one link after the other. Each link holds the hash of the one before,
        so a change anywhere shows.
      </p>
      <Verification {...props} />
    </RecordPage>
  );
}

/** Ids in names are long; their beginning tells them apart. */
const shortId = (words: string) => words.replace(/(_[0-9a-f]{8})[0-9a-f]+/, "$1…");

function Row({ entry, userId, go }: { entry: AuditEntry; userId: string | null; go: ProjectPageProps["go"] }) {
  return (
    <tr>
      <td data-label="Link" className="page-number">
        {entry.seq}
      </td>
      <td data-label="When">
        <When at={entry.at} />
      </td>
      <td data-label="Who" className="page-tight">
        <span title={visible(entry.actor)}>
          <Plain text={shortId(actorWords(entry.actor, userId))} />
        </span>
      </td>
      <td data-label="What" className="page-deed">
        <strong>
          <Plain text={actionWords(entry.action)} />
        </strong>
        <details className="page-fold">
          <summary aria-label={`Details of link ${entry.seq}`}>Details</summary>
          <Values values={entry.detail} />
          <Facts
            facts={[
              ["approval", entry.approval_id && <Copyable text={entry.approval_id} name="the approval’s id" />],
              ["hash", <Copyable key="hash" text={entry.hash} name="the hash" />],
              ["link before", <Copyable key="before" text={entry.previous_hash} name="the hash of the link before" />],
            ]}
          />
        </details>
      </td>
      <td data-label="About" className="page-tight">
        {entry.tool_id ? (
          <Link to={{ page: "history", tool: entry.tool_id }} go={go} label={`The call ${visible(entry.tool_id)}`}>
            the call
          </Link>
        ) : (
          <span className="page-note">{entry.approval_id ? "a question" : "the project"}</span>
        )}
      </td>
      <td data-label="Hash" className="page-tight">
        <code title={entry.hash}>{visible(entry.hash.slice(0, 10))}…</code>
      </td>
    </tr>
  );
}

type Verified = { check: AuditCheck } | { problem: Problem } | "busy" | null;

function Verification({ api, projectId }: ProjectPageProps) {
  const [verified, setVerified] = useState<Verified>(null);
  const verify = () => {
    setVerified("busy");
    api.verifyAudit(projectId).then(
      (check) => setVerified({ check }),
      (error) => setVerified({ problem: asProblem(error) }),
    );
  };
  return (
    <section className="page-verification" aria-label="Verification">
      <div className="page-row">
        <button type="button" className="page-button page-button-main" disabled={verified === "busy"} onClick={verify}>
          {verified === "busy" ? "Verifying…" : "Verify the chain"}
        </button>
        <span className="page-note">Computes every hash again, on the server.</span>
      </div>
      {verified !== null && verified !== "busy" && "problem" in verified && (
        <Trouble problem={verified.problem} again={verify} />
      )}
      {verified !== null && verified !== "busy" && "check" in verified && <Found check={verified.check} />}
    </section>
  );
}

function Found({ check }: { check: AuditCheck }) {
  if (!check.holds) {
    return (
      <div className="page-verdict page-verdict-bad" role="alert">
        <p className="page-verdict-word">Record damaged</p>
        <p>
          <Plain text={check.fault ?? "The server did not say where."} />
        </p>
        <p>
          Someone or something changed the record outside Byleave, or the disk lost a part of it. Do not trust what is
          listed here. Keep a copy of the database as it is now, and compare with a head you kept.
        </p>
      </div>
    );
  }
  return (
    <div className="page-verdict page-verdict-ok" role="status">
      <p className="page-verdict-word">Record intact</p>
      <Facts
        facts={[
          ["Entries", thousands(check.records)],
          ["Head", <Copyable key="head" text={check.head} name="the head" />],
          ["Verified", <When key="at" at={check.checked_at} />],
        ]}
      />
      <p className="page-note">
        Keep the head somewhere else, such as in a message to a colleague. A record that was rewritten has another one.
      </p>
    </div>
  );
}
