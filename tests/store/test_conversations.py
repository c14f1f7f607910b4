"""Whole conversations in the record: renamed, found, deleted, while the chain holds."""

import json

import pytest

from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.grants import GrantRule
from byleave.protocol.states import AgentMode, ApprovalScope, RiskLevel
from byleave.protocol.wire import plain_json
from byleave.store import conversations
from byleave.store.approvals import Question
from byleave.store.chat import Posted
from byleave.store.grants import NewGrant
from harness.records import Records, answer, outside

pytestmark = [pytest.mark.promise("L8-conversations"), pytest.mark.usefixtures("database_url")]


async def talk(records: Records, text: str, reply: str = "done", *, session_id: str | None = None) -> Posted:
    """A message and its answer."""
    store = records.store
    posted = await store.chat.post("alice", records.project.id, text, session_id=session_id, mode=AgentMode.SANDBOX)
    run = await store.runs.claim("w1")
    assert run is not None
    await store.runs.say(run, reply[:3])
    await store.runs.finish(run, history=json.dumps([text, reply]), answer=reply)
    return posted


async def wrote(records: Records, session_id: str, name: str) -> None:
    """A write that a person allowed, with a grant for the conversation."""
    store = records.store
    params = plain_json({"path": name, "content": "x"})
    call = records.call(
        tool_name="write_file", key=name, params=params, risk_level=RiskLevel.MEDIUM, session_id=session_id
    )
    row = await begin(store, call, Question("write", 300), client_id="c1")
    grant = NewGrant(ApprovalScope.CLASS, GrantRule(tool="write_file", paths=("lib/**",)), "lib", 3600, 9)
    await answer(store, row.approval_id or "", user_id="alice", approve=True, client_id="c1", grant=grant)
    await settle(
        store, name, user_id="alice", project_id=records.project.id, client_id="c1", result="{}", result_hash="h"
    )


async def holds(records: Records) -> bool:
    return [check.fault for check in await records.store.audit.verify()] == [None]


async def everything_stored(records: Records) -> str:
    """All text of the tables that hold what was said."""
    with outside(records) as file:
        tables = ("sessions", "messages", "runs", "events", "message_keys", "audit")
        return "\n".join(str(row) for table in tables for row in file.rows(f"SELECT * FROM {table}"))


async def test_renamed_conversation_has_its_new_title_and_the_chain_holds(records: Records) -> None:
    renamed = await records.store.conversations.rename("alice", records.session.id, "Release 2")
    assert renamed.title == "Release 2"
    assert [session.title for session in await records.store.chat.sessions("alice", records.project.id)] == [
        "Release 2"
    ]
    assert (await records.kinds())[-1] == "chat.session"
    assert await holds(records)


@pytest.mark.promise("R-user")
async def test_nobody_renames_finds_or_deletes_what_is_anothers(records: Records) -> None:
    posted = await talk(records, "the secret plan")
    for attempt in (
        records.store.conversations.rename("mallory", posted.session_id, "mine"),
        records.store.conversations.delete("mallory", posted.session_id),
        records.store.conversations.changing_calls("mallory", posted.session_id),
        records.store.conversations.is_at_work("mallory", posted.session_id),
    ):
        with pytest.raises(NotFound):
            await attempt
    search = await records.store.conversations.search("mallory", records.project.id, "secret")
    assert search.found == []


@pytest.mark.promise("D")
async def test_deleted_conversation_leaves_nothing_that_was_said_and_a_chain_that_holds(records: Records) -> None:
    store = records.store
    kept = await talk(records, "keep this conversation")
    gone = await talk(records, "the codename is Falcon", "Falcon it is")
    await talk(records, "and the second is Heron", "Heron too", session_id=gone.session_id)
    await wrote(records, gone.session_id, "a.txt")
    assert "Falcon" in await everything_stored(records)

    await store.conversations.delete("alice", gone.session_id)

    said = await everything_stored(records)
    assert not [word for word in ("Falcon", "Heron") if word in said]
    assert "keep this conversation" in said
    assert await holds(records)
    with pytest.raises(NotFound):
        await store.chat.messages("alice", gone.session_id)
    with pytest.raises(NotFound):
        await store.chat.post("alice", records.project.id, "again", session_id=gone.session_id, mode=AgentMode.SANDBOX)
    listed = [session.id for session in await store.chat.sessions("alice", records.project.id)]
    assert (kept.session_id in listed, gone.session_id in listed) == (True, False)
    # What was done stays, and so does who allowed it; what was granted in it ends.
    execution = await store.executions.get("a.txt", user_id="alice")
    assert (execution.session_id, execution.approved_by) == (gone.session_id, "person:alice")
    (grant,), _ = await store.grants.page("alice", all_of_them=True)
    assert grant.revoked_by == "user:alice"
    actions = [record.action for record in await store.audit.records(records.project.id)]
    assert {"conversation_deleted", "erased", "grant_revoked"} <= set(actions)
    events, *_ = await store.feed.after(records.project.id, 0, client_id=None, limit=1000)
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert json.loads(events[-1].payload) | {"timestamp": ""} == {
        "kind": "chat.session", "session_id": gone.session_id, "title": "", "deleted": True, "timestamp": "",
    }  # fmt: skip


async def test_conversation_with_many_messages_is_deleted_in_pieces_of_the_chain(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "ERASED_AT_ONCE", 3)
    first = await talk(records, "one")
    for text in ("two", "three", "four"):
        await talk(records, text, session_id=first.session_id)
    await records.store.conversations.delete("alice", first.session_id)
    erased = [one for one in await records.store.audit.records(records.project.id) if one.action == "erased"]
    assert [len(json.loads(one.detail)["was"]) for one in erased] == [3, 3, 2, 3, 1]
    assert await holds(records)


@pytest.mark.parametrize("table", ["messages", "runs"])
async def test_message_removed_behind_the_servers_back_still_shows(records: Records, table: str) -> None:
    posted = await talk(records, "hello")
    with outside(records) as file:
        file.do(f"DELETE FROM {table} WHERE session_id = ?", (posted.session_id,))
    assert not await holds(records)


async def test_link_that_erases_calls_is_a_fault(records: Records) -> None:
    from byleave.store.ledger import ERASED, Ledger, row_digest

    await wrote(records, records.session.id, "a.txt")

    def work(transaction):  # type: ignore[no-untyped-def]
        row = transaction.execute("SELECT * FROM tool_executions").fetchone()
        transaction.execute("DELETE FROM tool_executions")
        with Ledger(transaction, records.project.id) as ledger:
            was = {f"tool_executions/{row['id']}": row_digest("tool_executions", row)}
            ledger.audit(ERASED, "server", was=was)

    await records.store.database.write(work)
    (check,) = await records.store.audit.verify()
    assert check.fault is not None
    assert "never removed" in check.fault


async def test_conversation_in_which_an_agent_works_is_not_deleted(records: Records) -> None:
    store = records.store
    posted = await store.chat.post(
        "alice", records.project.id, "go", session_id=records.session.id, mode=AgentMode.SANDBOX
    )
    with pytest.raises(ConflictError, match="at work") as conflict:
        await store.conversations.delete("alice", records.session.id)
    assert conflict.value.state == "working"
    await store.runs.cancel(posted.run_id, user_id="alice")
    await begin(store, records.call(), Clearance("risk:LOW"), client_id="c1")
    with pytest.raises(ConflictError, match="at work"):
        await store.conversations.delete("alice", records.session.id)
    assert await store.conversations.is_at_work("alice", records.session.id)
    assert await holds(records)


async def test_agents_own_conversation_begins_again_after_it_was_deleted(records: Records) -> None:
    store = records.store
    own = await store.chat.ensure_session("own_1", "alice", records.project.id, "builder")
    await store.conversations.rename("alice", own.id, "Nightly builds")
    await store.conversations.delete("alice", own.id)
    store.chat.forget_sessions()  # as the server does when it hears of it
    records.clock.turn(60)
    again = await store.chat.ensure_session("own_1", "alice", records.project.id, "builder")
    assert (again.title, again.created_at > own.created_at) == ("builder", True)
    assert own.id in [session.id for session in await store.chat.sessions("alice", records.project.id)]
    assert await holds(records)


async def test_server_hears_that_a_session_changed(records: Records) -> None:
    await records.store.conversations.rename("alice", records.session.id, "new")
    assert conversations.SESSIONS_TOPIC in [hint.topic for hint in records.hints]


async def test_search_finds_titles_and_messages_in_any_case_and_spacing(records: Records) -> None:
    store = records.store
    first = await talk(records, "Bitte ÄNDERE die Datei", "Fertig.")
    records.clock.turn(1)
    second = await talk(records, "look for the\n  needle in a " + "long " * 100 + "haystack", "The Needle is there")
    await store.conversations.rename("alice", first.session_id, "Umlaute")

    async def found(text: str) -> list[tuple[str, int]]:
        search = await store.conversations.search("alice", records.project.id, text)
        assert search.complete
        return [(each.session.id, each.messages) for each in search.found]

    assert await found("ändere") == [(first.session_id, 1)]
    assert await found("umlaut") == [(first.session_id, 0)]
    assert await found("THE needle") == [(second.session_id, 2)]
    assert await found("50%") == []
    assert await found("(a") == []
    (match,) = (await store.conversations.search("alice", records.project.id, "for the needle")).found
    assert match.excerpt is not None
    assert match.excerpt.startswith("look for the needle in a")
    assert match.excerpt.endswith("…")
    (newest,) = (await store.conversations.search("alice", records.project.id, "needle")).found
    assert newest.excerpt == "The Needle is there"


async def test_search_that_has_too_much_to_look_through_says_so(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "SEARCHED_AT_ONCE", 2)
    for number in range(3):
        await talk(records, f"message {number}")
    whole = await records.store.conversations.search("alice", records.project.id, "message")
    assert (len(whole.found), whole.complete) == (3, True)
    monkeypatch.setattr(conversations, "MOST_SEARCHED", 2)
    part = await records.store.conversations.search("alice", records.project.id, "message")
    assert not part.complete


async def test_calls_that_may_have_changed_something_come_without_their_texts(records: Records) -> None:
    store = records.store
    await wrote(records, records.session.id, "a.txt")
    await begin(store, records.call(key="read"), Clearance("risk:LOW"), client_id="c1")
    other = await store.chat.create_session("alice", records.project.id, "other")
    await wrote(records, other.id, "b.txt")
    (call,), complete = await store.conversations.changing_calls("alice", records.session.id)
    assert (call.id, call.tool_name, call.params["path"], complete) == ("a.txt", "write_file", "a.txt", True)
    assert "content" not in call.params
