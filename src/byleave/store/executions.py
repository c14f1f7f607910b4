"""Executions: begin, dispatch, settle, cancel, expire; and reading them back.

Each method is one transaction. What to do with a call is decided before (by the gate and the executor) and handed in
as a value: `Refusal`, `Clearance` or `Question`. `tests/store` holds the failure matrix for this module.
"""

from collections.abc import Iterable
from functools import partial

from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.events import ToolOutput
from byleave.protocol.states import ErrorType, ExecutionStatus
from byleave.protocol.verdicts import Verdict

from . import endings, inspections, transitions
from .answers import answered
from .calls import Clearance, Look, NewExecution, Refusal, insert
from .database import Database, Transaction
from .history import HistoryFilter, last_writes, read_page
from .ledger import Ledger
from .questions import Question, ask
from .records import ExecutionRow, execution_row
from .runs import fenced

HEAVY_CHARACTERS = 256 * 1024

Step = Refusal | Clearance | Question | Look
"""What is to be done with a new call."""


class Executions:
    """The executions' transactions."""

    def __init__(
        self,
        database: Database,
        *,
        client_wait_seconds: float,
        result_grace_seconds: float,
        queue_wait_seconds: float,
    ) -> None:
        self._database = database
        self._client_wait_seconds = client_wait_seconds
        self._grace_seconds = result_grace_seconds
        self._queue_wait_seconds = queue_wait_seconds

    async def begin(self, new: NewExecution, step: Step, *, client_id: str | None) -> ExecutionRow:
        """Record a call and take its first steps. The same id again finds what is there and changes nothing."""
        # A read that changes nothing may be signalled before its record is on the disk; its result is not
        # acknowledged before.
        harmless = isinstance(step, Clearance) and new.changes_nothing
        return await self._database.write(
            lambda transaction: self._begin(transaction, new, step, client_id),
            relaxed=harmless,
            heavy=len(new.true_params or "") > HEAVY_CHARACTERS,
        )

    async def inspected(
        self,
        execution_id: str,
        question: Question,
        verdict: Verdict,
        *,
        digest: str,
        client_id: str | None,
        heavy: bool = False,
    ) -> ExecutionRow:
        """The client has looked, or never does: PENDING → the question, or what answers in its place.

        An answer that comes twice, or after the call has gone on, changes nothing.
        """

        def work(transaction: Transaction) -> ExecutionRow:
            execution = transitions.load_execution(transaction, execution_id)
            if execution is None:
                raise NotFound(f"No execution {execution_id!r}.")
            if execution.status is not ExecutionStatus.PENDING:
                return execution
            return inspections.resolve_inspection(
                transaction,
                execution,
                question,
                verdict,
                digest=digest,
                client_id=client_id,
                client_wait_seconds=self._client_wait_seconds,
                grace_seconds=self._grace_seconds,
            )

        return await self._database.write(work, heavy=heavy)

    async def inspection_failed(
        self,
        execution_id: str,
        problem: str,
        error_type: ErrorType = ErrorType.TOOL_ERROR,
        *,
        heavy: bool = False,
    ) -> ExecutionRow | None:
        """The client could not look: PENDING → FAILED, since nobody can approve what nobody saw."""

        def work(transaction: Transaction) -> ExecutionRow | None:
            execution = transitions.load_execution(transaction, execution_id)
            if execution is None or execution.status is not ExecutionStatus.PENDING:
                return execution
            with Ledger(transaction, execution.project_id) as ledger:
                return transitions.end(
                    transaction,
                    ledger,
                    execution,
                    ExecutionStatus.FAILED,
                    actor=f"client:{execution.client_id}",
                    error=problem,
                    error_type=error_type,
                )

        return await self._database.write(work, heavy=heavy)

    async def last_writes(self, project_id: str, paths: Iterable[str]) -> dict[str, str]:
        """When an agent last wrote each of these files."""
        return await self._database.read(lambda transaction: last_writes(transaction, project_id, paths))

    async def look_again(self, project_id: str, client_id: str, elsewhere: frozenset[str] = frozenset()) -> int:
        """A client is there: it is asked what the calls would run that still wait to be looked at.

        `elsewhere`: other clients that are here; what they were asked is theirs to answer.
        """
        return await self._database.write(
            lambda transaction: inspections.look_again(transaction, project_id, client_id, elsewhere)
        )

    async def waiting_for_look(self, project_id: str, elsewhere: frozenset[str]) -> list[ExecutionRow]:
        """Calls that wait to be looked at, but for those that a client `elsewhere` looks at."""
        return await self._database.read(lambda transaction: inspections.waiting(transaction, project_id, elsewhere))

    async def unlooked_at(self) -> list[tuple[str, str | None]]:
        """Calls that wait for a client to look: the project, and the client that was asked."""

        def work(transaction: Transaction) -> list[tuple[str, str | None]]:
            rows = transaction.all(
                f"SELECT DISTINCT project_id, client_id FROM tool_executions WHERE {transitions.OPEN} "  # noqa: S608 - made of our own words alone
                "AND status = 'PENDING'"
            )
            return [(row["project_id"], row["client_id"]) for row in rows]

        return await self._database.read(work)

    async def dispatch_waiting(self, project_id: str, client_id: str) -> list[ExecutionRow]:
        """A client is there: everything approved that waited for one goes to it, in order."""

        def look(transaction: Transaction) -> list[tuple[str, int]]:
            rows = transaction.all(
                "SELECT id, length(true_params) AS size FROM tool_executions WHERE project_id = :project_id "  # noqa: S608 - made of our own words alone
                f"AND {transitions.OPEN} AND status = 'APPROVED' ORDER BY approved_at, created_at, id",
                {"project_id": project_id},
            )
            return [(row["id"], row["size"] or 0) for row in rows]

        def work(transaction: Transaction, execution_id: str) -> ExecutionRow | None:
            waiting = transitions.load_execution(transaction, execution_id)
            if waiting is None or waiting.status is not ExecutionStatus.APPROVED:
                return None
            with Ledger(transaction, project_id) as ledger:
                return transitions.dispatch(
                    transaction, ledger, waiting, client_id=client_id, grace_seconds=self._grace_seconds
                )

        sent: list[ExecutionRow] = []
        for execution_id, size in await self._database.write(look):
            row = await self._database.write(partial(work, execution_id=execution_id), heavy=size > HEAVY_CHARACTERS)
            if row is not None:
                sent.append(row)
        return sent

    async def repeat_signals(self, project_id: str, client_id: str) -> int:
        """A client came back without knowing where it was: say again what it should be doing.

        What was called off meanwhile is not said again: it may never have started, and must not now.
        """

        def work(transaction: Transaction) -> int:
            with Ledger(transaction, project_id) as ledger:
                running = [
                    execution
                    for execution in transitions.with_status(transaction, project_id, ExecutionStatus.EXECUTING)
                    if execution.client_id == client_id
                ]
                for execution in running:
                    if execution.cancel_requested:
                        endings.end_cancelled(transaction, ledger, execution, f"client:{client_id}")
                    else:
                        if execution.queued:  # its queue is gone with what the client knew
                            execution = transitions.start(
                                transaction, ledger, execution, grace_seconds=self._grace_seconds
                            )
                        transitions.signal(ledger, execution, transaction.now)
                return len(running)

        return await self._database.write(work)

    async def queued(
        self, execution_ids: Iterable[str], *, user_id: str, project_id: str, client_id: str | None
    ) -> None:
        """Its client has not begun with these: their time does not run. Others' and ended ones are passed over."""

        def work(transaction: Transaction) -> None:
            with Ledger(transaction, project_id) as ledger:
                for execution_id in execution_ids:
                    execution = transitions.load_execution(transaction, execution_id)
                    if (
                        execution is not None
                        and (execution.user_id, execution.project_id) == (user_id, project_id)
                        and execution.client_id == client_id
                        and execution.status is ExecutionStatus.EXECUTING
                    ):
                        transitions.queue(transaction, ledger, execution, lease_seconds=self._client_wait_seconds)

        await self._database.write(work)

    async def start(self, execution_id: str, *, user_id: str, project_id: str, client_id: str | None) -> ExecutionRow:
        """Its client begins with a call that was queued; ConflictError when it is not wanted any more."""

        def work(transaction: Transaction) -> ExecutionRow:
            execution = _own(transaction, execution_id, user_id, project_id)
            if execution.client_id != client_id:
                raise ConflictError("This execution was given to another client.", state=execution.status.value)
            if execution.status is not ExecutionStatus.EXECUTING or execution.cancel_requested:
                raise ConflictError("This execution is not wanted any more.", state=execution.status.value)
            if not execution.queued:
                return execution
            with Ledger(transaction, project_id) as ledger:
                return transitions.start(transaction, ledger, execution, grace_seconds=self._grace_seconds)

        return await self._database.write(work)

    async def settle(
        self,
        execution_id: str,
        *,
        user_id: str,
        project_id: str,
        client_id: str,
        result: str | None,
        result_hash: str,
        error: str | None = None,
        error_type: ErrorType | None = None,
        duration_ms: int | None = None,
    ) -> ExecutionRow:
        """EXECUTING → COMPLETED or FAILED. The same result again is accepted again; a different one is a conflict.

        What comes after the call was given up is kept with it, as what it is: the call stays FAILED.
        """

        def work(transaction: Transaction) -> ExecutionRow:
            execution = _own(transaction, execution_id, user_id, project_id)
            if execution.client_id is not None and client_id != execution.client_id:
                raise given_to_another(execution)
            if execution.status.ended and execution.result_hash == result_hash:
                return execution
            after = ExecutionStatus.FAILED if error is not None else ExecutionStatus.COMPLETED
            if execution.started_at is None and (error_type is not ErrorType.CANCELLED or result is not None):
                # It left its client's queue while the server could not be told; it ran all the same.
                worked = transitions.work_ms(execution, transaction.now, duration_ms or 0) or 0
                execution = execution._replace(started_at=transitions.later(transaction.now, -worked / 1000))
            if endings.was_given_up(execution):
                return endings.report_late(transaction, execution, result, result_hash, error, duration_ms)
            if execution.status is not ExecutionStatus.EXECUTING:
                raise ConflictError(
                    f"This execution is {execution.status}; it takes no result.", state=execution.status.value
                )
            with Ledger(transaction, project_id) as ledger:
                return transitions.end(
                    transaction,
                    ledger,
                    execution,
                    after,
                    actor=f"client:{execution.client_id}",
                    error=error,
                    error_type=error_type,
                    result=result,
                    result_hash=result_hash,
                    duration_ms=duration_ms,
                )

        return await self._database.write(work, heavy=len(result or "") > HEAVY_CHARACTERS)

    async def append_output(
        self, execution_id: str, *, user_id: str, project_id: str, client_id: str, stream: str, text: str, sequence: int
    ) -> bool:
        """A piece of output of a running command; False when it is a repeat or comes too late."""

        def work(transaction: Transaction) -> bool:
            execution = _own(transaction, execution_id, user_id, project_id)
            if execution.client_id is not None and client_id != execution.client_id:
                raise given_to_another(execution)
            if execution.status is not ExecutionStatus.EXECUTING or sequence < execution.output_seq:
                return False
            transaction.change(
                "UPDATE tool_executions SET output_seq = :next WHERE id = :id",
                {"next": sequence + 1, "id": execution_id},
            )
            with Ledger(transaction, project_id) as ledger:
                ledger.event(
                    ToolOutput(
                        timestamp=transaction.now,
                        tool_id=execution_id,
                        stream="stdout" if stream == "stdout" else "stderr",
                        text=text,
                        sequence=sequence,
                        session_id=execution.session_id,
                    )
                )
            return True

        return await self._database.write(work)

    async def cancel(
        self, execution_id: str, *, user_id: str, actor: str, connected: frozenset[str] | None = None
    ) -> ExecutionRow:
        """Call it off: at once when it has not started, by a signal to the client when it runs.

        `connected`: who is here now; a client that is not cannot be told, so its call ends at once.
        """

        def work(transaction: Transaction) -> ExecutionRow:
            execution = _own(transaction, execution_id, user_id, None)
            return endings.call_off(transaction, execution, actor, connected)

        return await self._database.write(work)

    async def expire(
        self, connected: frozenset[str], spared: frozenset[str] | None = frozenset()
    ) -> tuple[list[ExecutionRow], str | None]:
        """End everything past its deadline by the database's clock; also says when the next one is due.

        A call that waits in the queue of a client that is here waits on, up to a bound.
        `spared`: clients whose executions are left to them yet, as they may be about to report; None: all clients.
        """
        names = {f"client{number}": client_id for number, client_id in enumerate(sorted(spared or ()))}
        due = transitions.OPEN
        if spared is None:
            due += " AND status <> 'EXECUTING'"
        elif spared:
            due += f" AND NOT (status = 'EXECUTING' AND client_id IN ({', '.join(':' + name for name in names)}))"

        def work(transaction: Transaction) -> tuple[list[ExecutionRow], str | None]:
            rows = transaction.all(
                f"SELECT {transitions.EXECUTION_COLUMNS} FROM tool_executions WHERE deadline <= :now AND {due} "  # noqa: S608 - column names are ours
                "ORDER BY deadline LIMIT 200",
                {"now": transaction.now, **names},
            )
            ended: list[ExecutionRow] = []
            for row in rows:
                execution = execution_row(row)
                if self._may_wait_on(execution, transaction.now) and execution.client_id in connected:
                    with Ledger(transaction, execution.project_id) as ledger:
                        transitions.queue(transaction, ledger, execution, lease_seconds=self._client_wait_seconds)
                else:
                    ended.append(endings.expire(transaction, execution, connected))
            upcoming = transaction.one(
                "SELECT min(deadline) AS deadline FROM (SELECT min(deadline) AS deadline FROM tool_executions "  # noqa: S608 - made of our own words alone
                f"WHERE {due} UNION ALL "
                "SELECT min(deadline) AS deadline FROM approvals WHERE status = 'pending') AS open",
                names,
            )
            return ended, upcoming["deadline"] if upcoming else None

        return await self._database.write(work)

    async def overdue(self) -> list[str]:
        """What is past its deadline and still open."""

        def work(transaction: Transaction) -> list[str]:
            rows = transaction.all(
                f"SELECT id FROM tool_executions WHERE deadline <= :now AND {transitions.OPEN}",  # noqa: S608 - made of our own words alone
                {"now": transaction.now},
            )
            return [row["id"] for row in rows]

        return await self._database.read(work)

    def _may_wait_on(self, execution: ExecutionRow, now: str) -> bool:
        since = execution.approved_at or execution.created_at
        return execution.queued and transitions.later(since, self._queue_wait_seconds) > now

    async def waiting_projects(self) -> list[str]:
        """Projects with something approved that still waits for a client."""

        def work(transaction: Transaction) -> list[str]:
            rows = transaction.all(
                f"SELECT DISTINCT project_id FROM tool_executions WHERE {transitions.OPEN} AND status = 'APPROVED'"  # noqa: S608 - made of our own words alone
            )
            return [row["project_id"] for row in rows]

        return await self._database.read(work)

    async def get(self, execution_id: str, *, user_id: str) -> ExecutionRow:
        return await self._database.read(lambda transaction: _own(transaction, execution_id, user_id, None))

    async def load(self, execution_id: str) -> ExecutionRow | None:
        """By id alone: for waiters that already know whose it is."""
        return await self._database.read(lambda transaction: transitions.load_execution(transaction, execution_id))

    async def page(self, wanted: HistoryFilter) -> tuple[list[ExecutionRow], int, str | None]:
        """A page, newest first; how many there are in all; where to go on."""
        return await self._database.read(lambda transaction: read_page(transaction, wanted))

    def _begin(
        self,
        transaction: Transaction,
        new: NewExecution,
        step: Step,
        client_id: str | None,
    ) -> ExecutionRow:
        known = transitions.load_execution(transaction, new.id) if new.repeatable else None
        if known is not None:
            if known.user_id != new.user_id:
                raise NotFound("No such session.")
            if (known.request_digest or known.digest) != new.digest and new.run_id is None:
                raise ConflictError(
                    "This idempotency key was used for another call.",
                    state=known.status.value,
                    hint="Use a fresh key for a different call.",
                )
            return known
        if new.fence is not None:
            _check_claim(transaction, new)
        row: ExecutionRow
        with Ledger(transaction, new.project_id) as ledger:
            if isinstance(step, Question) or (isinstance(step, Look) and step.unless_answered):
                step = answered(transaction, ledger, new, new.digest, {}) or step
            match step:
                case Refusal():
                    row = insert(transaction, ledger, new, ExecutionStatus.FAILED, refusal=step)
                    transitions.announce_end(ledger, row, transaction.now, acknowledge=False)
                    transaction.hint(transitions.execution_topic(row.id), row)
                case Clearance():
                    row = self._insert_cleared(transaction, ledger, new, step, client_id)
                case Question():
                    row = insert(transaction, ledger, new, ExecutionStatus.AWAITING_APPROVAL, question=step)
                    row = ask(transaction, ledger, row, step)
                case Look():
                    deadline = transitions.later(transaction.now, self._client_wait_seconds)
                    row = inspections.begin(transaction, ledger, new, client_id, deadline)
        return row

    def _insert_cleared(
        self,
        transaction: Transaction,
        ledger: Ledger,
        new: NewExecution,
        step: Clearance,
        client_id: str | None,
    ) -> ExecutionRow:
        # PENDING → APPROVED (→ EXECUTING) in one insert: nobody could see the states between, and this is the hot path.
        if client_id is None:
            deadline = transitions.later(transaction.now, self._client_wait_seconds)
            transaction.hint(transitions.DEADLINES_TOPIC, deadline)
            return insert(transaction, ledger, new, ExecutionStatus.APPROVED, clearance=step, deadline=deadline)
        deadline = transitions.later(transaction.now, new.timeout_seconds + self._grace_seconds)
        row = insert(
            transaction,
            ledger,
            new,
            ExecutionStatus.EXECUTING,
            clearance=step,
            client_id=client_id,
            deadline=deadline,
        )
        transitions.signal(ledger, row, transaction.now)
        transaction.hint(transitions.DEADLINES_TOPIC, deadline)
        return row


def given_to_another(execution: ExecutionRow) -> ConflictError:
    return ConflictError(
        "This execution was given to another client.",
        state=execution.status.value,
        hint="Only the client that got the signal may report on it.",
    )


def _check_claim(transaction: Transaction, new: NewExecution) -> None:
    """A worker whose run was stopped or taken over begins nothing any more."""
    claim = transaction.one(
        "SELECT 1 FROM runs WHERE id = :run_id AND fence = :fence AND state = 'RUNNING'",
        {"run_id": new.run_id, "fence": new.fence},
    )
    if claim is None:
        raise fenced()


def _own(transaction: Transaction, execution_id: str, user_id: str, project_id: str | None) -> ExecutionRow:
    # The owner is part of the question, so that another user's row is not even read.
    row = transaction.one(
        f"SELECT {transitions.EXECUTION_COLUMNS} FROM tool_executions WHERE id = :id AND user_id = :user_id",  # noqa: S608 - column names are ours
        {"id": execution_id, "user_id": user_id},
    )
    if row is None or project_id not in (None, row["project_id"]):
        raise NotFound(f"No execution {execution_id!r}.", hint="See `GET /my/tools/history` for yours.")
    return execution_row(row)
