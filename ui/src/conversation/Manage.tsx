// The dialogs of a whole conversation, one at a time: what it changed, another title, an export, deleting it. Loaded when
// the first one is opened.

import { useId, useState } from "react";
import type { Problem } from "../api";
import { Deliberate } from "../pages/Deliberate";
import { asProblem, Trouble } from "../pages/loading";
import type { PageProps } from "../pages/props";
import { Sheet } from "../parts/Sheet";
import type { Chat } from "../state/chat";
import { visible } from "../text/visible";
import { Changes } from "./Changes";
import type { Managed } from "./ConversationMenu";
import { Export } from "./Export";

interface Props {
  managed: Managed;
  chat: Chat;
  state: PageProps["state"];
  projectId: string;
  go: PageProps["go"];
  close: () => void;
}

export function Manage(props: Props) {
  switch (props.managed.what) {
    case "changes":
      return <Changes {...props} session={props.managed.session} />;
    case "rename":
      return <Rename {...props} />;
    case "export":
      return <Export {...props} session={props.managed.session} />;
    case "delete":
      return <Delete {...props} />;
  }
}

function Rename({ managed: { session }, chat, close }: Props) {
  const [title, setTitle] = useState(() => visible(session.title));
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const id = useId();
  const save = () => {
    const wanted = title.trim();
    if (wanted === "" || busy) return;
    setBusy(true);
    chat.renameSession(session.session_id, wanted).then(close, (error) => {
      setProblem(asProblem(error));
      setBusy(false);
    });
  };
  return (
    <Sheet title="Rename conversation" close={close}>
      <form
        className="ui-form"
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <label htmlFor={id} className="ui-label">
          Title
        </label>
        <input
          id={id}
          className="ui-input"
          type="text"
          value={title}
          maxLength={200}
          autoComplete="off"
          // biome-ignore lint/a11y/noAutofocus: the person asked to write it
          autoFocus
          onFocus={(event) => event.target.select()}
          onChange={(event) => setTitle(event.target.value)}
        />
        {problem && <Trouble problem={problem} />}
        <div className="ui-actions">
          <button type="button" className="app-button" onClick={close}>
            Cancel
          </button>
          <button type="submit" className="app-button app-button-main" disabled={busy || title.trim() === ""}>
            {busy ? "Saving…" : "Save"}
          </button>
        </div>
      </form>
    </Sheet>
  );
}

const AGENTS_OWN = "sess_agent_";

function Delete({ managed: { session }, chat, close }: Props) {
  const [busy, setBusy] = useState<"deleting" | "stopping" | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const failed = (error: unknown) => {
    setProblem(asProblem(error));
    setBusy(null);
  };
  const remove = () => {
    setBusy("deleting");
    setProblem(null);
    chat.deleteSession(session.session_id).then(close, failed);
  };
  const stop = () => {
    setBusy("stopping");
    chat.stopWork(session.session_id).then(() => {
      setProblem(null);
      setBusy(null);
    }, failed);
  };
  return (
    <Sheet title="Delete this conversation?" close={close}>
      <p className="ui-subject">
        <bdi>{visible(session.title) || "Untitled"}</bdi>
      </p>
      <dl className="ui-fates">
        <div>
          <dt>Removed</dt>
          <dd>
            Its title, all its messages, what the agent remembered of them, and what was allowed in it. This cannot be
            undone.
          </dd>
        </div>
        <div>
          <dt>Kept</dt>
          <dd>
            The record of its calls: what ran, who allowed it, and the audit that proves it. Files stay as they are.
          </dd>
        </div>
      </dl>
      {session.session_id.startsWith(AGENTS_OWN) && (
        <p className="app-muted">It belongs to an agent that runs elsewhere. Its next call begins a new one.</p>
      )}
      {problem && <Trouble problem={problem} />}
      <div className="ui-actions">
        <button type="button" className="app-button" onClick={close}>
          Cancel
        </button>
        {problem?.state === "working" && (
          <button type="button" className="app-button app-stop" disabled={busy !== null} onClick={stop}>
            {busy === "stopping" ? "Stopping…" : "Stop the agent"}
          </button>
        )}
        <Deliberate className="app-button app-button-bad" disabled={busy !== null} onPress={remove}>
          {busy === "deleting" ? "Deleting…" : "Delete conversation"}
        </Deliberate>
      </div>
    </Sheet>
  );
}
