"""The six tools of a machine: typed results, and errors by who can act, each with what to do next."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import byleave
from byleave import errors
from byleave.protocol.states import ErrorType, ExecutionStatus, ResponseStatus
from harness.household import Household, open_household

pytestmark = pytest.mark.promise("R7")


@pytest.fixture
async def household(tmp_path: Path) -> AsyncIterator[Household]:
    async with open_household(tmp_path, high_approval_seconds=1) as household:
        (household.workspace / "README.md").write_text("hello\nworld\n")
        yield household


async def test_each_tool_returns_the_model_of_its_result(household: Household) -> None:
    household.person.decide = lambda question: True
    async with household.agent() as machine:
        assert (await machine.read_file("README.md", start_line=2)).content == "world\n"
        assert (await machine.write_file("notes.md", "milk")).size == 4
        assert (await machine.write_file("notes.md", "!", mode="append")).size == 5
        ran = await machine.execute_command("git", ["--version"], timeout=10)
        assert (ran.exit_code, ran.stdout.startswith("git version")) == (0, True)
        assert [entry.name for entry in (await machine.list_directory(pattern="*.md")).files] == [
            "README.md",
            "notes.md",
        ]
        (found,) = (await machine.search_files("WORLD", case_sensitive=False, glob="*.md", max_results=5)).matches
        assert (found.path, found.line_number) == ("README.md", 2)
        with pytest.raises(errors.RefusedError, match="No web search provider"):
            await machine.search_web("byleave", max_results=1)


Ask = Callable[[byleave.Machine], Coroutine[Any, Any, object]]
CASES: list[tuple[str, Ask, type[errors.ByleaveError]]] = [
    ("out of the workspace", lambda one: one.read_file("../outside"), errors.RefusedError),
    ("not a command", lambda one: one.execute_command("rm", ["-rf", "/"]), errors.RefusedError),
    ("no such file", lambda one: one.read_file("nothing.md"), errors.ToolFailure),
    ("wrong parameters", lambda one: one.read_file("README.md", start_line=-1), errors.CallerError),
    ("rejected", lambda one: one.write_file("a.txt", "x"), errors.RejectedError),
    ("nobody answers", lambda one: one.execute_command("gcc", ["--version"]), errors.ToolApprovalTimeout),
]


@pytest.mark.parametrize(("ask", "kind"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_what_did_not_complete_is_an_error_with_a_name(
    household: Household, ask: Ask, kind: type[errors.ByleaveError]
) -> None:
    household.person.decide = lambda question: "not today" if question.tool_name == "write_file" else None
    async with household.agent() as machine:
        with pytest.raises(kind) as caught:
            await ask(machine)
    assert type(caught.value) is kind
    assert caught.value.message
    if kind is not errors.ToolFailure:
        assert caught.value.hint
    if kind is errors.RejectedError:
        assert "not today" in caught.value.message


async def test_a_project_without_a_machine_is_named_so(tmp_path: Path) -> None:
    async with open_household(tmp_path, client_wait_seconds=1) as household:
        empty = (await household.person.api.create_project("no machine")).project_id
        async with byleave.Machine(household.url, household.token(), empty) as machine:
            with pytest.raises(errors.NoClient):
                await machine.list_directory()


async def test_time_that_is_over_takes_the_question_back(household: Household) -> None:
    async with household.agent() as machine:
        response = await machine.execute("write_file", {"path": "a.txt", "content": "x"}, seconds=0.5)
    assert (response.status, response.error_type) == (ResponseStatus.FAILED, ErrorType.CANCELLED)
    (row,) = await household.person.record()
    assert (row.status, row.error_type) == (ExecutionStatus.FAILED, ErrorType.CANCELLED)
    assert not (await household.person.api.approvals()).approvals


async def test_a_call_that_ends_in_time_is_left_alone(household: Household) -> None:
    async with household.agent() as machine:
        assert (await machine.execute("read_file", {"path": "README.md"}, seconds=20)).error is None


async def test_time_that_is_over_while_the_server_is_away_is_told(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.sdk.client.CALL_OFF_SECONDS", 0.1)
    async with household.agent() as machine:
        await machine.read_file("README.md")

        async def away(*_: object) -> Any:
            raise errors.UnreachableError("away")

        machine.client.api.execute = away  # type: ignore[method-assign]
        with pytest.raises(TimeoutError):
            await machine.execute("write_file", {"path": "a.txt", "content": "x"}, seconds=0.1)
    assert len(await household.person.record()) == 1


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9", "http://byleave.invalid"], ids=["nobody listens", "no such name"]
)
async def test_a_wrong_address_is_told_at_once(url: str) -> None:
    async with asyncio.timeout(20), byleave.Machine(url, "token", "proj_1") as machine:
        with pytest.raises(errors.UnreachableError, match="Cannot reach the server") as caught:
            await machine.read_file("README.md")
    assert "BYLEAVE_SERVER_URL" in (caught.value.hint or "")


async def test_an_address_of_another_program_is_told_at_once(household: Household) -> None:
    async with asyncio.timeout(20), byleave.Machine(f"{household.url}/elsewhere", "token", "proj_1") as machine:
        with pytest.raises(errors.NotFound):
            await machine.read_file("README.md")


async def test_a_server_that_restarts_is_waited_for(tmp_path: Path) -> None:
    async with open_household(tmp_path) as first:
        (first.workspace / "README.md").write_text("hello\n")
        machine = first.agent()
        await machine.read_file("README.md")
        api = machine.client.api
        execute, tries = api.execute, 0

        async def once_away(*given: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise errors.UnreachableError("away")
            return await execute(*given)

        api.execute = once_away  # type: ignore[method-assign]
        assert (await machine.read_file("README.md")).content == "hello\n"
        await machine.close()
    assert tries == 2


async def test_an_expired_token_is_told_at_once_and_with_what_to_do(household: Household) -> None:
    async with byleave.Machine(household.url, household.expired_token, household.project_id) as machine:
        with pytest.raises(errors.SignedOut) as caught:
            await machine.read_file("README.md")
    assert "token" in (caught.value.hint or "")


def test_the_errors_are_found_by_their_names_and_each_is_drawn() -> None:
    assert byleave.errors is errors
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.ByleaveError)
        assert name in (errors.__doc__ or "")


async def test_a_machine_that_closes_takes_back_what_is_still_waited_for(household: Household) -> None:
    async with household.agent() as machine:
        calling = asyncio.create_task(machine.write_file("a.txt", "x"))
        await household.person.until("tool.approval_request")
    with pytest.raises(asyncio.CancelledError):
        await calling
    (row,) = await household.person.record()
    assert (row.status, row.error_type) == (ExecutionStatus.FAILED, ErrorType.CANCELLED)
