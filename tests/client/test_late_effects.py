"""A call whose time is up has no effect any more, wherever it waited: in the queue, for a lock, or in the middle."""

import asyncio
import contextlib
import fcntl
import threading
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import pytest

from byleave.client.handler import ToolHandler
from byleave.protocol.errors import ExecutionCancelled, UnreachableError
from byleave.protocol.tools import ExecuteCommandResult, WriteFileResult
from byleave.protocol.wire import JsonObject, steady
from byleave.settings import ClientSettings
from byleave.workspace import stopping
from byleave.workspace.files import writing
from byleave.workspace.paths import PathValidator
from byleave.workspace.sandbox import processes
from byleave.workspace.undo.recorder import KeptWrite, Running, UndoRecorder
from byleave.workspace.undo.restoring import UndoHistory
from byleave.workspace.undo.snapshots import Change
from byleave.workspace.workspace import Workspace

from .conftest import MakeApproved, MakeHandler, RecordingLink, in_seconds, make_cancel

pytestmark = pytest.mark.promise("C2", "C7")

SOON = 0.3


async def test_a_write_that_waits_for_a_lock_past_its_deadline_is_not_done(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    with (root / "a.txt").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        params = {"path": "a.txt", "content": "late\n"}
        handler.handle_tool_execution_signal(approved("exec_1", "write_file", params, deadline=in_seconds(SOON)))
        began = time.monotonic()
        report = await link.report("exec_1")
        assert time.monotonic() - began < 4, "it must not wait for the lock any longer"
    assert (report["status"], report["error_type"]) == ("failed", "execution_timeout")
    assert (root / "a.txt").read_text() == "hello\n"


async def test_a_command_is_ended_when_its_deadline_passes(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved
) -> None:
    params = {"command": "python", "args": ["-c", "import time; time.sleep(60)"], "timeout": 60}
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", params, deadline=in_seconds(1)))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "execution_timeout")
    assert "It did not end within" in report["error"]


async def test_what_waited_in_the_queue_past_its_deadline_is_not_run_without_the_servers_word(
    make_handler: MakeHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    link.begin_failure = UnreachableError("away")
    handler = await make_handler(concurrency=1)
    with (root / "a.txt").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        first = {"path": "a.txt", "content": "first"}
        handler.handle_tool_execution_signal(approved("exec_1", "write_file", first, deadline=in_seconds(2 * SOON)))
        second = {"path": "b.txt", "content": "late"}
        handler.handle_tool_execution_signal(approved("exec_2", "write_file", second, deadline=in_seconds(SOON)))
        report = await link.report("exec_2")
    assert (report["status"], report["error_type"]) == ("failed", "execution_timeout")
    assert not (root / "b.txt").exists()


async def test_time_that_is_up_right_before_the_effect_is_seen_although_nobody_called_it_off(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    """As after a machine slept: the clock has jumped, and no timer has come yet."""
    acting = handler._journal.acting

    async def acting_slowly(tool_id: str, tool_name: str, digest: str, *, durable: bool) -> None:
        await acting(tool_id, tool_name, digest, durable=durable)
        # The server's clock is what deadlines are on; it is far ahead now.
        handler._checks.server_offset += 3600

    handler._journal.acting = acting_slowly
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "b.txt", "content": "late"}))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "execution_timeout")
    assert "nothing was run" in report["error"]
    assert not (root / "b.txt").exists()


@pytest.mark.parametrize("hours", [-1, 1])
async def test_setting_the_wall_clock_makes_no_call_late_or_early(
    handler: ToolHandler,
    link: RecordingLink,
    approved: MakeApproved,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    handler.set_server_time(datetime.now(UTC))
    past = steady() - 1
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + hours * 3600)
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "b.txt", "content": "in time"}))
    assert (await link.report("exec_1"))["status"] == "completed"
    assert stopping.is_late(past)
    assert abs(handler.server_ahead + hours * 3600) < 2, "questions are timed by it"


@pytest.mark.parametrize(
    ("tool_name", "params"),
    [
        ("write_file", {"path": "b.txt", "content": "late"}),
        ("write_file", {"path": "new/b.txt", "content": "late", "mode": "append"}),
        ("execute_command", {"command": "python", "args": ["-c", "open('b.txt', 'w').write('late')"]}),
        ("search_web", {"query": "late"}),
    ],
)
async def test_the_workspace_does_nothing_past_the_time_it_is_given(
    tmp_path: Path, root: Path, tool_name: str, params: JsonObject
) -> None:
    workspace = Workspace(root, ClientSettings(home=tmp_path / "home"))
    try:
        for recorded in (None, "exec_1"):
            with pytest.raises(ExecutionCancelled):
                await workspace.run(tool_name, params, record_as=recorded, until=steady() - 1)
    finally:
        await workspace.close()
    assert [path.name for path in root.iterdir()] == ["a.txt"]


async def test_a_write_whose_time_is_up_while_what_it_replaces_is_kept_is_not_done(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = steady() + 3600
    keep = UndoRecorder.keep_old

    def slowly(recorder: UndoRecorder, write: KeptWrite, replacing: writing.Replacing) -> None:
        keep(recorder, write, replacing)
        monkeypatch.setattr(stopping, "steady", lambda: until + 1)

    monkeypatch.setattr(UndoRecorder, "keep_old", slowly)
    async with _opened(root, tmp_path) as workspace:
        for path in ("a.txt", "new/b.txt"):
            monkeypatch.setattr(stopping, "steady", steady)
            with pytest.raises(ExecutionCancelled):
                await workspace.run("write_file", {"path": path, "content": "late"}, record_as="exec_1", until=until)
    assert {path.name: path.read_text() for path in root.iterdir()} == {"a.txt": "hello\n"}
    with (
        contextlib.closing(PathValidator(root)) as paths,
        contextlib.closing(UndoHistory(paths, tmp_path / "home")) as kept,
    ):
        assert kept.entries() == [], "and nothing that was not done can be undone"


@contextlib.asynccontextmanager
async def _opened(root: Path, tmp_path: Path) -> AsyncGenerator[Workspace]:
    workspace = Workspace(root, ClientSettings(home=tmp_path / "home"))
    yield workspace
    await workspace.close()


class _Limit:
    """Time that is up exactly when a test says so, from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.timeout(60)
        self._seen = threading.Event()

    async def __aenter__(self) -> None:
        await self._over.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._over.__aexit__(kind, error, trace)

    def is_up(self) -> None:
        """Over when this returns: the call has been cancelled."""
        self._loop.call_soon_threadsafe(self._end)
        assert self._seen.wait(10)

    def _end(self) -> None:
        self._over.reschedule(self._loop.time())
        self._loop.call_soon(self._loop.call_soon, self._seen.set)


@pytest.mark.parametrize("recorded", [None, "exec_1"])
async def test_a_write_that_was_done_when_its_time_was_up_is_told_as_done(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, recorded: str | None
) -> None:
    """Told as not ended, an agent would append once more."""
    sync, limit = writing.sync_directory, _Limit()

    def late(fd: int) -> bool:
        limit.is_up()
        return sync(fd)

    monkeypatch.setattr(writing, "sync_directory", late)
    async with _opened(root, tmp_path) as workspace, limit:
        params: JsonObject = {"path": "a.txt", "content": "two\n", "mode": "append"}
        result = await workspace.run("write_file", params, record_as=recorded)
        assert isinstance(result, WriteFileResult)
        assert result.size == len("hello\ntwo\n")
    assert (root / "a.txt").read_text() == "hello\ntwo\n"


@pytest.mark.parametrize("during", ["its last processes are ended", "its changes are looked at"])
async def test_a_command_that_had_ended_when_its_time_was_up_is_told_as_done(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    limit = _Limit()
    if during.startswith("its last"):
        end = processes._Tree.end

        async def ending(tree: processes._Tree) -> None:
            await asyncio.to_thread(limit.is_up)
            await end(tree)

        monkeypatch.setattr(processes._Tree, "end", ending)
    else:
        look = UndoRecorder.end

        def looking(recorder: UndoRecorder, running: Running) -> dict[str, Change]:
            limit.is_up()
            return look(recorder, running)

        monkeypatch.setattr(UndoRecorder, "end", looking)
    async with _opened(root, tmp_path) as workspace, limit:
        params: JsonObject = {"command": "python", "args": ["-c", "open('b.txt', 'w').write('done')"]}
        result = await workspace.run("execute_command", params, record_as="exec_1")
        assert isinstance(result, ExecuteCommandResult)
        assert (result.exit_code, [change.path for change in result.changed]) == (0, ["b.txt"])


async def test_a_write_that_was_done_when_it_was_called_off_is_reported_as_done(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, loop, called_off = writing.sync_directory, asyncio.get_running_loop(), threading.Event()
    event = make_cancel("exec_1")

    def call_off() -> None:
        handler.handle_tool_cancel_signal(event)
        handler.handle_tool_cancel_signal(event)
        called_off.set()

    def late(fd: int) -> bool:
        loop.call_soon_threadsafe(call_off)
        assert called_off.wait(10)
        return sync(fd)

    monkeypatch.setattr(writing, "sync_directory", late)
    params = {"path": "a.txt", "content": "two\n", "mode": "append"}
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", params))
    report = await link.report("exec_1")
    assert report["status"] == "completed"
    assert (root / "a.txt").read_text() == "hello\ntwo\n"
