"""A call whose time is up has no effect any more, wherever it waited: in the queue, for a lock, or in the middle."""

import fcntl
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assent.protocol.errors import ExecutionCancelled
from assent.settings import ClientSettings
from assent.workspace import Workspace

from .conftest import in_seconds

pytestmark = pytest.mark.promise("C2", "C7")

SOON = 0.3


async def test_a_write_that_waits_for_a_lock_past_its_deadline_is_not_done(
    handler: Any, link: Any, approved: Any, root: Path
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


async def test_a_command_is_ended_when_its_deadline_passes(handler: Any, link: Any, approved: Any) -> None:
    params = {"command": "python", "args": ["-c", "import time; time.sleep(60)"], "timeout": 60}
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", params, deadline=in_seconds(1)))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "execution_timeout")
    assert "It did not end within" in report["error"]


async def test_what_waited_in_the_queue_past_its_deadline_is_not_run(
    make_handler: Any, link: Any, approved: Any, root: Path
) -> None:
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
    handler: Any, link: Any, approved: Any, root: Path
) -> None:
    """As after a machine slept: the clock has jumped, and no timer has come yet."""
    acting = handler._journal.acting

    async def acting_slowly(*given: Any, **named: Any) -> None:
        await acting(*given, **named)
        # The server's clock is what deadlines are on; it is far ahead now.
        handler._checks.server_ahead += timedelta(hours=1)

    handler._journal.acting = acting_slowly
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "b.txt", "content": "late"}))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "execution_timeout")
    assert "nothing was run" in report["error"]
    assert not (root / "b.txt").exists()


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
    tmp_path: Path, root: Path, tool_name: str, params: dict[str, Any]
) -> None:
    workspace = Workspace(root, ClientSettings(home=tmp_path / "home"))
    try:
        for recorded in (None, "exec_1"):
            with pytest.raises(ExecutionCancelled):
                await workspace.run(tool_name, params, record_as=recorded, until=time.time() - 1)
    finally:
        await workspace.close()
    assert [path.name for path in root.iterdir()] == ["a.txt"]
