"""Stand-ins for protected names, and whom commands run as: nothing left behind, nothing of others taken away."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from byleave.protocol.errors import ToolFailure
from byleave.protocol.tools import ExecuteCommandResult
from byleave.settings import ClientSettings
from byleave.workspace.sandbox import environment as privileges
from byleave.workspace.sandbox import environment as programs
from byleave.workspace.sandbox import protected_names as stubs_module
from byleave.workspace.sandbox.bubblewrap import BubblewrapSandbox, Part, working_sandbox
from byleave.workspace.sandbox.environment import (
    CommandUser,
    Toolchain,
    command_user,
    limited_group,
    pids_group,
    search_path,
    usable_toolchains,
)
from byleave.workspace.sandbox.protected_names import StandIns, is_stand_in
from byleave.workspace.workspace import Workspace
from harness.place import Place

pytestmark = pytest.mark.promise("T3", "S")
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def reachable() -> Iterator[Place]:
    """A workspace that every user can reach. Not in pytest's own, which the next pytest to start closes to others."""
    with tempfile.TemporaryDirectory(prefix="walls-") as base:
        os.chmod(base, 0o755)
        place = Place(Path(base) / "ws", Path(base) / "out")
        place.root.mkdir()
        place.outside.mkdir()
        yield place


def test_stub_is_there_for_the_time_of_the_block_only(place: Place, root_fd: int) -> None:
    with StandIns().placed(root_fd, [".envrc", ".vscode"]):
        assert is_stand_in(root_fd, ".envrc")
        assert {path.name for path in place.root.iterdir()} == {".envrc", ".vscode"}
    assert list(place.root.iterdir()) == []
    assert not is_stand_in(root_fd, ".envrc")


def test_stub_goes_also_on_a_disk_that_keeps_no_modes(
    place: Place, root_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def make_as_that_disk_does(name: str, mode: int, *, dir_fd: int) -> None:
        make(name, mode & 0o777, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", make_as_that_disk_does)
    with StandIns().placed(root_fd, [".envrc", ".vscode"]):
        assert is_stand_in(root_fd, ".envrc")
    assert list(place.root.iterdir()) == []


def test_what_is_there_already_is_left_alone(place: Place, root_fd: int) -> None:
    place.file(".envrc", "mine")
    (place.root / ".idea").mkdir()
    with StandIns().placed(root_fd, [".envrc", ".idea"]):
        assert not is_stand_in(root_fd, ".envrc")
        assert not is_stand_in(root_fd, ".idea")
    assert (place.root / ".envrc").read_text() == "mine"
    assert (place.root / ".idea").is_dir()


def test_stub_that_somebody_uses_now_stays(place: Place, root_fd: int) -> None:
    with StandIns().placed(root_fd, [".vscode"]):
        place.file(".vscode/settings.json", "{}")
    assert (place.root / ".vscode/settings.json").exists()


def test_stub_that_somebody_replaced_stays(place: Place, root_fd: int) -> None:
    with StandIns().placed(root_fd, [".envrc"]):
        (place.root / ".envrc").rmdir()
        (place.root / ".envrc").mkdir()
    assert (place.root / ".envrc").is_dir()


def test_stub_of_a_client_that_was_killed_is_removed_by_the_next(place: Place, root_fd: int) -> None:
    (place.root / ".envrc").mkdir()
    os.utime(place.root / ".envrc", (stubs_module._STAMP, stubs_module._STAMP))
    with StandIns().placed(root_fd, [".envrc"]):
        pass
    assert list(place.root.iterdir()) == []


def test_second_client_does_not_take_the_stub_of_the_first(place: Place, root_fd: int) -> None:
    with StandIns().placed(root_fd, [".envrc"]):
        with StandIns().placed(root_fd, [".envrc"]):
            pass
        assert is_stand_in(root_fd, ".envrc")
    assert list(place.root.iterdir()) == []


def test_stub_that_another_client_removes_meanwhile_is_made_again(
    place: Place, root_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = fcntl.flock, iter([True, True, False])

    def flock(fd: int, operation: int) -> None:
        if operation & fcntl.LOCK_SH and next(lost):
            (place.root / ".envrc").rmdir()
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with StandIns().placed(root_fd, [".envrc"]):
        assert is_stand_in(root_fd, ".envrc")
    assert list(place.root.iterdir()) == []


def test_stub_that_comes_and_goes_is_an_error(root_fd: int, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock

    def flock(fd: int, operation: int) -> None:
        (place.root / ".envrc").rmdir()
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ToolFailure, match="comes and goes"), StandIns().placed(root_fd, [".envrc"]):
        pass


async def test_lock_that_a_command_holds_keeps_nobody_waiting(workspace: Workspace, place: Place) -> None:
    """Any command can lock what it can open. To wait for it would stop the client, and with it the command's end."""
    place.file(".vscode/settings.json", "{}")
    lock = "import fcntl, os; fcntl.flock(os.open('.vscode', os.O_RDONLY), fcntl.LOCK_EX)"
    hold = f"{lock}; open('held', 'w'); import time; time.sleep(60)"
    first = asyncio.create_task(workspace.run("execute_command", {"command": "python", "args": ["-c", hold]}))
    while not (place.root / "held").exists():
        await asyncio.sleep(0.01)
    async with asyncio.timeout(20):
        second = await workspace.run("execute_command", {"command": "python", "args": ["-c", "print('ran')"]})
    assert isinstance(second, ExecuteCommandResult)
    assert (second.stdout, ".vscode" in second.isolation["protected"]) == ("ran\n", True)
    assert not first.done()
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first


def test_stub_whose_lock_another_program_holds_is_an_error(place: Place, root_fd: int) -> None:
    """Whoever holds it is about to take it away, so it would not stand in for anything."""
    (place.root / ".envrc").mkdir()
    os.utime(place.root / ".envrc", (stubs_module._STAMP, stubs_module._STAMP))
    other = os.open(place.root / ".envrc", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(ToolFailure, match="could not be protected"), StandIns().placed(root_fd, [".envrc"]):
        pass
    os.close(other)
    with StandIns().placed(root_fd, [".envrc"]):
        pass
    assert list(place.root.iterdir()) == []


def test_stub_that_somebody_took_away_is_made_again_for_the_next_command(place: Place, root_fd: int) -> None:
    stubs = StandIns()
    with stubs.placed(root_fd, [".envrc"]):
        (place.root / ".envrc").rmdir()  # as `git clean` does
        with stubs.placed(root_fd, [".envrc"]):
            assert is_stand_in(root_fd, ".envrc")
        assert is_stand_in(root_fd, ".envrc")
        (place.root / ".envrc").rmdir()
        place.file(".envrc", "mine")
        with stubs.placed(root_fd, [".envrc"]):
            pass
    assert (place.root / ".envrc").read_text() == "mine"


def test_stub_whose_maker_was_killed_before_it_had_its_stamp_is_known(place: Place, root_fd: int) -> None:
    with StandIns().placed(root_fd, [".envrc"]):
        os.utime(place.root / ".envrc")
        shutil.copytree(place.root / ".envrc", place.root / ".idea")  # with its mode, and without a holder
    assert [path.name for path in place.root.iterdir()] == [".idea"]
    os.utime(place.root / ".idea")
    with StandIns().placed(root_fd, [".idea"]):
        assert is_stand_in(root_fd, ".idea")
    assert list(place.root.iterdir()) == []


def test_next_client_removes_what_a_killed_one_left_before_any_command(place: Place) -> None:
    for name in (".envrc", ".idea", ".claude", ".husky"):
        (place.root / name).mkdir()
    place.file(".claude/x")
    for name in (".envrc", ".claude", ".husky"):
        os.utime(place.root / name, (stubs_module._STAMP, stubs_module._STAMP))
    held = os.open(place.root / ".husky", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)  # another client's, which lives
    assert isinstance(working_sandbox(place.root), BubblewrapSandbox)
    assert sorted(path.name for path in place.root.iterdir()) == [".claude", ".husky", ".idea"]
    os.close(held)


def test_ordinary_user_runs_commands_as_themselves(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges.os, "geteuid", lambda: 1000)
    assert command_user(place.root) is None
    assert pids_group() is None


@needs_root
def test_root_runs_commands_as_the_owner_who_can_reach_the_workspace(reachable: Place, tmp_path: Path) -> None:
    root = reachable.root
    assert command_user(root) is None
    assert command_user(tmp_path / "missing") is None
    os.chown(root, 12345, 0)
    assert command_user(root) == CommandUser(12345, NOBODY)  # never root's group
    os.chown(root, NOBODY, NOBODY)
    assert command_user(root) == CommandUser(NOBODY, NOBODY)
    root.parent.chmod(0o700)
    assert command_user(root) is None


def test_reach_is_told_by_modes(tmp_path: Path) -> None:
    other = CommandUser(NOBODY, NOBODY)
    assert other.reaches(Path("/usr/bin"))
    assert not other.reaches(tmp_path / "missing")
    own = CommandUser(os.geteuid(), os.getegid())
    assert own.reaches(Path("/"))


@needs_root
def test_toolchain_that_the_owner_cannot_reach_is_not_used(reachable: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place = reachable
    private = place.outside / "tools"
    private.mkdir(mode=0o700)
    monkeypatch.setattr(programs, "toolchains", lambda: (Toolchain(private, private),))
    assert usable_toolchains(place.root) != ()
    os.chown(place.root, NOBODY, NOBODY)
    assert usable_toolchains(place.root) == ()
    assert search_path(place.root) == programs.SYSTEM_DIRECTORIES


@needs_root
async def test_command_of_root_in_anothers_workspace_is_theirs(reachable: Place, settings: ClientSettings) -> None:
    place = reachable
    for args in (["init", "-q"], ["config", "user.name", "A"], ["config", "user.email", "a@example.org"]):
        subprocess.run(["git", *args], cwd=place.root, check=True)
    place.file("a.txt", "one")
    for directory, names, files in os.walk(place.root):
        for name in (".", *names, *files):
            os.chown(os.path.join(directory, name), NOBODY, NOBODY)
    workspace = Workspace(place.root, settings)
    for command, *args in (
        ("python", "-c", "import os; open('made', 'w'); print(os.stat('made').st_uid == os.getuid())"),
        ("git", "add", "a.txt"),
        ("git", "commit", "-m", "one"),
    ):
        result = await workspace.run("execute_command", {"command": command, "args": args})
        assert isinstance(result, ExecuteCommandResult)
        assert result.exit_code == 0, result.stderr
        assert result.isolation["runs_as"] == "owner"
    assert (place.root / "made").stat().st_uid == NOBODY
    await workspace.close()


@needs_root
def test_group_of_a_command_is_removed_and_leftovers_are_swept() -> None:
    base = pids_group()
    if base is None:
        pytest.skip("no control group for processes here")
    left = base / "byleave-0-0"  # no process has this number
    left.mkdir(exist_ok=True)
    mine = base / f"byleave-{os.getpid()}-0"
    mine.mkdir()
    with limited_group(base, 20) as (procs, argv):
        assert procs.exists()
        assert (procs.parent / "pids.max").read_text().strip() == "20"
        joined = subprocess.run([*argv, "/bin/cat", "/proc/self/cgroup"], capture_output=True, text=True, check=True)
        assert procs.parent.name in joined.stdout
    assert not procs.parent.exists()
    assert pids_group() == base
    assert not left.exists()
    assert mine.exists()  # of a client that lives, which may be about to use it
    mine.rmdir()


def test_machine_without_control_groups_has_no_such_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges.os, "geteuid", lambda: 0)
    monkeypatch.setattr(privileges, "_CGROUPS", tmp_path)
    assert pids_group() is None
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    assert pids_group() is None
    (tmp_path / "cgroup.subtree_control").write_text("cpu pids\n")
    assert pids_group() is None  # a directory without the kernel behind it has no cgroup.procs


@needs_root
def test_root_without_control_groups_says_that_processes_are_not_limited(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.workspace.sandbox.bubblewrap.pids_group", lambda: None)
    sandbox = BubblewrapSandbox(place.root)
    assert sandbox.probe() is None
    assert {"nproc", "pids"}.isdisjoint(sandbox.isolation().limits)
    assert any("number of processes is not limited" in words for words in sandbox.isolation().degraded)


def test_part_that_does_not_work_is_left_out_and_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[frozenset[Part]] = []

    def probe(sandbox: BubblewrapSandbox) -> str | None:
        tried.append(sandbox._without)
        return None if "userns" in sandbox._without else "bwrap: Unknown option --disable-userns"

    monkeypatch.setattr(BubblewrapSandbox, "probe", probe)
    sandbox = working_sandbox(place.root)
    assert isinstance(sandbox, BubblewrapSandbox)
    assert tried[0] == frozenset()
    assert "--disable-userns" not in sandbox._system
    assert sandbox.isolation().seccomp is True
    assert any("user namespaces" in words for words in sandbox.isolation().degraded)
