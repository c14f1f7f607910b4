"""Undo when what it keeps is damaged: what can be brought back is, what cannot is named, and nothing is half done."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from byleave.settings import ClientSettings
from byleave.workspace import PathValidator, UndoHistory, UndoRecorder, Workspace
from byleave.workspace.undo.desk import why_not

pytestmark = pytest.mark.promise("L8-undo")

CODE = "import os; open('a','w').write('A'); open('b','w').write('B'); open('new','w'); os.chmod('m', 0o755)"


async def changed_by_a_command(place: Any, settings: ClientSettings) -> None:
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
def looking_back(place: Any, settings: ClientSettings) -> Generator[UndoHistory]:
    paths = PathValidator(place.root)
    history = UndoHistory(paths, settings.home)
    with history.alone():
        yield history
    history.close()
    paths.close()


async def test_a_damaged_content_is_named_before_anything_is_touched_and_the_rest_comes_back(
    place: Any, settings: ClientSettings
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


async def test_contents_that_are_gone_are_named_and_nothing_is_touched(place: Any, settings: ClientSettings) -> None:
    await changed_by_a_command(place, settings)
    for bundle in (settings.home / "undo" / "bundles").iterdir():
        bundle.unlink()
    with looking_back(place, settings) as history:
        assert sorted(history.plan(history.entry("exec_1")).lost) == ["a", "b"]
    assert (place.root / "a").read_text() == "A"


async def test_a_mode_goes_back_also_where_the_kept_content_is_damaged(place: Any, settings: ClientSettings) -> None:
    await changed_by_a_command(place, settings)
    spoil(settings.home, b"its mode alone changes")
    with looking_back(place, settings) as history:
        plan = history.plan(history.entry("exec_1"))
        assert plan.lost == {}
        history.apply(plan)
    assert (place.root / "m").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("stray", ["directory", "link", "pipe"])
async def test_what_is_no_bundle_among_the_bundles_stops_neither_recording_nor_undo(
    place: Any, settings: ClientSettings, stray: str
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


LINE: dict[str, Any] = {
    "step": "write",
    "id": "exec_9",
    "tool_name": "write_file",
    "summary": "",
    "at": "2026-01-01T00:00:00Z",
    "notes": [],
}
STATE: list[Any] = ["file", 0o644, [0, 0], [1, 1, 1, 1], "0" * 64, None, False]


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 200_000,
        *(
            json.dumps(LINE | {"changes": [[path, STATE, None]]}).encode()
            for path in ("../x", "a/../../x", "/etc/x", "")
        ),
        json.dumps(LINE | {"changes": [["x", ["odd", *STATE[1:]], None]]}).encode(),
    ],
    ids=["without end", "parent", "climbing", "absolute", "empty", "kind"],
)
async def test_a_line_that_makes_no_sense_is_passed_over(place: Any, settings: ClientSettings, line: bytes) -> None:
    await changed_by_a_command(place, settings)
    (workspaces,) = (settings.home / "undo" / "workspaces").iterdir()
    with (workspaces / "index.jsonl").open("ab") as file:
        file.write(line + b"\n")
    paths = PathValidator(place.root)
    history = UndoHistory(paths, settings.home)
    assert [entry.id for entry in history.entries()] == ["exec_1"]
    history.close()
    paths.close()
