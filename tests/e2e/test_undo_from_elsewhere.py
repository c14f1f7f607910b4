"""Undo from the page, the whole way: a real server, a real client with real files, and a person with a token."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from byleave.client.api import ServerApi
from byleave.protocol.changes import UndoBody
from byleave.protocol.errors import ConflictError, NotFound, RefusedError
from byleave.protocol.events import ToolUndone
from byleave.protocol.states import Scope
from byleave.workspace.paths import PathValidator
from byleave.workspace.undo.restoring import UndoHistory
from harness.household import Household, open_household

pytestmark = pytest.mark.promise("L8-undo")


@pytest.fixture
async def household(tmp_path: Path, database_url: str | None) -> AsyncIterator[Household]:
    async with open_household(tmp_path, database_url=database_url) as household:
        household.person.decide = lambda question: True
        (household.workspace / "a.txt").write_bytes(b"one\r\ntwo\n")
        yield household


async def done(household: Household, tool_name: str, **params: object) -> str:
    """A call of an agent that a person approved and the machine carried out."""
    async with household.agent() as agent:
        response = await agent.execute(tool_name, params)
    assert response.status == "completed", response
    return response.tool_id


async def python(household: Household, code: str) -> str:
    return await done(household, "execute_command", command="python3", args=["-c", code])


async def reconnected(household: Household, last_event_id: int) -> None:
    """Break the client's stream; it comes back knowing this much."""
    parts, connection = household.listening.parts, household.connection
    connection._last_event_id = last_event_id
    for stream in [one for mine in parts.streams._streams.values() for one in mine]:
        if stream._client_id == connection.client_id:
            stream.close()
    async with asyncio.timeout(10):
        while connection.client_id in parts.presence.connected():
            await asyncio.sleep(0.01)
        while connection.client_id not in parts.presence.connected():
            await asyncio.sleep(0.01)


async def test_write_is_shown_and_undone_and_on_the_record(household: Household) -> None:
    person, file = household.person, household.workspace / "a.txt"
    tool_id = await done(household, "write_file", path="a.txt", content="three\n")
    assert file.read_text() == "three\n"
    plan = await person.api.undo_plan(tool_id)
    (change,) = plan.files
    assert (change.path, change.kind.value) == ("a.txt", "change")
    assert (change.before, change.after) == ("three\n", "one\r\ntwo\n")
    answer = await person.api.undo(tool_id, UndoBody(plan=plan.plan))
    assert file.read_bytes() == b"one\r\ntwo\n"
    assert (answer.files, answer.undo_id is not None) == (1, True)
    event = await person.until("tool.undone", tool_id=tool_id)
    assert isinstance(event, ToolUndone)
    assert (event.undone_by, event.undo_id) == ("user:alice", answer.undo_id)
    records = await household.listening.parts.store.audit.records(household.project_id)
    assert [one.action for one in records if one.execution_id == tool_id][-2:] == ["undo_requested", "undone"]
    assert all(check.fault is None for check in await household.listening.parts.store.audit.verify())
    # An answer that got lost: asking again is safe, and says what holds.
    with pytest.raises(ConflictError, match="already undone"):
        await person.api.undo(tool_id, UndoBody(plan=plan.plan))
    assert file.read_bytes() == b"one\r\ntwo\n"


async def test_command_is_undone_unless_a_file_changed_since(household: Household) -> None:
    person, root = household.person, household.workspace
    tool_id = await python(household, "import os; os.unlink('a.txt'); open('b.txt','w').write('new')")
    plan = await person.api.undo_plan(tool_id)
    assert {change.path: change.kind.value for change in plan.files} == {"a.txt": "create", "b.txt": "delete"}
    (root / "b.txt").write_text("mine")
    with pytest.raises(ConflictError, match="Something changed while you decided"):
        await person.api.undo(tool_id, UndoBody(plan=plan.plan))
    again = await person.api.undo_plan(tool_id)
    assert again.conflicts == ["b.txt"]
    with pytest.raises(ConflictError, match=r"Changed since this call: b\.txt"):
        await person.api.undo(tool_id, UndoBody(plan=again.plan, partial=True))
    assert not (root / "a.txt").exists()
    (root / "b.txt").write_text("new")
    plan = await person.api.undo_plan(tool_id)
    await person.api.undo(tool_id, UndoBody(plan=plan.plan))
    assert [path.name for path in root.iterdir()] == ["a.txt"]


async def test_what_is_lost_is_named_and_the_rest_undone_when_asked(household: Household) -> None:
    person, root = household.person, household.workspace
    with (root / "disk.img").open("wb") as file:
        file.truncate(51 * 1024 * 1024)
    tool_id = await python(household, "open('disk.img','w').write('x'); open('a.txt','w')")
    plan = await person.api.undo_plan(tool_id)
    assert list(plan.lost) == ["disk.img"]
    with pytest.raises(ConflictError, match=r"This cannot be brought back: disk\.img"):
        await person.api.undo(tool_id, UndoBody(plan=plan.plan))
    assert (root / "a.txt").read_bytes() == b""
    assert (await person.api.undo(tool_id, UndoBody(plan=plan.plan, partial=True))).files == 1
    assert (root / "a.txt").read_bytes() == b"one\r\ntwo\n"
    assert (root / "disk.img").read_text() == "x"


@pytest.mark.promise("R-user")
async def test_neither_the_agent_nor_another_user_can_undo(household: Household) -> None:
    tool_id = await done(household, "write_file", path="a.txt", content="three\n")
    plan = await household.person.api.undo_plan(tool_id)
    for token, error in (
        (household.token(), RefusedError),
        (household.token(Scope.CHAT, Scope.APPROVE, Scope.AGENT), RefusedError),
        (household.token(Scope.CHAT, Scope.APPROVE, user="bob"), NotFound),
    ):
        async with ServerApi(household.url, token) as api:
            with pytest.raises(error):
                await api.undo_plan(tool_id)
            with pytest.raises(error):
                await api.undo(tool_id, UndoBody(plan=plan.plan))
    assert (household.workspace / "a.txt").read_text() == "three\n"


async def test_of_two_tabs_one_undoes_and_the_other_is_told(household: Household) -> None:
    tool_id = await done(household, "write_file", path="a.txt", content="three\n")
    api = household.person.api
    plan = await api.undo_plan(tool_id)
    pressed = [api.undo(tool_id, UndoBody(plan=plan.plan)) for _ in range(2)]
    ends = await asyncio.gather(*pressed, return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["ConflictError", "UndoAnswer"]
    records = await household.listening.parts.store.audit.records(household.project_id)
    assert sum(one.action == "undone" for one in records) == 1


async def test_replayed_request_is_not_carried_out_again(household: Household, tmp_path: Path) -> None:
    file, api = household.workspace / "a.txt", household.person.api
    tool_id = await done(household, "write_file", path="a.txt", content="three\n")
    plan = await api.undo_plan(tool_id)
    answer = await api.undo(tool_id, UndoBody(plan=plan.plan))
    paths = PathValidator(household.workspace)
    history = UndoHistory(paths, tmp_path / "client")
    with history.alone():  # as `byleave undo` takes it back, on the machine itself: now the same plan would fit again
        history.apply(history.plan(history.entry(answer.undo_id)))
    history.close()
    paths.close()
    await reconnected(household, 0)
    assert (await api.undo_plan(tool_id)).plan == plan.plan  # asked for after the whole feed was replayed
    assert file.read_text() == "three\n"


async def test_machine_that_is_gone_is_said_to_be(household: Household) -> None:
    tool_id = await done(household, "write_file", path="a.txt", content="three\n")
    await household.connection.close()
    parts = household.listening.parts
    async with asyncio.timeout(10):
        while household.connection.client_id in parts.presence.connected():
            await asyncio.sleep(0.01)
    with pytest.raises(ConflictError, match="is not connected") as gone:
        await household.person.api.undo_plan(tool_id)
    assert gone.value.state == "disconnected"
