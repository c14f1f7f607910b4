"""The task of every adapter through ACP: the official client is the editor, and its dialogs are the person."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from acp.helpers import text_block
from acp.schema import PermissionOption, RequestPermissionResponse, ToolCallUpdate

from byleave.protocol.states import ExecutionStatus
from harness.household import Household, open_household
from harness.model_server import ModelServer, by_step, call, open_model_server, say

from .conftest import check_task
from .test_acp_bridge import Editor, opened

pytestmark = pytest.mark.promise("I")


@dataclass
class Deciding(Editor):
    """Allows what is no command, rejects git, and leaves the dialog for gcc open until `late` is set."""

    late: asyncio.Event = field(default_factory=asyncio.Event)

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: object
    ) -> RequestPermissionResponse:
        title = tool_call.title or ""
        self.hold = self.late if "gcc" in title else None
        self.choose = lambda options: "reject" if "git" in title else "allow"
        return await super().request_permission(session_id, tool_call, options)

    def told_of(self, title: str) -> list[tuple[str, str]]:
        """Every status of the call with this title, with the text shown beside it."""
        number = next(one.tool_call_id for one in self.updates if getattr(one, "title", None) == title)
        return [
            (one.status, "".join(part.content.text for part in one.content or [] if part.type == "content"))
            for one in self.updates
            if getattr(one, "tool_call_id", None) == number
        ]


@asynccontextmanager
async def scripted(server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Household]:
    """The server's own agent with this model; the time to answer for a HIGH call is over after a second."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    async with open_household(tmp_path, model="openai-chat:scripted", high_approval_seconds=1) as household:
        (household.workspace / "README.md").write_text("hello\n")
        yield household


async def test_a_task_with_a_read_a_write_a_rejection_and_a_timeout_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: ModelServer
) -> None:
    editor = Deciding()
    async with (
        scripted(task, tmp_path, monkeypatch) as household,
        opened(household, editor, "--project", household.project_id) as connection,
    ):
        session = (await connection.new_session(str(household.workspace))).session_id
        answer = await connection.prompt(session, [text_block("go")])
        await check_task(household, task, reason="Rejected by the user.")
    assert answer.stop_reason == "end_turn"
    assert "All done." in editor.said
    assert len(editor.asked) == 3
    assert editor.told_of("read_file README.md")[-1] == ("completed", "hello\n")
    assert editor.told_of("write_file notes.md")[-1][0] == "completed"
    assert editor.told_of("git status")[-1] == ("failed", "Rejected by the user.")
    assert editor.told_of("gcc --version")[-2:] == [
        ("failed", "nobody answered in time, so nothing was run"),
        ("failed", "Approval timeout"),
    ]


async def test_an_answer_after_the_time_for_it_runs_nothing_and_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dialog for gcc is answered while the model still thinks about what came of it."""
    editor = Deciding()
    script = by_step(call("execute_command", {"command": "gcc", "args": ["--version"]}), say("Done.", held=True))
    with open_model_server(script) as server:
        async with (
            scripted(server, tmp_path, monkeypatch) as household,
            opened(household, editor, "--project", household.project_id) as connection,
        ):
            session = (await connection.new_session(str(household.workspace))).session_id
            prompting = asyncio.create_task(connection.prompt(session, [text_block("go")]))
            await editor.until(lambda: "failed" in editor.statuses())
            editor.late.set()
            await editor.until(lambda: "The time to answer was over." in editor.said)
            server.let_go()
            assert (await prompting).stop_reason == "end_turn"
            (row,) = await household.person.record()
    assert row.status is ExecutionStatus.TIMEOUT
