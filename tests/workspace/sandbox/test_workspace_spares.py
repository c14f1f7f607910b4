"""Directories kept ready for stand-ins: moved in where nothing is, never over anything, and never needed."""

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from byleave.protocol.errors import ConfigurationError
from byleave.settings import ClientSettings
from byleave.workspace import Workspace
from byleave.workspace.sandbox import stand_ins as spares_module
from byleave.workspace.sandbox.stand_ins import KEPT, DirectoryPool, StandIns, is_stand_in
from harness.place import Place

pytestmark = pytest.mark.promise("T3", "S")
STAMP = 1_000_000_007


def _filled(home: Path, place: Place, root_fd: int) -> DirectoryPool:
    """As after a first command, which found none."""
    spares = DirectoryPool(home, place.root, STAMP)
    for _ in range(KEPT + 1):
        assert not spares.move_in(root_fd, ".envrc")
    spares.refill()
    return spares


def test_first_command_makes_none_and_the_second_finds_them(place: Place, root_fd: int, tmp_path: Path) -> None:
    home = tmp_path / "spares"
    spares = DirectoryPool(home, place.root, STAMP)
    assert not spares.move_in(root_fd, ".envrc")
    spares.refill()
    assert not home.exists()
    spares = _filled(home, place, root_fd)
    assert len(list(home.iterdir())) == KEPT
    assert home.stat().st_mode & 0o077 == 0
    assert spares.move_in(root_fd, ".envrc")
    assert is_stand_in(root_fd, ".envrc")
    assert len(list(home.iterdir())) == KEPT - 1
    spares.refill()
    assert len(list(home.iterdir())) == KEPT


def test_who_is_closed_makes_no_more_and_waits_for_the_one_being_made(
    place: Place, root_fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, begun, go_on = tmp_path / "spares", threading.Event(), threading.Event()
    spares = _filled(home, place, root_fd)
    assert spares.move_in(root_fd, ".envrc")
    mkdir = os.mkdir

    def slow(*given: Any, **more: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        mkdir(*given, **more)

    monkeypatch.setattr(os, "mkdir", slow)
    filling = threading.Thread(target=spares.refill)
    filling.start()
    assert begun.wait(60)
    closing = threading.Thread(target=spares.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    go_on.set()
    closing.join()
    found = list(home.iterdir())
    spares.refill()
    filling.join()
    assert list(home.iterdir()) == found


async def test_workspace_that_is_closed_writes_no_more_into_its_home(place: Place, tmp_path: Path) -> None:
    for number in range(5):
        home = tmp_path / f"home{number}"
        workspace = Workspace(place.root, ClientSettings(home=home))
        for _ in range(3):
            await workspace.run("execute_command", {"command": "python", "args": ["-c", ""]})
        await workspace.close()
        shutil.rmtree(home)
        assert not home.exists()


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


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["full", "changed", "wide", "shut", "link", "file", "foreign"])
def test_what_is_no_empty_directory_of_ours_is_left_alone(
    kind: str, when: str, place: Place, root_fd: int, tmp_path: Path
) -> None:
    """Whether it lay there when the client first looked, or came in place of a spare since."""
    if kind == "foreign" and os.geteuid() != 0:
        pytest.skip("needs root")
    home = tmp_path / "spares"
    home.mkdir(mode=0o700)
    spares = _filled(home, place, root_fd) if when == "after" else None
    odd = Path(spares._ready[-1][0]) if spares is not None else home / "1-1"  # pyright: ignore[reportPrivateUsage]
    odd.mkdir(exist_ok=True)
    if kind in ("link", "file"):
        odd.rmdir()
        (tmp_path / "elsewhere").mkdir()
        odd.symlink_to(tmp_path / "elsewhere") if kind == "link" else odd.write_text("mine")
    elif kind == "full":
        (odd / "mine.txt").write_text("mine")
    if kind != "changed":
        os.utime(odd, (STAMP, STAMP), follow_symlinks=False)
    else:
        os.utime(odd)
    if kind in ("wide", "shut"):
        odd.chmod(0o777 if kind == "wide" else 0o500)
    if kind == "foreign":
        os.chown(odd, 12345, 12345)
    before = odd.lstat()
    spares = spares or _filled(home, place, root_fd)
    for number in range(KEPT - (when == "after")):
        assert spares.move_in(root_fd, f".x{number}")
        assert is_stand_in(root_fd, f".x{number}")
    assert not spares.move_in(root_fd, ".envrc")
    assert [path.name for path in home.iterdir()] == [odd.name]
    after = odd.lstat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)
    spares.refill()
    assert spares.move_in(root_fd, ".envrc")


@pytest.mark.parametrize("kind", ["link", "wide"])
def test_place_that_is_not_ours_alone_gives_none(kind: str, place: Place, root_fd: int, tmp_path: Path) -> None:
    home = tmp_path / "spares"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        home.symlink_to(tmp_path / "elsewhere")
    else:
        home.mkdir()
        home.chmod(0o777)
    spares = _filled(home, place, root_fd)
    assert list(home.iterdir()) == []
    assert not spares.move_in(root_fd, ".envrc")


def test_disk_that_keeps_no_times_gives_none_and_is_not_filled(
    place: Place, root_fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "utime", lambda *_, **__: None)
    spares = _filled(tmp_path / "spares", place, root_fd)
    assert list((tmp_path / "spares").iterdir()) == []
    assert not spares.move_in(root_fd, ".envrc")


@pytest.mark.parametrize("name", ["spares", "spares/1-1"])
def test_their_place_cannot_be_a_workspace(name: str, tmp_path: Path) -> None:
    root = tmp_path / "home" / name
    root.mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="where Byleave keeps its own files"):
        Workspace(root, ClientSettings(home=tmp_path / "home"))


def test_another_disk_gives_none(place: Place, root_fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Path("/dev/shm", f"byleave-{os.getpid()}")
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
    stubs = StandIns()
    stubs.keep_spares(tmp_path / "spares", place.root)
    spares = stubs._spares  # pyright: ignore[reportPrivateUsage]
    assert spares is not None
    for _ in range(KEPT + 1):
        spares.move_in(root_fd, ".")
    spares.refill()
    with stubs.placed(root_fd, [".envrc", ".vscode"]):
        assert is_stand_in(root_fd, ".envrc")
        assert is_stand_in(root_fd, ".vscode")
        (place.root / ".vscode" / "settings.json").write_text("{}")
    assert [path.name for path in place.root.iterdir()] == [".vscode"]
    assert (place.root / ".vscode" / "settings.json").read_text() == "{}"


async def test_commands_of_a_client_use_them_and_leave_nothing(place: Place, tmp_path: Path) -> None:
    home = tmp_path / "home"
    workspace = Workspace(place.root, ClientSettings(home=home))
    for _ in range(3):
        await workspace.run("execute_command", {"command": "python", "args": ["-c", "open('x', 'w')"]})
    assert [path.name for path in place.root.iterdir()] == ["x"]
