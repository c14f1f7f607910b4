"""The task of every adapter through deepagents: its own tools, their names and parameters, on our backend."""

from collections.abc import Iterator

import pytest
from deepagents import create_deep_agent
from langchain_core.messages import HumanMessage

from byleave.adapters.deepagents import ByleaveBackend
from harness.household import Household
from harness.model_server import ModelServer, by_step, call, calls, open_model_server, say

from .conftest import Connect, check_task
from .test_langchain import chat

pytestmark = pytest.mark.promise("I")


@pytest.fixture
def task() -> Iterator[ModelServer]:
    """What the other adapters' model does, in the words of deepagents' tools."""
    with open_model_server(
        by_step(
            calls(("read_file", {"file_path": "/README.md"}), ("ls", {"path": "/"})),
            call("write_file", {"file_path": "/notes.md", "content": "hi"}),
            call("execute", {"command": "git status"}),
            call("execute", {"command": "gcc --version"}),
            say("All done."),
        )
    ) as server:
        yield server


async def test_a_task_with_a_read_a_write_a_rejection_and_a_timeout_is_completed(
    household: Household, connect: Connect, task: ModelServer
) -> None:
    async with household.agent(name="deep") as caller:
        model = chat(connect(task), responses=True)
        agent = create_deep_agent(model=model, backend=ByleaveBackend(caller))
        result = await agent.ainvoke({"messages": [HumanMessage("go")]})
    assert "All done." in result["messages"][-1].text
    await check_task(household, task)
    _, _, _, (_, rejected), (_, late) = task.requests[-1].results
    assert "exit code 126" in rejected  # deepagents tells its model that neither ran
    assert "exit code 126" in late
