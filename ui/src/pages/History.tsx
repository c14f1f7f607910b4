// Every call that was made, newest first: filtered by the server, paged, and searched in what is loaded. New calls are
// counted and shown when asked for; the list never moves by itself.

import type { Execution } from "@protocol";
import { useState } from "react";
import { Choose } from "../parts/Choose";
import type { ToolCall } from "../state/model";
import { callSummary, counted, deniedBy, duration, letBy, outcome, thousands, verb, whoIs } from "../text/words";
import { LEVELS, Plain, Risk, When } from "./facts";
import { Link } from "./Link";
import { usePaged } from "./loading";
import type { ProjectPageProps } from "./props";
import { RecordPage } from "./RecordPage";
import { asOfNow, type Filters, liveCalls, newCalls } from "./recent";
import { isEnded, RISKS, STATES, TOOLS } from "./words";

const PAGE = 50;
const NONE: Filters = { tool: "", status: "", risk: "", here: false };

export function History({ state, api, projectId, go, away }: ProjectPageProps & { away: boolean }) {
  const [filters, setFilters] = useState(NONE);
  const [sought, setSought] = useState("");
  const [exact, setExact] = useState(true);
  const session = filters.here ? (state.sessionId ?? undefined) : undefined;
  const record = usePaged(
    async (cursor) => {
      const page = await api.history({
        project_id: projectId,
        session_id: session,
        tool_name: filters.tool,
        status: filters.status,
        risk_level: filters.risk,
        cursor: cursor ?? undefined,
        limit: PAGE,
      });
      setExact(page.total_is_exact !== false);
      return { items: page.executions, total: page.total_count, next: page.next_cursor };
    },
    JSON.stringify([projectId, session, filters]),
  );
  const calls = liveCalls(state);
  const rows = (record.items ?? []).map((row) => asOfNow(row, calls.get(row.tool_id)));
  const shown = rows.filter((row) => mentions(row, sought));
  const fresh = record.items === null || record.busy ? 0 : newCalls(state, record.items, filters);
  const filtered = sought.trim() !== "" || JSON.stringify(filters) !== JSON.stringify(NONE);
  const clear = () => {
    setFilters(NONE);
    setSought("");
  };
  return (
    <RecordPage
      title="History"
      away={away}
      record={record}
      waiting="Reading the record…"
      shown={shown}
      keyOf={(row) => row.tool_id}
      row={(row) => <Row row={row} state={state} go={go} call={calls.get(row.tool_id)} />}
      columns={["When", "What", "Risk", "Outcome", "Allowed", "Took"]}
      caption={captionOf(shown.length, rows.length, record.total, exact)}
      className="page-history"
      nothing={nothing(filtered, rows.length, clear)}
    >
      <FilterBar
        filters={filters}
        change={setFilters}
        sought={sought}
        seek={setSought}
        hasSession={state.sessionId !== null}
      />
      <div className="page-news" role="status">
        {fresh > 0 && (
          <button type="button" className="page-button page-button-main" onClick={record.again}>
            {fresh} new: show
          </button>
        )}
      </div>
    </RecordPage>
  );
}

function captionOf(shown: number, loaded: number, total: number, exact: boolean): string {
  const all = `${thousands(loaded)} of ${exact ? "" : "at least "}${counted(total, "call")}, newest first`;
  return shown === loaded ? all : `${shown} with this text, among ${all}`;
}

/** Whether the text is in what a row shows or holds. */
function mentions(row: Execution, sought: string): boolean {
  const wanted = sought.trim().toLowerCase();
  if (wanted === "") return true;
  const told = [
    row.tool_id,
    row.tool_name,
    callSummary(row.tool_name, row.tool_params),
    row.error ?? "",
    ...row.reasons,
  ];
  return `${told.join("\n")}\n${JSON.stringify(row.tool_params)}`.toLowerCase().includes(wanted);
}

function nothing(filtered: boolean, loaded: number, clear: () => void) {
  if (!filtered) {
    return {
      title: "No call yet.",
      words: <p>What an agent does, tries to do, or is refused appears here, and stays.</p>,
    };
  }
  return {
    title: loaded > 0 ? `None of the ${counted(loaded, "loaded call")} fits the text.` : "No call fits.",
    words: (
      <button type="button" className="page-button" onClick={clear}>
        Clear the filters
      </button>
    ),
  };
}

interface BarProps {
  filters: Filters;
  change: (filters: Filters) => void;
  sought: string;
  seek: (text: string) => void;
  hasSession: boolean;
}

function FilterBar({ filters, change, sought, seek, hasSession }: BarProps) {
  return (
    <search className="page-filters" aria-label="Filter the history">
      <Choice name="Tool" value={filters.tool} choose={(tool) => change({ ...filters, tool })}>
        {TOOLS.map((tool) => [tool, verb(tool)])}
      </Choice>
      <Choice name="State" value={filters.status} choose={(status) => change({ ...filters, status })}>
        {Object.entries(STATES)}
      </Choice>
      <Choice name="Risk" value={filters.risk} choose={(risk) => change({ ...filters, risk })}>
        {RISKS.map((risk) => [risk, LEVELS[risk] ?? risk])}
      </Choice>
      <Choose
        label="Conversation"
        value={filters.here ? "here" : "all"}
        choices={[{ value: "all", text: "All" }, ...(hasSession ? [{ value: "here", text: "The open one" }] : [])]}
        choose={(value) => change({ ...filters, here: value === "here" })}
      />
      <label className="page-filter-text">
        <span>Find in the calls below</span>
        <input type="search" value={sought} onChange={(event) => seek(event.target.value)} />
      </label>
    </search>
  );
}

interface ChoiceProps {
  name: string;
  value: string;
  choose: (value: string) => void;
  children: (readonly [value: string, words: string])[];
}

function Choice({ name, value, choose, children }: ChoiceProps) {
  const choices = [{ value: "", text: "All" }, ...children.map(([each, words]) => ({ value: each, text: words }))];
  return <Choose label={name} value={value} choices={choices} choose={choose} />;
}

/** Green for done, red for what went wrong, plain for what goes on or was a person's no. */
export function toneOf({ status, error_type }: Execution): string {
  if (status === "completed") return "page-outcome page-outcome-ok";
  if (status === "failed" && error_type !== "cancelled") return "page-outcome page-outcome-bad";
  return isEnded(status) ? "page-outcome" : "page-outcome page-outcome-open";
}

interface LetByProps {
  row: Execution;
  state: ProjectPageProps["state"];
  /** The same call in the live state, which may know who said no. */
  call: ToolCall | undefined;
}

export function LetBy({ row, state, call }: LetByProps) {
  if (row.status === "rejected" && call?.deniedBy) {
    return <Plain text={`denied ${deniedBy(call.deniedBy, state.me?.user_id ?? null)}`} />;
  }
  if (row.approved_by === null) {
    return <span className="page-note">{isEnded(row.status) ? "denied" : "not yet"}</span>;
  }
  if (row.approved_by === "risk:LOW") return <span className="page-note">without asking</span>;
  return <bdi>{letBy(row.approved_by, state.me?.user_id ?? null, state.grants)}</bdi>;
}

interface RowProps {
  row: Execution;
  state: ProjectPageProps["state"];
  go: ProjectPageProps["go"];
  call: ToolCall | undefined;
}

function Row({ row, state, go, call }: RowProps) {
  const summary = callSummary(row.tool_name, row.tool_params);
  return (
    <tr>
      <td data-label="When">
        <When at={row.created_at} />
      </td>
      <td data-label="What" className="page-what">
        <Link to={{ page: "history", tool: row.tool_id }} go={go}>
          <span className="page-tool">{verb(row.tool_name)}</span> <code>{summary ? <bdi>{summary}</bdi> : "…"}</code>
        </Link>
      </td>
      <td data-label="Risk">
        <Risk level={row.risk_level} />
      </td>
      <td data-label="Outcome">
        <span className={toneOf(row)}>{outcome(row.status, row.error_type, null)}</span>
        {row.edit && (
          <span className="page-tag">changed by {whoIs(row.edit.edited_by, state.me?.user_id ?? null)}</span>
        )}
        {call?.undone != null && <span className="page-tag">undone</span>}
      </td>
      <td data-label="Allowed">
        <LetBy row={row} state={state} call={call} />
      </td>
      <td data-label="Took" className="page-number">
        {row.execution_time_ms === null ? <span className="page-note">–</span> : duration(row.execution_time_ms)}
      </td>
    </tr>
  );
}
