"""What runs on the one writer finds its rows by an index, however long the record is."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from byleave.calls.approvals import Clearance
from byleave.calls.deadlines import expire
from byleave.calls.executor import Inspect, begin
from byleave.calls.limits import UserLimits
from byleave.gate import Gate
from byleave.protocol.approvals import Inspection, SeenFile, SeenRole, call_digest
from byleave.protocol.grants import GrantRule
from byleave.protocol.states import AgentMode, ApprovalScope, RiskLevel, RunState
from byleave.protocol.wire import plain_json
from byleave.store.approvals import Question
from byleave.store.database import Cursor, Transaction
from byleave.store.executions import HistoryFilter
from byleave.store.grants import NewGrant
from byleave.store.sqlite import begun
from harness.records import Records, answer, inspected

pytestmark = pytest.mark.sqlite

GROWS = ("tool_executions", "approvals", "events", "audit", "messages", "runs", "replaced_texts")
"""Tables that are long, with or without retention."""


@pytest.fixture
def spoken(monkeypatch: pytest.MonkeyPatch) -> dict[str, Mapping[str, object]]:
    """Every statement that was run, with its parameters."""
    said: dict[str, Mapping[str, object]] = {}

    def heard(transaction: Transaction) -> Transaction:
        def execute(sql: str, parameters: Mapping[str, object] = MappingProxyType({}), /) -> Cursor:
            said[sql] = parameters
            return transaction.execute(sql, dict(parameters))

        return replace(transaction, execute=execute)

    monkeypatch.setattr("byleave.store.sqlite.begun", lambda *given: heard(begun(*given)))
    return said


async def a_day(records: Records) -> None:
    """A little of everything that happens on the writer."""
    store, project = records.store, records.project.id
    seen = Inspection(files=[SeenFile(path="x.py", sha256="a" * 64)])
    script = {"command": "python", "args": ["x.py"], "timeout": 30}
    grant = NewGrant(ApprovalScope.CLASS, GrantRule(tool="write_file", paths=("src/**",)), "src", 3600, 9)
    for number in range(3):
        params = plain_json({"path": f"src/{number}.py", "content": "x", "create_dirs": True})
        call = records.call(tool_name="write_file", params=params, risk_level=RiskLevel.MEDIUM)
        row = await begin(store, call, Question("write", 300), client_id="c1")
        if row.approval_id:
            await answer(store, row.approval_id, user_id="alice", approve=True, client_id="c1", grant=grant)
            grant = replace(grant, scope=ApprovalScope.PROJECT)
    call = records.call(
        tool_name="execute_command", key="exec_run", params=json.dumps(script), risk_level=RiskLevel.MEDIUM
    )
    await begin(store, call, Inspect(), client_id="c1")
    await store.executions.request_inspections(project, "c1")
    question = Question("run", 300, inspection=seen, runs_code=True)
    digest = call_digest("execute_command", script, project, seen.bound)
    verdict = Gate().judge("execute_command", script).verdict
    await inspected(store, call.id, question, verdict, digest=digest, client_id="c1")
    await a_write_that_is_looked_at(records)
    await begin(store, records.call(), Clearance("risk:LOW"), client_id=None, limits=UserLimits(records.settings))
    await store.executions.repeat_signals(project, "c1")
    await store.executions.dispatch_waiting(project, "c1")
    await store.executions.last_writes(project, ["src/1.py"])
    await store.executions.waiting_projects()
    await store.executions.awaiting_inspection()
    await store.executions.page(HistoryFilter(user_id="alice", project_id=project, counted=False))
    await store.grants.page("alice", session_id=records.session.id)
    await store.approvals.pending("alice")
    await expire(store, frozenset())
    await runs_of_a_day(records)


async def a_write_that_is_looked_at(records: Records) -> None:
    params = {"path": "docs/a.md", "content": "x", "mode": "write"}
    call = records.call(tool_name="write_file", params=plain_json(params), risk_level=RiskLevel.MEDIUM)
    await begin(records.store, call, Inspect(unless_answered=True), client_id="c1")
    file = SeenFile(path="docs/a.md", role=SeenRole.REPLACES, sha256="a" * 64, shortened=True)
    question = Question("write", 300, inspection=Inspection(files=[file]), replaced="y" * 5000)
    verdict = Gate().judge("write_file", params).verdict
    row = await inspected(records.store, call.id, question, verdict, digest="d" * 64, client_id="c1")
    _, text, found = await records.store.approvals.replaced(
        row.approval_id or "", user_id="alice", whole=lambda approval: True
    )
    assert found is not None
    assert (text, found.true_params) == ("y" * 5000, plain_json(params))


async def runs_of_a_day(records: Records) -> None:
    """A run that begins, gets on, parks, is woken and given back; one that is stopped; a start after a crash."""
    store = records.store
    for content in ("one", "two"):
        await store.chat.post(
            "alice", records.project.id, content, session_id=records.session.id, mode=AgentMode.SANDBOX
        )
    run = await store.runs.claim("worker")
    assert run is not None
    assert not await store.runs.renew([(run.id, run.fence)])
    await store.runs.checkpoint(run.id, run.fence, "[]")
    await store.runs.earlier_history(run)
    assert len(await store.runs.of_session("alice", records.session.id, 9)) == 2
    call = records.call(tool_name="write_file", key="exec_parked", run_id=run.id, risk_level=RiskLevel.MEDIUM)
    await begin(store, call, Question("write", 300), client_id="c1")
    assert await store.runs.park(run) is RunState.WAITING
    await store.executions.cancel(call.id, user_id="alice", actor="user:alice")
    woken = await store.runs.claim("worker")
    assert woken is not None
    await store.runs.release(woken)
    await store.runs.cancel(run.id, user_id="alice")
    await store.runs.recover()


@pytest.mark.promise("W11")
async def test_no_statement_reads_a_whole_table_that_grows(
    records: Records, spoken: dict[str, Mapping[str, object]]
) -> None:
    await a_day(records)
    statements = {sql: values for sql, values in spoken.items() if not sql.startswith("INSERT")}
    assert len(statements) > 30

    def explain(transaction: Transaction) -> dict[str, list[str]]:
        return {
            sql: [step["detail"] for step in transaction.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()]
            for sql, values in statements.items()
        }

    plans = await records.store.database.read(explain)
    names = "|".join((*GROWS, "a", "x", "e", "candidate", "earlier"))  # the names that statements give them
    scans = re.compile(rf"SCAN (?:{names})(?! USING (?:COVERING )?INDEX ix_\w+_(?:open|deadline|ready|order))\b")
    slow = {sql: plan for sql, plan in plans.items() if any(scans.match(step) for step in plan)}
    assert slow == {}
