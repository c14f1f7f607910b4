"""Undo: what writes and commands changed comes back byte for byte, and nothing else is touched."""

import asyncio
import contextlib
import ctypes
import errno
import gc
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from byleave.protocol.errors import CallerError, ConfigurationError, NotFound, ToolFailure
from byleave.protocol.tools import ExecuteCommandResult, WriteFileResult
from byleave.protocol.wire import now
from byleave.settings import ClientSettings
from byleave.workspace.commands.effects import runs_later
from byleave.workspace.files import drafts as swapping
from byleave.workspace.files.writing import write_beneath
from byleave.workspace.paths import PathValidator
from byleave.workspace.sandbox.protected_names import StandIns
from byleave.workspace.stopping import CommandTimeout
from byleave.workspace.undo import restoring
from byleave.workspace.undo import restoring as settling
from byleave.workspace.undo import restoring as undo_steps
from byleave.workspace.undo import store as undo_store
from byleave.workspace.undo.recorder import UndoRecorder
from byleave.workspace.undo.restoring import Step, UndoHistory
from byleave.workspace.undo.snapshots import Change, State, Tree, TreeScan, carried_over, changes_between
from byleave.workspace.undo.store import Entry, Index, ObjectStore, sweep
from byleave.workspace.workspace import Workspace
from harness.place import Place

pytestmark = pytest.mark.promise("L8-undo")


@pytest.fixture
def history(place: Place, settings: ClientSettings) -> Iterator[UndoHistory]:
    paths = PathValidator(place.root)
    history = UndoHistory(paths, settings.home)
    yield history
    history.close()
    paths.close()


async def write(workspace: Workspace, tool_id: str, path: str, content: str, **more: str) -> WriteFileResult:
    result = await workspace.run("write_file", {"path": path, "content": content, **more}, record_as=tool_id)
    assert isinstance(result, WriteFileResult)
    return result


async def python(workspace: Workspace, tool_id: str, code: str, **more: int) -> ExecuteCommandResult:
    params = {"command": "python3", "args": ["-c", code], **more}
    result = await workspace.run("execute_command", params, record_as=tool_id)
    assert isinstance(result, ExecuteCommandResult)
    return result


def change_index(home: Path, statement: str) -> None:
    index = next((home / "undo" / "workspaces").glob("*/index.db"))
    with contextlib.closing(sqlite3.connect(index, isolation_level=None)) as database:
        database.execute(statement)


def undo(history: UndoHistory, tool_id: str | None = None) -> str:
    with history.alone():
        plan = history.plan(history.entry(tool_id))
        assert (plan.conflicts, plan.lost) == ([], {})
        return history.apply(plan).id


Listing = dict[str, tuple[str, str | int] | tuple[int, bytes]]
"""By path: ("link", target), ("directory", mode), or a file's (mode, content)."""


def tree(root: Path) -> Listing:
    """Everything below a directory: kinds, modes, contents, what links say."""
    found: Listing = {}
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
                if entry.is_symlink():
                    found[name] = ("link", os.readlink(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    found[name] = ("directory", mode)
                    waiting.append(f"{name}/")
                else:
                    with open(entry.path, "rb") as file:
                        found[name] = (mode, file.read())
    return dict(sorted(found.items()))


# One call


async def test_a_replaced_file_comes_back_with_its_mode(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    file = place.file("a.sh", b"old\xff\r\n")
    file.chmod(0o750)
    before = tree(place.root)
    await write(workspace, "exec_1", "a.sh", "new")
    assert undo(history) in [entry.id for entry in history.entries()]
    assert tree(place.root) == before


async def test_a_new_file_and_the_directories_made_for_it_go(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("kept/b.txt", "b")
    before = tree(place.root)
    await write(workspace, "exec_1", "kept/x/y/new.txt", "new")
    undo(history, "exec_1")
    assert tree(place.root) == before


async def test_a_directory_with_a_file_of_the_users_stays(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    await write(workspace, "exec_1", "made/new.txt", "new")
    place.file("made/mine.txt", "mine")
    undo(history, "exec_1")
    assert list(tree(place.root)) == ["made", "made/mine.txt"]


async def test_what_a_command_did_is_undone_and_can_be_redone(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("a.txt", "a")
    place.file("d/b.txt", "b")
    place.file("d/c.txt", "c").chmod(0o600)
    (place.root / "link").symlink_to("a.txt")
    before = tree(place.root)
    code = (
        "import os, shutil\n"
        "open('a.txt','a').write('more'); os.rename('d/b.txt','b2.txt'); os.chmod('d/c.txt',0o444); os.unlink('link')\n"
        "os.symlink('b2.txt','link'); os.makedirs('n/m'); open('n/m/x','w').write('x'); os.chmod('d',0o500)\n"
    )
    result = await python(workspace, "exec_1", code)
    assert {(one.path, one.change) for one in result.changed} == {
        ("a.txt", "changed"),
        ("d/b.txt", "deleted"),
        ("b2.txt", "created"),
        ("d/c.txt", "changed"),
        ("link", "changed"),
        ("n/m/x", "created"),
    }
    assert result.changed_count == 6
    after = tree(place.root)
    redo = undo(history, "exec_1")
    assert tree(place.root) == before
    with pytest.raises(CallerError, match="already undone"):
        history.entry("exec_1")
    undo(history, redo)
    assert tree(place.root) == after
    undo(history)
    assert tree(place.root) == before


async def test_a_file_that_took_a_directorys_place_gives_it_back(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("d/a.txt", "a")
    place.file("f", "f")
    before = tree(place.root)
    code = "import os, shutil; shutil.rmtree('d'); open('d','w').write('now a file'); os.unlink('f'); os.mkdir('f')"
    await python(workspace, "exec_1", code)
    assert (place.root / "d").is_file()
    undo(history, "exec_1")
    assert tree(place.root) == before


@pytest.mark.parametrize("target", ["other", "/usr", "dir"])
async def test_a_link_that_took_a_directorys_place_gives_it_back_and_nothing_behind_it_changes(
    place: Place, workspace: Workspace, history: UndoHistory, target: str
) -> None:
    place.file("dir/in.txt", "inside")
    place.file("other/in.txt", "the user's")
    before = tree(place.root)
    await python(workspace, "exec_1", f"import os, shutil; shutil.rmtree('dir'); os.symlink({target!r}, 'dir')")
    after = tree(place.root)
    redo = undo(history, "exec_1")
    assert tree(place.root) == before
    undo(history, redo)
    assert tree(place.root) == after
    (place.root / "dir").unlink()
    (place.root / "dir").symlink_to("elsewhere")
    with history.alone():
        assert history.plan(history.entry("exec_1")).conflicts == ["dir"]


async def test_a_directory_that_took_a_links_place_gives_it_back_and_nothing_behind_it_changes(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("other/in.txt", "the user's")
    (place.root / "link").symlink_to("other")
    before = tree(place.root)
    code = "import os; os.unlink('link'); os.mkdir('link'); open('link/in.txt', 'w').write('new')"
    await python(workspace, "exec_1", code)
    after = tree(place.root)
    redo = undo(history, "exec_1")
    assert tree(place.root) == before
    undo(history, redo)
    assert tree(place.root) == after


async def test_a_command_past_its_time_is_recorded_with_what_it_changed(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("a.txt", "old")
    with pytest.raises(CommandTimeout) as caught:
        await python(workspace, "exec_1", "import time; open('a.txt','w').write('new'); time.sleep(60)", timeout=1)
    assert caught.value.partial is not None
    assert [one.path for one in caught.value.partial.changed] == ["a.txt"]
    undo(history, "exec_1")
    assert (place.root / "a.txt").read_text() == "old"


async def test_a_cancelled_command_is_recorded(place: Place, workspace: Workspace, history: UndoHistory) -> None:
    place.file("a.txt", "old")
    begun = asyncio.Event()
    params = {
        "command": "python3",
        "args": ["-c", "import time; open('a.txt','w').write('new'); print('x', flush=True); time.sleep(60)"],
    }

    def hear(*_: object) -> None:
        begun.set()

    work = asyncio.create_task(workspace.run("execute_command", params, on_output=hear, record_as="exec_1"))
    async with asyncio.timeout(20):
        await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    undo(history, "exec_1")
    assert (place.root / "a.txt").read_text() == "old"


async def test_a_failed_write_leaves_nothing_to_undo(place: Place, workspace: Workspace, history: UndoHistory) -> None:
    place.file("a.txt", "old").chmod(0o444)
    with pytest.raises(ToolFailure):
        await write(workspace, "exec_1", "a.txt", "new")
    with pytest.raises(NotFound, match="nothing to undo"):
        history.entry(None)
    with pytest.raises(NotFound, match="exec_1"):
        history.entry("exec_1")


async def test_what_the_user_saves_while_the_old_content_is_kept_is_neither_lost_nor_the_writes(
    place: Place, workspace: Workspace, history: UndoHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place.file("a.txt", "old")
    keep = UndoRecorder.keep_old

    def keep_and_save(*arguments: Any) -> None:
        keep(*arguments)
        place.file("a.txt", "saved by the user")

    with monkeypatch.context() as patch:
        patch.setattr(UndoRecorder, "keep_old", keep_and_save)
        with pytest.raises(ToolFailure, match="changed while it was written"):
            await write(workspace, "exec_1", "a.txt", "new")
    assert (file.read_text(), history.entries()) == ("saved by the user", [])
    await write(workspace, "exec_2", "a.txt", "new")
    undo(history, "exec_2")
    assert file.read_text() == "saved by the user"


async def test_what_the_user_changed_between_two_commands_is_not_theirs(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("a.txt", "a")
    await python(workspace, "exec_1", "open('b.txt','w').write('b')")
    place.file("mine.txt", "mine")
    place.file("a.txt", "edited by hand")
    result = await python(workspace, "exec_2", "open('c.txt','w').write('c')")
    assert [one.path for one in result.changed] == ["c.txt"]
    undo(history)
    undo(history)
    assert tree(place.root).keys() == {"a.txt", "mine.txt"}
    assert (place.root / "a.txt").read_text() == "edited by hand"


async def test_a_change_that_keeps_size_and_time_is_seen(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    file = place.file("a.txt", "old")
    await python(workspace, "exec_1", "1")
    times = file.stat()
    code = (
        f"import os; open('a.txt','w').write('new'); os.utime('a.txt', ns=({times.st_atime_ns}, {times.st_mtime_ns}))"
    )
    result = await python(workspace, "exec_2", code)
    assert [one.path for one in result.changed] == ["a.txt"]
    undo(history, "exec_2")
    assert file.read_text() == "old"


# What it refuses


async def test_a_file_that_changed_since_is_named_and_nothing_is_touched(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("a.txt", "a")
    place.file("b.txt", "b")
    await python(workspace, "exec_1", "open('a.txt','w').write('1'); open('b.txt','w').write('2')")
    place.file("b.txt", "mine")
    before = tree(place.root)
    with history.alone():
        plan = history.plan(history.entry("exec_1"))
    assert plan.conflicts == ["b.txt"]
    assert tree(place.root) == before


def _now_a_link(path: Path) -> None:
    path.rename(path.with_name("other.txt"))
    path.symlink_to("other.txt")


def _now_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _now_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("change", [Path.unlink, _now_a_link, _now_a_directory, _now_a_pipe])
async def test_what_came_in_its_place_is_named_and_stays(
    place: Place, workspace: Workspace, history: UndoHistory, change: Callable[[Path], None]
) -> None:
    place.file("a.txt", "old")
    await write(workspace, "exec_1", "a.txt", "new")
    change(place.root / "a.txt")
    names = sorted(os.listdir(place.root))
    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        assert (plan.conflicts, plan.steps) == (["a.txt"], [])
    assert sorted(os.listdir(place.root)) == names


async def test_a_change_of_mode_alone_counts_as_changed_since(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    await write(workspace, "exec_1", "a.txt", "new")
    (place.root / "a.txt").chmod(0o600)
    with history.alone():
        assert history.plan(history.entry("exec_1")).conflicts == ["a.txt"]


async def test_a_change_between_plan_and_act_stops_the_undo(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("a.txt", "old")
    await write(workspace, "exec_1", "a.txt", "new")
    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        place.file("a.txt", "mine")
        with pytest.raises(ToolFailure, match="changed while"):
            history.apply(plan)
    assert tree(place.root).keys() == {"a.txt"}
    assert (place.root / "a.txt").read_text() == "mine"
    assert history.entry("exec_1").undone_by is None


async def test_an_undo_waits_for_no_running_call_and_says_so(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    await write(workspace, "exec_1", "a.txt", "new")
    begun = asyncio.Event()
    params = {"command": "python3", "args": ["-c", "import time; print('x', flush=True); time.sleep(60)"]}
    work = asyncio.create_task(
        workspace.run("execute_command", params, on_output=lambda *_: begun.set(), record_as="exec_2")
    )
    async with asyncio.timeout(20):
        await begun.wait()
    with pytest.raises(ToolFailure, match="runs in this workspace"), history.alone():
        pass
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    undo(history, "exec_1")
    assert tree(place.root) == {}


async def test_a_call_waits_while_an_undo_is_under_way(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    await write(workspace, "exec_1", "a.txt", "new")
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with history.alone():
            held.set()
            release.wait(20)

    holding = asyncio.create_task(asyncio.to_thread(hold))
    await asyncio.to_thread(held.wait, 20)
    work = asyncio.create_task(write(workspace, "exec_2", "b.txt", "b"))
    done, _ = await asyncio.wait([work], timeout=0.05)
    assert not done
    assert not (place.root / "b.txt").exists()
    release.set()
    await holding
    assert (await work).size == 1


async def test_undo_never_looks_into_git(place: Place, workspace: Workspace, history: UndoHistory) -> None:
    subprocess.run(["git", "init", "-q", str(place.root)], check=True)
    place.file("a.txt", "a")
    subprocess.run(["git", "-C", str(place.root), "add", "."], check=True)
    result = await workspace.run("execute_command", {"command": "git", "args": ["rm", "-qf", "a.txt"]}, record_as="e1")
    assert isinstance(result, ExecuteCommandResult)
    assert [(one.path, one.change) for one in result.changed] == [("a.txt", "deleted")]
    git = tree(place.root / ".git")
    undo(history, "e1")
    assert (place.root / "a.txt").read_text() == "a"
    assert tree(place.root / ".git") == git


# Links


async def test_undo_never_writes_through_a_link(place: Place, workspace: Workspace, history: UndoHistory) -> None:
    place.file("d/secret.txt", "old")
    await python(workspace, "exec_1", "open('d/secret.txt','w').write('new')")
    (place.root / "d").rename(place.root / "moved")
    (place.root / "d").symlink_to(place.outside)
    with history.alone():
        assert history.plan(history.entry("exec_1")).conflicts == ["d/secret.txt"]
    assert (place.outside / "secret.txt").read_text() == "SECRET"


async def test_a_racing_swap_of_a_directory_never_lets_undo_write_outside(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("d/secret.txt", "old")
    await python(workspace, "exec_1", "open('d/secret.txt','w').write('SECRET')")
    (place.root / "link").symlink_to(place.outside)
    over = threading.Event()

    def race() -> None:
        names = [str(place.root / name) for name in ("d", "spare", "link")]
        while not over.is_set():
            os.rename(names[0], names[1])
            os.rename(names[2], names[0])
            os.rename(names[0], names[2])
            os.rename(names[1], names[0])

    racer = threading.Thread(target=race)
    racer.start()
    try:
        await asyncio.to_thread(_try_often, history)
    finally:
        over.set()
        racer.join()
    assert (place.outside / "secret.txt").read_text() == "SECRET"
    assert [path.name for path in place.outside.iterdir()] == ["secret.txt"]


def _try_often(history: UndoHistory) -> None:
    last = "exec_1"
    for _ in range(300):
        with history.alone():
            plan = history.plan(history.entry(last))
            if plan.conflicts or not plan.steps:
                continue
            try:
                last = history.apply(plan).id
            except ToolFailure:
                continue


async def test_a_link_is_kept_as_a_link_and_its_target_is_never_read(
    place: Place, workspace: Workspace, history: UndoHistory, settings: ClientSettings
) -> None:
    (place.root / "out").symlink_to(place.outside / "secret.txt")
    (place.root / "dir").symlink_to(place.outside)
    before = tree(place.root)
    await python(workspace, "exec_1", "import os; os.unlink('out'); os.unlink('dir')")
    undo(history, "exec_1")
    assert tree(place.root) == before
    objects = [path for path in (settings.home / "undo" / "bundles").rglob("*") if path.is_file()]
    assert all(b"SECRET" not in path.read_bytes() for path in objects)


# What happens to the store


async def test_the_store_is_for_its_owner_alone(place: Place, workspace: Workspace, settings: ClientSettings) -> None:
    place.file("a.txt", "old").chmod(0o644)
    await write(workspace, "exec_1", "a.txt", "new")
    await python(workspace, "exec_2", "open('a.txt','w').write('x')")
    store = settings.home / "undo"
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    for path in store.rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


async def test_what_is_too_large_is_not_kept_and_the_result_says_so(place: Place, settings: ClientSettings) -> None:
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home, call_bytes=100)
    place.file("small.txt", "s")
    place.file("large.txt", "l" * 200)
    workspace = Workspace(place.root, settings)
    workspace._undo = recorder  # pyright: ignore[reportPrivateUsage]
    result = await write(workspace, "exec_1", "large.txt", "new")
    assert "cannot be undone" in result.warnings[0]
    assert (place.root / "large.txt").read_text() == "new"
    place.file("large.txt", "l" * 200)
    await python(workspace, "exec_2", "open('large.txt','w').write('n'); open('small.txt','w').write('n')")
    history = UndoHistory(paths, settings.home)
    with history.alone():
        assert history.plan(history.entry("exec_1")).conflicts == ["large.txt"]
        plan = history.plan(history.entry("exec_2"))
        assert (list(plan.lost), [step.path for step in plan.steps]) == (["large.txt"], ["small.txt"])
        history.apply(plan)
    assert (place.root / "small.txt").read_text() == "s"
    await workspace.close()
    paths.close()


async def test_beyond_the_number_of_files_nothing_is_guessed(place: Place, settings: ClientSettings) -> None:
    for number in range(20):
        place.file(f"f{number:02}.txt", str(number))
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home, max_files=10)
    running = recorder.begin("exec_1", "execute_command", "x")
    (place.root / "f00.txt").unlink()  # now one more is seen, which was there before
    place.file("f01.txt", "changed")
    assert set(recorder.end(running)) == {"f00.txt", "f01.txt"}
    entry = UndoHistory(paths, settings.home).entry("exec_1")
    assert "more files here than are watched (10" in entry.notes[0]
    recorder.close()
    paths.close()


async def test_old_entries_expire_with_their_contents(
    place: Place, workspace: Workspace, history: UndoHistory, settings: ClientSettings
) -> None:
    place.file("a.txt", "old")
    await write(workspace, "exec_1", "a.txt", "new")
    await workspace.close()
    store = ObjectStore(settings.home, max_bytes=10**9)
    assert sweep(store, days=1, max_bytes=10**9)
    assert history.entry("exec_1").changes
    assert sweep(store, days=-1, max_bytes=10**9)
    with pytest.raises(NotFound):
        history.entry("exec_1")
    assert store.size == 0


async def test_the_store_stays_within_its_size_and_keeps_the_newest(place: Place, settings: ClientSettings) -> None:
    small = settings.model_copy(update={"undo_bytes": 100_000})
    for number in range(30):
        workspace = Workspace(place.root, small)
        await write(workspace, f"exec_{number}", "a.txt", f"{number}" * 5000)
        await workspace.close()
    store = ObjectStore(settings.home, max_bytes=100_000)
    assert 0 < store.size <= 100_000
    paths = PathValidator(place.root)
    history = UndoHistory(paths, settings.home)
    kept = [entry.id for entry in history.entries()]
    assert kept[-1] == "exec_29"
    assert "exec_0" not in kept
    undo(history)
    assert (place.root / "a.txt").read_text() == "28" * 5000
    paths.close()


async def test_an_odd_row_and_a_spoiled_object_do_no_harm(
    place: Place, workspace: Workspace, history: UndoHistory, settings: ClientSettings
) -> None:
    place.file("a.txt", "old")
    await write(workspace, "exec_1", "a.txt", "new")
    change_index(settings.home, """INSERT INTO entries (id, value) VALUES ('exec_2', '{"id":"exec_2","tool_na')""")
    await write(workspace, "exec_3", "b.txt", "b")
    assert [entry.id for entry in history.entries()] == ["exec_1", "exec_3"]
    undo(history, "exec_3")
    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        for bundle in (settings.home / "undo" / "bundles").iterdir():
            bundle.write_bytes(bundle.read_bytes().replace(b"old", b"els"))
        with pytest.raises(ToolFailure, match="no longer be read"):
            history.apply(plan)
    assert (place.root / "a.txt").read_text() == "new"


def test_after_a_power_cut_contents_are_compared_once(settings: ClientSettings) -> None:
    store = ObjectStore(settings.home, max_bytes=1000)
    whole, spoiled, last = store.put(b"whole"), store.put(b"spoiled"), store.put(b"last")
    store.close()
    bundle = next((settings.home / "undo" / "bundles").iterdir())
    bundle.write_bytes(bundle.read_bytes().replace(b"spoiled", bytes(7)))
    bundle.rename(bundle.with_name("anotherboot-1"))
    again = ObjectStore(settings.home, max_bytes=1000)
    assert [again.has(digest) for digest in (whole, spoiled, last)] == [True, False, True]
    assert again.read(again.put(b"spoiled")) == b"spoiled"
    assert [again.read(whole), again.read(last)] == [b"whole", b"last"]
    again.close()
    third = ObjectStore(settings.home, max_bytes=1000)
    assert third.read(spoiled) == b"spoiled"


KILLED = """
import asyncio, sys
from pathlib import Path
from byleave.settings import ClientSettings
from byleave.workspace.workspace import Workspace
async def main():
    workspace = Workspace(sys.argv[1], ClientSettings(home=Path(sys.argv[2])))
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        params = {"path": f"d{number % 3}/a.txt", "content": str(number) * 100}
        await workspace.run("write_file", params, record_as=f"w_{sys.argv[3]}_{number}")
        code = f"import os; open('b{number % 5}.txt','w').write('{number}' * 50)"
        params = {"command": "python3", "args": ["-c", code]}
        await workspace.run("execute_command", params, record_as=f"c_{sys.argv[3]}_{number}")
        print(number, flush=True)
asyncio.run(main())
"""


def test_a_kill_in_the_middle_leaves_a_store_that_leads_all_the_way_back(
    place: Place, settings: ClientSettings
) -> None:
    place.file("a.txt", "a")
    before = tree(place.root)
    chance = random.Random(4)
    for round_number in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(place.root), str(settings.home), str(round_number)],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        threading.Event().wait(chance.random() * 0.4)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        _end_what_runs_in(place.root)
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    recorder.end(recorder.begin("last", "execute_command", "finds what was left open"))
    history = UndoHistory(paths, settings.home)
    entries = [entry for entry in history.entries() if entry.changes]
    assert all(entry.done for entry in entries)
    for entry in reversed(entries):
        undo(history, entry.id)
    left = [name for name in tree(place.root) if name.startswith(".byleave-")]
    for name in left:
        (place.root / name).unlink()
    after = tree(place.root)
    # A write that was killed between its record and its rename left the directory it had made.
    assert {name: what for name, what in after.items() if what[0] != "directory"} == before
    recorder.close()
    paths.close()


PUTTING = """
import itertools, sys
from pathlib import Path
from byleave.workspace.undo.store import Entry, Index
index = Index(Path(sys.argv[1]))
for number in itertools.count():
    index.put(Entry(f"{sys.argv[2]}_{number}", "write_file", "x" * 3000, "2026-01-01T00:00:00Z"))
    print(f"{sys.argv[2]}_{number}", flush=True)
"""


def test_what_two_clients_put_at_once_survives_their_kill(tmp_path: Path) -> None:
    told: list[str] = []
    for turn in range(2):
        clients = [
            subprocess.Popen(
                [sys.executable, "-c", PUTTING, str(tmp_path / "w"), f"c{turn}{number}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(2)
        ]
        for client in clients:
            assert client.stdout is not None
            told += [client.stdout.readline().strip() for _ in range(150)]
        for client in clients:
            client.send_signal(signal.SIGKILL)
        for client in clients:
            rest = client.communicate()[0].split("\n")
            told += rest[:-1]  # the last line may be torn
    index = Index(tmp_path / "w")
    found = [entry.id for entry in index.entries()]
    index.close()
    assert len(found) == len(set(found))
    assert set(told) <= set(found)


def _end_what_runs_in(root: Path) -> None:
    """The sandbox of a killed client dies with it, a moment later; one that was not set up yet is ended here."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if os.fsencode(root) in path.read_bytes() or os.readlink(path.parent / "cwd") == str(root):
                    found.append(int(path.parent.name))
        if not found:
            return
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
    raise AssertionError("something still runs in the workspace")


# Many calls


def test_stand_in_that_goes_while_it_is_looked_at_was_never_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file("a.txt", "x")
    (place.root / ".vscode").mkdir()
    paths = PathValidator(place.root)
    opened = paths.open_exact

    def open_late(relative: str, flags: int) -> int:
        if relative == ".vscode":
            (place.root / ".vscode").rmdir()
        return opened(relative, flags)

    monkeypatch.setattr(paths, "open_exact", open_late)
    seen = TreeScan(paths, {}, max_files=100).run()
    assert set(seen.states) == {"a.txt"}
    assert seen.unseen == set()
    paths.close()


def test_real_directory_of_a_protected_name_that_is_away_for_a_moment_is_not_deleted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file(".vscode/settings.json", "{}")
    paths = PathValidator(place.root)
    known = TreeScan(paths, {}, max_files=100).run()
    opened = paths.open_exact

    def open_while_away(relative: str, flags: int) -> int:
        if relative != ".vscode":
            return opened(relative, flags)
        (place.root / ".vscode").rename(place.root / "away")
        try:
            return opened(relative, flags)
        finally:
            (place.root / "away").rename(place.root / ".vscode")

    monkeypatch.setattr(paths, "open_exact", open_while_away)
    seen = TreeScan(paths, known.states, max_files=100).run()
    monkeypatch.undo()
    seen.states.update(carried_over(paths, known.states, seen))
    assert seen.unseen == {".vscode"}
    assert changes_between(known, seen.states) == {}
    paths.close()


def test_stand_in_for_a_directory_that_is_gone_is_not_taken_for_it(
    place: Place, root_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file(".vscode/settings.json", "{}")
    paths = PathValidator(place.root)
    known = TreeScan(paths, {}, max_files=100).run()
    shutil.rmtree(place.root / ".vscode")
    opened, stubs = paths.open_exact, contextlib.ExitStack()
    stubs.enter_context(StandIns().placed(root_fd, [".vscode"]))

    def open_late(relative: str, flags: int) -> int:
        if relative == ".vscode":
            stubs.close()
        return opened(relative, flags)

    monkeypatch.setattr(paths, "open_exact", open_late)
    seen = TreeScan(paths, known.states, max_files=100).run()
    assert set(seen.states) == set()
    assert seen.unseen == set()
    paths.close()


async def test_three_at_once_each_have_their_own_entry_and_all_come_back(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    for number in range(12):
        place.file(f"f{number}.txt", "old")
    before = tree(place.root)

    async def work(number: int) -> None:
        if number % 4 == 3:
            await write(workspace, f"e{number}", f"f{number}.txt", "written")
        else:
            await python(workspace, f"e{number}", f"open('f{number}.txt','w').write('run'); open('n{number}','w')")

    places = asyncio.Semaphore(3)

    async def placed(number: int) -> None:
        async with places:
            await work(number)

    await asyncio.gather(*(placed(number) for number in range(12)))
    entries = history.entries()
    assert len({path for entry in entries for path in entry.changes}) == 12 + 9
    assert any(entry.together for entry in entries)
    while True:
        try:
            undo(history)
        except NotFound:
            break
    assert tree(place.root) == before


async def test_a_write_to_what_a_running_command_changed_is_the_writes_own(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    file = place.file("a.txt", "one")
    ready = asyncio.Event()
    code = (
        "import os, time\nopen('a.txt', 'w').write('by the command')\nprint(flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.01)"
    )
    params = {"command": "python3", "args": ["-c", code]}
    running = asyncio.ensure_future(
        workspace.run("execute_command", params, record_as="exec_1", on_output=lambda *_: ready.set())
    )
    await ready.wait()
    await write(workspace, "exec_2", "a.txt", "by the write")
    place.file("go")
    await running
    undo(history, "exec_2")
    assert file.read_text() == "by the command"
    undo(history, "exec_1")
    assert file.read_text() == "one"


class _Edits:
    """Random edits of a small tree, as writes and as commands."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._chance = random.Random(seed)
        self._there: Listing = {}

    def _paths(self, *, directories: bool = False) -> list[str]:
        return [
            name for name, what in self._there.items() if what[0] != "link" and (what[0] == "directory") == directories
        ]

    def _new(self) -> str:
        base = self._chance.choice(["", *(f"{name}/" for name in self._paths(directories=True))])
        return f"{base}{self._chance.choice('abcdefgh')}{self._chance.randrange(100)}"

    def lines(self) -> str:
        """A few lines of Python that change something."""
        self._there = tree(self._root)
        return "import os, shutil\n" + "".join(self._line() for _ in range(self._chance.randrange(1, 5)))

    def _line(self) -> str:
        files, directories = self._paths(), self._paths(directories=True)
        file = self._chance.choice(files) if files else self._new()
        mode = self._chance.choice([0o600, 0o644, 0o755, 0o400])
        content = self._chance.randbytes(self._chance.randrange(3000))
        directory = self._chance.choice(directories) if directories else self._new()
        line = self._chance.choice(
            [
                f"open({self._new()!r}, 'wb').write({content!r})",
                f"open({file!r}, 'ab').write({content!r})",
                f"os.unlink({file!r})",
                f"os.rename({file!r}, {self._new()!r})",
                f"os.chmod({file!r}, {mode})",
                f"os.makedirs({self._new() + '/x'!r})",
                f"os.symlink({file!r}, {self._new()!r})",
                f"os.rename({directory!r}, {self._new()!r})",
                f"shutil.rmtree({directory!r})" if self._chance.random() < 0.3 else f"os.chmod({directory!r}, 0o750)",
            ]
        )
        return f"try:\n  {line}\nexcept OSError:\n  pass\n"

    def write(self) -> dict[str, str]:
        self._there = tree(self._root)
        path = self._chance.choice([*self._paths(), self._new(), self._new()])
        mode = self._chance.choice(["write", "append"])
        return {"path": path, "content": "x" * self._chance.randrange(2000), "mode": mode}


async def test_undo_of_200_random_edits_and_commands_restores_byte_for_byte(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    for number in range(20):
        place.file(f"d{number % 4}/f{number}.txt", f"{number}\n" * number)
    edits = _Edits(place.root, 7)
    states = [tree(place.root)]
    for number in range(200):
        try:
            if number % 3:
                await workspace.run("write_file", edits.write(), record_as=f"e{number}")
            else:
                await python(workspace, f"e{number}", edits.lines())
        except ToolFailure:
            pass  # a read-only file, or a directory of that name
        states.append(tree(place.root))
    known = {entry.id for entry in history.entries()}
    assert len(known) > 120
    for number in reversed(range(200)):
        if f"e{number}" in known:
            undo(history, f"e{number}")
        assert tree(place.root) == states[number], number


# What the result says


async def test_a_command_that_changes_what_runs_later_is_warned_of(place: Place, workspace: Workspace) -> None:
    place.file("package.json", "{}")
    place.file("gone/conftest.py", "")
    code = (
        "import os, json\n"
        "json.dump({'scripts': {'test': 'x'}}, open('package.json','w')); os.unlink('gone/conftest.py')\n"
        "os.makedirs('.github/workflows'); open('.github/workflows/ci.yml','w'); open('plain.txt','w')\n"
        "os.makedirs('sub/.git/hooks'); os.makedirs('node_modules')\n"
    )
    result = await python(workspace, "exec_1", code)
    warned = "\n".join(result.warnings)
    assert "The command changed 'package.json'. npm runs the scripts" in warned
    assert "'.github/workflows/ci.yml'" in warned
    assert "plain.txt" not in warned
    assert "conftest.py" not in warned
    assert ("sub/.git", "created") in [(one.path, one.change) for one in result.changed]


async def test_many_changes_are_counted_and_cut(workspace: Workspace) -> None:
    code = "import os\nfor n in range(300): os.makedirs(f'd{n}'); open(f'd{n}/Makefile','w')"
    result = await python(workspace, "exec_1", code)
    assert (len(result.changed), result.changed_count) == (200, 300)
    assert result.warnings[-1].startswith("It changed 280 more")


async def test_a_store_that_cannot_be_written_costs_the_record_and_not_the_call(place: Place, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "undo").write_text("in the way")
    workspace = Workspace(place.root, ClientSettings(home=home))
    written = await write(workspace, "exec_1", "a.txt", "new")
    assert "cannot be undone" in written.warnings[0]
    place.file("gone.txt", "x")
    code = "import os; open('b.txt','w').write('b'); open('package.json','w'); os.unlink('gone.txt')"
    result = await python(workspace, "exec_2", code)
    changed = {"b.txt": "created", "gone.txt": "deleted", "package.json": "created"}
    assert (result.success, {one.path: one.change for one in result.changed}) == (True, changed)
    assert ["npm runs the scripts" in words or "cannot be undone" in words for words in result.warnings] == [True, True]
    with pytest.raises(CommandTimeout) as caught:
        await python(workspace, "exec_3", "open('late.txt','w'); import time; time.sleep(60)", timeout=1)
    assert caught.value.partial is not None
    assert [one.path for one in caught.value.partial.changed] == ["late.txt"]
    await workspace.close()


async def test_what_is_not_recorded_costs_no_look(place: Place, workspace: Workspace, settings: ClientSettings) -> None:
    await workspace.run("execute_command", {"command": "ls"})
    assert not (settings.home / "undo").exists()


def test_entries_can_be_written_as_json(place: Place, settings: ClientSettings) -> None:
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    running = recorder.begin("exec_1", "execute_command", "x")
    os.close(os.open(os.fsencode(place.root) + b"/odd\xff\n", os.O_CREAT | os.O_WRONLY))
    changes = recorder.end(running)
    assert [os.fsencode(path) for path in changes] == [b"odd\xff\n"]
    history = UndoHistory(paths, settings.home)
    json.dumps(list(history.entry("exec_1").changes))
    undo(history)
    assert tree(place.root) == {}
    recorder.close()
    paths.close()


# What goes wrong


async def test_a_call_cancelled_while_it_waits_for_an_undo_leaves_nothing_open(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    await python(workspace, "exec_1", "open('a.txt','w')")
    with history.alone():
        work = asyncio.create_task(python(workspace, "exec_2", "open('b.txt','w')"))
        done, _ = await asyncio.wait([work], timeout=0.05)
        assert not done
        work.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not (place.root / "b.txt").exists()
    undo(history)
    assert tree(place.root) == {}


async def test_a_record_that_cannot_be_finished_is_told(
    place: Place, workspace: Workspace, history: UndoHistory, settings: ClientSettings
) -> None:
    await write(workspace, "exec_1", "a.txt", "new")
    index = next((settings.home / "undo" / "workspaces").glob("*/index.db"))

    def spoil(*_: object) -> None:
        index.rename(index.with_name("aside"))
        index.mkdir()

    params = {"command": "python3", "args": ["-c", "print('x', flush=True); open('b.txt','w')"]}
    result = await workspace.run("execute_command", params, on_output=spoil, record_as="exec_2")
    assert isinstance(result, ExecuteCommandResult)
    assert [one.path for one in result.changed] == ["b.txt"]
    assert "cannot be undone" in result.warnings[0]
    index.rmdir()
    index.with_name("aside").rename(index)
    undo(history, "exec_1")


def test_an_entry_whose_tree_is_lost_says_that_nothing_is_known(place: Place, settings: ClientSettings) -> None:
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    recorder.begin("exec_1", "execute_command", "x").ends.close()
    recorder.close()
    change_index(settings.home, "UPDATE trees SET value = x'00'")
    history = UndoHistory(paths, settings.home)
    with pytest.raises(CallerError, match="still runs"):
        history.entry("exec_1")
    again = UndoRecorder(paths, settings.home)
    again.recover()
    again.close()
    with pytest.raises(NotFound):
        history.entry("exec_1")
    paths.close()


async def test_large_files_come_back_too(place: Place, workspace: Workspace, history: UndoHistory) -> None:
    content = random.Random(1).randbytes(3_000_000)
    place.file("large.bin", content)
    await python(workspace, "exec_1", "import os; os.unlink('large.bin'); open('new.bin','wb').write(b'x' * 2_000_000)")
    undo(history)
    assert tree(place.root) == {"large.bin": (0o644, content)}


async def test_what_is_no_file_is_never_opened(place: Place, workspace: Workspace, history: UndoHistory) -> None:
    os.mkfifo(place.root / "pipe")
    result = await python(workspace, "exec_1", "import os; os.unlink('pipe'); open('a.txt','w')")
    assert {one.path for one in result.changed} == {"a.txt", "pipe"}
    with history.alone():
        assert list(history.plan(history.entry("exec_1")).lost) == ["pipe"]


async def test_a_directory_nobody_looked_into_is_left_and_stops_no_undo(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("a.txt", "a")
    code = "import os; os.mkdir('__pycache__'); open('__pycache__/x','w'); os.mkfifo('pipe'); os.unlink('a.txt')"
    await python(workspace, "exec_1", code)
    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        assert (sorted(plan.left), plan.lost) == (["__pycache__", "pipe"], {})
        history.apply(plan)
    assert (place.root / "a.txt").read_text() == "a"
    assert (place.root / "__pycache__" / "x").exists()


def test_what_could_not_be_seen_is_not_taken_for_gone(place: Place) -> None:
    place.file("shut/a.txt", "a")
    place.file("far.txt", "far")
    paths = PathValidator(place.root)
    known = TreeScan(paths, {}, max_files=100).run().states
    assert set(carried_over(paths, known, Tree(known | {}, unseen={"shut"}))) == set()
    seen = {"shut": known["shut"], "far.txt": known["far.txt"]}
    assert set(carried_over(paths, known, Tree(seen, unseen={"shut"}))) == {"shut/a.txt"}
    assert set(carried_over(paths, known, Tree(unseen={""}))) == {"shut", "shut/a.txt", "far.txt"}
    (place.root / "far.txt").unlink()
    assert set(carried_over(paths, known, Tree(unseen={""}))) == {"shut", "shut/a.txt"}
    paths.close()


@pytest.mark.parametrize("with_openat2", [True, False])
def test_an_exact_open_follows_no_link_on_the_way(place: Place, *, with_openat2: bool) -> None:
    place.file("d/e/a.txt", "a")
    (place.root / "link").symlink_to("d")
    (place.root / "out").symlink_to(place.outside)
    paths = PathValidator(place.root, use_openat2=with_openat2)
    os.close(paths.open_exact("d/e/a.txt", os.O_RDONLY))
    os.close(paths.open_exact(".", os.O_RDONLY))
    for path in ("link/e/a.txt", "out/secret.txt", "../out/secret.txt", "out"):
        with pytest.raises(OSError, match=r"link|cross-device|directory"):
            paths.open_exact(path, os.O_RDONLY)
    paths.close()


async def test_nothing_is_kept_where_commands_could_reach_it(place: Place) -> None:
    settings = ClientSettings(home=place.root / "state")
    workspace = Workspace(place.root, settings)
    result = await python(workspace, "exec_1", "open('a.txt','w')")
    assert "lies in the workspace" in result.warnings[0]
    written = await write(workspace, "exec_2", "a.txt", "new")
    assert "lies in the workspace" in written.warnings[0]
    await workspace.close()
    assert not (settings.home / "undo").exists()
    paths = PathValidator(place.root)
    with pytest.raises(ConfigurationError, match="lies in the workspace"):
        UndoHistory(paths, settings.home)
    paths.close()


# What an adversary, a crash or a second client could spoil


def _swapped(at: str, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something in the very moment between the last look at a file and its rename."""
    real = getattr(swapping, at)

    def meanwhile(*arguments: Any) -> None:
        act()
        monkeypatch.setattr(swapping, at, real)
        real(*arguments)

    monkeypatch.setattr(swapping, at, meanwhile)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("existed", [True, False])
async def test_a_file_saved_in_the_gap_between_check_and_rename_is_not_lost(
    place: Place,
    workspace: Workspace,
    history: UndoHistory,
    monkeypatch: pytest.MonkeyPatch,
    *,
    existed: bool,
    in_place: bool,
) -> None:
    if existed:
        place.file("a.txt", "old")
    await write(workspace, "exec_1", "a.txt", "new")

    def save() -> None:
        if not in_place:
            (place.root / "a.txt").unlink()
        place.file("a.txt", "mine")

    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        _swapped("_rename", save, monkeypatch)
        with pytest.raises(ToolFailure, match="changed while"):
            history.apply(plan)
    assert {name: what[1] for name, what in tree(place.root).items()} == {"a.txt": b"mine"}


async def test_a_file_made_where_one_is_put_back_is_not_lost(
    place: Place, workspace: Workspace, history: UndoHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file("a.txt", "old")
    await python(workspace, "exec_1", "import os; os.unlink('a.txt')")
    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        _swapped("_rename", lambda: place.file("a.txt", "mine"), monkeypatch)
        with pytest.raises(ToolFailure, match="changed while"):
            history.apply(plan)
    assert {name: what[1] for name, what in tree(place.root).items()} == {"a.txt": b"mine"}


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL])
async def test_a_file_system_that_cannot_swap_is_restored_all_the_same(
    place: Place, workspace: Workspace, history: UndoHistory, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    place.file("a.txt", "old")
    place.file("b.txt", "b")
    before = tree(place.root)
    await python(workspace, "exec_1", "import os; open('a.txt','w').write('1'); os.rename('b.txt','c.txt')")

    class Libc:
        def renameat2(self, *_: object) -> int:
            ctypes.set_errno(code)
            return -1

    monkeypatch.setattr(swapping, "_libc", Libc())
    undo(history)
    assert tree(place.root) == before


@pytest.mark.parametrize(("module", "name"), [(settling, "new_name"), (restoring, "place")])
async def test_an_undo_that_stopped_half_way_can_be_repeated_and_taken_back_whole(
    place: Place,
    workspace: Workspace,
    history: UndoHistory,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
) -> None:
    for path in ("a/x.txt", "b/y.txt", "c/z.txt"):
        place.file(path, path)
    before = tree(place.root)
    code = "import os, shutil; shutil.rmtree('a'); shutil.rmtree('b'); os.mkdir('n', 0o500); open('c/z.txt','w')"
    await python(workspace, "exec_1", code)
    after = tree(place.root)
    real = getattr(swapping, name)
    calls = 0

    def dying(*more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return real(*more)

    monkeypatch.setattr(module, name, dying)
    with history.alone(), pytest.raises(KeyboardInterrupt):
        history.apply(history.plan(history.entry("exec_1")))
    assert tree(place.root) not in (before, after)
    assert not list(place.root.rglob(".byleave-*")), "what was written beside its place is gone"
    place.file("c/.byleave-0123456789abcdef.tmp", "what a kill between two steps leaves")
    redo = undo(history, "exec_1")
    assert tree(place.root) == before
    assert [entry.id for entry in history.entries()] == ["exec_1", redo]
    undo(history, redo)
    assert tree(place.root) == after


def _one_of_each_kind(root: Path) -> None:
    root.mkdir()
    for name in ("file_directory", "file_closed", "file_link"):
        (root / name).write_text(name)
    for name in ("link_file", "link_directory"):
        (root / name).symlink_to("elsewhere")
    for name in ("directory_file", "directory_link"):
        (root / name).mkdir(mode=0o750)
        (root / name / "inside").write_text(name)


def _each_becomes_another(root: Path) -> None:
    for path in list(root.iterdir()):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        match path.name.partition("_")[2]:
            case "directory":
                path.mkdir(mode=0o755)
                (path / "new").write_text("new")
            case "closed":
                path.mkdir(mode=0o500)
            case "file":
                path.write_text("a file now")
            case _:
                path.symlink_to("nowhere")


class _Stops:
    """Fails in place of the step of a given number, as a full disk or a kill does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.left = at
        for module, names in ((restoring, ("place", "swap", "take_away", "_chmod")), (os, ("mkdir", "rmdir"))):
            for name in names:
                monkeypatch.setattr(module, name, self._before(getattr(module, name)))

    def _before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **more)

        return step


def test_an_undo_that_stopped_before_any_of_its_steps_can_be_repeated_whatever_kinds_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync"):  # half the time of this test, and nothing here asks for it
        monkeypatch.setattr(os, name, lambda fd: None)
    stopped, at = True, 0
    while stopped:
        base = tmp_path / str(at)
        base.mkdir()
        root, home = base / "ws", base / "home"
        _one_of_each_kind(root)
        before = tree(root)
        with contextlib.closing(PathValidator(root)) as paths:
            recorder = UndoRecorder(paths, home, days=7, max_bytes=1 << 30)
            run = recorder.begin("exec_1", "execute_command", "python3")
            _each_becomes_another(root)
            after = tree(root)
            recorder.end(run)
            history = UndoHistory(paths, home)
            stopped = _stopped_undo(history, at)
            if stopped:
                _stopped_undo(history, 1)  # and once more, after a step of the second try
                undo(history, "exec_1")
            assert tree(root) == before, f"stopped before step {at}"
            undo(history, history.entries()[-1].id)
            assert tree(root) == after, f"brought back after it was stopped before step {at}"
            history.close()
            recorder.close()
        at += 1
    assert at > 15


def _stopped_undo(history: UndoHistory, at: int) -> bool:
    with pytest.MonkeyPatch.context() as patch, history.alone():
        plan = history.plan(history.entry("exec_1"))
        assert (plan.conflicts, plan.lost) == ([], {})
        stops = _Stops(patch, at)
        with contextlib.suppress(OSError, ToolFailure):
            history.apply(plan)
    return stops.left < 0


async def test_a_file_that_a_person_took_away_is_no_undo_that_stopped(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("a", "old")
    await python(workspace, "exec_1", "import os; os.unlink('a'); os.mkdir('a')")
    (place.root / "a").rmdir()
    assert history.plan(history.entry("exec_1")).conflicts == ["a"]


async def test_many_files_are_on_the_disk_before_the_first_takes_its_name_with_one_sync_for_all(
    place: Place, workspace: Workspace, history: UndoHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"d{number}/x.txt" for number in range(settling.FEW + 2)]
    for name in names:
        place.file(name, "old")
    before = tree(place.root)
    await python(workspace, "exec_1", f"[open(f'd{{n}}/x.txt', 'w').write('new') for n in range({len(names)})]")
    told: list[str] = []
    syncing, swapped = settling._sync_file_system, swapping.swap

    def sync(fd: int) -> None:
        found = {(place.root / name).read_text() for name in names}
        told.append(f"sync while names are {'/'.join(sorted(found))}")
        syncing(fd)

    def swap(*more: Any) -> None:
        told.append("move")
        swapped(*more)

    monkeypatch.setattr(settling, "_sync_file_system", sync)
    monkeypatch.setattr(restoring, "swap", swap)
    monkeypatch.setattr(settling.os, "fsync", lambda fd: told.append("fsync"))
    with history.alone():
        history.apply(history.plan(history.entry("exec_1")))
    moves = ["move"] * len(names)
    done = [line for line in told if line != "fsync"]
    assert done == ["sync while names are new", *moves, "sync while names are old"]
    assert told.count("fsync") < settling.FEW
    assert tree(place.root) == before


async def test_few_files_are_synced_one_by_one_and_so_are_all_where_the_system_cannot_do_otherwise(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(settling.os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    files = [place.file(f"{number}.txt", "x") for number in range(settling.FEW + 1)]

    def settle(some: list[Path]) -> None:
        with settling.BatchFsync() as together:
            for file in some:
                with file.open() as opened:
                    together.add(opened.fileno())

    inodes = [file.stat().st_ino for file in files]
    settle(files[:-1])
    assert synced == inodes[:-1]
    synced.clear()
    monkeypatch.setattr(settling, "_libc", object())
    settle(files)
    assert synced == inodes
    monkeypatch.setattr(settling, "_libc", type("Full", (), {"syncfs": staticmethod(lambda fd: -1)}))
    monkeypatch.setattr(settling.ctypes, "get_errno", lambda: errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        settle(files)


def test_batches_are_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo_steps, "BATCH", 2)
    monkeypatch.setattr(undo_steps, "BATCH_BYTES", 100)
    sizes = {"a": 60, "b": 60, "c": 10, "d": 10, "e": 500}
    steps = [Step(path, None, State("file", 0o644, (0, 0), (size, 0, 0, 0), "x")) for path, size in sizes.items()]
    found = [[step.path for step in batch] for batch in undo_steps.batches(reversed(steps))]
    assert found == [["a"], ["b", "c"], ["d"], ["e"]]


async def test_what_is_too_large_to_be_kept_is_never_removed(
    place: Place, workspace: Workspace, history: UndoHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file("grown.txt", "small")
    monkeypatch.setattr(restoring, "CALL_BYTES", 1000)
    await python(workspace, "exec_1", "open('made.bin','w').write('m' * 2000); open('grown.txt','w').write('g' * 2000)")
    entry = history.entry("exec_1")
    large = {path: (old, new and new._replace(digest=None)) for path, (old, new) in entry.changes.items()}
    entry.changes = large
    with history.alone():
        plan = history.plan(entry)
    assert (list(plan.left), list(plan.lost), plan.steps, plan.conflicts) == (["made.bin"], ["grown.txt"], [], [])


async def test_a_removed_file_is_kept_before_it_goes(
    place: Place, workspace: Workspace, history: UndoHistory, settings: ClientSettings
) -> None:
    await python(workspace, "exec_1", "open('made.txt','w').write('made')")
    back = undo(history)
    assert tree(place.root) == {}
    await workspace.close()
    undo(history, back)
    assert (place.root / "made.txt").read_text() == "made"


def test_what_another_client_swept_away_is_kept_again(place: Place, settings: ClientSettings) -> None:
    place.file("a.txt", "seen, and needed by no entry")
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    recorder.end(recorder.begin("exec_1", "execute_command", "x"))
    other = ObjectStore(settings.home, max_bytes=10**9)
    other.sweep(set())
    workspace = Workspace(place.root, settings)
    with recorder.writing("exec_2", "write_file a.txt") as kept:
        write_beneath(paths, "a.txt", b"new", append=False, max_bytes=100, stop=threading.Event(), keep=kept.keep)
        assert kept.warning is None
    history = UndoHistory(paths, settings.home)
    undo(history, "exec_2")
    assert (place.root / "a.txt").read_text() == "seen, and needed by no entry"
    recorder.close()
    asyncio.run(workspace.close())
    paths.close()


def test_a_content_that_two_entries_need_outlives_the_first(settings: ClientSettings) -> None:
    store = ObjectStore(settings.home, max_bytes=10**9)
    shared, single = store.put(b"shared" * 100), store.put(b"single" * 100)
    index = Index(settings.home / "undo" / "workspaces" / "w")
    for key, at, digests in (("old", "2020-01-01T00:00:00Z", (shared, single)), ("new", now(), (shared,))):
        states = [State("file", 0o644, (0, 0), (1, 1, 1, 1), digest) for digest in digests]
        changes: dict[str, Change] = {f"{number}.txt": (state, None) for number, state in enumerate(states)}
        index.put(Entry(key, "write_file", "", at, changes))
    index.close()
    assert sweep(store, days=1, max_bytes=10**9)
    assert (store.has(shared), store.has(single)) == (True, False)
    assert store.read(shared) == b"shared" * 100


def test_the_newest_entry_stays_however_large_it_is(place: Place, settings: ClientSettings) -> None:
    place.file("a.txt", "a" * 9500)
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home, max_bytes=10_000)
    running = recorder.begin("exec_1", "execute_command", "x")
    place.file("a.txt", "")
    recorder.end(running)
    recorder.close()  # sweeps
    history = UndoHistory(paths, settings.home)
    undo(history, "exec_1")
    assert (place.root / "a.txt").read_text() == "a" * 9500
    paths.close()


def test_a_list_that_cannot_be_read_stops_no_call(place: Place, settings: ClientSettings) -> None:
    (settings.home / "undo" / "workspaces" / "another" / "index.db").mkdir(parents=True)
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    for number in range(2):  # a failed sweep must not spoil the second call either
        running = recorder.begin(f"exec_{number}", "execute_command", "x")
        place.file(f"{number}.txt", "new")
        assert list(recorder.end(running)) == [f"{number}.txt"]
    recorder.close()
    paths.close()


def test_a_full_disk_at_the_first_call_stops_no_later_call(
    place: Place, settings: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Index, "entries", full)
    with pytest.raises(OSError, match="No space"):
        recorder.begin("exec_1", "execute_command", "x")
    monkeypatch.undo()
    running = recorder.begin("exec_2", "execute_command", "x")
    place.file("a.txt", "new")
    assert list(recorder.end(running)) == ["a.txt"]
    recorder.close()
    paths.close()


def test_a_disk_that_is_full_while_the_index_is_made_stops_no_later_call(
    place: Place, settings: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    with monkeypatch.context() as full:
        full.setattr("byleave.workspace.undo.store._SCHEMA", "BEGIN; CREATE TABLE entries (x); no more room")
        with pytest.raises(OSError, match="syntax error"):
            recorder.begin("exec_1", "execute_command", "x")
    running = recorder.begin("exec_2", "execute_command", "x")
    place.file("a.txt", "new")
    assert list(recorder.end(running)) == ["a.txt"]
    recorder.close()
    paths.close()


async def test_a_full_store_hinders_neither_an_undo_nor_its_own_undo(
    place: Place, settings: ClientSettings, history: UndoHistory
) -> None:
    file = place.file("a.txt", "o" * 600)
    workspace = Workspace(place.root, settings.model_copy(update={"undo_bytes": 1024}))
    await write(workspace, "exec_1", "a.txt", "n" * 700)  # both together are more than is kept
    redo = undo(history, "exec_1")
    assert file.read_text() == "o" * 600
    undo(history, redo)
    assert file.read_text() == "n" * 700
    await workspace.close()


def test_a_store_that_is_full_says_what_cannot_be_brought_back(place: Place, settings: ClientSettings) -> None:
    place.file("a.txt", "a" * 900)
    place.file("b.txt", "b" * 900)
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home, max_bytes=1000)
    running = recorder.begin("exec_1", "execute_command", "x")
    place.file("a.txt", "")
    place.file("b.txt", "")
    recorder.end(running)
    assert "cannot be brought back by undo" in running.notes[0]
    history = UndoHistory(paths, settings.home)
    with history.alone():
        plan = history.plan(history.entry("exec_1"))
    assert (len(plan.steps), len(plan.lost)) == (1, 1)
    recorder.close()
    paths.close()


def _killed(paths: PathValidator, home: Path, *ids: str, between: Callable[[str], object]) -> None:
    """A client that dies while commands run: what it holds goes with it."""
    recorder = UndoRecorder(paths, home)
    running = []
    for key in ids:
        running.append(recorder.begin(key, "execute_command", key))
        between(key)
    for one in running:
        one.ends.close()
    recorder._ends.close()  # pyright: ignore[reportPrivateUsage]


def test_commands_that_ran_together_when_the_client_died_lead_back_one_by_one(
    place: Place, settings: ClientSettings
) -> None:
    place.file("a.txt", "0")
    place.file("b.txt", "0")
    before = tree(place.root)
    paths = PathValidator(place.root)
    _killed(paths, settings.home, "c1", "c2", "c3", between=lambda key: place.file("a.txt", key))
    recorder = UndoRecorder(paths, settings.home)
    recorder.recover()
    recorder.close()
    history = UndoHistory(paths, settings.home)
    for key in ("c3", "c2", "c1"):
        undo(history, key)
    assert tree(place.root) == before
    paths.close()


def test_what_the_user_saved_before_a_command_that_was_killed_comes_back(
    place: Place, settings: ClientSettings
) -> None:
    place.file("a.txt", "0")
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    recorder.end(recorder.begin("c0", "execute_command", "x"))
    place.file("a.txt", "saved by hand, and told beside the tree alone")
    running = recorder.begin("c1", "execute_command", "x")
    place.file("a.txt", "by the command")
    running.ends.close()
    recorder._ends.close()  # pyright: ignore[reportPrivateUsage]
    store = ObjectStore(settings.home, max_bytes=10**9)
    assert sweep(store, days=1, max_bytes=1)
    again = UndoRecorder(paths, settings.home)
    again.recover()
    undo(UndoHistory(paths, settings.home), "c1")
    assert (place.root / "a.txt").read_text() == "saved by hand, and told beside the tree alone"
    again.close()
    paths.close()


def test_a_tree_that_another_clients_sweep_removed_is_saved_again(place: Place, settings: ClientSettings) -> None:
    place.file("a.txt", "0")
    paths = PathValidator(place.root)
    first, second = UndoRecorder(paths, settings.home), UndoRecorder(paths, settings.home)
    first.end(first.begin("c1", "execute_command", "x"))
    second.end(second.begin("c2", "execute_command", "x"))
    second.close()  # sweeps all trees but the newest
    running = first.begin("c3", "execute_command", "x")
    place.file("a.txt", "1")
    running.ends.close()
    first._ends.close()  # pyright: ignore[reportPrivateUsage]
    third = UndoRecorder(paths, settings.home)
    third.recover()
    undo(UndoHistory(paths, settings.home), "c3")
    assert (place.root / "a.txt").read_text() == "0"
    third.close()
    paths.close()


async def test_a_reading_command_is_not_recorded_at_all(
    place: Place, workspace: Workspace, settings: ClientSettings
) -> None:
    await workspace.run("execute_command", {"command": "ls"}, record_as="exec_1")
    assert not (settings.home / "undo").exists()


async def test_hooks_and_settings_of_a_nested_repository_are_told_and_left_alone(
    place: Place, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("sub/.git/config", "[core]\n")
    place.file("sub/.git/HEAD", "ref: refs/heads/main\n")
    place.file("sub/.git/hooks/pre-push", "").chmod(0o644)
    code = (
        "import os; open('sub/.git/hooks/pre-commit','w').write('#!/bin/sh'); open('sub/.git/config','a').write('x')\n"
        "os.chmod('sub/.git/hooks/pre-push', 0o755); open('sub/.git/index','w'); open('a.txt','w')\n"
        "os.makedirs('new/.git')\n"
    )
    result = await python(workspace, "exec_1", code)
    warned = "\n".join(result.warnings)
    assert "created 'sub/.git/hooks/pre-commit'. git runs it at the next commit" in warned
    assert "changed 'sub/.git/hooks/pre-push'. git runs it" in warned
    assert "changed 'sub/.git/config'. git obeys it" in warned
    assert "created 'new/.git'. git takes that directory" in warned
    assert "index" not in warned
    kept = tree(place.root / "sub" / ".git")
    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        assert {path for path in plan.left if ".git" in path} == set(plan.left)
        history.apply(plan)
    assert tree(place.root / "sub" / ".git") == kept
    assert not (place.root / "a.txt").exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("web/package.json", "npm install"),
        ("MAKEFILE", "calls `make`"),
        ("tests/conftest.py", "pytest runs it"),
        ("setup.py", "pip runs it"),
        ("pyproject.toml", "install, build or test"),
        ("lib/evil.pth", "each time it starts"),
        (".bashrc", "each time one is opened"),
        ("Dockerfile.dev", "image build"),
        (".vscode/tasks.json", "as soon as the folder is opened"),
        ("app/.vscode/launch.json", "run or debug"),
        ("x.desktop", "at login"),
        ("x.service", "systemd"),
        (".npmrc", "where packages come from"),
        (".envrc", "direnv"),
        (".pre-commit-config.yaml", "next commit"),
        ("justfile", "calls `just`"),
        ("Gemfile", "bundler"),
        ("Rakefile", "rake"),
        ("crate/build.rs", "cargo"),
        ("app/build.gradle.kts", "gradle"),
        (".husky/pre-commit", "husky"),
        (".github/workflows/ci.yml", "GitHub"),
        (".gitlab-ci.yml", "GitLab"),
        ("Jenkinsfile", "Jenkins"),
        (".circleci/config.yml", "build server"),
        ("azure-pipelines.yml", "build server"),
        ("bitbucket-pipelines.yml", "build server"),
        (".travis.yml", "build server"),
        (".drone.yml", "build server"),
        ("appveyor.yml", "build server"),
        (".git/hooks/post-checkout", "next commit, checkout"),
        ("vendor/x/.git/config", "git obeys it"),
    ],
)
def test_each_file_that_runs_later_is_told_with_who_runs_it_and_when(path: str, words: str) -> None:
    because = runs_later(path)
    assert because is not None
    assert words in because


@pytest.mark.parametrize("path", ["src/app.py", "README.md", "notes/make.txt", "config", "hooks/x", "a.git/x"])
def test_ordinary_files_are_not_warned_of(path: str) -> None:
    assert runs_later(path) is None


def test_the_upper_levels_are_watched_first_and_what_is_new_there_is_told(
    place: Place, settings: ClientSettings
) -> None:
    for number in range(30):
        place.file(f"aaa/deep/{number:02}.txt", "x")
    place.file("src/app.py", "app")
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home, max_files=12)
    running = recorder.begin("exec_1", "execute_command", "x")
    place.file("src/app.py", "changed")
    place.file("src/new.py", "new")
    place.file("aaa/deep/00.txt", "unseen or not, never guessed")
    changes = recorder.end(running)
    assert {"src/app.py", "src/new.py"} <= set(changes)
    assert changes["src/new.py"][0] is None
    assert "more files here than are watched" in running.notes[0]
    recorder.close()
    paths.close()


def test_what_is_prepared_is_not_read_again(place: Place, settings: ClientSettings) -> None:
    for number in range(50):
        place.file(f"{number}.txt", str(number))
        os.utime(place.root / f"{number}.txt", (1, 1))
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    recorder.prepare()
    bundles = settings.home / "undo" / "bundles"
    size = sum(path.stat().st_size for path in bundles.iterdir())
    running = recorder.begin("exec_1", "execute_command", "x")
    (place.root / "7.txt").unlink()
    assert list(recorder.end(running)) == ["7.txt"]
    assert sum(path.stat().st_size for path in bundles.iterdir()) == size
    undo(UndoHistory(paths, settings.home))
    assert (place.root / "7.txt").read_text() == "7"
    recorder.close()
    paths.close()


def test_odd_contents_come_back(place: Place, settings: ClientSettings) -> None:
    sparse = place.file("sparse", b"end")
    os.truncate(sparse, 3_000_000)
    place.file("empty", b"")
    os.link(place.file("one", b"hard"), place.root / "two")
    os.close(os.open(os.fsencode(place.root) + b"/n\xff\n", os.O_CREAT | os.O_WRONLY))
    (place.root / "hollow" / "deeper").mkdir(parents=True)
    before = tree(place.root)
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    running = recorder.begin("exec_1", "execute_command", "x")
    for name in ("sparse", "empty", "one", "n\udcff\n"):
        (place.root / name).unlink()
    (place.root / "hollow" / "deeper").rmdir()
    (place.root / "two").write_bytes(b"changed")
    (place.root / "Two").write_bytes(b"another case")
    recorder.end(running)
    undo(UndoHistory(paths, settings.home))
    assert tree(place.root) == before
    recorder.close()
    paths.close()


@pytest.mark.parametrize("existed", [True, False])
async def test_a_file_saved_twice_in_the_gap_is_kept_twice(
    place: Place, workspace: Workspace, history: UndoHistory, monkeypatch: pytest.MonkeyPatch, *, existed: bool
) -> None:
    if existed:
        place.file("a.txt", "old")
    await write(workspace, "exec_1", "a.txt", "new")
    real = swapping._rename  # pyright: ignore[reportPrivateUsage]
    saved = iter(["first", "second"])

    def meanwhile(*arguments: Any) -> None:
        (place.root / "a.txt").unlink(missing_ok=True)
        place.file("a.txt", next(saved))
        real(*arguments)

    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        monkeypatch.setattr(swapping, "_rename", meanwhile)
        with pytest.raises(ToolFailure, match="changed while"):
            history.apply(plan)
    assert {what[1] for what in tree(place.root).values()} == {b"first", b"second"}


def test_what_is_gone_by_then_is_neither_replaced_nor_removed(place: Place, root_fd: int) -> None:
    place.file("draft", "draft")
    file = place.file("a.txt", "old")

    def going(_: str) -> bool:
        file.unlink()
        return True

    with pytest.raises(swapping.Unexpected, match="it is gone"):
        swapping.swap(root_fd, "draft", "a.txt", going)
    assert os.listdir(place.root) == ["draft"]
    place.file("a.txt", "old")
    with pytest.raises(swapping.Unexpected, match="it is gone"):
        swapping.take_away(root_fd, "a.txt", going)
    assert os.listdir(place.root) == ["draft"]


def test_draft_of_a_write_beside_a_command_is_not_the_commands(place: Place, settings: ClientSettings) -> None:
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    running = recorder.begin("exec_1", "execute_command", "x")
    place.file(".byleave-0123456789abcdef.tmp", "draft")
    place.file("made.txt", "made")
    assert list(recorder.end(running)) == ["made.txt"]
    recorder.close()
    paths.close()


async def test_a_file_saved_in_the_gap_is_not_lost_where_ours_is_taken_away_before_it_is_put_back(
    place: Place, workspace: Workspace, history: UndoHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file: Path = place.file("a.txt", "old")
    await write(workspace, "exec_1", "a.txt", "new")
    real = swapping._rename  # pyright: ignore[reportPrivateUsage]
    others = iter([lambda: file.write_text("mine"), file.unlink])

    def meanwhile(*arguments: Any) -> None:
        next(others, lambda: None)()
        real(*arguments)

    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        monkeypatch.setattr(swapping, "_rename", meanwhile)
        with pytest.raises(ToolFailure, match="changed while"):
            history.apply(plan)
    assert {name: what[1] for name, what in tree(place.root).items()} == {"a.txt": b"mine"}


@pytest.mark.parametrize("act", ["swap", "take_away"])
def test_a_file_that_cannot_be_looked_at_any_more_stays_under_its_name(tmp_path: Path, act: str) -> None:
    (tmp_path / "a.txt").write_text("mine")
    (tmp_path / "draft").write_text("old")

    def unreadable(name: str) -> bool:
        if name != "a.txt":
            raise OSError(errno.EIO, "no")
        return True

    draft = ("draft",) if act == "swap" else ()
    dir_fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="no"):
            getattr(swapping, act)(dir_fd, *draft, "a.txt", unreadable)
    finally:
        os.close(dir_fd)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "mine", "draft": "old"}


async def test_a_full_disk_is_said_and_not_that_somebody_changed_the_file(
    place: Place, workspace: Workspace, history: UndoHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file("a.txt", "old")
    await write(workspace, "exec_1", "a.txt", "new")

    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, history.alone():
        patch.setattr(ObjectStore, "put_file", full)
        with pytest.raises(ToolFailure, match="There is no room on the disk to keep what is there now") as caught:
            history.plan(history.entry("exec_1"))
    assert "Free some space" in (caught.value.hint or "")
    undo(history)
    assert (place.root / "a.txt").read_text() == "old"


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (errno.ENOSPC, "There is no space left for 'b.txt'.", "Then undo again: what is already as it was"),
        (errno.EIO, "'b.txt' could not be used: Input/output error.", "Undo again when that is mended: what is"),
        (errno.ENOENT, "'b.txt' changed while it was undone; the undo stopped there.", "Look at the file"),
    ],
)
async def test_an_undo_that_meets_an_error_says_that_it_stopped_in_the_middle(
    place: Place,
    workspace: Workspace,
    history: UndoHistory,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    message: str,
    hint: str,
) -> None:
    place.file("b.txt", "b")
    before = tree(place.root)
    await python(workspace, "exec_1", "open('a.txt','w').write('1'); open('b.txt','w').write('1')")

    def failing(*_: object) -> str:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch, history.alone():
        patch.setattr(restoring, "write_draft", failing)
        with pytest.raises(ToolFailure) as caught:
            history.apply(history.plan(history.entry("exec_1")))
    assert caught.value.message.startswith(message)
    assert "the undo stopped there" in caught.value.message.casefold()
    assert hint in (caught.value.hint or "")
    assert not (place.root / "a.txt").exists(), "this one was back already"
    undo(history)
    assert tree(place.root) == before


def test_entries_that_another_client_put_and_removed_are_seen(tmp_path: Path) -> None:
    index, other = Index(tmp_path / "w"), Index(tmp_path / "w")

    def put(*ids: str, done: bool = True) -> None:
        for key in ids:
            index.put(Entry(key, "write_file", "", now(), done=done))

    def seen() -> list[tuple[str, bool]]:
        return [(entry.id, entry.done) for entry in other.entries()]

    assert seen() == []
    assert not index.path.exists(), "looking makes no file"
    put("e1", "e2")
    put("e3", done=False)
    assert seen() == [("e1", True), ("e2", True), ("e3", False)]
    put("e4", "e3")
    assert seen() == [("e1", True), ("e2", True), ("e4", True), ("e3", True)], "in the order in which they ended"
    index.remove("e3")
    put("e5")
    index.keep_only([entry for entry in index.entries() if entry.id != "e1"], 0)
    assert seen() == [("e2", True), ("e4", True), ("e5", True)]
    index.close()
    other.close()


def test_a_tree_goes_with_a_sweep_unless_an_open_call_needs_it(tmp_path: Path) -> None:
    index = Index(tmp_path / "w")
    trees = [index.save_tree(Tree({name: State("directory", 0o755, (0, 0), (1, 1, 1, 1))})) for name in "abc"]
    running = Entry("e1", "execute_command", "", now(), done=False, tree=trees[0], since=[("a", None)])
    index.put(running)
    index.keep_only(index.entries(), 0)
    assert [index.has_tree(tree) for tree in trees] == [True, False, True]
    assert index.read_tree(trees[0], running.since) == Tree()
    assert list((index.read_tree() or Tree()).states) == ["c"]
    index.keep_only([], time.time_ns())
    assert [index.has_tree(tree) for tree in trees] == [False] * 3
    index.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_as_root_what_comes_back_is_its_owners_again(place: Place, settings: ClientSettings) -> None:
    place.file("d/a.txt", "a")
    (place.root / "d" / "link").symlink_to("a.txt")
    names = ("d", "d/a.txt", "d/link")
    for name in names:
        os.chown(place.root / name, 1234, 1234, follow_symlinks=False)
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    running = recorder.begin("exec_1", "execute_command", "x")
    shutil.rmtree(place.root / "d")
    recorder.end(running)
    undo(UndoHistory(paths, settings.home))
    assert [(place.root / name).lstat().st_uid for name in names] == [1234] * 3
    recorder.close()
    paths.close()


def test_directories_beyond_the_bound_are_not_guessed_about(place: Place, settings: ClientSettings) -> None:
    for number in range(10):
        place.file(f"d{number}/a/b.txt", "b")
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home, max_files=15)
    running = recorder.begin("exec_1", "execute_command", "x")
    (place.root / "d0" / "a" / "b.txt").unlink()
    place.file("d9/a/new.txt", "new")
    place.file("top.txt", "new")
    assert set(recorder.end(running)) == {"top.txt"}
    recorder.close()
    paths.close()


def test_a_file_that_cannot_be_kept_in_full_leaves_no_piece(settings: ClientSettings, tmp_path: Path) -> None:
    store = ObjectStore(settings.home, max_bytes=10**9)
    whole = store.put(b"whole")
    size = store.size
    large = tmp_path / "large"
    large.write_bytes(bytes(3_000_000))
    fd = os.open(large, os.O_RDONLY)
    with pytest.raises(OSError, match="too large"):
        store.put_file(fd, max_bytes=2_000_000)
    with pytest.raises(OSError, match="too large"):  # it grew while it was read
        store.put_file(fd, max_bytes=2_000_000, size=1_500_000)
    kept = store.put_file(fd, max_bytes=4_000_000)
    assert store.put_file(fd, max_bytes=4_000_000) == kept
    os.close(fd)
    again = ObjectStore(settings.home, max_bytes=10**9)
    assert (again.read(whole), again.read(kept)) == (b"whole", bytes(3_000_000))
    assert again.size == store.size == size + 3_000_000 + 40
    assert (again.read("0" * 64), again.has("0" * 64)) == (None, False)


def test_many_small_bundles_become_one(settings: ClientSettings) -> None:
    digests: set[str] = set()
    for number in range(12):
        store = ObjectStore(settings.home, max_bytes=10**9)
        digests.add(store.put(str(number).encode()))
        store.close()
    store = ObjectStore(settings.home, max_bytes=10**9)
    store.sweep(digests)
    assert len(list((settings.home / "undo" / "bundles").iterdir())) == 1
    assert {store.read(digest) for digest in digests} == {str(number).encode() for number in range(12)}


def test_a_content_that_a_killed_sweep_left_twice_is_known_when_one_goes(settings: ClientSettings) -> None:
    store = ObjectStore(settings.home, max_bytes=10**9)
    kept = store.put(b"the user's work")
    store.close()
    (first,) = (settings.home / "undo" / "bundles").iterdir()
    other = ObjectStore(settings.home, max_bytes=10**9)
    second = shutil.copy(first, f"{first}2")  # written anew, and killed before the first was removed
    other.refresh()
    first.unlink()
    other.refresh()
    assert other.read(kept) == b"the user's work"
    os.unlink(second)
    other.refresh()
    assert not other.has(kept)


def test_a_sweep_on_a_full_disk_loses_nothing(settings: ClientSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(settings.home, max_bytes=10**9)
    kept = store.put(b"the user's work")
    store.put(os.urandom(100_000))
    store.close()
    store = ObjectStore(settings.home, max_bytes=10**9)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    gc.collect()  # else what earlier tests left open is closed in between
    opened = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(undo_store, "_write_all", full)
        with pytest.raises(OSError, match="No space left"):
            store.sweep({kept})
    assert len(os.listdir("/proc/self/fd")) == opened
    assert store.read(kept) == b"the user's work"
    store.sweep({kept})
    assert len(list((settings.home / "undo" / "bundles").iterdir())) == 1
    store.close()
    assert ObjectStore(settings.home, max_bytes=10**9).read(kept) == b"the user's work"
