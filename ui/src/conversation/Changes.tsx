// What a conversation changed, and all of it undone. The record tells which files and commands; the machine tells what is
// different now and what an undo would do, file by file. Only what it showed is carried out.

import type { Session, SessionChanges, SessionUndoPlan, ShownChange } from "@protocol";
import { FileMinus2, FilePen, FilePlus2, SquareTerminal, Undo2 } from "lucide-react";
import { useMemo, useState } from "react";
import { difference } from "../cards/difference";
import { Plain } from "../pages/facts";
import { Link } from "../pages/Link";
import { Trouble, useLoaded, Waiting } from "../pages/loading";
import type { PageProps } from "../pages/props";
import { Planned } from "../pages/UndoPanel";
import { Sheet } from "../parts/Sheet";
import type { Chat } from "../state/chat";
import { counted } from "../text/words";

interface Props {
  session: Session;
  chat: Chat;
  state: PageProps["state"];
  projectId: string;
  go: PageProps["go"];
  close: () => void;
}

type Kind = "created" | "changed" | "deleted";

/** A file as the list shows it. */
interface Listed {
  path: string;
  kind: Kind;
  /** Lines, where the machine showed both texts. */
  lines: { added: number; removed: number } | null;
  /** What must be known about it. */
  note: string | null;
}

export function Changes({ session, chat, state, projectId, go, close }: Props) {
  const { api, host } = chat;
  const id = session.session_id;
  // While an agent works there is more to come: both are asked again when it is done.
  const works = state.sessionId === id ? (state.runId ?? "") : "";
  const record = useLoaded(() => api.sessionChanges(projectId, id), `${id} ${works}`);
  const connected = state.machines.map(({ client_id }) => client_id).join(" ");
  const asks = works === "" && record.value !== null && record.value.files.length + record.value.commands.length > 0;
  const plan = useLoaded(
    async () => (asks ? api.sessionUndoPlan(projectId, id) : null),
    `${id} ${connected} ${works} ${asks}`,
  );
  const [undoing, setUndoing] = useState(false);
  const [done, setDone] = useState<string | null>(null);
  const known = plan.problem ? null : plan.value;
  const files = useMemo(() => (record.value ? listed(record.value, known) : []), [record.value, known]);
  const leave = (route: Parameters<typeof go>[0]) => {
    close();
    go(route);
  };
  if (done !== null) {
    return (
      <Sheet title="Undone" close={close}>
        <p role="status">
          <Plain text={done} />
        </p>
        <p className="app-muted">
          To take a call's undo back: <code>byleave undo --list</code> on the machine names it.
        </p>
      </Sheet>
    );
  }
  if (undoing && known) {
    const title = known.calls.length === 1 ? "Undo this call?" : `Undo all ${known.calls.length} calls?`;
    return (
      <Sheet title={title} close={() => setUndoing(false)} wide>
        <div className="page">
          <Planned
            key={known.plan}
            plan={known}
            what={{ since: "these calls", before: "this conversation" }}
            inEditor={host.kind === "vscode"}
            host={host}
            go={leave}
            again={plan.again}
            undo={(body) => api.undoSession(projectId, id, body)}
            finish={(answer) => setDone(answer.message)}
          />
        </div>
      </Sheet>
    );
  }
  return (
    <Sheet title="What this conversation changed" close={close} wide>
      {record.busy && !record.value && <Waiting what="Reading the record…" />}
      {record.problem && <Trouble problem={record.problem} again={record.again} />}
      {record.value && (
        <>
          <Summary files={files} record={record.value} />
          {files.length > 0 && (
            <ul className="ui-changes" aria-label="Files">
              {files.map((file) => (
                <File key={file.path} file={file} />
              ))}
            </ul>
          )}
          <Commands record={record.value} go={leave} />
          {!record.value.complete && <p className="app-muted">Older calls are not counted here.</p>}
          {works !== "" && <p className="app-muted">The agent is at work here. Undo is offered when it is done.</p>}
          {asks && (
            <Undo
              plan={known}
              busy={plan.busy}
              problem={plan.problem}
              again={plan.again}
              begin={() => setUndoing(true)}
            />
          )}
        </>
      )}
    </Sheet>
  );
}

function Summary({ files, record }: { files: Listed[]; record: SessionChanges }) {
  if (files.length === 0 && record.commands.length === 0) {
    return <p>No file was changed, and no command ran that could change one.</p>;
  }
  const sum = (of: "added" | "removed") => files.reduce((total, file) => total + (file.lines?.[of] ?? 0), 0);
  const more = Math.max(0, record.total_files - record.files.length);
  return (
    <p className="ui-summary">
      <strong>{counted(files.length, "file")}</strong>
      {more > 0 && <span> and {more} more that the record does not name</span>}
      {record.commands.length > 0 && <span>{counted(record.commands.length, "command")}</span>}
      {files.some((file) => file.lines !== null) && <Lines added={sum("added")} removed={sum("removed")} />}
    </p>
  );
}

function Lines({ added, removed }: { added: number; removed: number }) {
  return (
    <span className="ui-lines">
      {added > 0 && (
        <span className="ui-added">
          <span aria-hidden="true">+{added}</span>
          <span className="app-hidden">{counted(added, "line")} added</span>
        </span>
      )}{" "}
      {removed > 0 && (
        <span className="ui-removed">
          <span aria-hidden="true">−{removed}</span>
          <span className="app-hidden">{counted(removed, "line")} removed</span>
        </span>
      )}
    </span>
  );
}

const ICONS = { created: FilePlus2, changed: FilePen, deleted: FileMinus2 };

function File({ file }: { file: Listed }) {
  const Icon = ICONS[file.kind];
  return (
    <li>
      <Icon size={16} aria-hidden="true" className={`ui-is-${file.kind}`} />
      <code>
        <Plain text={file.path} />
      </code>
      <span className="app-muted">{file.kind}</span>
      {file.note !== null && <span className="app-tag">{file.note}</span>}
      {file.lines && <Lines {...file.lines} />}
    </li>
  );
}

function Commands({ record, go }: { record: SessionChanges; go: PageProps["go"] }) {
  if (record.commands.length === 0) return null;
  return (
    <>
      <h3>Commands</h3>
      <ul className="ui-changes" aria-label="Commands">
        {record.commands.map((command) => (
          <li key={command.tool_id}>
            <SquareTerminal size={16} aria-hidden="true" />
            <Link to={{ page: "history", tool: command.tool_id }} go={go}>
              <code>
                <Plain text={command.line} />
              </code>
            </Link>
            {command.exit_code !== 0 && (
              <span className="app-tag">
                {command.exit_code === null ? command.status : `exit code ${command.exit_code}`}
              </span>
            )}
          </li>
        ))}
      </ul>
    </>
  );
}

interface UndoProps {
  plan: SessionUndoPlan | null;
  busy: boolean;
  problem: ReturnType<typeof useLoaded>["problem"];
  again: () => void;
  begin: () => void;
}

function Undo({ plan, busy, problem, again, begin }: UndoProps) {
  if (busy) return <Waiting what="Asking the machine what can be undone…" />;
  if (problem) return <Trouble problem={problem} again={again} retry="Ask again" />;
  if (!plan) return null;
  const some = plan.total_files + (plan.conflicts ?? []).length + Object.keys(plan.lost ?? {}).length > 0;
  if (!some) return <p className="app-muted">There is nothing to undo: every file is as it was before.</p>;
  return (
    <div className="ui-actions">
      <button type="button" className="app-button ui-with-icon" onClick={begin}>
        <Undo2 size={15} aria-hidden="true" />
        Undo all…
      </button>
    </div>
  );
}

const BACKWARDS: Record<ShownChange["kind"], Kind> = { create: "deleted", delete: "created", change: "changed" };

/** What the record tells, with what the machine found: each file once, by path. */
export function listed(record: SessionChanges, plan: SessionUndoPlan | null): Listed[] {
  const found = new Map<string, Listed>();
  const conflicts = new Set(plan?.conflicts ?? []);
  const lost = new Set(Object.keys(plan?.lost ?? {}));
  const undone = plan !== null && plan.total_files <= plan.files.length;
  for (const { path, change } of record.files) {
    const note = conflicts.has(path)
      ? "changed since"
      : lost.has(path)
        ? "cannot be brought back"
        : undone
          ? "as before now"
          : null;
    found.set(path, { path, kind: change, lines: null, note });
  }
  for (const file of plan?.files ?? []) {
    const note = conflicts.has(file.path) ? "changed since" : lost.has(file.path) ? "in part" : null;
    found.set(file.path, { path: file.path, kind: BACKWARDS[file.kind], lines: linesOf(file), note });
  }
  return [...found.values()].sort((one, other) => one.path.localeCompare(other.path));
}

/** An undo turned round: what it takes out was added. */
function linesOf({ before, after, unshown }: ShownChange): Listed["lines"] {
  if (((before ?? null) === null && (after ?? null) === null) || unshown) return null;
  const { added, removed } = difference(after ?? "", before ?? "");
  return { added, removed };
}
