"""A grant covers the agent it was given to: knowing a session's id is not enough to use what was granted there."""

import asyncio

import pytest

from byleave.calls.approvals import foresee_answer
from byleave.calls.executor import Caller
from byleave.calls.grants import Asked
from byleave.gate.policy.grants import call_of
from byleave.protocol.grants import GrantRule, GrantTerms
from byleave.protocol.states import AgentMode, ApprovalScope, RiskLevel
from byleave.protocol.verdicts import VerdictLevel
from byleave.store.grants import GrantRow
from harness.desk import Desk, completed
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("G8")

BELOW_SRC = GrantRule(tool="write_file", paths=("src/**",))


def write(path: str) -> tuple[str, JsonObject]:
    return "write_file", {"path": path, "content": "x = 1\n"}


async def in_chat(desk: Desk, agent: str = "chat") -> Caller:
    """The chat's own agent, at work on a run of the session."""
    await desk.store.chat.post(
        "alice", desk.project.id, "go", session_id=desk.session.id, mode=AgentMode.SANDBOX, agent=agent
    )
    run = await desk.store.runs.claim("worker")
    assert run is not None
    return Caller(run_id=run.id, fence=run.fence, agent_id=run.agent)


@pytest.mark.parametrize(
    ("scope", "terms"),
    [
        (ApprovalScope.CLASS, GrantTerms(rule=BELOW_SRC)),
        (ApprovalScope.SESSION, GrantTerms(warned=True)),
    ],
)
@pytest.mark.parametrize("given_in_chat", [True, False])
async def test_what_is_granted_to_the_chat_is_not_granted_to_calls_from_elsewhere_nor_the_reverse(
    desk: Desk, scope: ApprovalScope, terms: GrantTerms, given_in_chat: bool
) -> None:
    chat, elsewhere = await in_chat(desk), Caller(agent_id="another")
    mine, other = (chat, elsewhere) if given_in_chat else (elsewhere, chat)
    async with desk.client(lambda signal: completed()):
        call = asyncio.create_task(desk.executor.execute_tool(*write("src/a.py"), desk.session.id, caller=mine))
        approval = await desk.next_approval()
        waits = asyncio.create_task(desk.executor.execute_tool(*write("src/w.py"), desk.session.id, caller=other))
        async with asyncio.timeout(10):
            while len(await desk.approvals.get_pending_approvals("alice")) < 2:
                await asyncio.sleep(0.01)
        decided = await desk.approvals.decide(approval.id, "alice", approve=True, scope=scope, terms=terms)
        assert decided.released == ()
        await call
        again = await desk.executor.execute_tool(*write("src/b.py"), desk.session.id, caller=mine)
        assert again.status == "completed"
        await desk.approvals.reject_tool((await desk.next_approval()).id, "alice")
        assert (await waits).status == "rejected"
        row = await desk.executor.call(*write("src/c.py"), desk.session, caller=other, until_asked=True)
        assert row.status == "awaiting_approval"


async def is_granted(desk: Desk) -> bool:
    """True if a write below src would not be asked about, as a person can find out beforehand."""
    call = call_of(*write("src/b.py"), None, None)
    asked = Asked(call, "alice", desk.project.id, VerdictLevel.MEDIUM, always_asks=False, network=False, bound={})
    return isinstance(await foresee_answer(desk.store, desk.session, "{}", "digest", asked), GrantRow)


@pytest.mark.parametrize(
    ("scope", "terms"),
    [
        (ApprovalScope.CLASS, GrantTerms(rule=BELOW_SRC)),
        (ApprovalScope.SESSION, GrantTerms(warned=True)),
    ],
)
async def test_what_is_granted_to_one_agent_of_the_chat_is_not_granted_to_the_next(
    desk: Desk, scope: ApprovalScope, terms: GrantTerms
) -> None:
    chat = await in_chat(desk)
    async with desk.client(lambda signal: completed()):
        call = asyncio.create_task(desk.executor.execute_tool(*write("src/a.py"), desk.session.id, caller=chat))
        await desk.approvals.decide((await desk.next_approval()).id, "alice", approve=True, scope=scope, terms=terms)
        await call
        assert await is_granted(desk)
        run = await desk.store.runs.get(chat.run_id or "", user_id="alice")
        await desk.store.runs.finish(run, history=None, answer="done")
        reviewer = await in_chat(desk, "reviewer")
        assert not await is_granted(desk)
        row = await desk.executor.call(*write("src/b.py"), desk.session, caller=reviewer, until_asked=True)
        assert row.status == "awaiting_approval"


async def test_a_question_about_no_valid_call_takes_no_class(desk: Desk) -> None:
    asked = await desk.approvals.request_tool_approval(
        "alice", "execute_command", {"command": "git"}, RiskLevel.MEDIUM, 60, session_id=desk.session.id
    )
    rule = GrantRule(tool="execute_command", command=("git", "status"))
    with pytest.raises(Exception, match="does not cover"):
        await desk.approvals.decide(
            asked.id, "alice", approve=True, scope=ApprovalScope.CLASS, terms=GrantTerms(rule=rule)
        )
