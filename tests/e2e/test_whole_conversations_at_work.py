"""Whole conversations, the whole way: a real server, a real client with real files, and people with tokens."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from byleave.client.api import ServerApi
from byleave.protocol.changes import UndoBody
from byleave.protocol.errors import CallerError, ConflictError, NotFound, RefusedError
from byleave.protocol.states import Scope
from byleave.workspace.paths import PathValidator
from byleave.workspace.undo.restoring import UndoHistory
from harness.household import Household, open_household

UNDO = pytest.mark.promise("L8-undo-all")
WHOLE = pytest.mark.promise("L8-conversations")


@pytest.fixture
async def household(tmp_path: Path, database_url: str | None) -> AsyncIterator[Household]:
    async with open_household(tmp_path, database_url=database_url) as household:
        household.person.decide = lambda question: True
        (household.workspace / "a.txt").write_text("one\n")
        yield household


async def done(household: Household, tool_name: str, **params: object) -> str:
    """A call of an agent that a person approved and the machine carried out; gives its conversation."""
    async with household.agent() as agent:
        response = await agent.execute(tool_name, params)
    assert response.status == "completed", response
    return (await household.person.api.get_tool(response.tool_id)).session_id


async def wrote(household: Household, path: str, content: str) -> str:
    return await done(household, "write_file", path=path, content=content)


async def python(household: Household, code: str) -> str:
    return await done(household, "execute_command", command="python3", args=["-c", code])


def files(household: Household) -> dict[str, str]:
    return {path.name: path.read_text() for path in household.workspace.iterdir() if path.is_file()}


async def is_whole(household: Household) -> bool:
    return all(check.fault is None for check in await household.listening.parts.store.audit.verify())


@UNDO
async def test_all_that_a_conversation_changed_is_shown_as_one_and_undone_in_the_right_order(
    household: Household,
) -> None:
    api, project = household.person.api, household.project_id
    await wrote(household, "a.txt", "two\n")
    await wrote(household, "a.txt", "three\n")
    await wrote(household, "made.txt", "new\n")
    session = await python(household, "import os; os.unlink('made.txt'); open('b.txt','w').write('by command')")
    await wrote(household, "b.txt", "then by a write")
    assert files(household) == {"a.txt": "three\n", "b.txt": "then by a write"}

    told = await api.session_changes(project, session)
    assert [(file.path, file.change, len(file.tool_ids)) for file in told.files] == [
        ("a.txt", "changed", 2),
        ("b.txt", "created", 2),
    ]
    assert [(command.line.split()[0], command.exit_code) for command in told.commands] == [("python3", 0)]

    plan = await api.session_undo_plan(project, session)
    assert [(one.path, one.kind.value, one.before, one.after) for one in plan.files] == [
        ("a.txt", "change", "three\n", "one\n"),
        ("b.txt", "delete", "then by a write", None),
    ]
    assert (len(plan.calls), plan.conflicts, plan.total_files) == (5, [], 2)
    answer = await api.undo_session(project, session, UndoBody(plan=plan.plan))
    assert files(household) == {"a.txt": "one\n"}
    assert (len(answer.undone), answer.files, answer.state) == (5, 2, "done")
    assert [call.tool_id for call in answer.undone] == plan.calls
    for call in answer.undone:
        await household.person.until("tool.undone", tool_id=call.tool_id)
    records = await household.listening.parts.store.audit.records(project)
    assert sorted(one.execution_id or "" for one in records if one.action == "undone") == sorted(plan.calls)
    assert await is_whole(household)

    again = await api.session_undo_plan(project, session)
    assert (again.calls, again.total_files) == ([], 0)
    # Each undo can be taken back by itself.
    paths = PathValidator(household.workspace)
    history = UndoHistory(paths, household.workspace.parent / "client")
    assert {entry.id for entry in history.entries() if entry.undoes in plan.calls} == {
        call.undo_id for call in answer.undone
    }
    history.close()
    paths.close()


@UNDO
async def test_what_changed_since_is_named_and_nothing_is_undone(household: Household) -> None:
    api, project = household.person.api, household.project_id
    await wrote(household, "a.txt", "two\n")
    session = await wrote(household, "b.txt", "b")
    plan = await api.session_undo_plan(project, session)
    (household.workspace / "a.txt").write_text("mine\n")
    with pytest.raises(ConflictError, match="Something changed while you decided"):
        await api.undo_session(project, session, UndoBody(plan=plan.plan))
    now = await api.session_undo_plan(project, session)
    assert now.conflicts == ["a.txt"]
    with pytest.raises(ConflictError, match=r"Changed since these calls: a\.txt"):
        await api.undo_session(project, session, UndoBody(plan=now.plan, partial=True))
    assert files(household) == {"a.txt": "mine\n", "b.txt": "b"}


@UNDO
async def test_change_between_two_calls_is_somebody_elses_and_is_kept(household: Household) -> None:
    api, project = household.person.api, household.project_id
    await wrote(household, "a.txt", "two\n")
    (household.workspace / "a.txt").write_text("mine\n")
    session = await wrote(household, "a.txt", "three\n")
    plan = await api.session_undo_plan(project, session)
    assert plan.conflicts == ["a.txt"]
    with pytest.raises(ConflictError, match=r"Changed since these calls: a\.txt"):
        await api.undo_session(project, session, UndoBody(plan=plan.plan))
    assert files(household) == {"a.txt": "three\n"}


@UNDO
async def test_call_undone_alone_before_is_not_undone_again(household: Household) -> None:
    api, project = household.person.api, household.project_id
    session = await wrote(household, "a.txt", "two\n")
    await wrote(household, "b.txt", "b")
    newest = (await household.person.record())[-1]
    await api.undo(newest.tool_id, UndoBody(plan=(await api.undo_plan(newest.tool_id)).plan))
    plan = await api.session_undo_plan(project, session)
    assert [one.path for one in plan.files] == ["a.txt"]
    await api.undo_session(project, session, UndoBody(plan=plan.plan))
    assert files(household) == {"a.txt": "one\n"}


@UNDO
async def test_file_whose_old_content_was_not_kept_stays_with_all_its_changes(household: Household) -> None:
    api, project, image = household.person.api, household.project_id, household.workspace / "disk.img"
    with image.open("wb") as file:
        file.truncate(51 * 1024 * 1024)
    session = await python(household, "open('disk.img','w').write('x'); open('a.txt','w').write('two')")
    await python(household, "open('disk.img','w').write('y')")
    plan = await api.session_undo_plan(project, session)
    assert (list(plan.lost), [one.path for one in plan.files]) == (["disk.img"], ["a.txt", "disk.img"])
    with pytest.raises(ConflictError, match="cannot be brought back"):
        await api.undo_session(project, session, UndoBody(plan=plan.plan))
    await api.undo_session(project, session, UndoBody(plan=plan.plan, partial=True))
    assert ((household.workspace / "a.txt").read_text(), image.read_text()) == ("one\n", "x")


@UNDO
@pytest.mark.promise("R-user")
async def test_neither_an_agent_nor_another_user_previews_or_undoes_a_conversation(household: Household) -> None:
    project = household.project_id
    session = await wrote(household, "a.txt", "two\n")
    plan = await household.person.api.session_undo_plan(project, session)
    for token, error in (
        (household.token(), RefusedError),
        (household.token(Scope.CHAT, Scope.APPROVE, user="bob"), NotFound),
    ):
        async with ServerApi(household.url, token) as api:
            with pytest.raises(error):
                await api.session_undo_plan(project, session)
            with pytest.raises(error):
                await api.undo_session(project, session, UndoBody(plan=plan.plan))
    async with ServerApi(household.url, household.token(Scope.CHAT)) as api:
        with pytest.raises(RefusedError):
            await api.undo_session(project, session, UndoBody(plan=plan.plan))
    assert files(household) == {"a.txt": "two\n"}


@UNDO
async def test_conversation_that_changed_nothing_has_nothing_to_undo(household: Household) -> None:
    session = await done(household, "read_file", path="a.txt")
    with pytest.raises(ConflictError, match="nothing to undo"):
        await household.person.api.session_undo_plan(household.project_id, session)


@WHOLE
async def test_conversation_is_exported_with_its_calls_as_the_record_masks_them(household: Household) -> None:
    api, project = household.person.api, household.project_id
    secret = "AKIA" + "Z7Q4" * 4
    (household.workspace / "keys.txt").write_text(f"aws_access_key_id = {secret}\n```\nfence\n")
    session = await done(household, "read_file", path="keys.txt")
    await api.rename_session(project, session, "Keys: a `look`")
    export = await api.export_session(project, session)
    assert (export.session.title, [call.tool_name for call in export.calls]) == ("Keys: a `look`", ["read_file"])
    text = await api.session_markdown(project, session)
    assert text.file_name == "Keys-a-look.md"
    assert "### Read `keys.txt`" in text.text
    assert "````\n" in text.text
    assert secret not in text.text + export.model_dump_json()
    assert export.complete


@WHOLE
async def test_agents_conversation_is_deleted_and_its_record_stays(household: Household) -> None:
    api, project = household.person.api, household.project_id
    session = await wrote(household, "a.txt", "two\n")
    await api.delete_session(project, session)
    assert session not in [one.session_id for one in (await api.list_sessions(project)).sessions]
    with pytest.raises(NotFound):
        await api.export_session(project, session)
    assert [one.session_id for one in await household.person.record()] == [session]
    assert await is_whole(household)
    # It works on: its next call begins the conversation again.
    assert await wrote(household, "b.txt", "b") == session
    assert session in [one.session_id for one in (await api.list_sessions(project)).sessions]
    assert await is_whole(household)


@WHOLE
@pytest.mark.promise("R-user")
async def test_conversations_are_their_users_alone(household: Household) -> None:
    project = household.project_id
    session = await wrote(household, "a.txt", "two\n")
    for token, error in (
        (household.token(), RefusedError),
        (household.token(Scope.EXECUTE), RefusedError),
        (household.token(Scope.CHAT, user="bob"), NotFound),
    ):
        async with ServerApi(household.url, token) as api:
            for attempt in (
                api.search_sessions(project, "a"),
                api.rename_session(project, session, "mine"),
                api.delete_session(project, session),
                api.export_session(project, session),
                api.session_markdown(project, session),
                api.session_changes(project, session),
            ):
                with pytest.raises(error):
                    await attempt
    async with ServerApi(household.url, household.token(Scope.CHAT, user="bob")) as api:
        own = (await api.create_project("bob's")).project_id
        with pytest.raises(NotFound):
            await api.rename_session(own, session, "mine")
        assert (await api.search_sessions(own, "a")).found == []


@WHOLE
async def test_search_finds_what_was_said_and_empty_words_are_refused(household: Household) -> None:
    from byleave.protocol.chat import MessageBody

    api, project = household.person.api, household.project_id
    posted = await api.post_message(project, MessageBody(content="read a.txt"))
    await household.person.until("chat.run", run_id=posted.run_id, state="done")
    (found,) = (await api.search_sessions(project, "READ  A.TXT")).found
    assert (found.session.session_id, found.messages >= 1) == (posted.session_id, True)
    assert json.loads(found.model_dump_json())["excerpt"]
    with pytest.raises(CallerError):
        await api.search_sessions(project, "   ")


async def offered(household: Household, query: str) -> list[str]:
    offers = await household.person.api.offer_files(household.project_id, query)
    return [file.path for file in offers.files]


@pytest.mark.promise("U-mention")
async def test_files_to_name_come_from_the_machine_by_recorded_calls(household: Household) -> None:
    root = household.workspace
    for path in ("src/App.tsx", "src/api/app_test.py", "node_modules/app/index.js", ".env", "src/.env.local", "id_rsa"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    assert await offered(household, "") == ["a.txt", "node_modules", "src"]
    assert await offered(household, "../") == []
    assert await offered(household, "APP") == ["src/App.tsx", "src/api/app_test.py", "node_modules/app"]
    assert await offered(household, "src/a") == ["src/api", "src/App.tsx", "src/api/app_test.py"]
    assert await offered(household, "env") == []
    assert await offered(household, "rsa") == []
    assert await offered(household, "*[a]") == []
    record = await household.person.record()
    assert {call.tool_name for call in record} == {"list_directory"}
    assert {call.approved_by for call in record} == {"risk:LOW"}
    # It is no conversation.
    assert (await household.person.api.list_sessions(household.project_id)).sessions == []


@pytest.mark.promise("U-mention")
async def test_files_that_the_owner_denies_are_not_offered(tmp_path: Path) -> None:
    rules = tmp_path / "workspace" / ".byleave" / "policy.toml"
    rules.parent.mkdir(parents=True)
    rules.write_text('[[rule]]\naction = "deny"\ntool = "read_file"\npaths = ["private/**"]\n')
    async with open_household(tmp_path) as household:
        (household.workspace / "private").mkdir()
        (household.workspace / "private" / "plan.md").write_text("x")
        (household.workspace / "plan.md").write_text("x")
        assert await offered(household, "plan") == ["plan.md"]


@pytest.mark.promise("U-mention", "G9")
async def test_where_listing_would_ask_nothing_is_listed_and_nobody_asked(tmp_path: Path) -> None:
    rules = tmp_path / "workspace" / ".byleave" / "policy.toml"
    rules.parent.mkdir(parents=True)
    rules.write_text('[[rule]]\naction = "ask"\ntool = "list_directory"\npaths = ["**"]\n')
    async with open_household(tmp_path) as household:
        with pytest.raises(RefusedError, match="without a question"):
            await offered(household, "plan")
        assert await household.person.record() == []


@pytest.mark.promise("U-mention", "R-user")
async def test_agents_and_other_users_are_offered_nothing(household: Household) -> None:
    for token, error in ((household.token(), RefusedError), (household.token(Scope.CHAT, user="bob"), NotFound)):
        async with ServerApi(household.url, token) as api:
            with pytest.raises(error):
                await api.offer_files(household.project_id, "a")
