"""Edits: a person changes a waiting call; it is judged, inspected and asked anew, and nothing else lets it run."""

import asyncio
import json

import pytest

from byleave.calls.edits import EditProblem
from byleave.calls.executor import Caller
from byleave.gate import Gate, GateRules, Policy, parse_policy
from byleave.protocol.approvals import ApprovalRequest, EditBody, Inspection, SeenFile, SeenRole, call_digest
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.executions import ToolResponse
from byleave.protocol.grants import GrantRule, GrantTerms
from byleave.protocol.states import AgentMode, ApprovalScope, Layer
from byleave.settings import ServerSettings
from byleave.store.database import Row, Transaction
from harness.desk import Desk, completed, open_desk
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("A4")

SECRET = "ghp_" + "a1B2c3D4e5F6" * 3
DIGEST, OTHER = "a" * 64, "b" * 64
WRITE = ("write_file", {"path": "a.py", "content": "x = 1\ny = 2\n"})
PYTHON = ("execute_command", {"command": "python", "args": ["x.py"]})


def script(digest: str = DIGEST, path: str = "x.py") -> Inspection:
    return Inspection(files=[SeenFile(path=path, sha256=digest, size=9, text="print(1)\n")])


async def asked(desk: Desk, call: tuple[str, JsonObject] = WRITE) -> tuple[asyncio.Task[ToolResponse], ApprovalRequest]:
    waiting = asyncio.create_task(desk.executor.execute_tool(*call, desk.session.id))
    return waiting, await desk.next_approval()


async def edited(desk: Desk, approval: ApprovalRequest, **changes: object) -> ApprovalRequest:
    """Change a call, and return the question about the changed one."""
    body = EditBody.model_validate({"digest": approval.digest, **changes})
    answer = await desk.edits.edit(approval.id, "alice", body)
    assert answer.approval_id not in (None, approval.id)
    [waits] = [one for one in await desk.approvals.get_pending_approvals("alice") if one.id == answer.approval_id]
    return waits


async def links(desk: Desk, action: str) -> list[Row]:
    def work(transaction: Transaction) -> list[Row]:
        sql = "SELECT actor, detail, execution_id FROM audit WHERE action = :action ORDER BY seq"
        return list(transaction.execute(sql, {"action": action}).fetchall())

    return await desk.store.database.read(work)


async def test_a_changed_write_is_asked_again_and_runs_as_it_was_changed(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(path="a.py", size=6)) as signals:
        waiting, approval = await asked(desk)
        again = await edited(desk, approval, content="x = 3\n")
        assert (again.tool_params["content"], again.status, again.risk_level) == ("x = 3\n", "pending", "MEDIUM")
        assert again.edit is not None
        assert (again.edit.edited_by, again.edit.asked["content"]) == ("person:alice", "x = 1\ny = 2\n")
        assert "Changed by alice. The agent asked: Write a.py: 12 bytes, 2 lines" in again.description
        assert again.tool_ids == approval.tool_ids
        assert signals == []
        assert await desk.approvals.approve_tool(again.id, "alice")
        response = await waiting
    bound = {"a.py": "missing"}
    params = {"path": "a.py", "content": "x = 3\n", "mode": "write"}
    [signal] = signals
    assert signal["tool_params"] == params
    assert signal["digest"] == again.digest == call_digest("write_file", params, desk.project.id, bound)
    assert signal["approved_by"] == "person:alice"
    assert response.status == "completed"
    assert response.edited is not None
    assert "The user changed this call before deciding on it" in response.edited
    assert "-x = 1\n-y = 2\n+x = 3" in response.edited


async def kept_content(desk: Desk) -> str | None:
    """What the agent asked for, as the record has it of the one call."""
    query = "SELECT asked_params FROM tool_executions"
    (row,) = await desk.store.database.read(lambda transaction: transaction.execute(query).fetchall())
    return row["asked_params"]


async def test_the_record_has_both_calls_and_who_changed_it(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        waiting, approval = await asked(desk)
        again = await edited(desk, approval, content="x = 3\n")
        assert json.loads(await kept_content(desk) or "{}")["content"] == "x = 1\ny = 2\n"
        await desk.approvals.approve_tool(again.id, "alice")
        tool_id = (await waiting).tool_id
    row = await desk.store.executions.get(tool_id, user_id="alice")
    record = row.to_wire()
    assert record.tool_params["content"] == "x = 3\n"
    assert record.edit is not None
    assert (record.edit.edited_by, record.edit.asked["content"]) == ("person:alice", "x = 1\ny = 2\n")
    assert await kept_content(desk) is None
    [link] = await links(desk, "edited")
    detail = json.loads(link["detail"])
    assert (link["actor"], link["execution_id"]) == ("person:alice", tool_id)
    assert detail["digest"] == call_digest("write_file", record.tool_params, desk.project.id)
    assert detail["instead_of"] == approval.digest
    first = await desk.store.approvals.get(approval.id, user_id="alice")
    assert (first.status, first.decided_by) == ("cancelled", "person:alice")


async def test_a_second_change_keeps_what_the_agent_asked_for(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        waiting, approval = await asked(desk)
        once = await edited(desk, approval, content="x = 3\n")
        twice = await edited(desk, once, content="x = 4\n")
        assert twice.edit is not None
        assert twice.edit.asked["content"] == "x = 1\ny = 2\n"
        assert (await desk.approvals.change(twice.id, "alice")).asked == "x = 1\ny = 2\n"
        await desk.approvals.approve_tool(twice.id, "alice")
        assert "-x = 1" in ((await waiting).edited or "")


async def test_a_changed_command_is_split_without_a_shell_and_inspected_anew(desk: Desk) -> None:
    def sees(request: JsonObject) -> Inspection:
        name = request["tool_params"]["args"][0]
        return script(DIGEST if name == "x.py" else OTHER, name)

    async with desk.client(lambda signal: completed(exit_code=0), sees=sees) as signals:
        waiting, approval = await asked(desk, PYTHON)
        again = await edited(desk, approval, line="python y.py 'two words'", timeout=60)
        assert again.tool_params == {"command": "python", "args": ["y.py", "two words"], "timeout": 60}
        assert again.inspection is not None
        assert again.inspection.bound == {"y.py": OTHER}
        assert "The agent asked: Run python x.py · up to 30 s" in again.description
        await desk.approvals.approve_tool(again.id, "alice")
        response = await waiting
    assert signals[0]["bound"] == {"y.py": OTHER}
    assert response.edited is not None
    assert "Instead of: Run python x.py · up to 30 s. As changed: Run python y.py 'two words' · up to 1 min" in (
        response.edited
    )
    assert (await desk.store.executions.get(response.tool_id, user_id="alice")).timeout_seconds == 60


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("python x.py | tee out", "no pipes"),
        ("python $HOME/x.py", "no variables"),
        ("python 'x.py", "a quotation has no end"),
        ("", "There is no command"),
        ("rm -rf x", "Command not allowed: rm"),
        ("cat /etc/passwd", "refused"),
        ("python x.py", "Nothing was changed"),
    ],
)
async def test_a_line_that_may_not_run_is_refused_at_once_and_the_call_waits_on(
    desk: Desk, line: str, because: str
) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: script()) as signals:
        waiting, approval = await asked(desk, PYTHON)
        with pytest.raises(EditProblem, match=because):
            await desk.edits.edit(approval.id, "alice", EditBody(digest=approval.digest, line=line))
        assert [one.id for one in await desk.approvals.get_pending_approvals("alice")] == [approval.id]
        assert await desk.approvals.approve_tool(approval.id, "alice")
        response = await waiting
    assert (response.status, response.edited, signals[0]["tool_params"]["args"]) == ("completed", None, ["x.py"])


async def test_a_rule_that_denies_the_changed_call_refuses_the_change(settings: ServerSettings) -> None:
    rules = parse_policy(
        '[[rule]]\naction = "deny"\ntool = "execute_command"\ncommand = ["git", "push"]\n',
        Layer.ORGANISATION,
        source="x",
    )
    gate = Gate(GateRules(policy=Policy([rules])))
    async with open_desk(settings, gate) as desk, desk.client(lambda signal: completed()):
        waiting, approval = await asked(desk, ("execute_command", {"command": "git", "args": ["fetch"]}))
        with pytest.raises(EditProblem, match="refused"):
            await desk.edits.edit(approval.id, "alice", EditBody(digest=approval.digest, line="git push"))
        await desk.approvals.reject_tool(approval.id, "alice")
        await waiting


async def test_a_level_that_rises_is_shown_and_asked_again(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        waiting, approval = await asked(desk, ("execute_command", {"command": "git", "args": ["fetch"]}))
        assert approval.risk_level == "MEDIUM"
        again = await edited(desk, approval, line="git push --force")
        assert (again.risk_level, again.timeout_seconds) == ("HIGH", 600)
        await desk.approvals.reject_tool(again.id, "alice")
        assert (await waiting).status == "rejected"


async def test_a_change_to_a_harmless_call_still_waits_for_the_persons_yes(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        waiting, approval = await asked(desk, ("execute_command", {"command": "git", "args": ["fetch"]}))
        again = await edited(desk, approval, line="ls -l")
        assert (again.risk_level, signals) == ("LOW", [])
        await desk.approvals.approve_tool(again.id, "alice")
        assert (await waiting).status == "completed"
    assert signals[0]["approved_by"] == "person:alice"


async def test_neither_a_grant_nor_a_mode_lets_a_changed_call_run(desk: Desk) -> None:
    fetch = GrantTerms(rule=GrantRule(tool="execute_command", command=("git", "fetch")))
    async with desk.client(lambda signal: completed()) as signals:
        waiting, approval = await asked(desk, ("execute_command", {"command": "git", "args": ["fetch"]}))
        await desk.approvals.decide(approval.id, "alice", approve=True, scope=ApprovalScope.CLASS, terms=fetch)
        await waiting
        push = "execute_command", {"command": "git", "args": ["push", "--force"]}
        caller = Caller(mode=AgentMode.FULL)
        row = await desk.executor.call(*push, desk.session, caller=caller, until_asked=True)
        again = await edited(desk, await desk.next_approval(), line="git fetch")
        assert (again.tool_ids, again.risk_level, len(signals)) == ([row.id], "MEDIUM", 1)
        [grant] = await desk.approvals.grants("alice")
        assert grant.uses == 0
        await desk.approvals.approve_tool(again.id, "alice")
        assert (await desk.executor.wait(row)).approved_by == "person:alice"


async def test_a_new_grant_does_not_release_what_a_person_is_about_to_look_at(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        waiting, approval = await asked(desk, ("write_file", {"path": "docs/a.py", "content": "1"}))
        again = await edited(desk, approval, content="2")
        other = asyncio.create_task(
            desk.executor.execute_tool("write_file", {"path": "docs/b.py", "content": "1"}, desk.session.id)
        )
        while len(both := await desk.approvals.get_pending_approvals("alice")) < 2:
            await asyncio.sleep(0)
        [second] = [one for one in both if one.id != again.id]
        docs = GrantTerms(rule=GrantRule(tool="write_file", paths=("docs/**",)))
        decided = await desk.approvals.decide(second.id, "alice", approve=True, scope=ApprovalScope.CLASS, terms=docs)
        assert decided.released == ()
        assert (await other).status == "completed"
        assert [one.id for one in await desk.approvals.get_pending_approvals("alice")] == [again.id]
        await desk.approvals.approve_tool(again.id, "alice")
        assert (await waiting).status == "completed"


async def test_a_change_of_a_call_that_somebody_decided_is_a_conflict(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        waiting, approval = await asked(desk)
        assert await desk.approvals.approve_tool(approval.id, "alice")
        await waiting
        with pytest.raises(ConflictError, match="approved already, by alice"):
            await desk.edits.edit(approval.id, "alice", EditBody(digest=approval.digest, content="2"))
    assert len(signals) == 1


async def test_an_answer_to_the_question_before_the_change_comes_too_late(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        waiting, approval = await asked(desk)
        again = await edited(desk, approval, content="x = 3\n")
        with pytest.raises(ConflictError, match="changed by alice"):
            await desk.approvals.decide(approval.id, "alice", approve=True)
        with pytest.raises(ConflictError, match="changed by alice"):
            await desk.edits.edit(approval.id, "alice", EditBody(digest=approval.digest, content="x = 5\n"))
        assert signals == []
        await desk.approvals.reject_tool(again.id, "alice")
        await waiting


async def test_of_a_change_and_a_yes_at_once_one_counts(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        waiting, approval = await asked(desk)
        body = EditBody(digest=approval.digest, content="x = 3\n")
        results = await asyncio.gather(
            desk.edits.edit(approval.id, "alice", body),
            desk.approvals.decide(approval.id, "alice", approve=True),
            return_exceptions=True,
        )
        assert [isinstance(one, ConflictError) for one in results].count(True) == 1
        if isinstance(results[1], ConflictError):
            again = await desk.next_approval()
            await desk.approvals.approve_tool(again.id, "alice")
        await waiting
    assert len(signals) == 1


async def test_only_what_was_shown_can_be_changed(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        waiting, approval = await asked(desk)
        with pytest.raises(ConflictError, match="other parameters"):
            await desk.edits.edit(approval.id, "alice", EditBody(digest=OTHER, content="2"))
        with pytest.raises(NotFound):
            await desk.edits.edit(approval.id, "bob", EditBody(digest=approval.digest, content="2"))
        with pytest.raises(NotFound):
            await desk.edits.edit(
                approval.id, "alice", EditBody(digest=approval.digest, content="2"), project_id="proj_other"
            )
        with pytest.raises(NotFound):
            await desk.edits.editable(approval.id, "bob", reveal=True)
        with pytest.raises(EditProblem, match="'line' is no part of write_file"):
            await desk.edits.edit(approval.id, "alice", EditBody(digest=approval.digest, line="ls"))
        await desk.approvals.reject_tool(approval.id, "alice")
        await waiting


async def test_calls_that_joined_the_question_are_changed_alike_and_only_if_they_were_shown(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        one, approval = await asked(desk)
        other = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
        while len((await desk.approvals.get_pending_approvals("alice"))[0].tool_ids) < 2:
            await asyncio.sleep(0)
        with pytest.raises(ConflictError, match="2 identical calls wait"):
            await desk.edits.edit(approval.id, "alice", EditBody(digest=approval.digest, content="z"))
        again = await edited(desk, approval, content="z", calls=2)
        waits = await desk.next_approval()
        while len(waits.tool_ids) < 2:
            waits = await desk.next_approval()
        assert (waits.id, len(await desk.approvals.get_pending_approvals("alice"))) == (again.id, 1)
        # The agent's own call of the same content is another question: nobody changed it.
        same = asyncio.create_task(
            desk.executor.execute_tool("write_file", {"path": "a.py", "content": "z"}, desk.session.id)
        )
        while len(await desk.approvals.get_pending_approvals("alice")) < 2:
            await asyncio.sleep(0)
        await desk.approvals.decide(again.id, "alice", approve=True, calls=2)
        await asyncio.gather(one, other)
        assert [signal["tool_params"]["content"] for signal in signals] == ["z", "z"]
        [left] = await desk.approvals.get_pending_approvals("alice")
        assert left.edit is None
        await desk.approvals.reject_tool(left.id, "alice")
        await same


async def test_a_change_is_no_refusal(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        for number in range(4):
            waiting, approval = await asked(desk)
            again = await edited(desk, approval, content=f"z = {number}\n")
            await desk.approvals.reject_tool(again.id, "alice")
            assert (await waiting).status == "rejected"
        waiting, approval = await asked(desk)
        await desk.approvals.reject_tool(approval.id, "alice")
        await waiting


async def test_a_repeated_call_with_its_key_finds_the_changed_one(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        caller = Caller(agent_id="bot", key="k1")
        row = await desk.executor.call(*WRITE, desk.session, caller=caller, until_asked=True)
        again = await edited(desk, await desk.next_approval(), content="z")
        known = await desk.executor.call(*WRITE, desk.session, caller=caller, until_asked=True)
        assert (known.id, known.approval_id) == (row.id, again.id)
        with pytest.raises(ConflictError, match="idempotency key"):
            await desk.executor.call(
                "write_file", {"path": "a.py", "content": "z"}, desk.session, caller=caller, until_asked=True
            )
        await desk.approvals.reject_tool(again.id, "alice")


async def test_what_is_masked_must_be_revealed_to_be_changed(desk: Desk) -> None:
    content = f'token = "{SECRET}"\nx = 1\n'
    async with desk.client(lambda signal: completed()) as signals:
        waiting, approval = await asked(desk, ("write_file", {"path": "a.md", "content": content}))
        hidden = await desk.edits.editable(approval.id, "alice", reveal=False)
        assert (hidden.masked, hidden.content) == (True, None)
        shown = await desk.edits.editable(approval.id, "alice", reveal=True)
        assert shown.content == content
        masked = str(approval.tool_params["content"])
        assert SECRET not in masked
        with pytest.raises(EditProblem, match="masked part would be written as its mask"):
            await desk.edits.edit(
                approval.id, "alice", EditBody(digest=approval.digest, content=masked.replace("x = 1", "x = 2"))
            )
        again = await edited(desk, approval, content=content.replace("x = 1", "x = 2"))
        assert again.edit is not None
        assert SECRET not in again.model_dump_json()
        await desk.approvals.approve_tool(again.id, "alice")
        response = await waiting
    assert signals[0]["tool_params"]["content"] == content.replace("x = 1", "x = 2")
    assert SECRET not in response.model_dump_json()
    assert "+x = 2" in (response.edited or "")


async def test_what_may_be_changed_comes_as_it_is(desk: Desk) -> None:
    call = ("execute_command", {"command": "git", "args": ["commit", "-m", "one\ntwo 'three'"], "timeout": 45})
    async with desk.client(lambda signal: completed()):
        waiting, approval = await asked(desk, call)
        found = await desk.edits.editable(approval.id, "alice", reveal=False)
        assert (found.line, found.timeout, found.content) == (
            "git commit -m 'one\ntwo '\"'\"'three'\"'\"''",
            45,
            None,
        )
        again = await edited(desk, approval, line=f"{found.line} --amend")
        assert again.tool_params["args"] == ["commit", "-m", "one\ntwo 'three'", "--amend"]
        await desk.approvals.reject_tool(again.id, "alice")
        await waiting


async def test_long_content_is_changed_whole_and_shown_whole_beside_what_was_asked(desk: Desk) -> None:
    content = "".join(f"line {number}\n" for number in range(4000))
    async with desk.client(lambda signal: completed()) as signals:
        waiting, approval = await asked(desk, ("write_file", {"path": "a.md", "content": content}))
        assert "content_size" in approval.tool_params
        found = await desk.edits.editable(approval.id, "alice", reveal=False)
        assert found.content == content
        again = await edited(desk, approval, content=content + "more\n")
        change = await desk.approvals.change(again.id, "alice")
        assert (change.asked, change.change.after) == (content, content + "more\n")
        await desk.approvals.approve_tool(again.id, "alice")
        response = await waiting
        assert signals[0]["tool_params"]["content"] == content + "more\n"
        assert (response.edited or "").endswith("Read the file to see it.")
        longer = asyncio.create_task(
            desk.executor.execute_tool("write_file", {"path": "a.md", "content": "x" * 300_000}, desk.session.id)
        )
        approval = await desk.next_approval()
        with pytest.raises(EditProblem, match="too long to be changed here"):
            await desk.edits.editable(approval.id, "alice", reveal=False)
        await desk.approvals.reject_tool(approval.id, "alice")
        await longer


async def test_a_file_that_the_machine_cannot_show_for_the_changed_call_fails_it_and_says_so(desk: Desk) -> None:
    def sees(request: JsonObject) -> Inspection:
        known = request["tool_params"]["args"] == ["x.py"]
        return script() if known else Inspection(files=[], problem="Refused on this machine: no.")

    async with desk.client(lambda signal: completed(), sees=sees) as signals:
        waiting, approval = await asked(desk, PYTHON)
        answer = await desk.edits.edit(approval.id, "alice", EditBody(digest=approval.digest, line="python y.py"))
        assert answer.approval_id is None
        assert answer.message == "Nobody can be asked about it as you changed it: Refused on this machine: no."
        response = await waiting
    assert (response.status, signals) == ("failed", [])
    assert response.edited is not None


async def test_without_a_machine_a_changed_write_is_asked_about_at_once(desk: Desk) -> None:
    waiting, approval = await asked(desk)
    again = await edited(desk, approval, content="z")
    assert again.inspection is None
    await desk.approvals.reject_tool(again.id, "alice")
    await waiting


async def test_a_changed_call_that_waits_for_a_machine_is_inspected_by_the_next_one(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), sees=lambda request: script()):
        waiting, approval = await asked(desk, PYTHON)
    body = EditBody(digest=approval.digest, line="python x.py --verbose")
    answer = await desk.edits.edit(approval.id, "alice", body)
    assert (answer.approval_id, answer.message) == (
        None,
        "It is asked about as you changed it, once the machine has looked.",
    )
    async with desk.client(lambda signal: completed(), client_id="c2", sees=lambda request: script()):
        again = await desk.next_approval()
        assert again.edit is not None
        await desk.approvals.approve_tool(again.id, "alice")
        assert (await waiting).status == "completed"


async def test_a_machine_that_does_not_look_is_told_to_the_person_also_after_a_change(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), looks=False):
        waiting, approval = await asked(desk, PYTHON)
        again = await edited(desk, approval, line="python x.py --verbose")
        assert any(finding.rule == "machine.looks" for finding in again.findings)
        assert again.edit is not None
        await desk.approvals.reject_tool(again.id, "alice")
        await waiting


async def test_the_query_of_a_search_can_be_changed(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(results=[])) as signals:
        waiting, approval = await asked(desk, ("search_web", {"query": "our secret project"}))
        again = await edited(desk, approval, query="a project")
        await desk.approvals.approve_tool(again.id, "alice")
        await waiting
    assert signals[0]["tool_params"]["query"] == "a project"


async def test_a_question_without_a_call_has_nothing_to_change(desk: Desk) -> None:
    approval = await desk.approvals.request_tool_approval("alice", "write_file", dict(WRITE[1]), "MEDIUM", 60)
    with pytest.raises(EditProblem, match="nothing in this call"):
        await desk.edits.editable(approval.id, "alice", reveal=True)


async def test_one_write_of_several_is_changed_and_the_others_wait_as_they_were(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), replaces=replaced) as signals:
        calls = [
            asyncio.create_task(
                desk.executor.execute_tool("write_file", {"path": name, "content": name}, desk.session.id)
            )
            for name in ("a.py", "b.py", "c.py")
        ]
        while len(waiting := await desk.approvals.get_pending_approvals("alice")) < 3:
            await asyncio.sleep(0)
        middle = next(one for one in waiting if one.tool_params["path"] == "b.py")
        again = await edited(desk, middle, content="changed")
        for one in await desk.approvals.get_pending_approvals("alice"):
            await desk.approvals.approve_tool(one.id, "alice")
        await asyncio.gather(*calls)
    assert again.tool_params["path"] == "b.py"
    assert sorted(signal["tool_params"]["content"] for signal in signals) == ["a.py", "c.py", "changed"]


def replaced(request: JsonObject) -> Inspection:
    path = request["tool_params"]["path"]
    return Inspection(files=[SeenFile(path=path, role=SeenRole.REPLACES, sha256=DIGEST, size=3, text="old")])
