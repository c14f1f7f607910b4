"""Directories kept ready for stand-ins: moved in where nothing is, never over anything, and never needed."""

import os
from pathlib import Path

import pytest

from assent.settings import ClientSettings
from assent.workspace import Workspace
from assent.workspace import spares as spares_module
from assent.workspace.spares import KEPT, Spares
from assent.workspace.stubs import Stubs, is_stub

from .conftest import Place

pytestmark = pytest.mark.promise("T3", "S")
STAMP = 1_000_000_007


def _filled(home: Path, place: Place, root_fd: int) -> Spares:
    """As after a first command, which found none."""
    spares = Spares(home, place.root, STAMP)
    for _ in range(KEPT + 1):
        assert not spares.move_in(root_fd, ".envrc")
    spares.refill()
    return spares


def test_first_command_makes_none_and_the_second_finds_them(place: Place, root_fd: int, tmp_path: Path) -> None:
    home = tmp_path / "spares"
    spares = Spares(home, place.root, STAMP)
    assert not spares.move_in(root_fd, ".envrc")
    spares.refill()
    assert not home.exists()
    spares = _filled(home, place, root_fd)
    assert len(list(home.iterdir())) == KEPT
    assert home.stat().st_mode & 0o077 == 0
    assert spares.move_in(root_fd, ".envrc")
    assert is_stub(root_fd, ".envrc")
    assert len(list(home.iterdir())) == KEPT - 1
    spares.refill()
    assert len(list(home.iterdir())) == KEPT


def test_nothing_in_the_workspace_is_replaced(place: Place, root_fd: int, tmp_path: Path) -> None:
    spares = _filled(tmp_path / "spares", place, root_fd)
    place.file(".bashrc", "mine")
    (place.root / ".vscode").mkdir()
    before = os.stat(place.root / ".vscode").st_ino
    assert not spares.move_in(root_fd, ".bashrc")
    assert not spares.move_in(root_fd, ".vscode")
    assert (place.root / ".bashrc").read_text() == "mine"
    assert os.stat(place.root / ".vscode").st_ino == before
    assert spares.move_in(root_fd, ".idea")  # they are still good


def test_clients_share_them_and_take_over_what_was_left(place: Place, root_fd: int, tmp_path: Path) -> None:
    home = tmp_path / "spares"
    one = _filled(home, place, root_fd)
    (home / "1-1").write_text("no directory")
    (home / "notes").mkdir()
    other = _filled(home, place, root_fd)
    assert len(list(home.iterdir())) == KEPT + 2
    for number in range(KEPT):
        assert (one if number % 2 else other).move_in(root_fd, f".x{number}")
    assert not one.move_in(root_fd, ".one")
    assert not other.move_in(root_fd, ".other")
    assert sorted(each.name for each in home.iterdir()) == ["1-1", "notes"]


def test_another_disk_gives_none(place: Place, root_fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Path("/dev/shm", f"assent-{os.getpid()}")
    try:
        spares = _filled(shared, place, root_fd)
        assert list(shared.iterdir()) == []
        assert not spares.move_in(root_fd, ".envrc")
    finally:
        shared.rmdir()
    # One that says only when it is tried.
    spares = _filled(tmp_path / "spares", place, root_fd)
    monkeypatch.setattr(spares_module, "_NO_REPLACE", 1 << 30)
    assert not spares.move_in(root_fd, ".envrc")
    monkeypatch.undo()
    assert not spares.move_in(root_fd, ".envrc")
    assert not (place.root / ".envrc").exists()


def test_home_that_cannot_be_written_gives_none(place: Place, root_fd: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spares = _filled(tmp_path / "file" / "spares", place, root_fd)
    assert not spares.move_in(root_fd, ".envrc")


def test_stub_from_a_spare_goes_like_any_other_and_what_was_put_into_it_stays(
    place: Place, root_fd: int, tmp_path: Path
) -> None:
    _filled(tmp_path / "spares", place, root_fd)
    stubs = Stubs()
    stubs.keep_spares(tmp_path / "spares", place.root)
    spares = stubs._spares  # pyright: ignore[reportPrivateUsage]
    assert spares is not None
    for _ in range(KEPT + 1):
        spares.move_in(root_fd, ".")
    spares.refill()
    with stubs.placed(root_fd, [".envrc", ".vscode"]):
        assert is_stub(root_fd, ".envrc")
        assert is_stub(root_fd, ".vscode")
        (place.root / ".vscode" / "settings.json").write_text("{}")
    assert [path.name for path in place.root.iterdir()] == [".vscode"]
    assert (place.root / ".vscode" / "settings.json").read_text() == "{}"


async def test_commands_of_a_client_use_them_and_leave_nothing(place: Place, tmp_path: Path) -> None:
    home = tmp_path / "home"
    workspace = Workspace(place.root, ClientSettings(home=home))
    for _ in range(3):
        await workspace.run("execute_command", {"command": "python", "args": ["-c", "open('x', 'w')"]})
    assert [path.name for path in place.root.iterdir()] == ["x"]
