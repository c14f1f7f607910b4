"""Answers that reach further than one call: what they cover, when they end, and what they never touch."""

import asyncio
import json

import pytest

from byleave.calls.executor import Caller
from byleave.calls.grants import GrantProblem
from byleave.protocol.approvals import ApprovalRequest
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.executions import ToolResponse
from byleave.protocol.grants import GrantRule, GrantTerms
from byleave.protocol.states import ApprovalScope
from byleave.protocol.wire import moment
from byleave.store import SessionRow
from byleave.store.database import Row, Transaction
from byleave.store.ledger import feed_topic
from harness.desk import Desk, completed
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("G8")

CLASS, SESSION, ONCE = ApprovalScope.CLASS, ApprovalScope.SESSION, ApprovalScope.ONCE
BELOW_SRC = GrantRule(tool="write_file", paths=("src/**",))


def write(path: str) -> tuple[str, JsonObject]:
    return "write_file", {"path": path, "content": "x = 1\n"}


def git(*args: str) -> tuple[str, JsonObject]:
    return "execute_command", {"command": "git", "args": list(args)}


async def ask(desk: Desk, call: tuple[str, JsonObject]) -> tuple[asyncio.Task[ToolResponse], ApprovalRequest]:
    """Make a call that asks; the call goes on in the background."""
    waiting = asyncio.create_task(desk.executor.execute_tool(*call, desk.session.id))
    approval = await desk.next_approval()
    return waiting, approval


async def grant(desk: Desk, call: tuple[str, JsonObject], scope: ApprovalScope, terms: GrantTerms) -> str:
    """Make a call and answer it with a grant; the grant's id."""
    waiting, approval = await ask(desk, call)
    decided = await desk.approvals.decide(approval.id, "alice", approve=True, scope=scope, terms=terms)
    assert (await waiting).status == "completed"
    assert decided.grant is not None
    return decided.grant.id


async def approved_by(desk: Desk, response: ToolResponse) -> str | None:
    return (await desk.store.executions.get(response.tool_id, user_id="alice")).approved_by


async def test_a_class_covers_calls_of_its_kind_and_names_itself_in_the_record(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        grant_id = await grant(desk, write("src/a.py"), CLASS, GrantTerms(rule=BELOW_SRC))
        response = await desk.executor.execute_tool(*write("src/deep/b.py"), desk.session.id)
        assert response.status == "completed"
        assert await approved_by(desk, response) == f"grant:{grant_id}"
        assert signals[-1]["approved_by"] == f"grant:{grant_id}"
    [shown] = await desk.approvals.grants("alice")
    assert (shown.id, shown.uses, shown.rule, shown.status) == (grant_id, 1, BELOW_SRC, "active")
    assert shown.created_by == "person:alice"


@pytest.mark.parametrize(
    "call",
    [
        write("docs/a.md"),
        write("src/../docs/a.md"),
        write("src/package.json"),
        write("src/run.sh"),
        git("commit", "-m", "x"),
    ],
)
async def test_a_class_leaves_everything_else_to_a_person(desk: Desk, call: tuple[str, JsonObject]) -> None:
    async with desk.client(lambda signal: completed()):
        await grant(desk, write("src/a.py"), CLASS, GrantTerms(rule=BELOW_SRC))
        waiting, approval = await ask(desk, call)
        await desk.approvals.reject_tool(approval.id, "alice")
        assert (await waiting).status == "rejected"


async def test_source_code_is_granted_with_its_kind_named(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        waiting, approval = await ask(desk, write("src/cmd/main.go"))
        assert approval.risk_level == "HIGH"
        rule = approval.suggestions[-1].rule
        assert rule.paths == ("src/**", "src/**/*.go")
        terms = GrantTerms(rule=rule)
        decided = await desk.approvals.decide(approval.id, "alice", approve=True, scope=CLASS, terms=terms)
        assert (await waiting).status == "completed"
        assert decided.grant is not None
        for path in ("src/lib/other.go", "src/a.py"):
            response = await desk.executor.execute_tool(*write(path), desk.session.id)
            assert await approved_by(desk, response) == f"grant:{decided.grant.id}"
        for path in ("src/lib/a.rs", "src/go.mod", "src/run.sh", "cmd/main.go"):
            waiting, approval = await ask(desk, write(path))
            await desk.approvals.reject_tool(approval.id, "alice")
            assert (await waiting).status == "rejected"


async def test_all_git_can_be_granted_and_covers_its_medium_uses_only(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        rule = GrantRule(tool="execute_command", command=("git",))
        await grant(desk, git("status"), CLASS, GrantTerms(rule=rule))
        assert (await desk.executor.execute_tool(*git("log", "-3"), desk.session.id)).status == "completed"
        waiting, approval = await ask(desk, git("push", "--force"))
        assert approval.risk_level == "HIGH"
        assert approval.suggestions == []
        await desk.approvals.reject_tool(approval.id, "alice")
        await waiting
        refused = await desk.executor.execute_tool(*git("-c", "core.pager=id", "log"), desk.session.id)
        assert (refused.status, refused.error_type) == ("failed", "refused")


async def test_calls_that_already_wait_go_with_the_grant_that_covers_them(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        first, approval = await ask(desk, write("src/a.py"))
        calls = [write("src/b.py"), write("src/c.py"), write("src/c.py"), write("docs/d.md")]
        others = [asyncio.create_task(desk.executor.execute_tool(*call, desk.session.id)) for call in calls]
        waiting = []
        while sum(len(one.tool_ids) for one in waiting) < 5:  # one question is about two calls
            waiting = await desk.approvals.get_pending_approvals("alice")
        decided = await desk.approvals.decide(
            approval.id, "alice", approve=True, scope=CLASS, terms=GrantTerms(rule=BELOW_SRC)
        )
        assert len(decided.released) == 3
        done = await asyncio.gather(first, *others[:3])
        assert [response.status for response in done] == ["completed"] * 4
        [left] = await desk.approvals.get_pending_approvals("alice")
        assert left.tool_params["path"] == "docs/d.md"
        assert left.id in {one.id for one in waiting}
        await desk.approvals.reject_tool(left.id, "alice")
        await others[3]
    [shown] = await desk.approvals.grants("alice")
    assert shown.uses == 3
    events, *_ = await desk.store.feed.after(desk.project.id, 0, client_id=None, limit=1000)
    decisions = [json.loads(event.payload) for event in events if event.kind == "tool.approval_decided"]
    assert {decision["grant_id"] for decision in decisions if decision["status"] == "approved"} == {shown.id}


async def test_of_many_calls_at_once_no_more_run_than_the_grant_has_uses(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        terms = GrantTerms(rule=BELOW_SRC, max_uses=3)
        await grant(desk, write("src/a.py"), CLASS, terms)
        calls = [
            asyncio.create_task(desk.executor.execute_tool(*write(f"src/{number}.py"), desk.session.id))
            for number in range(10)
        ]
        while len(waiting := await desk.approvals.get_pending_approvals("alice")) < 7:
            await asyncio.sleep(0)
        for one in waiting:
            await desk.approvals.reject_tool(one.id, "alice")
        ended = await asyncio.gather(*calls)
    assert sorted(response.status for response in ended) == ["completed"] * 3 + ["rejected"] * 7
    assert len(signals) == 4
    [shown] = await desk.approvals.grants("alice", all_of_them=True)
    assert (shown.status, shown.uses) == ("used_up", 3)
    assert await desk.approvals.grants("alice") == []


async def test_a_grant_ends_with_its_time(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        grant_id = await grant(desk, write("src/a.py"), CLASS, GrantTerms(rule=BELOW_SRC, expires_in_seconds=1))
        [shown] = await desk.approvals.grants("alice")
        while (await desk.approvals.grants("alice"))[:1]:
            await asyncio.sleep(0.05)
        waiting, approval = await ask(desk, write("src/b.py"))
        assert shown.id == grant_id
        await desk.approvals.reject_tool(approval.id, "alice")
        await waiting


async def test_a_revoked_grant_covers_nothing_any_more(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        grant_id = await grant(desk, write("src/a.py"), CLASS, GrantTerms(rule=BELOW_SRC))
        revoked = await desk.approvals.revoke_grant(grant_id, "alice")
        assert (revoked.status, revoked.revoked_by) == ("revoked", "person:alice")
        waiting, approval = await ask(desk, write("src/b.py"))
        await desk.approvals.reject_tool(approval.id, "alice")
        await waiting
        with pytest.raises(ConflictError, match="revoked already"):
            await desk.approvals.revoke_grant(grant_id, "alice")


async def test_another_users_grant_does_not_exist(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        grant_id = await grant(desk, write("src/a.py"), CLASS, GrantTerms(rule=BELOW_SRC))
    assert await desk.approvals.grants("bob", all_of_them=True) == []
    with pytest.raises(NotFound):
        await desk.approvals.revoke_grant(grant_id, "bob")


async def test_a_grant_holds_in_its_own_session_only(desk: Desk) -> None:
    other = await desk.store.chat.create_session("alice", desk.project.id, "second")
    async with desk.client(lambda signal: completed()):
        await grant(desk, write("src/a.py"), CLASS, GrantTerms(rule=BELOW_SRC))
        waiting = asyncio.create_task(desk.executor.execute_tool(*write("src/b.py"), other.id))
        approval = await desk.next_approval()
        await desk.approvals.reject_tool(approval.id, "alice")
        assert (await waiting).status == "rejected"


async def test_everything_needs_its_warning_and_still_asks_what_always_asks(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        waiting, approval = await ask(desk, write("src/a.py"))
        with pytest.raises(GrantProblem, match="ask, even for high-risk actions"):
            await desk.approvals.decide(approval.id, "alice", approve=True, scope=SESSION)
        assert (await desk.approvals.get_pending_approvals("alice"))[0].id == approval.id
        await desk.approvals.decide(approval.id, "alice", approve=True, scope=SESSION, terms=GrantTerms(warned=True))
        assert (await waiting).status == "completed"
        high = await desk.executor.execute_tool(*write("src/run.sh"), desk.session.id)
        assert high.status == "completed"
        for call in (write("package.json"), ("read_file", {"path": ".env"})):
            waiting, approval = await ask(desk, call)
            await desk.approvals.reject_tool(approval.id, "alice")
            await waiting
        refused = await desk.executor.execute_tool(*write("../x.py"), desk.session.id)
        assert refused.error_type == "refused"


@pytest.mark.parametrize(
    ("call", "scope", "terms", "because"),
    [
        (write("src/a.py"), CLASS, GrantTerms(), "needs its rule"),
        (write("src/a.py"), CLASS, GrantTerms(rule=GrantRule(tool="write_file", paths=("**",))), "whole workspace"),
        (write("src/a.py"), CLASS, GrantTerms(rule=GrantRule(tool="write_file", paths=("lib/**",))), "does not cover"),
        (write("src/a.py"), CLASS, GrantTerms(rule=GrantRule(tool="execute_command")), "every command"),
        (write("src/run.sh"), CLASS, GrantTerms(rule=BELOW_SRC), "asks every time"),
        (("read_file", {"path": ".env"}), CLASS, GrantTerms(rule=BELOW_SRC), "asks every time"),
        (write("src/a.py"), SESSION, GrantTerms(rule=BELOW_SRC, warned=True), "has no rule"),
        (write("src/a.py"), ONCE, GrantTerms(rule=BELOW_SRC), "takes no terms"),
        (git("status"), CLASS, GrantTerms(rule=BELOW_SRC), "does not cover"),
    ],
)
async def test_a_grant_that_may_not_be_decides_nothing(
    desk: Desk, call: tuple[str, JsonObject], scope: ApprovalScope, terms: GrantTerms, because: str
) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        waiting, approval = await ask(desk, call)
        with pytest.raises(GrantProblem, match=because):
            await desk.approvals.decide(approval.id, "alice", approve=True, scope=scope, terms=terms)
        assert [one.id for one in await desk.approvals.get_pending_approvals("alice")] == [approval.id]
        assert signals == []
        assert await desk.approvals.reject_tool(approval.id, "alice")
        await waiting


async def test_what_was_refused_three_times_stays_refused_under_a_grant(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        for _ in range(3):
            waiting, approval = await ask(desk, write("src/a.py"))
            await desk.approvals.reject_tool(approval.id, "alice")
            await waiting
        await grant(desk, write("src/b.py"), CLASS, GrantTerms(rule=BELOW_SRC))
        response = await desk.executor.execute_tool(*write("src/a.py"), desk.session.id)
        assert (response.status, response.error_type) == ("failed", "refused")


async def test_a_preview_counts_what_a_rule_would_have_covered_also_what_was_refused(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        for number, yes in enumerate((True, False, True)):
            waiting, approval = await ask(desk, write(f"src/{number}.py"))
            await desk.approvals.decide(approval.id, "alice", approve=yes)
            await waiting
        await desk.executor.execute_tool("read_file", {"path": "src/1.py"}, desk.session.id)
    found = await desk.approvals.preview_grant("alice", desk.project.id, BELOW_SRC)
    assert (found.looked_at, found.covered, len(found.refused)) == (4, 3, 1)
    assert found.sentence == "It would have covered 3 of your last 4 calls, among them 1 you refused."
    assert "src/1.py" in found.refused[0].description
    assert found.problem is None
    broad = await desk.approvals.preview_grant(
        "alice", desk.project.id, GrantRule(tool="execute_command", command=("python",))
    )
    assert (broad.covered, broad.problem is not None) == (0, True)


async def test_a_preview_covers_no_call_that_was_malformed(desk: Desk) -> None:
    for name in ("write_file", "read_file", "execute_command", "search_files", "nonsense"):
        response = await desk.executor.execute_tool(name, {"of another": "form"}, desk.session.id)
        assert response.error_type == "invalid"
    for rule in (BELOW_SRC, GrantRule(tool="execute_command", command=("git",)), GrantRule(tool="nonsense")):
        found = await desk.approvals.preview_grant("alice", desk.project.id, rule)
        assert (found.looked_at, found.covered) == (5, 0)


async def test_each_suggestion_of_a_question_can_be_saved_as_it_is(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        for number in range(20):
            waiting, approval = await ask(desk, write(f"src/{number}/deep/a.py"))
            assert approval.suggestions
            if number >= len(approval.suggestions):
                await desk.approvals.reject_tool(approval.id, "alice")
                await waiting
                break
            rule = approval.suggestions[number].rule
            decided = await desk.approvals.decide(
                approval.id, "alice", approve=True, scope=CLASS, terms=GrantTerms(rule=rule)
            )
            assert decided.grant is not None
            await desk.approvals.revoke_grant(decided.grant.id, "alice")
            await waiting


async def test_no_suggestion_spells_out_a_secret(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        secret = "ghp_" + "a1B2c3D4e5F6" * 3
        waiting, approval = await ask(desk, git("commit", "-m", f"Rotate\n\ntoken: {secret}"))
        assert secret not in approval.model_dump_json()
        await desk.approvals.reject_tool(approval.id, "alice")
        await waiting


async def test_grants_and_their_uses_are_in_the_audit_chain(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        grant_id = await grant(desk, write("src/a.py"), CLASS, GrantTerms(rule=BELOW_SRC))
        await desk.executor.execute_tool(*write("src/b.py"), desk.session.id)
        await desk.approvals.revoke_grant(grant_id, "alice")
    records = await _audit(desk)
    actions = [record["action"] for record in records if grant_id in record["detail"] or grant_id in record["actor"]]
    assert [action for action in actions if action.startswith("grant")] == ["granted", "grant_used", "grant_revoked"]


async def _audit(desk: Desk) -> list[Row]:
    def work(transaction: Transaction) -> list[Row]:
        return list(transaction.execute("SELECT action, actor, detail FROM audit ORDER BY seq").fetchall())

    return await desk.store.database.read(work)


PROJECT = ApprovalScope.PROJECT
WEEK = 7 * 24 * 3600


async def another_session(desk: Desk) -> SessionRow:
    return await desk.store.chat.ensure_session("sess_second", "alice", desk.project.id, "second")


async def grant_for_project(desk: Desk, call: tuple[str, JsonObject], terms: GrantTerms, caller: Caller) -> str:
    waiting = asyncio.create_task(desk.executor.execute_tool(*call, desk.session.id, caller=caller))
    approval = await desk.next_approval()
    decided = await desk.approvals.decide(approval.id, "alice", approve=True, scope=PROJECT, terms=terms)
    assert (await waiting).status == "completed"
    assert decided.grant is not None
    return decided.grant.id


EXACT = GrantTerms(rule=GrantRule(tool="execute_command", command=("git", "fetch"), exact=True))
FETCH = git("fetch")
BOT = Caller(agent_id="bot-0123456789ab")


async def test_a_project_grant_holds_in_every_session_of_the_project_for_the_agent_it_was_given_to(desk: Desk) -> None:
    other = await another_session(desk)
    async with desk.client(lambda signal: completed()) as signals:
        grant_id = await grant_for_project(desk, FETCH, EXACT, BOT)
        response = await desk.executor.execute_tool(*FETCH, other.id, caller=BOT)
        assert response.status == "completed"
        assert await approved_by(desk, response) == f"grant:{grant_id}"
        assert len(signals) == 2
    [shown] = await desk.approvals.grants("alice")
    assert (shown.scope, shown.agent_id, shown.uses, shown.text) == (
        "project",
        BOT.agent_id,
        1,
        "Run exactly git fetch.",
    )
    lasts = moment(shown.expires_at) - moment(shown.created_at)
    assert lasts.total_seconds() == WEEK
    assert [one.id for one in await desk.approvals.grants("alice", session_id=other.id)] == [grant_id]


@pytest.mark.parametrize(
    "caller",
    [
        Caller(agent_id="bot-ba9876543210"),
        Caller(agent_id="reviewer"),
        Caller(),
    ],
)
async def test_a_project_grant_is_of_no_use_to_another_agent(desk: Desk, caller: Caller) -> None:
    other = await another_session(desk)
    async with desk.client(lambda signal: completed()):
        await grant_for_project(desk, FETCH, EXACT, BOT)
        for session in (desk.session, other):
            waiting = asyncio.create_task(desk.executor.execute_tool(*FETCH, session.id, caller=caller))
            approval = await desk.next_approval()
            await desk.approvals.reject_tool(approval.id, "alice")
            assert (await waiting).status == "rejected"


async def test_a_project_grant_is_of_no_use_in_another_project(desk: Desk) -> None:
    elsewhere = await desk.store.chat.create_project("alice", "other")
    there = await desk.store.chat.ensure_session("sess_there", "alice", elsewhere.id, "there")
    async with desk.client(lambda signal: completed()):
        await grant_for_project(desk, FETCH, EXACT, BOT)
    waiting = asyncio.create_task(desk.executor.execute_tool(*FETCH, there.id, caller=BOT))
    news = asyncio.Event()
    stop = desk.bus.listen(feed_topic(elsewhere.id), lambda fact: news.set())
    while not (asked := await desk.approvals.get_pending_approvals("alice")):
        await news.wait()
        news.clear()
    stop()
    await desk.approvals.reject_tool(asked[0].id, "alice")
    assert (await waiting).status == "rejected"


async def test_a_project_grant_releases_what_waits_in_other_sessions_for_the_same_agent(desk: Desk) -> None:
    other = await another_session(desk)
    async with desk.client(lambda signal: completed()):
        calls = [
            asyncio.create_task(desk.executor.execute_tool(*FETCH, session.id, caller=caller))
            for session, caller in ((desk.session, BOT), (other, BOT), (other, Caller(agent_id="reviewer")))
        ]
        while len(asked := await desk.approvals.get_pending_approvals("alice")) < 3:
            await asyncio.sleep(0)
        first = next(one for one in asked if one.session_id == desk.session.id)
        decided = await desk.approvals.decide(first.id, "alice", approve=True, scope=PROJECT, terms=EXACT)
        assert len(decided.released) == 1
        assert [(await call).status for call in calls[:2]] == ["completed", "completed"]
        [left] = await desk.approvals.get_pending_approvals("alice")
        assert left.agent_id == "reviewer"
        await desk.approvals.reject_tool(left.id, "alice")
        await calls[2]


async def test_a_revoked_project_grant_asks_again_everywhere(desk: Desk) -> None:
    other = await another_session(desk)
    async with desk.client(lambda signal: completed()):
        grant_id = await grant_for_project(desk, FETCH, EXACT, BOT)
        await desk.approvals.revoke_grant(grant_id, "alice")
        waiting = asyncio.create_task(desk.executor.execute_tool(*FETCH, other.id, caller=BOT))
        approval = await desk.next_approval()
        await desk.approvals.reject_tool(approval.id, "alice")
        assert (await waiting).status == "rejected"


@pytest.mark.parametrize(
    ("scope", "terms", "because"),
    [
        (PROJECT, GrantTerms(), "needs its rule"),
        (PROJECT, GrantTerms(rule=GrantRule(tool="execute_command", command=("git", "push"))), "exact line"),
        (CLASS, EXACT.model_copy(update={"expires_in_seconds": 2 * 24 * 3600}), "24 hours at most"),
        (SESSION, GrantTerms(warned=True, expires_in_seconds=2 * 24 * 3600), "24 hours at most"),
    ],
)
async def test_a_grant_reaches_and_lasts_no_further_than_its_scope_allows(
    desk: Desk, scope: ApprovalScope, terms: GrantTerms, because: str
) -> None:
    async with desk.client(lambda signal: completed()):
        waiting, approval = await ask(desk, FETCH)
        with pytest.raises(GrantProblem, match=because):
            await desk.approvals.decide(approval.id, "alice", approve=True, scope=scope, terms=terms)
        await desk.approvals.reject_tool(approval.id, "alice")
        await waiting


def test_no_grant_lasts_longer_than_thirty_days() -> None:
    with pytest.raises(ValueError, match="less than or equal to 2592000"):
        GrantTerms(expires_in_seconds=31 * 24 * 3600)


async def test_the_audit_names_who_gave_a_project_grant_to_which_agent_until_when(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        await grant_for_project(desk, FETCH, EXACT, BOT)

    def work(transaction: Transaction) -> list[Row]:
        return list(transaction.execute("SELECT actor, detail FROM audit WHERE action = 'granted'", {}).fetchall())

    [link] = await desk.store.database.read(work)
    detail = json.loads(link["detail"])
    assert (link["actor"], detail["scope"], detail["agent"]) == ("person:alice", "project", BOT.agent_id)
    assert detail["expires_at"]
