"""Executions as rows, and their transitions: compare-and-set, with event and audit link. State changes nowhere else.

`true_params` and `asked_params` never leave through `to_wire`: the record shows masked parameters, only the executing
client gets the true ones.

`advance` refuses any edge the state machine does not have, and any change of a row whose state is not what the caller
saw. The other functions are the named edges. Each runs inside the caller's transaction and decides nothing:
`byleave.calls` chooses the edge.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from byleave import telemetry
from byleave.gate import mask_text
from byleave.gate.text.render import describe_edit
from byleave.protocol.approvals import Decision, Edit
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.events import (
    ExecutionCancelSignal,
    ExecutionSignal,
    InspectionRequested,
    ResultAcknowledged,
    RunChanged,
    ToolFinished,
    ToolQueued,
    ToolStarted,
)
from byleave.protocol.executions import MAX_ERROR_CHARACTERS, NUMBER_DIGITS, Execution, ToolResponse
from byleave.protocol.states import (
    RESPONSE_STATUS,
    TRANSITIONS,
    AgentMode,
    ErrorType,
    ExecutionStatus,
    RiskLevel,
    RunState,
)
from byleave.protocol.wire import JsonObject, later

from .database import Hint, Lookup, Row, Transaction
from .ledger import Ledger, inspected_params
from .records import columns


class ExecutionRow(NamedTuple):
    id: str
    user_id: str
    project_id: str
    session_id: str
    run_id: str | None
    agent_id: str | None
    mode: AgentMode
    approval_id: str | None
    client_id: str | None
    tool_name: str
    tool_params: str
    true_params: str | None
    digest: str
    request_digest: str | None
    bound: str | None
    result: str | None
    result_hash: str | None
    risk_level: RiskLevel
    requires_approval: bool
    findings: str
    network: bool
    approved_by: str | None
    status: ExecutionStatus
    error: str | None
    error_type: ErrorType | None
    execution_time_ms: int | None
    timeout_seconds: int
    deadline: str | None
    output_seq: int
    output_size: int
    cancel_requested: bool
    created_at: str
    approved_at: str | None
    started_at: str | None
    completed_at: str | None
    edit: str | None
    asked_params: str | None

    def to_wire(self, decision: Decision | None = None) -> Execution:
        return Execution(
            tool_id=self.id,
            user_id=self.user_id,
            project_id=self.project_id,
            session_id=self.session_id,
            run_id=self.run_id,
            agent_id=self.agent_id,
            mode=self.mode,
            approval_id=self.approval_id,
            client_id=self.client_id,
            tool_name=self.tool_name,
            tool_params=json.loads(self.tool_params),
            digest=self.digest,
            result=json.loads(self.result) if self.result is not None else None,
            risk_level=self.risk_level,
            requires_approval=self.requires_approval,
            # As asked, they show all that could act; the record keeps less.
            reasons=[mask_text(finding["reason"]) for finding in json.loads(self.findings)],
            approved_by=self.approved_by,
            decision=decision,
            edit=self.edited,
            status=self.status,
            error=self.error,
            error_type=self.error_type,
            execution_time_ms=self.execution_time_ms,
            created_at=self.created_at,
            approved_at=self.approved_at,
            started_at=self.started_at,
            completed_at=self.completed_at,
        )

    @property
    def queued(self) -> bool:
        """True while it waits in its client's queue."""
        return self.status is ExecutionStatus.EXECUTING and self.started_at is None

    def to_response(self) -> ToolResponse:
        """The answer to the agent that called."""
        return ToolResponse(
            tool_id=self.id,
            tool_name=self.tool_name,
            status=RESPONSE_STATUS[self.status],
            result=json.loads(self.result) if self.result is not None else None,
            error=self.error,
            approval_id=self.approval_id,
            error_type=self.error_type,
            hint=self.hint,
            edited=self.edit_told,
        )

    def response_json(self) -> bytes:
        """`to_response` as JSON, without parsing and serializing the result again."""
        head = ToolResponse(
            tool_id=self.id,
            tool_name=self.tool_name,
            status=RESPONSE_STATUS[self.status],
            error=self.error,
            approval_id=self.approval_id,
            error_type=self.error_type,
            hint=self.hint,
            edited=self.edit_told,
        ).model_dump_json(exclude={"result"})
        return f'{{"result":{self.result or "null"},{head[1:]}'.encode()

    @property
    def edited(self) -> Edit | None:
        """The change that a person made to the call."""
        return None if self.edit is None else Edit.model_validate_json(self.edit)

    @property
    def edit_told(self) -> str | None:
        """The same in words for the agent."""
        if self.edit is None:
            return None
        return describe_edit(self.tool_name, json.loads(self.edit)["asked"], json.loads(self.tool_params))

    @property
    def hint(self) -> str | None:
        """Advice for a call the gate refused."""
        if self.error_type not in (ErrorType.INVALID, ErrorType.REFUSED):
            return None
        findings = json.loads(self.findings)
        return findings[0].get("instead") if findings else None


def execution_row(row: Row | Iterable[Any]) -> ExecutionRow:
    """The row of a statement that selects `columns(ExecutionRow)`, in this order.

    An ended call has no true parameters. The chain does not cover them, so any that are there are somebody else's.
    """
    values: list[Any] = [*cast("Iterable[Any]", row)]
    for position, read in _EXECUTION_READERS:
        values[position] = read(values[position])
    made = ExecutionRow._make(values)
    if not made.status.ended or (made.true_params is None and made.asked_params is None):
        return made
    return made._replace(true_params=None, asked_params=None)


_EXECUTION_READERS: tuple[tuple[int, Callable[[Any], Any]], ...] = tuple(
    (ExecutionRow._fields.index(name), read)
    for name, read in (
        ("mode", {mode.value: mode for mode in AgentMode}.__getitem__),
        ("risk_level", {level.value: level for level in RiskLevel}.__getitem__),
        ("requires_approval", bool),
        ("network", bool),
        ("cancel_requested", bool),
        ("status", {status.name: status for status in ExecutionStatus}.__getitem__),
        ("error_type", {None: None, **{kind.value: kind for kind in ErrorType}}.__getitem__),
    )
)


EXECUTION_COLUMNS = columns(ExecutionRow)
SHOWN_COLUMNS = EXECUTION_COLUMNS.replace("true_params", "NULL AS true_params").replace(
    "asked_params", "NULL AS asked_params"
)
"""Those of a row without its true parameters, which may be a whole file: for all who neither judge nor signal it."""
OPEN = "status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING')"
"""Word for word the condition of the partial indexes: SQLite uses them for nothing else."""
_ELSEWHERE = f"%-{'_' * NUMBER_DIGITS}"
"""The form of the id of an agent that runs elsewhere; nothing else that calls without a run has it."""
OPEN_CALLS = f"EXISTS (SELECT 1 FROM tool_executions WHERE run_id = runs.id AND {OPEN})"  # noqa: S608 - our own words
"""True for a run with a call that has not ended."""
DEADLINES_TOPIC = "deadlines"
"""Hint with the time of a new deadline, to wake the sweeper that sleeps until the next one.

It stays in its server, which keeps the deadline; if that dies, the others see it when they look at the record."""
LONGEST_NAP_SECONDS = 30.0
"""The sweeper sleeps no longer than this, so a deadline that is further off needs no hint."""
RUNS_TOPIC = "runs"
"""Hint that a run may be claimed."""


PREVIEW_CHARACTERS = 16 * 1024
"""A longer result is shortened in the feed and in lists."""
TEXT_CHARACTERS = 4 * 1024
LIST_ITEMS = 50


class Waits(NamedTuple):
    """Seconds that executions may wait, from the settings."""

    client: float
    """For a client to connect."""
    result_grace: float
    """For a result, beyond the call's own time limit."""
    queue: float
    """In a client's queue."""


@dataclass(frozen=True, slots=True)
class NewExecution:
    """A call after the gate."""

    id: str
    user_id: str
    project_id: str
    session_id: str
    run_id: str | None
    agent_id: str | None
    mode: AgentMode
    tool_name: str
    tool_params: str
    true_params: str | None
    digest: str
    risk_level: RiskLevel
    findings: str
    network: bool
    timeout_seconds: int
    repeatable: bool
    """True if the id was derived from the call, so that it may exist already."""
    fence: int | None
    """The claim of the run's worker; a worker that lost the run begins nothing."""
    changes_nothing: bool
    """True if running it leaves no trace on the machine."""


def insert(
    ledger: Ledger,
    new: NewExecution,
    status: ExecutionStatus,
    *,
    error: str | None = None,
    error_type: ErrorType | None = None,
    approved_by: str | None = None,
    client_id: str | None = None,
    seconds: float | None = None,
) -> ExecutionRow:
    """Insert a call in its first visible state, with its event and audit link. `seconds`: until its deadline."""
    now = ledger.now
    row = ExecutionRow(
        id=new.id,
        user_id=new.user_id,
        project_id=new.project_id,
        session_id=new.session_id,
        run_id=new.run_id,
        agent_id=new.agent_id,
        mode=new.mode,
        tool_name=new.tool_name,
        tool_params=new.tool_params,
        true_params=None if error_type else new.true_params,
        digest=new.digest,
        request_digest=None,
        bound=None,
        risk_level=new.risk_level,
        findings=new.findings,
        network=new.network,
        timeout_seconds=new.timeout_seconds,
        approval_id=None,
        client_id=client_id,
        result=None,
        result_hash=None,
        requires_approval=status is ExecutionStatus.AWAITING_APPROVAL,
        approved_by=approved_by,
        status=status,
        error=error[:MAX_ERROR_CHARACTERS] if error else None,
        error_type=error_type,
        execution_time_ms=None,
        deadline=None if seconds is None else _deadline(ledger, seconds),
        output_seq=0,
        output_size=0,
        cancel_requested=False,
        created_at=now,
        approved_at=now if approved_by else None,
        started_at=now if status is ExecutionStatus.EXECUTING else None,
        completed_at=now if error_type else None,
        edit=None,
        asked_params=None,
    )
    ledger.insert("tool_executions", row._asdict() | {"status": status.name})
    ledger.event(
        ToolStarted(
            timestamp=now,
            tool_id=row.id,
            tool_name=row.tool_name,
            tool_params=json.loads(row.tool_params),
            risk_level=row.risk_level,
            session_id=row.session_id,
            run_id=row.run_id,
            approved_by=row.approved_by,
        )
    )
    ledger.audit(
        "requested",
        f"agent:{row.agent_id or 'chat'}",
        execution_id=row.id,
        tool=row.tool_name,
        digest=row.digest,
        risk=row.risk_level.value,
        status=status.value,
        session=row.session_id,
        approved_by=row.approved_by,
        client=client_id,
        error_type=row.error_type.value if row.error_type else None,
    )
    return row


def _deadline(ledger: Ledger, seconds: float) -> str:
    """The deadline some seconds from now, with a hint if it may be before the next sweep."""
    deadline = later(ledger.now, seconds)
    if seconds < LONGEST_NAP_SECONDS + 1:
        ledger.transaction.hints.append(Hint(DEADLINES_TOPIC, deadline, stays=True))
    return deadline


def insert_refused(ledger: Ledger, new: NewExecution, error: str, error_type: ErrorType) -> ExecutionRow:
    """PENDING → FAILED in one insert."""
    row = insert(ledger, new, ExecutionStatus.FAILED, error=error, error_type=error_type)
    announce_end(ledger, row, acknowledge=False)
    ledger.transaction.hints.append(Hint(row.id, row))
    return row


def insert_approved(
    ledger: Ledger, new: NewExecution, approved_by: str, client_id: str | None, waits: Waits
) -> ExecutionRow:
    """PENDING → APPROVED (→ EXECUTING) in one insert: nobody could see the states between, and it is the hot path."""
    if client_id is None:
        return insert(ledger, new, ExecutionStatus.APPROVED, approved_by=approved_by, seconds=waits.client)
    seconds = new.timeout_seconds + waits.result_grace
    row = insert(ledger, new, ExecutionStatus.EXECUTING, approved_by=approved_by, client_id=client_id, seconds=seconds)
    signal(ledger, row)
    return row


def insert_for_inspection(ledger: Ledger, new: NewExecution, client_id: str | None, waits: Waits) -> ExecutionRow:
    """→ PENDING, until the client that will execute has inspected it."""
    row = insert(ledger, new, ExecutionStatus.PENDING, client_id=client_id, seconds=waits.client)
    if client_id is not None:
        request_inspection(ledger, row, client_id)
    return row


def advance(ledger: Ledger, before: ExecutionRow, after: ExecutionStatus, changes: Mapping[str, Any]) -> ExecutionRow:
    """Move one execution along an edge of the state machine, or raise ConflictError."""
    if after not in TRANSITIONS[before.status]:
        raise ConflictError(f"An execution that is {before.status} cannot become {after}.", state=before.status.value)
    changes = {**changes, "status": after.name}
    columns = SHOWN_COLUMNS if after.ended else EXECUTION_COLUMNS
    row = ledger.change("tool_executions", before.id, changes, {"status": before.status.name}, columns)
    if row is None:
        current = load_execution(ledger.transaction, before.id)
        raise ConflictError(
            "Somebody else changed this execution first.", state=current.status.value if current else "unknown"
        )
    changed = execution_row(row.values())
    ledger.transaction.hints.append(Hint(before.id, changed))
    return changed


def execution_of(execution_id: str, user_id: str | None = None, *, whole: bool = True) -> Lookup:
    """The lookup of `load_execution`; of `own_execution` with a user. `whole`: with its true parameters."""
    # It names the owner, so that another user's row is not even read.
    owned = "" if user_id is None else " AND user_id = :user_id"
    return Lookup(
        "tool_executions",
        execution_id,
        f"SELECT {EXECUTION_COLUMNS if whole else SHOWN_COLUMNS} FROM tool_executions WHERE id = :id{owned}",  # noqa: S608 - column names are ours
        {"id": execution_id} if user_id is None else {"id": execution_id, "user_id": user_id},
    )


def load_execution(transaction: Transaction, execution_id: str, *, whole: bool = True) -> ExecutionRow | None:
    lookup = execution_of(execution_id, whole=whole)
    row = transaction.execute(lookup.sql, lookup.parameters).fetchone()
    return execution_row(row) if row else None


def own_execution(
    transaction: Transaction,
    execution_id: str,
    user_id: str,
    project_id: str | None = None,
    ledger: Ledger | None = None,
    *,
    whole: bool = False,
) -> ExecutionRow:
    """A user's execution, or NotFound. A `ledger` notes its digest, for a change that follows."""
    lookup = execution_of(execution_id, user_id, whole=whole)
    row = transaction.execute(lookup.sql, lookup.parameters).fetchone()
    if row is None or project_id not in (None, row["project_id"]):
        raise NotFound(f"No execution {execution_id!r}.", hint="See `GET /my/tools/history` for yours.")
    if ledger is not None:
        ledger.found("tool_executions", row)
    return execution_row(row)


def count_open(transaction: Transaction, user_id: str, *, from_elsewhere: bool, most: int) -> int:
    """The number of a user's calls that have not ended; `most` for as many or more.

    `from_elsewhere`: only those of agents that run elsewhere, else only the others.
    """
    # By project, as the index of open calls is: a user's history may be long, and is not read.
    row = transaction.execute(
        "SELECT count(*) AS open FROM (SELECT 1 FROM tool_executions WHERE project_id IN "  # noqa: S608 - our own words
        f"(SELECT id FROM projects WHERE user_id = :user_id) AND {OPEN} "
        f"AND (run_id IS NULL AND coalesce(agent_id, '') LIKE '{_ELSEWHERE}') = :from_elsewhere LIMIT :most) AS found",
        {"user_id": user_id, "from_elsewhere": from_elsewhere, "most": most},
    ).fetchone()
    return row["open"] if row else 0


def set_columns(
    ledger: Ledger, execution: ExecutionRow, changes: dict[str, Any], *, whole: bool = True
) -> ExecutionRow:
    """Change columns of an execution without changing its state."""
    row = ledger.change("tool_executions", execution.id, changes, {}, EXECUTION_COLUMNS if whole else SHOWN_COLUMNS)
    if row is None:
        raise LookupError(f"execution {execution.id!r} is gone")
    return execution_row(row.values())


def with_status(transaction: Transaction, project_id: str, status: ExecutionStatus) -> list[ExecutionRow]:
    """A project's open executions in one state, oldest first."""
    rows = transaction.execute(
        f"SELECT {EXECUTION_COLUMNS} FROM tool_executions WHERE project_id = :project_id AND {OPEN} "  # noqa: S608 - column names are ours
        "AND status = :status ORDER BY approved_at, created_at, id",
        {"project_id": project_id, "status": status.name},
    ).fetchall()
    return [execution_row(row) for row in rows]


def approve(
    ledger: Ledger,
    execution: ExecutionRow,
    *,
    approved_by: str,
    client_id: str | None,
    waits: Waits,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> ExecutionRow:
    """→ APPROVED, and with a client → EXECUTING; else it runs as soon as one connects."""
    given = {"approved_by": approved_by, "approved_at": ledger.now, "deadline": _deadline(ledger, waits.client)}
    approved = advance(ledger, execution, ExecutionStatus.APPROVED, {**changes, **given})
    return approved if client_id is None else dispatch(ledger, approved, client_id=client_id, waits=waits)


def edit(ledger: Ledger, execution: ExecutionRow, changed: NewExecution, person: str, waits: Waits) -> ExecutionRow:
    """AWAITING_APPROVAL → PENDING: a person changed the call. What the agent asked for is kept."""
    asked = json.loads(execution.tool_params) if execution.edited is None else execution.edited.asked
    row = advance(
        ledger,
        execution,
        ExecutionStatus.PENDING,
        {
            "tool_params": changed.tool_params,
            "true_params": changed.true_params,
            "digest": changed.digest,
            "request_digest": execution.request_digest or execution.digest,
            "bound": None,
            "risk_level": changed.risk_level.value,
            "findings": changed.findings,
            "network": changed.network,
            "timeout_seconds": changed.timeout_seconds,
            "approval_id": None,
            "client_id": None,
            "deadline": _deadline(ledger, waits.client),
            "edit": Edit(edited_by=person, asked=asked).model_dump_json(),
            "asked_params": execution.asked_params or execution.true_params,
        },
    )
    ledger.audit(
        "edited",
        person,
        execution_id=row.id,
        approval_id=execution.approval_id,
        digest=row.digest,
        instead_of=execution.digest,
        risk=row.risk_level.value,
    )
    return row


def dispatch(ledger: Ledger, execution: ExecutionRow, *, client_id: str, waits: Waits) -> ExecutionRow:
    """APPROVED → EXECUTING: the signal goes to this one client."""
    deadline = _deadline(ledger, execution.timeout_seconds + waits.result_grace)
    changes = {"client_id": client_id, "started_at": ledger.now, "deadline": deadline}
    running = advance(ledger, execution, ExecutionStatus.EXECUTING, changes)
    signal(ledger, running)
    ledger.audit("dispatched", f"client:{client_id}", execution_id=running.id, digest=running.digest)
    return running


def queue(ledger: Ledger, execution: ExecutionRow, waits: Waits) -> None:
    """Stop the clock of a signalled call that waits in its client's queue."""
    set_columns(ledger, execution, {"started_at": None, "deadline": _deadline(ledger, waits.client)}, whole=False)
    if not execution.queued:
        _tell_queued(ledger, execution, waits=True)


def start(ledger: Ledger, execution: ExecutionRow, waits: Waits, *, whole: bool = False) -> ExecutionRow:
    """Start the clock of a queued call that its client begins."""
    deadline = _deadline(ledger, execution.timeout_seconds + waits.result_grace)
    started = set_columns(ledger, execution, {"started_at": ledger.now, "deadline": deadline}, whole=whole)
    _tell_queued(ledger, execution, waits=False)
    return started


def _tell_queued(ledger: Ledger, execution: ExecutionRow, *, waits: bool) -> None:
    ledger.event(ToolQueued(timestamp=ledger.now, tool_id=execution.id, waits=waits, session_id=execution.session_id))


def signal(ledger: Ledger, execution: ExecutionRow) -> None:
    """Signal the client to execute. The parameters are sent with it but stored only in the execution's row."""
    event = ExecutionSignal(
        timestamp=ledger.now,
        tool_id=execution.id,
        tool_name=execution.tool_name,
        tool_params=json.loads(execution.true_params or "{}"),
        digest=execution.digest,
        risk_level=execution.risk_level,
        approval_id=execution.approval_id,
        approved_by=execution.approved_by or "",
        bound=json.loads(execution.bound) if execution.bound else {},
        mode=execution.mode,
        network=execution.network,
        deadline=execution.deadline or ledger.now,
        client_id=execution.client_id or "",
        session_id=execution.session_id,
    )
    if telemetry.switch.sdk is not None:
        event = event.model_copy(update={"traceparent": telemetry.carry(execution.id, execution.run_id)})
    ledger.event(event, target=execution.client_id, ref=execution.id, stored_without=frozenset({"tool_params"}))


def request_cancel(ledger: Ledger, execution: ExecutionRow, waits: Waits) -> None:
    """Signal the client to stop, and wait for its report no longer than the grace."""
    deadline = _deadline(ledger, waits.result_grace)
    ledger.transaction.execute(
        "UPDATE tool_executions SET cancel_requested = :yes, deadline = :deadline WHERE id = :id",
        {"yes": True, "deadline": min(execution.deadline or deadline, deadline), "id": execution.id},
    )
    signal_cancel(ledger, execution)


def signal_cancel(ledger: Ledger, execution: ExecutionRow) -> None:
    """Signal the client to stop."""
    ledger.event(
        ExecutionCancelSignal(
            timestamp=ledger.now,
            tool_id=execution.id,
            client_id=execution.client_id or "",
            session_id=execution.session_id,
        ),
        target=execution.client_id,
        ref=execution.id,
    )


def request_inspection(ledger: Ledger, execution: ExecutionRow, client_id: str) -> None:
    """Ask the client that will execute what the call would run or replace."""
    ledger.event(
        InspectionRequested(
            timestamp=ledger.now,
            tool_id=execution.id,
            tool_name=execution.tool_name,
            tool_params=inspected_params(execution.tool_name, json.loads(execution.true_params or "{}")),
            client_id=client_id,
            session_id=execution.session_id,
        ),
        target=client_id,
        ref=execution.id,
        stored_without=frozenset({"tool_params"}),
    )


def end(
    ledger: Ledger,
    execution: ExecutionRow,
    after: ExecutionStatus,
    *,
    actor: str,
    error: str | None = None,
    error_type: ErrorType | None = None,
    result: str | None = None,
    result_hash: str | None = None,
    duration_ms: int | None = None,
) -> ExecutionRow:
    """→ COMPLETED, FAILED, REJECTED or TIMEOUT. The true parameters are deleted: nobody needs them now."""
    now = ledger.now
    ended = advance(
        ledger,
        execution,
        after,
        {
            "error": error[:MAX_ERROR_CHARACTERS] if error else None,
            "error_type": error_type.value if error_type else None,
            "result": result,
            "result_hash": result_hash,
            "execution_time_ms": work_ms(execution, now, duration_ms),
            "started_at": execution.started_at,
            "completed_at": now,
            "deadline": None,
            "true_params": None,
            **({} if execution.edit is None else {"asked_params": None}),
        },
    )
    # Only a report is acknowledged: its client then drops the result it keeps.
    announce_end(ledger, ended, acknowledge=result_hash is not None)
    ledger.audit(
        after.value,
        actor,
        execution_id=ended.id,
        approval_id=ended.approval_id,
        error_type=error_type.value if error_type else None,
        result_hash=result_hash,
    )
    if ended.run_id is not None:
        _wake_run(ledger, ended.run_id)
    return ended


def end_late(
    ledger: Ledger,
    execution: ExecutionRow,
    told: str,
    result: str | None,
    result_hash: str,
    duration_ms: int | None,
) -> ExecutionRow:
    """Store a late report on an execution that has ended; its state stands."""
    took = execution.execution_time_ms if duration_ms is None else work_ms(execution, ledger.now, duration_ms)
    late = set_columns(
        ledger,
        execution,
        {
            "result": result,
            "result_hash": result_hash,
            "error": told[:MAX_ERROR_CHARACTERS],
            "started_at": execution.started_at,
            "execution_time_ms": took,
        },
        whole=False,
    )
    announce_end(ledger, late, acknowledge=True)
    ledger.audit("reported_late", f"client:{execution.client_id}", execution_id=late.id, result_hash=result_hash)
    return late


def work_ms(execution: ExecutionRow, now: str, duration_ms: int | None) -> int | None:
    """Duration of the work: as reported, but no longer than since its approval; else since its start."""
    since = execution.started_at if duration_ms is None else execution.approved_at
    elapsed = None
    if since:
        elapsed = round((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds() * 1000)
    return elapsed if duration_ms is None or elapsed is None else min(duration_ms, elapsed)


def announce_end(ledger: Ledger, ended: ExecutionRow, *, acknowledge: bool) -> None:
    """Announce the end to all who watch, and acknowledge it to the client that reported it."""
    result, shortened = preview(ended.result)
    if acknowledge:
        ledger.event(
            ResultAcknowledged(timestamp=ledger.now, tool_id=ended.id, status=ended.status, session_id=ended.session_id)
        )
    ledger.event(
        ToolFinished(
            timestamp=ledger.now,
            tool_id=ended.id,
            tool_name=ended.tool_name,
            status=ended.status,
            result=result,
            result_shortened=shortened,
            error=ended.error,
            error_type=ended.error_type,
            execution_time_ms=ended.execution_time_ms,
            session_id=ended.session_id,
            run_id=ended.run_id,
            approved_by=ended.approved_by,
        )
    )


def _wake_run(ledger: Ledger, run_id: str) -> None:
    """WAITING → READY if the run has no open call any more.

    This runs in the transaction that ends the last call, so no restart can lose it.
    """
    row = ledger.transaction.execute(
        f"UPDATE runs SET state = 'READY', updated_at = :now WHERE id = :id AND state = 'WAITING' "  # noqa: S608 - made of our own words alone
        f"AND NOT {OPEN_CALLS} RETURNING session_id",
        {"now": ledger.now, "id": run_id},
    ).fetchone()
    if row is not None:
        ledger.event(
            RunChanged(timestamp=ledger.now, session_id=row["session_id"], run_id=run_id, state=RunState.READY)
        )
        ledger.transaction.hints.append(Hint(RUNS_TOPIC))


def preview(text: str | None) -> tuple[JsonObject | None, bool]:
    """Return a result small enough for the feed, and True if anything was left out."""
    if text is None:
        return None, False
    value = json.loads(text)
    if len(text) <= PREVIEW_CHARACTERS:
        return value, False
    return _shorten(value), True


def _shorten(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS:
        half = TEXT_CHARACTERS // 2
        return f"{value[:half]}\n… {len(value) - 2 * half} characters left out …\n{value[-half:]}"
    if isinstance(value, dict):
        items: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - parsed JSON
        return {key: _shorten(item) for key, item in items.items()}
    if isinstance(value, list):
        elements: list[Any] = value  # pyright: ignore[reportUnknownVariableType] - parsed JSON
        return [_shorten(item) for item in elements[:LIST_ITEMS]]
    return value
