"""A write to a protected name beside a command that runs: the command never gets hold of what was written."""

import asyncio

import pytest

from byleave.protocol.errors import ToolFailure
from byleave.protocol.tools import TOOLS, ExecuteCommandResult
from byleave.workspace.sandbox.protected_names import SECONDS, WriteExclusion
from byleave.workspace.workspace import Workspace
from harness.place import Place

pytestmark = pytest.mark.promise("S")

_WAITS_AND_WRITES = """
import os, time
print('ready', flush=True)
while not os.path.exists('go'):
    time.sleep(0.01)
try:
    open('.envrc', 'w').write('of the command')
except OSError:
    print('kept off')
"""


@pytest.mark.parametrize("there", ["a file", "a link", "missing"])
@pytest.mark.parametrize("path", [".envrc", "here/.envrc"])
async def test_command_cannot_change_what_is_written_beside_it(
    workspace: Workspace, place: Place, there: str, path: str
) -> None:
    (place.root / "here").symlink_to(".")
    if there == "a file":
        place.file(".envrc", "before")
    elif there == "a link":
        place.file("shared/envrc", "before")
        (place.root / ".envrc").symlink_to("shared/envrc")
    ready = asyncio.Event()
    command = asyncio.ensure_future(
        workspace.run(
            "execute_command",
            {"command": "python", "args": ["-c", _WAITS_AND_WRITES]},
            on_output=lambda *_: ready.set(),
        )
    )
    await ready.wait()
    writing = asyncio.ensure_future(workspace.run("write_file", {"path": path, "content": "of the write"}))
    await asyncio.wait([writing], timeout=0.3)
    assert (await workspace.run("write_file", {"path": "go", "content": ""})).success, "others need not wait"
    ended = await command
    assert isinstance(ended, ExecuteCommandResult)
    assert "kept off" in ended.stdout
    assert (await writing).success
    assert (place.root / ".envrc").read_text() == "of the write"


async def test_write_does_not_wait_for_a_command_that_only_reads(workspace: Workspace, place: Place) -> None:
    place.file("log", "one line\n")
    ready = asyncio.Event()
    follow = {"command": "tail", "args": ["-f", "log"]}
    command = asyncio.ensure_future(workspace.run("execute_command", follow, on_output=lambda *_: ready.set()))
    await ready.wait()
    async with asyncio.timeout(10):
        assert (await workspace.run("write_file", {"path": ".envrc", "content": "new"})).success
    assert not command.done()
    command.cancel()
    await asyncio.wait([command])


async def test_write_that_waited_too_long_says_what_it_waits_for() -> None:
    turns = WriteExclusion(seconds=0.01)
    async with turns.command():
        with pytest.raises(ToolFailure, match="commands are still running") as caught:
            async with turns.write(".vscode/settings.json"):
                pass
    assert caught.value.hint == "Wait until they have ended, or cancel them."
    async with turns.write(".vscode/settings.json"):
        pass


async def test_write_that_is_called_off_while_it_waits_leaves_at_once() -> None:
    turns = WriteExclusion()

    async def write() -> None:
        async with turns.write(".envrc"):
            pass

    async with turns.command(), asyncio.timeout(10):
        writing = asyncio.ensure_future(write())
        await asyncio.sleep(0)
        writing.cancel()
        assert await asyncio.gather(writing, return_exceptions=True) != [None]
        async with turns.command():
            pass
    await write()


def test_write_is_told_what_it_waits_for_before_its_own_time_is_up() -> None:
    assert TOOLS["write_file"].timeout_seconds > SECONDS + 15


async def test_write_to_what_a_link_led_to_waits_also_when_the_command_replaced_the_link() -> None:
    turns = WriteExclusion(seconds=0.01)
    async with turns.command({"shared/envrc"}):
        with pytest.raises(ToolFailure, match="commands are still running"):
            async with turns.write("shared/envrc"):
                pass
        async with turns.write("shared/other"):
            pass


async def test_command_waits_for_a_write_that_has_begun_and_no_other() -> None:
    turns = WriteExclusion()

    async def run() -> None:
        async with turns.command():
            pass

    async with turns.write("src/.envrc"):
        await run()
    async with turns.write(".envrc"):
        command = asyncio.ensure_future(run())
        await asyncio.sleep(0)
        assert not command.done()
    await command
