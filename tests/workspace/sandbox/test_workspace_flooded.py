"""A command that floods the workspace with names hides nothing behind them of what was watched before."""

from collections.abc import Iterator

import pytest

from byleave.settings import ClientSettings
from byleave.workspace.paths import PathValidator
from byleave.workspace.undo.recorder import UndoRecorder
from byleave.workspace.undo.restoring import UndoHistory
from byleave.workspace.undo.snapshots import Change
from harness.place import Place

pytestmark = pytest.mark.promise("L8-undo")


@pytest.fixture
def recorder(place: Place, settings: ClientSettings) -> Iterator[UndoRecorder]:
    paths = PathValidator(place.root)
    recorder = UndoRecorder(paths, settings.home, max_files=20)
    yield recorder
    recorder.close()
    paths.close()


def told(changes: dict[str, Change]) -> dict[str, str]:
    return {
        path: "created" if before is None else "deleted" if after is None else "changed"
        for path, (before, after) in changes.items()
    }


def test_what_it_changes_beyond_the_bound_is_told_and_comes_back(
    place: Place, recorder: UndoRecorder, settings: ClientSettings
) -> None:
    place.file("package.json", "{}")
    place.file("zz/deep.txt", "deep")
    place.file("zz/same.txt", "same")
    place.file("zz/gone.txt", "gone")
    (place.root / "zlink").symlink_to("package.json")
    running = recorder.begin("exec_1", "execute_command", "flood")
    for number in range(50):
        place.file(f"!{number:03}")
    place.file("package.json", '{"scripts": {}}')
    place.file("zz/deep.txt", "changed")
    (place.root / "zz" / "gone.txt").unlink()
    (place.root / "zlink").unlink()
    (place.root / "zlink").symlink_to("zz")
    changes = told(recorder.end(running))
    beyond = {path: change for path, change in changes.items() if not path.startswith("!")}
    assert beyond == {
        "package.json": "changed",
        "zz/deep.txt": "changed",
        "zz/gone.txt": "deleted",
        "zlink": "changed",
    }
    assert any("more files here than are watched" in note for note in running.notes)
    paths = PathValidator(place.root)
    history = UndoHistory(paths, settings.home)
    with history.alone():
        plan = history.plan(history.entry("exec_1"))
        assert (plan.conflicts, plan.lost) == ([], {})
        history.apply(plan)
    assert (place.root / "package.json").read_text() == "{}"
    assert (place.root / "zz" / "deep.txt").read_text() == "deep"
    assert (place.root / "zz" / "gone.txt").read_text() == "gone"
    assert (place.root / "zlink").readlink().name == "package.json"
    history.close()
    paths.close()


def test_what_stays_as_it_was_beyond_the_bound_is_not_told(place: Place, recorder: UndoRecorder) -> None:
    place.file("sub/.git/config", "[core]\n")
    place.file("sub/.git/HEAD", "ref: refs/heads/main\n")
    place.file("sub/node_modules/x.js", "")
    place.file("sub/a.txt", "a")
    running = recorder.begin("exec_1", "execute_command", "flood")
    for number in range(50):
        place.file(f"!{number:03}")
    assert all(path.startswith("!") for path in told(recorder.end(running)))
    second = recorder.begin("exec_2", "execute_command", "hide")
    place.file("sub/.git/config", "[core]\n\tfsmonitor = evil\n")
    assert told(recorder.end(second)) == {"sub/.git/config": "changed"}
