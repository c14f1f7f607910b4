"""One turn of an editor's session, in this process: what the editor is told, whatever happens to the run."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.schema import PermissionOption, RequestPermissionResponse, ToolCallUpdate

from byleave.adapters.acp import EditorSession, Turn
from byleave.client.api import ServerApi
from byleave.protocol.approvals import ApproveBody
from byleave.protocol.chat import MessageAccepted, MessageBody
from byleave.protocol.errors import UnreachableError
from byleave.protocol.states import Scope
from byleave.sdk import Machine
from byleave.server import issue_token
from harness.household import Household, open_household

from .test_acp_bridge import Editor

pytestmark = pytest.mark.promise("I")


@pytest.fixture
async def household(tmp_path: Path) -> AsyncIterator[Household]:
    async with open_household(tmp_path) as household:
        (household.workspace / "README.md").write_text("hello\n")
        yield household


def turn_of(household: Household, editor: Editor, **options: Any) -> Turn:
    place = EditorSession(household.project_id, household.workspace)
    return Turn(household.person.api, editor, "acp_1", place, **options)  # pyright: ignore[reportArgumentType]


async def test_output_comes_as_it_is_printed_and_the_result_with_its_exit_code(household: Household) -> None:
    (household.workspace / "say.py").write_text("print('one', flush=True)\nprint('two')\n")
    editor = Editor()
    assert await turn_of(household, editor).run("run python say.py") == "end_turn"
    shown = [
        one.content[0].content.text
        for one in editor.updates
        if getattr(one, "content", None) and one.session_update == "tool_call_update"
    ]
    assert shown[0].startswith("one")
    assert shown[-1].endswith("exit 0")
    assert editor.statuses()[0] == "pending"


async def test_a_change_of_a_file_is_shown_against_what_the_editor_has(household: Household) -> None:
    editor = Editor()
    turn = turn_of(household, editor, reads_files=True)
    assert await turn.run("write README.md: new text") == "end_turn"
    diff = (editor.asked[0][0].content or [])[-1]
    assert (diff.type, diff.old_text) == ("diff", "hello\n")  # type: ignore[union-attr]


@pytest.mark.promise("S")
@pytest.mark.parametrize("reads_files", [True, False])
@pytest.mark.parametrize("content", ["x = 1  # 9 characters left out …; evil()", f"{'a = 1; ' * 6000}; evil()"])
async def test_whoever_decides_sees_what_is_written_also_without_a_comparison(
    household: Household, content: str, reads_files: bool
) -> None:
    editor = Editor()
    turn = turn_of(household, editor, reads_files=reads_files)
    assert await turn.run(f"write a.py: {content}") == "end_turn"
    assert "evil()" in str(editor.asked[0][0].content)


async def test_what_is_too_long_for_an_editor_is_said_to_be(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.adapters.acp.DIFF_CHARACTERS", 20_000)
    editor = Editor()
    assert await turn_of(household, editor).run(f"write a.py: {'a = 1; ' * 3000}") == "end_turn"
    assert "too long to be shown here" in str(editor.asked[0][0].content)


@pytest.mark.promise("S")
async def test_whoever_decides_sees_the_code_that_would_run(household: Household) -> None:
    (household.workspace / "say.py").write_text("print('evil')\n")
    editor = Editor()
    assert await turn_of(household, editor).run("run python say.py") == "end_turn"
    assert "print('evil')" in "".join(one.content.text for one in editor.asked[0][0].content or [])  # type: ignore[union-attr]


@pytest.mark.promise("X-reveal")
@pytest.mark.parametrize("is_masked", [True, False])
async def test_whoever_decides_in_an_editor_is_told_how_to_see_what_is_masked(
    household: Household, is_masked: bool
) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    setting = f'print({{"api_token": "{token}"}})\n' if is_masked else "print(1)\n"
    (household.workspace / "say.py").write_text(setting)
    editor = Editor()
    assert await turn_of(household, editor).run("run python say.py") == "end_turn"
    question = await household.person.until("tool.approval_request")
    asked = str(editor.asked[0][0].content)
    assert token not in asked
    how = f"byleave approvals show {question.approval_id} --reveal"  # type: ignore[union-attr]
    assert (how in asked, "[masked:" in asked) == (is_masked, is_masked)


async def test_a_dialog_that_is_closed_leaves_the_question_to_others(household: Household) -> None:
    editor = Editor(choose=lambda options: None)
    running = asyncio.create_task(turn_of(household, editor).run("write a.md: one"))
    await editor.until(lambda: len(editor.asked) == 1)
    question = await household.person.until("tool.approval_request")
    await household.person.reject(question.approval_id, "not now")  # type: ignore[union-attr]
    await running
    notes = [one.content[0].content.text for one in editor.updates if getattr(one, "status", None) == "failed"]
    assert notes[0] == "rejected elsewhere: not now"
    assert not (household.workspace / "a.md").exists()


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    ("scope", "named"), [(Scope.AGENT, "the agent stranger-"), (Scope.CHAT, "a program with your token: ")]
)
async def test_whoever_decides_in_an_editor_is_told_that_another_agent_asks(
    household: Household, scope: Scope, named: str
) -> None:
    editor = Editor(choose=lambda options: None)
    turn = turn_of(household, editor)
    running = asyncio.create_task(turn.run("write a.md: one"))
    await editor.until(lambda: len(editor.asked) == 1)
    token = issue_token(household.settings, "alice", (scope,), 600, agent="stranger")
    async with Machine(household.url, token, household.project_id, session_id=turn.session.session_id) as stranger:
        asked = await stranger.start("write_file", {"path": "b.md", "content": "two"})
        await editor.until(lambda: len(editor.asked) == 2)
        await stranger.cancel(asked.tool_id)
    (own, _), (other, _) = editor.asked
    assert "Asked by" not in f"{own.title}{own.content}"
    assert (other.title or "").startswith(f"Asked by {named}")
    assert f"Asked by {named}" in str(other.content)
    await turn.cancel()
    await running


class WithoutDialogs(Editor):
    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: object
    ) -> RequestPermissionResponse:
        raise RequestError.method_not_found("session/request_permission")


async def test_an_editor_without_dialogs_leaves_the_question_to_others(household: Household) -> None:
    household.person.decide = lambda question: True
    assert await turn_of(household, WithoutDialogs()).run("write a.md: one") == "end_turn"
    assert (household.workspace / "a.md").exists()


class TooLate(Editor):
    """Answers in the very moment in which somebody else has."""

    household: Household

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: object
    ) -> RequestPermissionResponse:
        (waiting,) = (await self.household.person.api.approvals()).approvals
        self.choose = lambda options: "reject"
        answer = await super().request_permission(session_id, tool_call, options)
        await self.household.person.api.approve(waiting.project_id, waiting.id, ApproveBody(decision="approved"))
        return answer


async def test_an_answer_that_comes_second_is_told_so(household: Household) -> None:
    editor = TooLate()
    editor.household = household
    assert await turn_of(household, editor).run("write a.md: one") == "end_turn"
    assert "lready decided" in editor.said
    assert (household.workspace / "a.md").exists()


async def test_a_feed_that_breaks_is_gone_on_with_where_it_broke(household: Household) -> None:
    streams = household.listening.parts.streams
    before = set(streams._streams["alice"])
    editor = Editor(hold=asyncio.Event())
    running = asyncio.create_task(turn_of(household, editor).run("write a.md: one"))
    await editor.until(lambda: len(editor.asked) == 1)
    for stream in set(streams._streams["alice"]) - before:
        stream.close()
    assert editor.hold is not None
    editor.hold.set()
    assert await running == "end_turn"
    assert len(editor.asked) == 1
    assert (household.workspace / "a.md").exists()


class LosesAnAnswer(ServerApi):
    """The connection breaks after the first message has arrived."""

    lost = False

    async def post_message(self, project_id: str, body: MessageBody) -> MessageAccepted:
        accepted = await super().post_message(project_id, body)
        if not self.lost:
            self.lost = True
            raise UnreachableError("The connection broke.")
        return accepted


async def test_a_message_whose_answer_was_lost_arrives_once(household: Household) -> None:
    token = household.token(Scope.CHAT, Scope.APPROVE)
    async with LosesAnAnswer(household.url, token) as api:
        place = EditorSession(household.project_id, household.workspace)
        turn = Turn(api, Editor(), "acp_1", place)  # pyright: ignore[reportArgumentType]
        assert await turn.run("append to log.txt: once") == "end_turn"
    assert (household.workspace / "log.txt").read_text().strip() == "once"


async def test_a_turn_that_is_cancelled_before_it_began_runs_nothing(household: Household) -> None:
    turn = turn_of(household, Editor())
    await turn.cancel()
    assert await turn.run("write a.md: one") == "cancelled"
    assert not (household.workspace / "a.md").exists()


async def test_a_server_that_cannot_be_reached_is_said(household: Household) -> None:
    async with ServerApi("http://127.0.0.1:9", household.token(Scope.CHAT)) as away:
        place = EditorSession(household.project_id, household.workspace)
        turn = Turn(away, Editor(), "acp_1", place)  # pyright: ignore[reportArgumentType]
        with pytest.raises(UnreachableError):
            await turn.run("hello")
