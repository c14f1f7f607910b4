// One entry of the conversation: a message, a tool call as its card, a remark. What came from elsewhere is text only.

import { memo } from "react";
import type { Api } from "../api";
import { ToolCard } from "../cards/ToolCard";
import type { Host } from "../host";
import type { ChatEntry, Entry, Grant, Remark, ToolCall } from "../state/model";
import { Ago } from "../text/Ago";
import { Markdown } from "../text/Markdown";
import { Sentences } from "../text/Sentences";
import { visible } from "../text/visible";
import { Boundary, EntryFailed } from "./Boundary";
import { routeHash } from "./route";

interface Props {
  entry: Entry;
  api: Api;
  host: Host;
  userId: string | null;
  grants: Grant[];
  now: () => number;
}

export const EntryView = memo(function EntryView({ entry, api, host, userId, grants, now }: Props) {
  return (
    <Boundary instead={() => <EntryFailed />}>
      {entry.kind === "message" && <Said message={entry} />}
      {entry.kind === "remark" && <Remarked remark={entry} />}
      {entry.kind === "tool" && (
        <ToolCard
          call={entry}
          api={api}
          host={host}
          userId={userId}
          grants={grants}
          undoHref={undoHref(entry)}
          now={now}
        />
      )}
    </Boundary>
  );
});

function Said({ message }: { message: ChatEntry }) {
  const mine = message.role === "user";
  return (
    <article className={mine ? "app-said app-said-mine" : "app-said"} aria-busy={message.pending}>
      <header className="app-said-head">
        <span className="app-who">{mine ? "You" : "Agent"}</span>
        {message.pending ? (
          <span className="app-muted">{mine ? "sending…" : "writing…"}</span>
        ) : (
          <Ago at={message.at} className="app-muted" />
        )}
      </header>
      {mine ? (
        <p className="app-said-text" dir="auto">
          {visible(message.content)}
        </p>
      ) : (
        <Markdown text={message.content} />
      )}
    </article>
  );
}

function Remarked({ remark }: { remark: Remark }) {
  return (
    <div className={remark.tone === "error" ? "app-remark app-remark-error" : "app-remark"}>
      <p>
        <Sentences text={remark.text} />
      </p>
      {remark.hint !== null && (
        <p className="app-hint">
          <Sentences text={remark.hint} />
        </p>
      )}
    </div>
  );
}

/** Where the call can be undone: only what ended and may have changed files. */
export function undoHref(call: ToolCall): string | null {
  if (call.undone !== null || !["completed", "failed"].includes(call.status)) return null;
  const wrote = call.toolName === "write_file" && call.status === "completed";
  const changed = call.toolName === "execute_command" && Number(call.result?.changed_count ?? 0) > 0;
  return wrote || changed ? routeHash({ page: "history", tool: call.id }) : null;
}
