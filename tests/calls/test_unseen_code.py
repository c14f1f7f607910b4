"""Code that nobody saw is not run by a grant, whichever way it came into the workspace."""

import asyncio
from typing import Any

import pytest

from byleave.calls import executor
from byleave.calls.executor import Caller
from byleave.calls.grants import MOST_LOOKED_AT, MOST_NAMED
from byleave.protocol.approvals import ApprovalRequest, Inspection, SeenFile
from byleave.protocol.executions import CompletedReport, ToolResponse
from byleave.protocol.grants import GrantRule, GrantTerms
from byleave.protocol.states import AgentMode, ApprovalScope
from byleave.store import SessionRow
from harness.desk import Desk, completed
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("G8")

Call = tuple[str, JsonObject]
TESTS: Call = ("execute_command", {"command": "python", "args": ["-m", "pytest", "-q"]})
NODE_TESTS: Call = ("execute_command", {"command": "node", "args": ["--test"]})
RUN_TESTS = GrantRule(tool="execute_command", command=("python", "-m", "pytest"))
BELOW_TESTS = GrantRule(tool="write_file", paths=("tests/**",))
NOTHING = Inspection(
    files=[SeenFile(path=path, sha256="missing") for path in ("pytest.py", "pytest/__init__.py", "pytest/__main__.py")]
)


def write(name: str) -> Call:
    return "write_file", {"path": f"tests/{name}", "content": "assert True\n"}


def start(
    desk: Desk, call: Call, session: SessionRow | None = None, mode: AgentMode = AgentMode.SANDBOX
) -> asyncio.Task[ToolResponse]:
    where = (session or desk.session).id
    return asyncio.create_task(desk.executor.execute_tool(*call, where, caller=Caller(mode=mode)))


async def allow(
    desk: Desk, call: Call, rule: GrantRule | None = None, *, session: SessionRow | None = None
) -> ApprovalRequest:
    """Make a call that asks, say yes (to a class, with a rule), and wait for its end."""
    waiting = start(desk, call, session)
    approval = await desk.next_approval()
    scope = ApprovalScope.CLASS if rule else ApprovalScope.ONCE
    terms = GrantTerms(rule=rule) if rule else None
    await desk.approvals.decide(approval.id, "alice", approve=True, scope=scope, terms=terms)
    assert (await waiting).status == "completed"
    return approval


async def goes(desk: Desk, call: Call, *, session: SessionRow | None = None) -> None:
    """The call runs without a question."""
    async with asyncio.timeout(10):
        assert (await start(desk, call, session)).status == "completed"


async def asks(desk: Desk, call: Call, *, session: SessionRow | None = None) -> ApprovalRequest:
    """The call asks; it is refused."""
    waiting = start(desk, call, session)
    approval = await desk.next_approval()
    await desk.approvals.reject_tool(approval.id, "alice")
    assert (await waiting).status == "rejected"
    return approval


async def test_a_write_granted_in_another_session_of_the_project_counts(desk: Desk) -> None:
    other = await desk.store.chat.create_session("alice", desk.project.id, "second")
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        await allow(desk, TESTS, RUN_TESTS)
        await allow(desk, write("test_a.py"), BELOW_TESTS, session=other)
        await goes(desk, TESTS)
        await goes(desk, write("test_b.py"), session=other)
        approval = await asks(desk, TESTS)
        assert "'tests/test_b.py'" in approval.description


async def test_a_write_granted_in_another_project_of_the_same_directory_counts(desk: Desk) -> None:
    twin = await desk.store.chat.create_project("alice", "twin")
    await desk.store.chat.remember_machine(twin.id, "/ws", "bwrap")
    other = await desk.store.chat.create_session("alice", twin.id, "second")
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        await allow(desk, TESTS, RUN_TESTS)
        full = start(desk, write("test_b.py"), other, AgentMode.FULL)
        while not await desk.store.executions.waiting_projects():
            await asyncio.sleep(0)
        assert "'tests/test_b.py'" in (await asks(desk, TESTS)).description
        full.cancel()


async def test_a_write_that_waited_while_somebody_looked_counts_when_it_is_released(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        waiting = start(desk, write("test_b.py"))
        old = await desk.next_approval()
        tests = start(desk, TESTS)
        while len(pending := await desk.approvals.get_pending_approvals("alice")) < 2:
            await asyncio.sleep(0)
        [question] = [one for one in pending if one.id != old.id]
        terms = GrantTerms(rule=RUN_TESTS)
        await desk.approvals.decide(question.id, "alice", approve=True, scope=ApprovalScope.CLASS, terms=terms)
        await tests
        other = start(desk, write("test_a.py"))
        while len(pending := await desk.approvals.get_pending_approvals("alice")) < 2:
            await asyncio.sleep(0)
        [question] = [one for one in pending if one.id != old.id]
        terms = GrantTerms(rule=BELOW_TESTS)
        decided = await desk.approvals.decide(
            question.id, "alice", approve=True, scope=ApprovalScope.CLASS, terms=terms
        )
        assert len(decided.released) == 1
        await asyncio.gather(waiting, other)
        assert "'tests/test_b.py'" in (await asks(desk, TESTS)).description


@pytest.mark.parametrize("args", [["gen.py"], ["-c", "open('tests/test_b.py', 'w')"], ["-m", "pytest"]])
async def test_code_that_ran_under_full_mode_may_have_changed_anything(desk: Desk, args: list[str]) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        await allow(desk, TESTS, RUN_TESTS)
        await start(desk, ("execute_command", {"command": "python", "args": args}), mode=AgentMode.FULL)
        assert "files a command brought in" in (await asks(desk, TESTS)).description


@pytest.mark.parametrize("command", [["tar", "xf", "a.tar"], ["git", "submodule", "update"]])
async def test_what_full_mode_unpacks_or_fetches_may_be_anything(desk: Desk, command: list[str]) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        await allow(desk, TESTS, RUN_TESTS)
        await start(desk, ("execute_command", {"command": command[0], "args": command[1:]}), mode=AgentMode.FULL)
        assert "files a command brought in" in (await asks(desk, TESTS)).description


async def test_reading_and_committing_under_full_mode_changes_nothing_that_runs(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        await allow(desk, TESTS, RUN_TESTS)
        for command in (["git", "commit", "-m", "x"], ["node", "--check", "a.js"]):
            await start(desk, ("execute_command", {"command": command[0], "args": command[1:]}), mode=AgentMode.FULL)
        await goes(desk, TESTS)


async def test_a_change_that_comes_while_the_question_is_put_is_not_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        await allow(desk, TESTS, RUN_TESTS)
        await allow(desk, write("test_a.py"), BELOW_TESTS)
        await goes(desk, write("test_b.py"))
        put = executor.resolve_inspection

        async def late(*args: Any, **values: Any) -> Any:
            monkeypatch.undo()
            await goes(desk, write("test_c.py"))
            return await put(*args, **values)

        monkeypatch.setattr(executor, "resolve_inspection", late)
        approval = await allow(desk, TESTS)
        if "'tests/test_c.py'" not in approval.description:
            await asks(desk, TESTS)


async def test_tests_without_a_named_file_say_what_changed_and_a_yes_settles_it(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        await allow(desk, NODE_TESTS, GrantRule(tool="execute_command", command=("node", "--test")))
        await allow(desk, write("a.js"), BELOW_TESTS)
        await goes(desk, NODE_TESTS)
        await goes(desk, write("b.js"))
        assert "'tests/b.js'" in (await allow(desk, NODE_TESTS)).description
        await goes(desk, NODE_TESTS)


async def test_notes_that_node_could_run_as_tests_ask(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        await allow(desk, NODE_TESTS, GrantRule(tool="execute_command", command=("node", "--test")))
        below_docs = GrantRule(tool="write_file", paths=("docs/**",))
        await allow(desk, ("write_file", {"path": "docs/a.md", "content": "x\n"}), below_docs)
        await goes(desk, ("write_file", {"path": "docs/b.md", "content": "x\n"}))
        assert "'docs/b.md'" in (await asks(desk, NODE_TESTS)).description


async def test_a_no_settles_nothing(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        await allow(desk, TESTS, RUN_TESTS)
        await allow(desk, write("test_a.py"), BELOW_TESTS)
        await goes(desk, write("test_b.py"))
        await asks(desk, TESTS)
        assert "'tests/test_b.py'" in (await asks(desk, TESTS)).description


async def test_no_grant_changes_code_while_code_that_a_grant_covers_runs(desk: Desk) -> None:
    go = asyncio.Event()

    async def slowly(signal: JsonObject) -> CompletedReport:
        if signal["tool_name"] == "execute_command":
            await go.wait()
        return completed()

    go.set()
    async with desk.client(slowly, sees=lambda request: NOTHING) as signals:
        await allow(desk, TESTS, RUN_TESTS)
        await allow(desk, write("test_a.py"), GrantRule(tool="write_file", paths=("tests/**", "docs/**")))
        go.clear()
        running = start(desk, TESTS)
        while not signals[-1]["approved_by"].startswith("grant:"):
            await asyncio.sleep(0)
        await asks(desk, write("test_b.py"))
        await goes(desk, ("write_file", {"path": "docs/a.md", "content": "words\n"}))
        go.set()
        await running
        await goes(desk, write("test_b.py"))


async def test_a_question_that_named_less_is_not_joined(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        await allow(desk, write("test_a.py"), BELOW_TESTS)
        first = start(desk, TESTS)
        before = await desk.next_approval()
        await goes(desk, write("test_b.py"))
        second = start(desk, TESTS)
        while len(pending := await desk.approvals.get_pending_approvals("alice")) < 2:
            await asyncio.sleep(0)
        assert "test_b.py" not in before.description
        assert "test_b.py" in pending[1].description
        for one in pending:
            await desk.approvals.approve_tool(one.id, "alice")
        await asyncio.gather(first, second)


async def test_changes_without_end_are_not_named_one_by_one(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: NOTHING):
        await allow(desk, TESTS, RUN_TESTS)
        for number in range(MOST_LOOKED_AT):
            await start(desk, ("write_file", {"path": f"docs/{number}.md", "content": "x"}), mode=AgentMode.FULL)
        approval = await asks(desk, TESTS)
        assert f"and {MOST_LOOKED_AT + 1 - MOST_NAMED} more" in approval.description
