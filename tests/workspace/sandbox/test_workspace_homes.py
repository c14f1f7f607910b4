"""The directory a command has for itself: gone with it, whatever it left there."""

import _thread
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from byleave.workspace.sandbox import environment as homes
from byleave.workspace.sandbox.backends import NoSandbox
from byleave.workspace.sandbox.environment import own_home, remove_left, remove_tree
from byleave.workspace.sandbox.processes import OutputKeeper, run_process
from harness.place import Place

pytestmark = pytest.mark.promise("S")

_NESTS = """
import os, sys
for _ in range(int(sys.argv[1])):
    os.mkdir('d')
    open('file', 'w').close()
    os.chdir('d')
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(homes, "_PATIENCE_SECONDS", 60)
    yield tmp_path
    remove_tree(tmp_path / "outside")


async def test_what_a_command_nested_deep_goes_with_it(place: Place, temporary: Path) -> None:
    sandbox = NoSandbox(place.root, reason="for a test")
    program = f"import os; os.chdir(os.environ['TMPDIR'])\n{_NESTS}"
    with sandbox.launch([sys.executable, "-c", program, "3000"]) as launch:
        ended = await run_process(launch, OutputKeeper(1000), seconds=60)
    assert ended.exit_code == 0
    assert not list(temporary.glob("byleave-*"))


def test_what_takes_long_to_remove_keeps_nobody_waiting(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(homes, "_PATIENCE_SECONDS", 0)
    monkeypatch.setattr(_thread, "start_new_thread", lambda work, _: later.append(work))
    with own_home() as home:
        (home / "inner").mkdir()
        (home / "inner" / "file").touch()
    remove_left(temporary)
    assert home.exists(), "it is still in use, for it is being removed"
    later[0]()
    assert not home.exists()


def test_what_takes_long_is_removed_also_without_another_thread(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(work: Callable[[], None], _: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(homes, "_PATIENCE_SECONDS", 0)
    monkeypatch.setattr(_thread, "start_new_thread", none_left)
    with own_home() as home:
        (home / "file").touch()
    assert not list(temporary.glob("byleave-*"))


def test_what_is_closed_odd_or_a_link_goes_and_nothing_behind_a_link(temporary: Path) -> None:
    outside = temporary / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    with own_home() as home:
        (home / "closed" / "inner").mkdir(parents=True)
        (home / "closed" / "inner" / "file").touch()
        for path in (home / "closed" / "inner", home / "closed"):
            path.chmod(0)
        os.mkfifo(home / "pipe")
        (home / "link").symlink_to(outside)
        (home / "\udcff").mkdir()
    assert not home.exists()
    assert (outside / "kept").exists()


def test_home_of_a_killed_client_is_removed_by_the_next_and_no_other(temporary: Path) -> None:
    program = """
import os, signal, tempfile
from byleave.workspace.sandbox.environment import own_home
with own_home() as home:
    (home / 'file').touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(temporary)}, check=False)
    assert len(list(temporary.glob("byleave-home-*"))) == 1
    (temporary / "byleave-other").mkdir()
    (temporary / "byleave-home-file").touch()
    (temporary / "byleave-home-link").symlink_to(temporary / "byleave-other")
    with own_home() as used:
        remove_left(temporary)
        left = {path.name for path in temporary.glob("byleave-*")}
    assert left == {used.name, "byleave-other", "byleave-home-file", "byleave-home-link"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can reach what is another's")
def test_root_removes_what_the_workspaces_owner_left_and_nobody_elses(temporary: Path, place: Place) -> None:
    for name, owner in (("byleave-home-theirs", 65534), ("byleave-home-others", 65533)):
        (temporary / name / "inner").mkdir(parents=True)
        os.chown(temporary / name, owner, owner)
    os.chown(place.root, 65534, 65534)
    remove_left(place.root)
    assert [path.name for path in temporary.glob("byleave-home-*")] == ["byleave-home-others"]


def test_lock_that_another_holds_on_a_new_directory_is_not_waited_for(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, held = tempfile.mkdtemp, list[int]()

    def make_and_lock(prefix: str) -> str:
        path = make(prefix=prefix)
        if not held:
            held.append(os.open(path, os.O_RDONLY))
            fcntl.flock(held[0], fcntl.LOCK_EX)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lock)
    with own_home() as home:
        assert home.is_dir()
    os.close(held[0])


def test_new_directory_that_another_client_removes_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, removed = tempfile.mkdtemp, list[str]()

    def make_and_remove(prefix: str) -> str:
        path = make(prefix=prefix)
        if not removed:
            removed.append(path)
            os.rmdir(path)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_remove)
    with own_home() as home:
        assert home.is_dir()
        assert str(home) not in removed


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="nothing can be mounted here")
def test_what_is_mounted_inside_is_left_alone(temporary: Path) -> None:
    outside, home = temporary / "outside", temporary / "byleave-home-x"
    outside.mkdir()
    (outside / "kept").touch()
    (home / "mounted").mkdir(parents=True)
    (home / "file").touch()
    program = f"from byleave.workspace.sandbox.environment import remove_tree; remove_tree({str(home)!r})"
    mounts = ["--dev-bind", "/", "/", "--bind", str(outside), str(home / "mounted")]
    subprocess.run(["bwrap", *mounts, "--", sys.executable, "-c", program], check=True)
    assert (outside / "kept").exists()
    assert [path.name for path in home.iterdir()] == ["mounted"]


def test_what_cannot_be_removed_is_no_error(temporary: Path) -> None:
    remove_tree(temporary / "missing")
    (temporary / "file").touch()
    remove_tree(temporary / "file")
    assert (temporary / "file").exists()
