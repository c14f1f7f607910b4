"""Undo when what it keeps is damaged: what can be brought back is, what cannot is named, and nothing is half done."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from byleave.protocol.tools import ExecuteCommandResult, WriteFileResult
from byleave.protocol.wire import now
from byleave.settings import ClientSettings
from byleave.workspace.paths import PathValidator
from byleave.workspace.undo.desk import why_not
from byleave.workspace.undo.recorder import UndoRecorder
from byleave.workspace.undo.restoring import UndoHistory
from byleave.workspace.undo.store import Entry, Index, ObjectStore, sweep
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject
from harness.place import Place

pytestmark = pytest.mark.promise("L8-undo")

CODE = "import os; open('a','w').write('A'); open('b','w').write('B'); open('new','w'); os.chmod('m', 0o755)"


async def changed_by_a_command(place: Place, settings: ClientSettings) -> None:
    place.file("a", "first old content")
    place.file("b", "second old content")
    place.file("m", "its mode alone changes")
    workspace = Workspace(place.root, settings)
    try:
        await workspace.run("execute_command", {"command": "python3", "args": ["-c", CODE]}, record_as="exec_1")
    finally:
        await workspace.close()


def spoil(home: Path, content: bytes) -> None:
    found = False
    for bundle in (home / "undo" / "bundles").iterdir():
        data = bundle.read_bytes()
        found = found or content in data
        bundle.write_bytes(data.replace(content, bytes(len(content))))
    assert found


@contextmanager
def looking_back(place: Place, settings: ClientSettings) -> Generator[UndoHistory]:
    paths = PathValidator(place.root)
    history = UndoHistory(paths, settings.home)
    with history.alone():
        yield history
    history.close()
    paths.close()


async def test_a_damaged_content_is_named_before_anything_is_touched_and_the_rest_comes_back(
    place: Place, settings: ClientSettings
) -> None:
    await changed_by_a_command(place, settings)
    spoil(settings.home, b"second old content")
    with looking_back(place, settings) as history:
        plan = history.plan(history.entry("exec_1"))
        assert list(plan.lost) == ["b"]
        assert "b (its old content was damaged on the disk)" in (why_not(plan, partial=False) or "")
        assert why_not(plan, partial=True) is None
        history.apply(plan)
    assert (place.root / "a").read_text() == "first old content"
    assert (place.root / "b").read_text() == "B"
    assert not (place.root / "new").exists()


async def test_contents_that_are_gone_are_named_and_nothing_is_touched(place: Place, settings: ClientSettings) -> None:
    await changed_by_a_command(place, settings)
    for bundle in (settings.home / "undo" / "bundles").iterdir():
        bundle.unlink()
    with looking_back(place, settings) as history:
        assert sorted(history.plan(history.entry("exec_1")).lost) == ["a", "b"]
    assert (place.root / "a").read_text() == "A"


async def test_a_mode_goes_back_also_where_the_kept_content_is_damaged(place: Place, settings: ClientSettings) -> None:
    await changed_by_a_command(place, settings)
    spoil(settings.home, b"its mode alone changes")
    with looking_back(place, settings) as history:
        plan = history.plan(history.entry("exec_1"))
        assert plan.lost == {}
        history.apply(plan)
    assert (place.root / "m").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("stray", ["directory", "link", "pipe"])
async def test_what_is_no_bundle_among_the_bundles_stops_neither_recording_nor_undo(
    place: Place, settings: ClientSettings, stray: str
) -> None:
    await changed_by_a_command(place, settings)
    odd = settings.home / "undo" / "bundles" / "odd"
    if stray == "directory":
        odd.mkdir()
    elif stray == "link":
        odd.symlink_to("/etc/passwd")
    else:
        os.mkfifo(odd)
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home)
    place.file("a", "A")
    running = recorder.begin("exec_2", "execute_command", "x")
    place.file("a", "changed again")
    assert list(recorder.end(running)) == ["a"]
    recorder.close()
    history = UndoHistory(paths, settings.home)
    for call in ("exec_2", "exec_1"):
        with history.alone():
            plan = history.plan(history.entry(call))
            assert (plan.conflicts, plan.lost) == ([], {})
            history.apply(plan)
    assert (place.root / "a").read_text() == "first old content"
    assert odd.is_symlink() or odd.exists(), "what is not ours is left"
    history.close()
    paths.close()


ROW: JsonObject = {"id": "exec_9", "tool_name": "write_file", "summary": "", "at": "2026-01-01T00:00:00Z"}
STATE: list[object] = ["file", 0o644, [0, 0], [1, 1, 1, 1], "0" * 64, None, False]


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        "[" * 200_000,
        '{"id": "exec_9"}',
        json.dumps(ROW | {"changes": {}, "odd": 1}),
        *(json.dumps(ROW | {"changes": {path: [STATE, None]}}) for path in ("../x", "a/../../x", "/etc/x", "")),
        json.dumps(ROW | {"changes": {"x": [["odd", *STATE[1:]], None]}}),
    ],
    ids=["bytes", "without end", "part", "field", "parent", "climbing", "absolute", "empty", "kind"],
)
async def test_a_row_that_makes_no_sense_is_passed_over(
    place: Place, settings: ClientSettings, value: str | bytes
) -> None:
    await changed_by_a_command(place, settings)
    with contextlib.closing(sqlite3.connect(index_of(settings), isolation_level=None)) as database:
        database.execute("INSERT INTO entries (id, value) VALUES (CAST(x'ff' AS TEXT), CAST(? AS TEXT))", (value,))
    paths = PathValidator(place.root)
    history = UndoHistory(paths, settings.home)
    assert [entry.id for entry in history.entries()] == ["exec_1"]
    assert sweep(ObjectStore(settings.home, max_bytes=10**9), days=1, max_bytes=10**9), "and goes with the next sweep"
    assert [entry.id for entry in history.entries()] == ["exec_1"]
    with contextlib.closing(sqlite3.connect(index_of(settings))) as database:
        assert database.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    history.close()
    paths.close()


def index_of(settings: ClientSettings) -> Path:
    (index,) = (settings.home / "undo" / "workspaces").glob("*/index.db")
    return index


def garbage(index: Path) -> None:
    index.write_bytes(b"no database" * 1000)


def torn(index: Path) -> None:
    """Everything after the header is lost, as a bad disk may leave it."""
    index.write_bytes(index.read_bytes()[:1024] + b"\xaa" * (index.stat().st_size - 1024))


def shortened(index: Path) -> None:
    os.truncate(index, 1024)


@pytest.mark.parametrize("spoil", [garbage, torn, shortened])
async def test_a_damaged_index_stops_no_call_is_told_and_set_aside(
    place: Place, settings: ClientSettings, spoil: Callable[[Path], None]
) -> None:
    await changed_by_a_command(place, settings)
    index = index_of(settings)
    spoil(index)
    workspace = Workspace(place.root, settings)
    try:
        code = "print(1); open('a','w').write('again')"
        params: JsonObject = {"command": "python3", "args": ["-c", code]}
        result = await workspace.run("execute_command", params, record_as="exec_2")
        assert isinstance(result, ExecuteCommandResult)
        assert (result.stdout, [one.path for one in result.changed]) == ("1\n", ["a"])
        assert "the record of earlier calls was damaged" in result.warnings[0]
        assert "it cannot be undone" in result.warnings[0]
        written = await workspace.run("write_file", {"path": "a", "content": "new"}, record_as="exec_3")
        assert isinstance(written, WriteFileResult)
        assert written.warnings == []
    finally:
        await workspace.close()
    assert len(list(index.parent.glob("damaged-*"))) >= 1
    with looking_back(place, settings) as history:
        assert [entry.id for entry in history.entries()] == ["exec_3"]
        history.apply(history.plan(history.entry("exec_3")))
    assert (place.root / "a").read_text() == "again"


async def test_a_write_that_finds_the_index_damaged_happens_and_says_so(place: Place, settings: ClientSettings) -> None:
    await changed_by_a_command(place, settings)
    garbage(index_of(settings))
    workspace = Workspace(place.root, settings)
    try:
        written = await workspace.run("write_file", {"path": "a", "content": "new"}, record_as="exec_2")
    finally:
        await workspace.close()
    assert isinstance(written, WriteFileResult)
    assert "the record of earlier calls was damaged" in written.warnings[0]
    assert (place.root / "a").read_text() == "new"


def test_a_client_goes_on_in_the_new_index_when_another_set_the_old_one_aside(tmp_path: Path) -> None:
    first, second = Index(tmp_path / "w"), Index(tmp_path / "w")
    first.put(Entry("e1", "write_file", "", now()))
    assert [entry.id for entry in second.entries()] == ["e1"]
    # As a process does that finds it damaged: what the first one puts next must not be lost with it.
    for path in sorted(first.directory.glob("index.db*"), reverse=True):
        path.rename(path.with_name(path.name.replace("index.db", "damaged-1")))
    first.put(Entry("e2", "write_file", "", now()))
    assert [entry.id for entry in second.entries()] == ["e2"]
    first.close()
    second.close()
    third = Index(tmp_path / "w")
    assert [entry.id for entry in third.entries()] == ["e2"]
    third.close()


def test_an_index_whose_making_was_interrupted_is_finished(tmp_path: Path) -> None:
    index = Index(tmp_path / "w")
    index.path.touch()
    index.put(Entry("e1", "write_file", "", now()))
    assert [entry.id for entry in index.entries()] == ["e1"]
    index.close()


def test_the_log_of_an_index_that_is_gone_is_not_replayed_into_a_new_one(tmp_path: Path) -> None:
    index = Index(tmp_path / "w")
    index.put(Entry("e1", "write_file", "", now()))
    log = index.path.with_name("index.db-wal").read_bytes()
    index.close()
    index.path.unlink()
    index.path.with_name("index.db-wal").write_bytes(log)
    index.put(Entry("e2", "write_file", "", now()))
    assert [entry.id for entry in index.entries()] == ["e2"]
    index.close()


def test_files_of_an_earlier_version_and_damaged_ones_go_when_they_are_old(settings: ClientSettings) -> None:
    store = ObjectStore(settings.home, max_bytes=1000)
    place = settings.home / "undo" / "workspaces" / "w"
    place.mkdir()
    names = ("damaged-1", "damaged-1-wal", "index.jsonl", "tree-1")
    for name in names:
        (place / name).touch()
    assert sweep(store, days=1, max_bytes=1000)
    assert sorted(path.name for path in place.iterdir()) == sorted(names)
    assert sweep(store, days=-1, max_bytes=1000)
    assert list(place.iterdir()) == []
