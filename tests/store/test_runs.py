"""Runs: claimed once, fenced, in order; messages and runs are made together."""

import pytest

from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.states import AgentMode, RunState
from byleave.store.chat import PAGE_CHARACTERS, Posted
from harness.records import Records


async def post(records: Records, content: str = "hello", session_id: str | None = None) -> Posted:
    return await records.store.chat.post(
        "alice", records.project.id, content, session_id=session_id, mode=AgentMode.SANDBOX
    )


@pytest.mark.promise("W1", "W2", "R1")
async def test_a_message_opens_a_session_and_a_run_is_ready_for_it(records: Records) -> None:
    posted = await post(records, "  read\n package.json " + "x" * 200)
    session = await records.store.chat.session(posted.session_id, user_id="alice")
    assert session.title.startswith("read package.json xxx")
    assert len(session.title) == 80
    assert session.title.endswith("x…"), "a word too long for a title is cut, and that is seen"
    run = await records.store.runs.get(posted.run_id, user_id="alice")
    assert run.state is RunState.READY
    assert await records.kinds() == ["chat.message", "chat.run"]


async def test_a_title_ends_with_a_whole_word(records: Records) -> None:
    posted = await post(records, "write the notes of today " * 20)
    session = await records.store.chat.session(posted.session_id, user_id="alice")
    assert session.title == "write the notes of today write the notes of today write the notes of today…"
    assert (await post(records, session_id=posted.session_id)).session_id == posted.session_id
    assert [message.role for message in await records.store.chat.messages("alice", posted.session_id)] == ["user"] * 2


async def test_a_message_into_a_foreign_or_unknown_session_is_not_found(records: Records) -> None:
    other = await records.store.chat.create_project("alice", "other")
    elsewhere = await records.store.chat.create_session("alice", other.id, "elsewhere")
    for session_id in ("sess_unknown", elsewhere.id):
        with pytest.raises(NotFound):
            await post(records, session_id=session_id)
    foreign = await records.store.chat.create_session("mallory", records.project.id, "foreign")
    with pytest.raises(NotFound):
        await post(records, session_id=foreign.id)
    with pytest.raises(NotFound):
        await records.store.chat.messages("alice", foreign.id)
    assert foreign.id not in [row.id for row in await records.store.chat.sessions("alice", records.project.id)]


async def test_runs_of_one_session_go_one_after_the_other(records: Records) -> None:
    first = await post(records)
    records.clock.turn(1)
    second = await post(records, session_id=first.session_id)
    records.clock.turn(1)
    other = await post(records)
    claimed = await records.store.runs.claim("w1")
    assert claimed is not None
    assert claimed.id == first.run_id
    elsewhere = await records.store.runs.claim("w2")
    assert elsewhere is not None
    assert elsewhere.id == other.run_id
    assert await records.store.runs.claim("w3") is None
    await records.store.runs.finish(claimed, history='["h"]', answer="done")
    following = await records.store.runs.claim("w3")
    assert following is not None
    assert following.id == second.run_id
    assert await records.store.runs.earlier_history(following) == '["h"]'
    assert await records.store.runs.earlier_history(claimed) is None


async def test_a_worker_that_lost_its_lease_changes_nothing_any_more(records: Records) -> None:
    posted = await post(records)
    zombie = await records.store.runs.claim("w1")
    assert zombie is not None
    assert not await records.store.runs.renew([(posted.run_id, zombie.fence)])
    records.clock.turn(16)
    heir = await records.store.runs.claim("w2")
    assert heir is not None
    assert (heir.id, heir.fence, heir.attempts) == (zombie.id, zombie.fence + 1, 2)
    assert await records.store.runs.renew([(posted.run_id, zombie.fence)]) == {posted.run_id}
    for write in (
        records.store.runs.checkpoint(zombie.id, zombie.fence, "[]"),
        records.store.runs.say(zombie, "from the grave"),
        records.store.runs.finish(zombie, history=None, answer="from the grave"),
        records.store.runs.fail(zombie, error="from the grave"),
    ):
        with pytest.raises(ConflictError) as conflict:
            await write
        assert conflict.value.state == "fenced"
    await records.store.runs.checkpoint(heir.id, heir.fence, '["kept"]')
    kept = await records.store.runs.get(heir.id, user_id="alice")
    assert (kept.history, kept.attempts) == ('["kept"]', 0)


@pytest.mark.sqlite
async def test_after_a_restart_every_run_is_free_at_once(records: Records) -> None:
    await post(records)
    assert await records.store.runs.claim("w1") is not None
    assert await records.store.runs.claim("w2") is None
    assert await records.store.runs.recover() == 1
    assert await records.store.runs.claim("w2") is not None


@pytest.mark.promise("W13")
async def test_an_answer_reaches_the_chat_and_a_failure_says_what_to_do(records: Records) -> None:
    await post(records)
    run = await records.store.runs.claim("w1")
    assert run is not None
    await records.store.runs.say(run, "the ver")
    await records.store.runs.finish(run, history=None, answer="the version is 1")
    await post(records, session_id=run.session_id)
    second = await records.store.runs.claim("w1")
    assert second is not None
    await records.store.runs.fail(second, error="The model is gone.", hint="try later")
    kinds = await records.kinds()
    assert [kind for kind in kinds if kind in ("chat.text", "chat.error")] == ["chat.text", "chat.error"]
    messages = await records.store.chat.messages("alice", run.session_id)
    assert [(message.role, message.content) for message in messages] == [
        ("user", "hello"),
        ("agent", "the version is 1"),
        ("user", "hello"),
    ]
    assert (await records.store.runs.get(second.id, user_id="alice")).error == "The model is gone."


async def test_a_stopped_run_is_stopped_for_its_worker_too(records: Records) -> None:
    posted = await post(records)
    run = await records.store.runs.claim("w1")
    assert run is not None
    with pytest.raises(NotFound):
        await records.store.runs.cancel(posted.run_id, user_id="mallory")
    await records.store.runs.cancel(posted.run_id, user_id="alice")
    with pytest.raises(ConflictError):
        await records.store.runs.checkpoint(run.id, run.fence, "[]")
    with pytest.raises(ConflictError, match="already"):
        await records.store.runs.cancel(posted.run_id, user_id="alice")


async def test_projects_are_their_owners_alone(records: Records) -> None:
    assert await records.store.chat.owns("alice", records.project.id)
    assert await records.store.chat.owns("alice", records.project.id)
    assert not await records.store.chat.owns("mallory", records.project.id)
    assert not await records.store.chat.owns("alice", "proj_unknown")
    assert [project.name for project in await records.store.chat.projects("alice")] == ["demo"]
    assert await records.store.chat.projects("mallory") == []
    await records.store.chat.remember_machine(records.project.id, "/ws", "bwrap")
    project = await records.store.chat.project(records.project.id)
    assert project is not None
    assert (project.workspace, project.isolation) == ("/ws", "bwrap")
    assert (project.to_wire().name, records.session.to_wire().title) == ("demo", "first")


async def test_a_session_asked_for_twice_is_one(records: Records) -> None:
    first = await records.store.chat.ensure_session("sess_x", "alice", records.project.id, "calls")
    assert await records.store.chat.ensure_session("sess_x", "alice", records.project.id, "calls") == first
    with pytest.raises(NotFound):
        await records.store.chat.ensure_session("sess_x", "mallory", records.project.id, "calls")


async def test_only_the_newest_run_of_a_session_keeps_the_conversation(records: Records) -> None:
    store, session = records.store, records.session.id

    async def worked(history: str | None) -> str:
        content = "go on"
        posted = await store.chat.post("alice", records.project.id, content, session_id=session, mode=AgentMode.SANDBOX)
        run = await store.runs.claim("w1")
        assert run is not None
        if history is None:
            await store.runs.fail(run, error="It failed before its first step.")
        else:
            await store.runs.finish(run, history=history, answer="done")
        return posted.run_id

    async def kept() -> list[str | None]:
        return [(await store.runs.get(run_id, user_id="alice")).history for run_id in runs]

    runs = [await worked("one")]
    runs.append(await worked("one two"))
    assert await kept() == [None, "one two"]
    runs.append(await worked(None))
    assert await kept() == [None, "one two", None], "the next run begins with it"
    runs.append(await worked("one two four"))
    assert await kept() == [None, None, None, "one two four"]


async def test_a_page_of_long_messages_has_fewer_of_them(records: Records) -> None:
    chat, session = records.store.chat, records.session.id
    ids = [
        (await chat.post("alice", records.project.id, text, session_id=session, mode=AgentMode.SANDBOX)).message_id
        for text in ("first", "a" * PAGE_CHARACTERS, "b" * (PAGE_CHARACTERS // 2), "c" * (PAGE_CHARACTERS // 2), "last")
    ]
    found: list[tuple[list[str], bool]] = []
    before = None
    for _ in range(4):
        rows, more = await chat.message_page("alice", session, 3, before)
        before = rows[0].id
        found.append(([row.id for row in rows], more))
    assert found == [([ids[3], ids[4]], True), ([ids[2]], True), ([ids[1]], True), ([ids[0]], False)]
