"""ACP: the editor's side of the official library, over stdio, against a whole Byleave."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process
from acp.client.connection import ClientSideConnection
from acp.helpers import image_block, resource_link_block, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    McpServerStdio,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from byleave.adapters.acp import absolute, title, written
from byleave.protocol.approvals import RejectBody
from byleave.protocol.states import ApprovalScope, Scope
from harness.forks import Forked, Forks, shared_forks
from harness.household import Household, open_household
from harness.json_values import JsonObject
from harness.model_server import Turn, by_step, call, open_model_server, refuse_with, say

pytestmark = pytest.mark.promise("I")
LIMIT_SECONDS = 30
Choose = Callable[[list[PermissionOption]], str | None]


@dataclass
class Editor:
    """An editor: remembers what it is told, and answers questions as `choose` says."""

    choose: Choose = lambda options: "allow"
    updates: list[Any] = field(default_factory=list[Any])
    asked: list[tuple[ToolCallUpdate, list[PermissionOption]]] = field(
        default_factory=list[tuple[ToolCallUpdate, list[PermissionOption]]]
    )
    hold: asyncio.Event | None = None
    """While it is not set, questions are not answered."""
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def session_update(self, session_id: str, update: Any, **kwargs: object) -> None:
        async with self._news:
            self.updates.append(update)
            self._news.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: object
    ) -> RequestPermissionResponse:
        async with self._news:
            self.asked.append((tool_call, options))
            self._news.notify_all()
        if self.hold is not None:
            await self.hold.wait()
        chosen = self.choose(options)
        outcome = (
            DeniedOutcome(outcome="cancelled")
            if chosen is None
            else AllowedOutcome(outcome="selected", option_id=chosen)
        )
        return RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id: str, path: str, **kwargs: object) -> ReadTextFileResponse:
        try:
            return ReadTextFileResponse(content=Path(path).read_text())
        except FileNotFoundError:
            raise RequestError.resource_not_found(path) from None

    def on_connect(self, conn: object) -> None: ...

    async def until(self, found: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS), self._news:
            await self._news.wait_for(found)

    @property
    def said(self) -> str:
        return "".join(one.content.text for one in self.updates if one.session_update == "agent_message_chunk")

    def statuses(self) -> list[str]:
        return [one.status for one in self.updates if one.session_update in ("tool_call", "tool_call_update")]


@pytest.fixture
async def household(tmp_path: Path) -> AsyncIterator[Household]:
    async with open_household(tmp_path, high_approval_seconds=60) as household:
        (household.workspace / "README.md").write_text("hello\n")
        yield household


@asynccontextmanager
async def opened(
    household: Household,
    editor: Editor,
    *options: str,
    scopes: tuple[Scope, ...] = (Scope.CHAT, Scope.APPROVE, Scope.EXECUTE),
    spawn: bool = False,
) -> AsyncGenerator[ClientSideConnection]:
    """The editor's side of a connection; with `spawn` the program is started as an editor starts it."""
    token = household.token(*scopes)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("BYLEAVE_")},
        "BYLEAVE_SERVER_URL": household.url,
        "BYLEAVE_TOKEN": token,
        "BYLEAVE_HOME": str(household.home.parent / "client"),
    }
    async with (
        spawn_agent_process(editor, sys.executable, "-m", "byleave.cli.main", "acp", *options, env=environment)  # pyright: ignore[reportArgumentType]
        if spawn
        else forked(editor, ("acp", *options), environment)
    ) as (connection, _):
        await connection.initialize(
            PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True)),
        )
        yield connection


@asynccontextmanager
async def forked(
    editor: Editor, arguments: tuple[str, ...], environment: dict[str, str], forks: Forks | None = None
) -> AsyncGenerator[tuple[ClientSideConnection, Forked]]:
    """The same without a start from nothing, which takes longer than a whole test."""
    loop = asyncio.get_running_loop()
    stdin, ours = os.pipe()
    process = (forks or shared_forks()).start(arguments, environment, stdin=stdin)
    os.close(stdin)
    readers = [asyncio.StreamReader(limit=1 << 22) for _ in range(2)]
    for reader, stream in zip(readers, (process.stdout, process.stderr), strict=True):
        await loop.connect_read_pipe(lambda reader=reader: asyncio.StreamReaderProtocol(reader), stream)
    pipe = open(ours, "wb", buffering=0)  # noqa: SIM115 - the transport closes it
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    connection = ClientSideConnection(editor, writer, readers[0])  # pyright: ignore[reportArgumentType]
    try:
        yield connection, process
    finally:
        await connection.close()
        writer.close()
        async with asyncio.timeout(LIMIT_SECONDS):
            await process.ended()
        # To their ends, so that nothing of them is left open.
        for reader in readers:
            await reader.read()


async def test_a_prompt_reads_and_writes_after_the_dialog_and_goes_on_after_a_rejection(household: Household) -> None:
    editor = Editor()
    async with opened(household, editor, "--project", household.project_id, spawn=True) as connection:
        session = (await connection.new_session(str(household.workspace))).session_id
        answer = await connection.prompt(session, [text_block("read README.md")])
        assert answer.stop_reason == "end_turn"
        assert "hello" in editor.said
        start = next(one for one in editor.updates if one.session_update == "tool_call")
        assert (start.kind, start.raw_input["path"]) == ("read", "README.md")
        assert start.locations[0].path == str(household.workspace / "README.md")
        assert "completed" in editor.statuses()

        answer = await connection.prompt(session, [text_block("write notes.md: hi")])
        assert answer.stop_reason == "end_turn"
        assert (household.workspace / "notes.md").read_text().strip() == "hi"
        call, choices = editor.asked[0]
        assert "\n" not in (call.title or "")
        assert [one.kind for one in choices if one.kind != "allow_always"] == ["allow_once", "reject_once"]
        diff = next(one for one in call.content or [] if one.type == "diff")
        assert (diff.path, diff.old_text, diff.new_text.strip()) == (str(household.workspace / "notes.md"), None, "hi")

        editor.choose = lambda options: "reject"
        await connection.prompt(session, [text_block("run git status")])
        assert "failed" in editor.statuses()
        assert (await household.person.record())[-1].status.value == "rejected"
        (listed,) = (await connection.list_sessions(cwd=str(household.workspace))).sessions
        assert listed.session_id == session
    again = Editor()
    async with opened(household, again, "--project", household.project_id) as connection:
        await connection.load_session(str(household.workspace), session)
        shown = [one.content.text for one in again.updates if one.session_update != "tool_call"]
        assert "read README.md" in shown
        calls = [one for one in again.updates if one.session_update == "tool_call"]
        assert [(one.kind, one.status) for one in calls] == [
            ("read", "completed"),
            ("edit", "completed"),
            ("execute", "failed"),
        ]
        assert "hello" in calls[0].content[0].content.text
        assert again.updates.index(calls[0]) > 0, "after the message that asked for it"
        with pytest.raises(RequestError, match="no session"):
            await connection.load_session(str(household.workspace), "sess_unknown")
        with pytest.raises(RequestError, match="no session"):
            await connection.prompt("acp_unknown", [text_block("hi")])


async def test_the_editors_own_servers_are_refused_in_words_and_errors_have_their_own_codes(
    household: Household,
) -> None:
    editor = Editor()
    async with opened(household, editor, "--project", household.project_id) as connection:
        servers: list[Any] = [McpServerStdio(name="files", command="x", args=[], env=[])]
        session = (await connection.new_session(cwd=str(household.workspace), mcp_servers=servers)).session_id
        for _ in range(2):
            await connection.prompt(session, [text_block("read README.md")])
        assert editor.said.count("Byleave does not use the MCP servers of your editor (`files`)") == 1
        with pytest.raises(RequestError) as unknown:
            await connection.load_session(str(household.workspace), "sess_unknown")
        assert unknown.value.code == -32002
        with pytest.raises(RequestError) as empty:
            await connection.prompt(session, [text_block(" ")])
        assert empty.value.code == -32603, "-32000 would ask the user to sign in"


async def test_answers_that_go_to_a_file_are_written_there(household: Household) -> None:
    asked, answers = household.home / "asked", household.home / "answers"
    asked.write_text('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n')
    environment = {
        "BYLEAVE_SERVER_URL": household.url,
        "BYLEAVE_TOKEN": household.token(Scope.CHAT, Scope.APPROVE, Scope.EXECUTE),
        "BYLEAVE_HOME": str(household.home.parent / "client"),
        "PATH": os.environ["PATH"],
    }
    with asked.open("rb") as source, answers.open("wb") as target:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "byleave.cli.main", "acp", stdin=source, stdout=target, env=environment
        )
        async with asyncio.timeout(LIMIT_SECONDS):
            assert await program.wait() == 0
    assert '"agentInfo"' in answers.read_text()


async def test_an_always_of_the_dialog_saves_the_rule_that_was_shown(household: Household) -> None:
    editor = Editor(choose=lambda options: next(one.option_id for one in options if one.kind == "allow_always"))
    async with opened(household, editor, "--project", household.project_id) as connection:
        session = (await connection.new_session(str(household.workspace))).session_id
        await connection.prompt(session, [text_block("write notes.md: hi")])
        await connection.prompt(session, [text_block("write notes.md: again")])
    assert len(editor.asked) == 1
    (grant,) = (await household.person.api.grants()).grants
    assert grant.scope is ApprovalScope.CLASS


@asynccontextmanager
async def with_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *turns: Turn) -> AsyncGenerator[Household]:
    with open_model_server(by_step(*turns)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        async with open_household(tmp_path, model="openai-chat:scripted") as household:
            yield household


async def test_what_is_decided_elsewhere_counts_and_a_late_answer_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = Editor(hold=asyncio.Event(), choose=lambda options: "reject")
    turns = (
        call("write_file", {"path": "a.md", "content": "one"}),
        call("write_file", {"path": "b.md", "content": "two"}),
        say("Done."),
    )
    async with (
        with_model(tmp_path, monkeypatch, *turns) as household,
        opened(household, editor, "--project", household.project_id) as connection,
    ):
        session = (await connection.new_session(str(household.workspace))).session_id
        prompting = asyncio.create_task(connection.prompt(session, [text_block("go")]))
        await editor.until(lambda: len(editor.asked) == 1)
        question = await household.person.until("tool.approval_request")
        await household.person.approve(question.approval_id)  # type: ignore[union-attr]
        await editor.until(lambda: len(editor.asked) == 2)
        assert (household.workspace / "a.md").read_text() == "one"
        assert editor.hold is not None
        editor.hold.set()  # now both are answered: too late for the first, in time for the second
        await prompting
        assert "Already decided: approved" in editor.said
        assert "Done." in editor.said
        assert not (household.workspace / "b.md").exists()


async def test_cancel_stops_the_run_and_the_next_prompt_works(household: Household) -> None:
    editor = Editor(hold=asyncio.Event())
    async with opened(household, editor, "--project", household.project_id) as connection:
        session = (await connection.new_session(str(household.workspace))).session_id
        prompting = asyncio.create_task(connection.prompt(session, [text_block("write a.md: one")]))
        await editor.until(lambda: len(editor.asked) == 1)
        with pytest.raises(RequestError, match="busy"):
            await connection.prompt(session, [text_block("hi")])
        await connection.cancel(session)
        assert (await prompting).stop_reason == "cancelled"
        editor.hold = None
        assert (await connection.prompt(session, [text_block("read README.md")])).stop_reason == "end_turn"
    assert not (household.workspace / "a.md").exists()


async def test_another_directory_gets_its_own_project_and_a_client_that_executes_there(household: Household) -> None:
    other = household.home.parent / "other"
    other.mkdir()
    (other / "README.md").write_text("elsewhere\n")
    editor = Editor()
    async with opened(household, editor) as connection:
        session = (await connection.new_session(str(other))).session_id
        link = resource_link_block("README.md", "README.md")
        await connection.prompt(session, [text_block("read README.md")])
        assert "elsewhere" in editor.said
        with pytest.raises(RequestError, match="Only text"):
            await connection.prompt(session, [link, image_block("AAAA", "image/png")])
        with pytest.raises(RequestError, match="empty"):
            await connection.prompt(session, [text_block(" ")])
        with pytest.raises(RequestError, match="characters"):
            await connection.prompt(session, [text_block("x" * 100_001)])
        with pytest.raises(RequestError, match="does not exist"):
            await connection.new_session(str(other / "nowhere"))
    async with opened(household, editor, "--project", household.project_id) as connection:
        await connection.new_session(str(household.workspace))
        with pytest.raises(RequestError, match="works in"):
            await connection.new_session(str(other))


async def test_a_run_that_fails_is_a_refusal_that_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = Editor()
    async with (
        with_model(tmp_path, monkeypatch, refuse_with(401)) as household,
        opened(household, editor) as connection,
    ):
        session = (await connection.new_session(str(household.workspace))).session_id
        answer = await connection.prompt(session, [text_block("hello")])
    assert answer.stop_reason == "refusal"
    assert editor.said


async def test_a_token_that_may_not_approve_is_told_and_the_question_stays_open(household: Household) -> None:
    editor = Editor()
    async with opened(household, editor, scopes=(Scope.CHAT, Scope.EXECUTE)) as connection:
        session = (await connection.new_session(str(household.workspace))).session_id
        prompting = asyncio.create_task(connection.prompt(session, [text_block("write a.md: one")]))
        await editor.until(lambda: "The answer was not taken" in editor.said)
        (waiting,) = (await household.person.api.approvals()).approvals
        await household.person.api.reject(waiting.project_id, waiting.id, RejectBody(reason="not now"))
        await prompting
    assert not (household.workspace / "a.md").exists()


def test_places_outside_the_directory_are_never_named_to_the_editor() -> None:
    root = Path("/home/ann/work")
    assert absolute({"path": "src/a.py"}, root) == root / "src" / "a.py"
    assert absolute({"path": "/home/ann/work/a.py"}, root) == root / "a.py"
    for outside in ("../secret", "/etc/passwd", "a/../../b", ".", "/home/ann/work-evil/a", 3):
        assert absolute({"path": outside}, root) is None


def test_what_a_write_leaves_is_shown_only_when_it_is_known() -> None:
    assert written({"content": "b", "mode": "append"}, "a") == "ab"
    assert written({"content": "b"}, "a") == "b"
    assert written({"content": "x\n… 12 characters left out …\ny"}, "") is None
    assert written({"content": "x" * 300_000}, "") is None


@pytest.mark.parametrize(
    ("tool", "params", "expected"),
    [
        ("execute_command", {"command": "git", "args": ["log", "-1"]}, "git log -1"),
        ("execute_command", {"command": "git", "args": "log"}, "git"),
        ("read_file", {"path": "a\nb"}, "read_file a b"),
        ("search_web", {"query": "x" * 300}, f"search_web {'x' * 188}…"),
        ("other", {}, "other"),
    ],
)
def test_a_call_has_a_title_of_one_line(tool: str, params: JsonObject, expected: str) -> None:
    assert title(tool, params) == expected
