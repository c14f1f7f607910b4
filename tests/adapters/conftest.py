"""What every adapter is tested with: a whole Byleave, a scripted model, and one task."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from byleave.protocol.events import ApprovalRequested
from harness.household import Household, open_household
from harness.model_server import ModelServer, by_step, call, calls, open_model_server, say

REASON = "not on my machine"
Connect = Callable[[ModelServer], AsyncOpenAI]


@pytest.fixture
async def household(tmp_path: Path) -> AsyncIterator[Household]:
    """Answers for a HIGH call run out after one second; the person approves writes and rejects git."""
    async with open_household(tmp_path, high_approval_seconds=1) as household:
        (household.workspace / "README.md").write_text("hello\n")

        def decide(question: ApprovalRequested) -> str | bool | None:
            if question.tool_name == "write_file":
                return True
            return REASON if question.tool_params.get("command") == "git" else None

        household.person.decide = decide
        yield household


@pytest.fixture
def task() -> Iterator[ModelServer]:
    """A model that reads, writes (approved), runs git (rejected) and gcc (nobody answers), and says that it is done."""
    with open_model_server(
        by_step(
            calls(("read_file", {"path": "README.md"}), ("list_directory", {"path": "."})),
            call("write_file", {"path": "notes.md", "content": "hi"}),
            call("execute_command", {"command": "git", "args": ["status"]}),
            call("execute_command", {"command": "gcc", "args": ["--version"]}),
            say("All done."),
        )
    ) as server:
        yield server


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes clients of a model server, and closes them in the end."""
    made: list[AsyncOpenAI] = []

    def client(server: ModelServer) -> AsyncOpenAI:
        made.append(AsyncOpenAI(base_url=server.url, api_key="test"))
        return made[-1]

    yield client
    for one in made:
        await one.close()


async def check_task(household: Household, server: ModelServer, reason: str = REASON) -> None:
    """The task went as it must: on the machine, in the record, and in what the model was told."""
    assert (household.workspace / "notes.md").read_text() == "hi"
    rows = await household.person.record()
    assert sorted((row.tool_name, row.status.value) for row in rows) == [
        ("execute_command", "rejected"),
        ("execute_command", "timeout"),
        ("list_directory", "completed"),
        ("read_file", "completed"),
        ("write_file", "completed"),
    ]
    results = [text for _, text in server.requests[-1].results]
    assert len(results) == 5
    assert "hello" in results[0]
    assert reason in results[3]
    assert "Approval timeout" in results[4]
