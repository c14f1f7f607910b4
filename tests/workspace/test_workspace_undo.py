"""Undo: what writes and commands changed comes back byte for byte, and nothing else is touched."""

import asyncio
import contextlib
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assent.protocol.errors import CallerError, NotFound, ToolFailure
from assent.protocol.tools import ExecuteCommandResult, WriteFileResult
from assent.settings import ClientSettings
from assent.workspace import CommandTimeout, PathValidator, UndoHistory, UndoRecorder, Workspace
from assent.workspace.snapshots import Tree, TreeScan, carried_over
from assent.workspace.undo_entries import sweep
from assent.workspace.undo_store import ObjectStore

pytestmark = pytest.mark.promise("L8-undo")


@pytest.fixture
def history(place: Any, settings: ClientSettings) -> Iterator[UndoHistory]:
    paths = PathValidator(place.root)
    yield UndoHistory(paths, settings.home)
    paths.close()


async def write(workspace: Workspace, tool_id: str, path: str, content: str, **more: str) -> WriteFileResult:
    result = await workspace.run("write_file", {"path": path, "content": content, **more}, record_as=tool_id)
    assert isinstance(result, WriteFileResult)
    return result


async def python(workspace: Workspace, tool_id: str, code: str, **more: Any) -> ExecuteCommandResult:
    params = {"command": "python3", "args": ["-c", code], **more}
    result = await workspace.run("execute_command", params, record_as=tool_id)
    assert isinstance(result, ExecuteCommandResult)
    return result


def undo(history: UndoHistory, tool_id: str | None = None) -> str:
    with history.alone():
        plan = history.plan(history.entry(tool_id))
        assert (plan.conflicts, plan.lost) == ([], {})
        return history.apply(plan).id


def tree(root: Path) -> dict[str, Any]:
    """Everything below a directory: kinds, modes, contents, what links say."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        name = str(path.relative_to(root))
        if stat.S_ISLNK(info.st_mode):
            found[name] = ("link", os.readlink(path))
        elif stat.S_ISDIR(info.st_mode):
            found[name] = ("directory", stat.S_IMODE(info.st_mode))
        else:
            found[name] = (stat.S_IMODE(info.st_mode), path.read_bytes())
    return found


# One call


async def test_a_replaced_file_comes_back_with_its_mode(place: Any, workspace: Workspace, history: UndoHistory) -> None:
    file = place.file("a.sh", b"old\xff\r\n")
    file.chmod(0o750)
    before = tree(place.root)
    await write(workspace, "exec_1", "a.sh", "new")
    assert undo(history) in [entry.id for entry in history.entries()]
    assert tree(place.root) == before


async def test_a_new_file_and_the_directories_made_for_it_go(
    place: Any, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("kept/b.txt", "b")
    before = tree(place.root)
    await write(workspace, "exec_1", "kept/x/y/new.txt", "new")
    undo(history, "exec_1")
    assert tree(place.root) == before


async def test_a_directory_with_a_file_of_the_users_stays(
    place: Any, workspace: Workspace, history: UndoHistory
) -> None:
    await write(workspace, "exec_1", "made/new.txt", "new")
    place.file("made/mine.txt", "mine")
    undo(history, "exec_1")
    assert list(tree(place.root)) == ["made", "made/mine.txt"]


async def test_what_a_command_did_is_undone_and_can_be_redone(
    place: Any, workspace: Workspace, history: UndoHistory
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
    place: Any, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("d/a.txt", "a")
    place.file("f", "f")
    before = tree(place.root)
    code = "import os, shutil; shutil.rmtree('d'); open('d','w').write('now a file'); os.unlink('f'); os.mkdir('f')"
    await python(workspace, "exec_1", code)
    assert (place.root / "d").is_file()
    undo(history, "exec_1")
    assert tree(place.root) == before


async def test_a_command_past_its_time_is_recorded_with_what_it_changed(
    place: Any, workspace: Workspace, history: UndoHistory
) -> None:
    place.file("a.txt", "old")
    with pytest.raises(CommandTimeout) as caught:
        await python(workspace, "exec_1", "import time; open('a.txt','w').write('new'); time.sleep(60)", timeout=1)
    assert caught.value.partial is not None
    assert [one.path for one in caught.value.partial.changed] == ["a.txt"]
    undo(history, "exec_1")
    assert (place.root / "a.txt").read_text() == "old"


async def test_a_cancelled_command_is_recorded(place: Any, workspace: Workspace, history: UndoHistory) -> None:
    place.file("a.txt", "old")
    begun = asyncio.Event()
    params = {
        "command": "python3",
        "args": ["-c", "import time; open('a.txt','w').write('new'); print('x', flush=True); time.sleep(60)"],
    }

    def hear(*_: Any) -> None:
        begun.set()

    work = asyncio.create_task(workspace.run("execute_command", params, on_output=hear, record_as="exec_1"))
    async with asyncio.timeout(20):
        await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    undo(history, "exec_1")
    assert (place.root / "a.txt").read_text() == "old"


async def test_a_failed_write_leaves_nothing_to_undo(place: Any, workspace: Workspace, history: UndoHistory) -> None:
    place.file("a.txt", "old").chmod(0o444)
    with pytest.raises(ToolFailure):
        await write(workspace, "exec_1", "a.txt", "new")
    with pytest.raises(NotFound, match="nothing to undo"):
        history.entry(None)
    with pytest.raises(NotFound, match="exec_1"):
        history.entry("exec_1")


async def test_what_the_user_changed_between_two_commands_is_not_theirs(
    place: Any, workspace: Workspace, history: UndoHistory
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
    place: Any, workspace: Workspace, history: UndoHistory
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
    place: Any, workspace: Workspace, history: UndoHistory
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


async def test_a_change_of_mode_alone_counts_as_changed_since(
    place: Any, workspace: Workspace, history: UndoHistory
) -> None:
    await write(workspace, "exec_1", "a.txt", "new")
    (place.root / "a.txt").chmod(0o600)
    with history.alone():
        assert history.plan(history.entry("exec_1")).conflicts == ["a.txt"]


async def test_a_change_between_plan_and_act_stops_the_undo(
    place: Any, workspace: Workspace, history: UndoHistory
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
    place: Any, workspace: Workspace, history: UndoHistory
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


async def test_a_call_waits_while_an_undo_is_under_way(place: Any, workspace: Workspace, history: UndoHistory) -> None:
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


async def test_undo_never_looks_into_git(place: Any, workspace: Workspace, history: UndoHistory) -> None:
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


async def test_undo_never_writes_through_a_link(place: Any, workspace: Workspace, history: UndoHistory) -> None:
    place.file("d/secret.txt", "old")
    await python(workspace, "exec_1", "open('d/secret.txt','w').write('new')")
    (place.root / "d").rename(place.root / "moved")
    (place.root / "d").symlink_to(place.outside)
    with history.alone():
        assert history.plan(history.entry("exec_1")).conflicts == ["d/secret.txt"]
    assert (place.outside / "secret.txt").read_text() == "SECRET"


async def test_a_racing_swap_of_a_directory_never_lets_undo_write_outside(
    place: Any, workspace: Workspace, history: UndoHistory
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
    place: Any, workspace: Workspace, history: UndoHistory, settings: ClientSettings
) -> None:
    (place.root / "out").symlink_to(place.outside / "secret.txt")
    (place.root / "dir").symlink_to(place.outside)
    before = tree(place.root)
    await python(workspace, "exec_1", "import os; os.unlink('out'); os.unlink('dir')")
    undo(history, "exec_1")
    assert tree(place.root) == before
    objects = [path for path in (settings.home / "undo" / "objects").rglob("*") if path.is_file()]
    assert all(b"SECRET" not in path.read_bytes() for path in objects)


# What happens to the store


async def test_the_store_is_for_its_owner_alone(place: Any, workspace: Workspace, settings: ClientSettings) -> None:
    place.file("a.txt", "old").chmod(0o644)
    await write(workspace, "exec_1", "a.txt", "new")
    await python(workspace, "exec_2", "open('a.txt','w').write('x')")
    store = settings.home / "undo"
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    for path in store.rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


async def test_what_is_too_large_is_not_kept_and_the_result_says_so(place: Any, settings: ClientSettings) -> None:
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


async def test_beyond_the_number_of_files_nothing_is_guessed(place: Any, settings: ClientSettings) -> None:
    for number in range(20):
        place.file(f"f{number:02}.txt", str(number))
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home, max_files=10)
    running = recorder.begin("exec_1", "execute_command", "x")
    (place.root / "f00.txt").unlink()  # now one more is seen, which was there before
    place.file("f01.txt", "changed")
    assert set(recorder.end(running)) == {"f00.txt", "f01.txt"}
    entry = UndoHistory(paths, settings.home).entry("exec_1")
    assert "not watched" in entry.notes[0]
    recorder.close()
    paths.close()


async def test_old_entries_expire_with_their_contents(
    place: Any, workspace: Workspace, history: UndoHistory, settings: ClientSettings
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


async def test_the_store_stays_within_its_size_and_keeps_the_newest(place: Any, settings: ClientSettings) -> None:
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


async def test_a_torn_line_and_a_spoiled_object_do_no_harm(
    place: Any, workspace: Workspace, history: UndoHistory, settings: ClientSettings
) -> None:
    place.file("a.txt", "old")
    await write(workspace, "exec_1", "a.txt", "new")
    index = next((settings.home / "undo" / "workspaces").glob("*/index.jsonl"))
    with index.open("ab") as file:
        file.write(b'{"step":"write","id":"exec_2","tool_na')
    await write(workspace, "exec_3", "b.txt", "b")
    assert [entry.id for entry in history.entries()] == ["exec_1", "exec_3"]
    undo(history, "exec_3")
    digest = history.entry("exec_1").changes["a.txt"][0]
    assert digest is not None
    assert digest.digest is not None
    spoiled = settings.home / "undo" / "objects" / digest.digest[:2] / digest.digest[2:]
    spoiled.write_bytes(b"else")
    with history.alone(), pytest.raises(ToolFailure, match="no longer be read"):
        history.apply(history.plan(history.entry("exec_1")))
    assert (place.root / "a.txt").read_text() == "new"


def test_after_a_power_cut_objects_are_looked_at(settings: ClientSettings) -> None:
    store = ObjectStore(settings.home, max_bytes=1000)
    whole, empty = store.put(b"whole"), store.put(b"torn")
    (settings.home / "undo" / "objects" / empty[:2] / empty[2:]).write_bytes(b"")
    (settings.home / "undo" / "unsynced").write_bytes(b"")
    again = ObjectStore(settings.home, max_bytes=1000)
    assert (again.has(whole), again.has(empty)) == (True, False)


KILLED = """
import asyncio, sys
from pathlib import Path
from assent.settings import ClientSettings
from assent.workspace import Workspace
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


def test_a_kill_in_the_middle_leaves_a_store_that_leads_all_the_way_back(place: Any, settings: ClientSettings) -> None:
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
    left = [name for name in tree(place.root) if name.startswith(".assent-")]
    for name in left:
        (place.root / name).unlink()
    after = tree(place.root)
    # A write that was killed between its record and its rename left the directory it had made.
    assert {name: what for name, what in after.items() if what[0] != "directory"} == before
    recorder.close()
    paths.close()


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


async def test_three_at_once_each_have_their_own_entry_and_all_come_back(
    place: Any, workspace: Workspace, history: UndoHistory
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


class _Edits:
    """Random edits of a small tree, as writes and as commands."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._chance = random.Random(seed)

    def _paths(self, *, directories: bool = False) -> list[str]:
        found = [path for path in self._root.rglob("*") if not path.is_symlink() and path.is_dir() == directories]
        return sorted(str(path.relative_to(self._root)) for path in found)

    def _new(self) -> str:
        base = self._chance.choice(["", *(f"{name}/" for name in self._paths(directories=True))])
        return f"{base}{self._chance.choice('abcdefgh')}{self._chance.randrange(100)}"

    def lines(self) -> str:
        """A few lines of Python that change something."""
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
        path = self._chance.choice([*self._paths(), self._new(), self._new()])
        mode = self._chance.choice(["write", "append"])
        return {"path": path, "content": "x" * self._chance.randrange(2000), "mode": mode}


async def test_undo_of_200_random_edits_and_commands_restores_byte_for_byte(
    place: Any, workspace: Workspace, history: UndoHistory
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


async def test_a_command_that_changes_what_runs_later_is_warned_of(place: Any, workspace: Workspace) -> None:
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
    assert "It changed 'package.json'. npm" in warned
    assert "'.github/workflows/ci.yml'" in warned
    assert "plain.txt" not in warned
    assert "conftest.py" not in warned
    assert ("sub/.git", "created") in [(one.path, one.change) for one in result.changed]


async def test_many_changes_are_counted_and_cut(workspace: Workspace) -> None:
    code = "import os\nfor n in range(300): os.makedirs(f'd{n}'); open(f'd{n}/Makefile','w')"
    result = await python(workspace, "exec_1", code)
    assert (len(result.changed), result.changed_count) == (200, 300)
    assert result.warnings[-1].startswith("So did 280 more")


async def test_a_store_that_cannot_be_written_costs_the_record_and_not_the_call(place: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "undo").write_text("in the way")
    workspace = Workspace(place.root, ClientSettings(home=home))
    written = await write(workspace, "exec_1", "a.txt", "new")
    assert "cannot be undone" in written.warnings[0]
    result = await python(workspace, "exec_2", "open('b.txt','w').write('b')")
    assert (result.success, result.changed) == (True, [])
    assert "cannot be undone" in result.warnings[0]
    await workspace.close()


async def test_what_is_not_recorded_costs_no_look(place: Any, workspace: Workspace, settings: ClientSettings) -> None:
    await workspace.run("execute_command", {"command": "ls"})
    assert not (settings.home / "undo").exists()


def test_entries_can_be_written_as_json(place: Any, settings: ClientSettings) -> None:
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
    place: Any, workspace: Workspace, history: UndoHistory
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
    place: Any, workspace: Workspace, history: UndoHistory, settings: ClientSettings
) -> None:
    await write(workspace, "exec_1", "a.txt", "new")
    index = next((settings.home / "undo" / "workspaces").glob("*/index.jsonl"))

    def spoil(*_: Any) -> None:
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


def test_an_entry_whose_tree_is_lost_says_that_nothing_is_known(place: Any, settings: ClientSettings) -> None:
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    recorder.begin("exec_1", "execute_command", "x").ends.close()
    recorder.close()
    for kept in (settings.home / "undo" / "workspaces").glob("*/tree-*"):
        kept.write_bytes(b"torn")
    history = UndoHistory(paths, settings.home)
    with pytest.raises(CallerError, match="still runs"):
        history.entry("exec_1")
    again = UndoRecorder(paths, settings.home)
    again.recover()
    again.close()
    with pytest.raises(NotFound):
        history.entry("exec_1")
    paths.close()


async def test_large_files_come_back_too(place: Any, workspace: Workspace, history: UndoHistory) -> None:
    content = random.Random(1).randbytes(3_000_000)
    place.file("large.bin", content)
    await python(workspace, "exec_1", "import os; os.unlink('large.bin'); open('new.bin','wb').write(b'x' * 2_000_000)")
    undo(history)
    assert tree(place.root) == {"large.bin": (0o644, content)}


async def test_what_is_no_file_is_never_opened(place: Any, workspace: Workspace, history: UndoHistory) -> None:
    os.mkfifo(place.root / "pipe")
    result = await python(workspace, "exec_1", "import os; os.unlink('pipe'); open('a.txt','w')")
    assert {one.path for one in result.changed} == {"a.txt", "pipe"}
    with history.alone():
        assert list(history.plan(history.entry("exec_1")).lost) == ["pipe"]


async def test_a_directory_nobody_looked_into_is_left_and_stops_no_undo(
    place: Any, workspace: Workspace, history: UndoHistory
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


def test_what_could_not_be_seen_is_not_taken_for_gone(place: Any) -> None:
    place.file("shut/a.txt", "a")
    place.file("far.txt", "far")
    paths = PathValidator(place.root)
    known = TreeScan(paths, {}, max_files=100).run().states
    assert set(carried_over(paths, known, Tree(unseen=["shut/"]))) == {"shut/a.txt"}
    assert set(carried_over(paths, known, Tree(truncated=True))) == {"shut", "shut/a.txt", "far.txt"}
    (place.root / "far.txt").unlink()
    assert set(carried_over(paths, known, Tree(truncated=True))) == {"shut", "shut/a.txt"}
    paths.close()


@pytest.mark.parametrize("with_openat2", [True, False])
def test_an_exact_open_follows_no_link_on_the_way(place: Any, *, with_openat2: bool) -> None:
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


async def test_the_clients_own_files_are_left_out_where_they_lie_in_the_workspace(place: Any) -> None:
    settings = ClientSettings(home=place.root / "state")
    workspace = Workspace(place.root, settings)
    result = await python(workspace, "exec_1", "open('a.txt','w')")
    assert [one.path for one in result.changed] == ["a.txt"]
    await workspace.close()
    objects = [path for path in (settings.home / "undo" / "objects").rglob("*") if path.is_file()]
    assert len(objects) == 1
