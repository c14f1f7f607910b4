"""The whole client against a real server on 127.0.0.1 that misbehaves."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest

from byleave.client.approvals import Answer, ApprovalPrompt, Question
from byleave.client.connection import ClientConnection, OnEvent, connect_client
from byleave.client.identity import save_token
from byleave.protocol.errors import ByleaveError, CallerError, ConfigurationError, NotFound, RefusedError
from byleave.protocol.events import ApprovalDecided, ChatText, ResultAcknowledged
from byleave.protocol.states import ApprovalStatus, ExecutionStatus
from byleave.protocol.wire import now
from byleave.settings import ClientSettings
from harness.json_values import JsonObject

from .conftest import MakeApproved, MakeCancel, MakeRequest, MakeSignal, StubServer

PROJECT = "project_1"


class Running:
    """A client that runs, and what it takes to end it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.task = asyncio.create_task(connection.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.connection.close()


@pytest.fixture
def settings(server: StubServer, tmp_path: Path) -> ClientSettings:
    return ClientSettings(home=tmp_path / "home", server_url=server.url, token="a.b.c")  # pyright: ignore[reportArgumentType]


class Start(Protocol):
    async def __call__(self, prompt: ApprovalPrompt | None = None, on_event: OnEvent | None = None) -> Running: ...


@pytest.fixture
async def start(settings: ClientSettings, root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    monkeypatch.setattr("byleave.client.connection.FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("byleave.client.connection.LONGEST_PAUSE_SECONDS", 0.05)
    running: list[Running] = []

    async def make(prompt: ApprovalPrompt | None = None, on_event: OnEvent | None = None) -> Running:
        running.append(Running(connect_client(settings, PROJECT, root, prompt, on_event=on_event)))
        return running[-1]

    yield make
    for one in running:
        await one.stop()


async def connected(running: Running) -> str:
    async with asyncio.timeout(10):
        await running.connection.connected.wait()
    return running.connection.client_id


def reports(server: StubServer) -> JsonObject:
    return {request.path.split("/")[-2]: request.body for request in server.seen("/result")}


@pytest.mark.promise("W8", "W9", "W10", "W11", "R2", "R3", "X6")
async def test_a_signal_on_the_feed_becomes_a_posted_result(
    start: Start, server: StubServer, signal: MakeSignal, root: Path
) -> None:
    events: list[int] = []
    running = await start(on_event=lambda number, event: events.append(number))
    client_id = await connected(running)
    stream = server.seen("/stream")[0]
    assert (stream.query["client"], stream.query["workspace"]) == (client_id, str(root))
    assert stream.query["isolation"]
    server.event(1, ChatText(timestamp=now(), session_id="s", run_id="r", text="hi"))
    server.event(2, signal("exec_1", client_id=client_id))
    await server.until(lambda: "exec_1" in reports(server))
    post = server.seen("/result")[0]
    assert post.path == f"/my/projects/{PROJECT}/tools/exec_1/result"
    assert post.headers["Byleave-Client"] == client_id
    assert post.body["result"]["content"] == "hello\n"
    server.event(
        3, ResultAcknowledged(timestamp=now(), tool_id="exec_1", status=ExecutionStatus.COMPLETED, session_id="s")
    )
    server.feed.put_nowait("drop")
    await server.until(lambda: server.streams == 2)
    assert server.seen("/stream")[1].headers["Last-Event-ID"] == "3"
    assert events == [1, 2, 3]


@pytest.mark.promise("T6")
@pytest.mark.parametrize("url", [None, "http://127.0.0.1:9"])
async def test_a_machine_without_a_search_provider_says_so_before_any_call(
    settings: ClientSettings, start: Start, server: StubServer, url: str | None
) -> None:
    object.__setattr__(settings, "searxng_url", url)
    await connected(await start())
    unable = server.seen("/policy")[0].body["unable"]
    assert list(unable) == ([] if url else ["search_web"])
    assert url or "No web search provider is configured. Set BYLEAVE_SEARXNG_URL" in unable["search_web"]


@pytest.mark.promise("C1", "C5")
async def test_a_signal_repeated_after_a_break_runs_once(
    start: Start, server: StubServer, approved: MakeApproved, root: Path
) -> None:
    running = await start()
    params = {"path": "log.txt", "content": "once\n", "mode": "append"}
    event = approved("exec_1", "write_file", params, client_id=await connected(running))
    server.event(1, event)
    server.feed.put_nowait("drop")
    await server.until(lambda: "exec_1" in reports(server))
    server.event(1, event)
    server.event(2, event)
    server.event(3, approved("exec_2", "write_file", {"path": "x.txt", "content": ""}, client_id=event.client_id))
    await server.until(lambda: "exec_2" in reports(server))
    assert (root / "log.txt").read_text() == "once\n"


@pytest.mark.promise("C5")
async def test_results_the_server_could_not_take_arrive_after_it_can(
    start: Start, server: StubServer, signal: MakeSignal
) -> None:
    running = await start()
    client_id = await connected(running)
    server.answers["/result"] = [(500, {}), (0, {}), (503, "busy"), (503, "busy")]
    server.event(1, signal("exec_1", client_id=client_id))
    await server.until(lambda: len(server.seen("/result")) == 3)
    while running.connection.handler._tasks:
        await asyncio.gather(*running.connection.handler._tasks)
    del server.answers["/result"]
    server.feed.put_nowait("end")
    await server.until(lambda: len(server.seen("/result")) == 4)
    assert [request.body["status"] for request in server.seen("/result")] == ["completed"] * 4


@pytest.mark.promise("C5")
async def test_a_restarted_client_delivers_what_the_last_one_could_not(
    start: Start, server: StubServer, signal: MakeSignal
) -> None:
    first = await start()
    client_id = await connected(first)
    server.answers["/result"] = [(503, "busy")]
    event = signal("exec_1", client_id=client_id)
    server.event(1, event)
    await server.until(lambda: len(server.seen("/result")) >= 1)
    await first.stop()
    del server.answers["/result"]
    before = len(server.seen("/result"))
    second = await start()
    assert await connected(second) == client_id
    await server.until(lambda: len(server.seen("/result")) > before)
    assert server.seen("/result")[-1].body["status"] == "completed"
    assert "Last-Event-ID" not in server.seen("/stream")[-1].headers


async def test_garbage_on_the_stream_does_not_stop_the_client(
    start: Start, server: StubServer, signal: MakeSignal
) -> None:
    running = await start()
    client_id = await connected(running)
    unreadable = signal("exec_1", client_id=client_id).model_dump() | {"from_the_future": 1}
    elsewhere = unreadable | {"tool_id": "exec_2", "client_id": "client_2"}
    for data in (json.dumps(unreadable), json.dumps(elsewhere), "{", "[]", '{"kind":"tool.execution_signal"}'):
        server.feed.put_nowait(f"id: 1\nevent: tool.execution_signal\ndata: {data}\n\n".encode())
    server.feed.put_nowait(b"\xff\xfe\x00garbage\n\nid: nine\nevent: chat.text\ndata: {}\n\n")
    server.event(3, signal("exec_3", client_id=client_id))
    await server.until(lambda: {"exec_1", "exec_3"} <= reports(server).keys())
    assert reports(server)["exec_1"]["error_type"] == "invalid"
    assert reports(server)["exec_3"]["status"] == "completed"
    assert "exec_2" not in reports(server)


async def test_a_server_that_comes_back_is_found_again(start: Start, server: StubServer) -> None:
    running = await start()
    await connected(running)
    await server.stop()
    async with asyncio.timeout(10):
        while running.connection.connected.is_set():
            await asyncio.sleep(0.01)
    assert not running.task.done()
    await server.start()
    await connected(running)
    assert server.streams == 2


async def test_a_long_connection_starts_the_pauses_anew(
    start: Start, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.client.connection.GOOD_SECONDS", 0)
    running = await start()
    for number in range(1, 4):
        server.feed.put_nowait("end")
        await server.until(lambda number=number: server.streams == number + 1)
    assert running.connection._failures <= 1


@pytest.mark.parametrize(("status", "error"), [(401, ConfigurationError), (403, RefusedError), (404, NotFound)])
async def test_what_trying_again_cannot_mend_ends_the_client(
    start: Start, server: StubServer, status: int, error: type[ByleaveError]
) -> None:
    server.stream_answer = (status, {"title": "", "status": status, "detail": "No."})
    running = await start()
    async with asyncio.timeout(10):
        with pytest.raises(error):
            await running.task
    assert len(server.seen("/stream")) == 1


@pytest.mark.parametrize(("status", "error"), [(401, ConfigurationError), (403, RefusedError), (404, NotFound)])
async def test_the_servers_own_refusal_ends_a_client_that_was_connected(
    start: Start, server: StubServer, status: int, error: type[ByleaveError]
) -> None:
    running = await start()
    await connected(running)
    server.stream_answer = (status, {"title": "", "status": status, "detail": "No."})
    server.feed.put_nowait("drop")
    async with asyncio.timeout(10):
        with pytest.raises(error, match=r"No\."):
            await running.task


@pytest.mark.promise("C5")
@pytest.mark.parametrize("status", [200, 204, 302, 400, 401, 403, 404, 405, 421])
async def test_a_web_page_in_the_servers_place_is_waited_out(start: Start, server: StubServer, status: int) -> None:
    running = await start()
    await connected(running)
    server.page = status
    server.feed.put_nowait("drop")
    await server.until(lambda: len(server.seen("/policy")) >= 3)
    server.page = None
    await server.until(lambda: server.streams == 2)
    assert not running.task.done()


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (200, ConfigurationError, "has no feed"),
        (204, ConfigurationError, "has no feed"),
        (302, ConfigurationError, "redirect to 'http"),
        (400, CallerError, "answered 400"),
        (401, ConfigurationError, "answered 401"),
        (403, RefusedError, "answered 403"),
    ],
)
async def test_a_web_page_at_first_contact_ends_the_client(
    start: Start, server: StubServer, status: int, error: type[ByleaveError], words: str
) -> None:
    server.page = status
    running = await start()
    async with asyncio.timeout(10):
        with pytest.raises(error, match=words):
            await running.task


async def test_a_cancelled_command_is_reported(
    start: Start, server: StubServer, approved: MakeApproved, cancel: MakeCancel, root: Path
) -> None:
    running = await start()
    client_id = await connected(running)
    code = "import time; open('started','w').close(); time.sleep(60)"
    params = {"command": "python", "args": ["-c", code]}
    server.event(1, approved("exec_1", "execute_command", params, client_id=client_id))
    async with asyncio.timeout(10):
        while not (root / "started").exists():
            await asyncio.sleep(0.01)
    server.event(2, cancel("exec_1", client_id=client_id))
    await server.until(lambda: "exec_1" in reports(server))
    assert reports(server)["exec_1"]["error_type"] == "cancelled"


class Yes:
    """Says yes to everything it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.said: list[str] = []

    async def ask(self, question: Question) -> Answer | None:
        self.asked.append(question.event.approval_id)
        return Answer(allow=True)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


@pytest.mark.promise("R4")
async def test_questions_come_from_the_feed_and_from_the_servers_list(
    start: Start, server: StubServer, request_event: MakeRequest
) -> None:
    waiting = request_event("approval_1")
    shown = {"session_id", "agent_id", "tool_name", "tool_params", "digest", "risk_level", "findings", "network",
             "description", "timeout_seconds", "deadline"}  # fmt: skip
    listed = waiting.model_dump(mode="json", include=shown) | {
        "id": "approval_1", "user_id": "u", "project_id": PROJECT, "tool_ids": ["exec_1"], "status": "pending",
        "created_at": now(),
    }  # fmt: skip
    server.answers["/my/approvals"] = [(200, {"approvals": [listed], "total_count": 1})]
    server.answers["/approve"] = [(200, {"success": True, "approval_id": "x", "status": "approved", "message": ""})]
    prompt = Yes()
    running = await start(prompt=prompt)
    await server.until(lambda: len(server.seen("/approvals/approval_1/approve")) == 1)
    server.event(1, request_event("approval_2"))
    await server.until(lambda: len(server.seen("/approvals/approval_2/approve")) == 1)
    assert server.seen("/approve")[-1].body["digest"] == waiting.digest
    assert prompt.asked == ["approval_1", "approval_2"]
    decided = ApprovalDecided(
        timestamp=now(), approval_id="approval_3", tool_ids=[], status=ApprovalStatus.TIMEOUT, decided_by=None,
        reason=None, session_id=None,
    )  # fmt: skip
    server.event(2, decided)
    server.answers["/my/approvals"] = [(403, "no")]
    server.feed.put_nowait("end")
    await server.until(lambda: len(server.seen("/my/approvals")) == 2)
    assert not running.task.done()


async def test_a_client_needs_a_token(server: StubServer, tmp_path: Path, root: Path) -> None:
    settings = ClientSettings(home=tmp_path / "home", server_url=server.url)
    with pytest.raises(ConfigurationError, match="There is no token") as caught:
        connect_client(settings, PROJECT, root)
    assert "BYLEAVE_TOKEN" in (caught.value.hint or "")
    save_token(settings.home, "stored.token.x")
    async with connect_client(settings, PROJECT, root) as connection:
        assert connection.api._headers["Authorization"] == "Bearer stored.token.x"


FEW_FILES = """
import asyncio, resource, sys
from pathlib import Path
from pydantic import SecretStr
from byleave.client.connection import connect_client
from byleave.settings import ClientSettings

async def main():
    settings = ClientSettings(home=Path(sys.argv[1]), token=SecretStr("a.b.c"))
    async with connect_client(settings, "project_1", sys.argv[2]):
        print(resource.getrlimit(resource.RLIMIT_NOFILE))

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
asyncio.run(main())
"""


def test_a_client_may_open_all_the_files_the_system_allows(tmp_path: Path, root: Path) -> None:
    argv = [sys.executable, "-c", FEW_FILES, str(tmp_path / "home"), str(root)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "(300, 300)\n"


@pytest.mark.promise("G2")
async def test_the_owner_decides_which_commands_run(
    start: Start, server: StubServer, approved: MakeApproved, settings: ClientSettings, root: Path
) -> None:
    narrow = settings.model_copy(update={"allowed_commands": ("ls",)})
    running = Running(connect_client(narrow, PROJECT, root))
    try:
        client_id = await connected(running)
        server.event(
            1, approved("exec_1", "execute_command", {"command": "python", "args": ["-V"]}, client_id=client_id)
        )
        server.event(2, approved("exec_2", "execute_command", {"command": "ls"}, client_id=client_id))
        await server.until(lambda: len(reports(server)) == 2)
    finally:
        await running.stop()
    assert reports(server)["exec_1"]["error_type"] == "refused"
    assert reports(server)["exec_2"]["status"] == "completed"


async def test_a_workspace_that_is_not_there_leaves_no_lock_behind(settings: ClientSettings, root: Path) -> None:
    missing = root / "missing"
    with pytest.raises(ByleaveError):
        connect_client(settings, PROJECT, missing)
    missing.mkdir()
    async with connect_client(settings, PROJECT, missing):
        with pytest.raises(ConfigurationError, match="Another client already works"):
            connect_client(settings, PROJECT, missing)
