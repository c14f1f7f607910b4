"""What the owner's rules forbid is hidden from commands, and protected names that are links stay what they were."""

import contextlib
import gc
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from byleave.protocol.errors import PathValidationError, ToolFailure
from byleave.workspace.paths import parents_of
from byleave.workspace.sandbox import mounts as mounts_module
from byleave.workspace.sandbox.backends import NoSandbox
from byleave.workspace.sandbox.bubblewrap import BubblewrapSandbox
from byleave.workspace.sandbox.mounts import MAX_MASKED, mode_at, real_path
from byleave.workspace.sandbox.processes import OutputKeeper, run_process
from byleave.workspace.sandbox.protected_names import Link, link_at, put_back, watched_names
from byleave.workspace.sandbox.sandbox import Isolation, Launch
from harness.lines import understood
from harness.place import Place

pytestmark = pytest.mark.promise("T3", "S")
PYTHON = "/usr/bin/python3"


@pytest.fixture
def sandbox(place: Place) -> BubblewrapSandbox:
    return BubblewrapSandbox(place.root)


async def _run(sandbox: BubblewrapSandbox, *argv: str, masked: tuple[str, ...] = ()) -> tuple[str, Launch]:
    keeper = OutputKeeper(100_000)
    with sandbox.launch(list(argv), understood=understood(argv), masked=masked) as launch:
        await run_process(launch, keeper, seconds=20)
    captured = keeper.captured()
    return captured.stdout + captured.stderr, launch


async def _through(sandbox: BubblewrapSandbox, *lines: str, masked: tuple[str, ...] = ()) -> str:
    """Which of the lines of Python got through."""
    script = f"import os\nfor line in {lines!r}:\n    try: exec(line); print(line)\n    except OSError: pass\n"
    return (await _run(sandbox, PYTHON, "-I", "-S", "-c", script, masked=masked))[0]


async def test_forbidden_files_and_directories_cannot_be_read_changed_or_moved(
    sandbox: BubblewrapSandbox, place: Place
) -> None:
    place.file("conf/deep/.env", "KEY=1")
    place.file("secrets/a/b", "x")
    place.file("plain", "y")
    lines = (
        *("open('conf/deep/.env').read()", "open('conf/deep/.env', 'w')", "os.unlink('conf/deep/.env')"),
        *("os.rename('conf/deep/.env', 'x')", "os.rename('conf/deep', 'conf/d')", "os.rename('conf', 'c')"),
        *("os.link('conf/deep/.env', 'x')", "os.chmod('conf/deep/.env', 0o644)", "os.listdir('secrets')"),
        *("open('secrets/a/b').read()", "os.stat('secrets/a')", "os.rename('secrets', 's')", "os.rmdir('secrets')"),
    )
    assert await _through(sandbox, *lines, masked=("conf/deep/.env", "secrets")) == ""
    work = ("open('plain').read()", "open('conf/deep/new', 'w')", "open('conf/new', 'w')", "os.stat('conf/deep/.env')")
    assert len((await _through(sandbox, *work, masked=("conf/deep/.env", "secrets"))).splitlines()) == len(work)
    assert (place.root / "conf/deep/.env").read_text() == "KEY=1"
    assert (place.root / "secrets/a/b").read_text() == "x"


async def test_commands_that_only_read_do_not_see_it_either(sandbox: BubblewrapSandbox, place: Place) -> None:
    place.file(".env", "KEY=1")
    place.file("secrets/b", "KEY=1")
    said, launch = await _run(sandbox, "/usr/bin/grep", "-r", "KEY", ".", masked=(".env", "secrets", "missing"))
    assert "KEY=1" not in said
    assert said.count("Permission denied") == 2
    assert launch.isolation.masked == (".env", "secrets")


async def test_git_does_not_take_what_is_hidden_for_deleted(sandbox: BubblewrapSandbox, place: Place) -> None:
    place.file("secrets/a", "x")
    place.file(".env", "x")
    place.file("b", "x")
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for args in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *args], cwd=place.root, check=True)
    place.file("b", "y")
    await _run(sandbox, "/usr/bin/git", "add", "-A", masked=("secrets", ".env"))
    await _run(sandbox, "/usr/bin/git", *identity, "commit", "-qam", "two", masked=("secrets", ".env"))
    kept = subprocess.run(["git", "ls-files"], cwd=place.root, check=True, capture_output=True, text=True)
    assert kept.stdout.split() == [".env", "b", "secrets/a"]


async def test_path_through_links_is_hidden_where_it_really_lies(sandbox: BubblewrapSandbox, place: Place) -> None:
    place.file("real/key", "x")
    (place.root / "way").symlink_to("real")
    (place.root / "away").symlink_to(place.outside)
    (place.root / "key").symlink_to("way/key")
    lines = ("open('way/key').read()", "open('real/key').read()", "open('key').read()", "os.rename('real', 'r')")
    assert await _through(sandbox, *lines, masked=("key", "away")) == ""
    with sandbox.launch([PYTHON], masked=["way/key", "away"]) as launch:
        assert launch.isolation.masked == ("away", "real/key", "way/key")


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../out", "a/../..", "x\0y", ".", "here"])
def test_path_that_is_none_of_the_workspace_cannot_be_hidden(
    sandbox: BubblewrapSandbox, place: Place, path: str
) -> None:
    (place.root / "here").symlink_to(".")
    with pytest.raises(PathValidationError), sandbox.launch([PYTHON], masked=[path]):
        pass


def test_too_many_paths_are_refused_and_not_left_out(sandbox: BubblewrapSandbox) -> None:
    with (
        pytest.raises(ToolFailure, match="at most"),
        sandbox.launch([PYTHON], masked=[f"f{number}" for number in range(MAX_MASKED + 1)]),
    ):
        pass


def test_descriptors_that_run_out_are_an_error(
    sandbox: BubblewrapSandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file("a", "x")
    monkeypatch.setattr(mounts_module.os, "devnull", "/nonexistent")
    with pytest.raises(ToolFailure, match="cannot be hidden"), sandbox.launch([PYTHON], masked=["a"]):
        pass


def test_path_that_just_became_a_link_is_refused(place: Place) -> None:
    place.file("dir/file")
    (place.root / "link").symlink_to("dir")
    root_fd = os.open(place.root, os.O_PATH)
    with pytest.raises(ToolFailure, match="became a link"):
        mode_at(root_fd, "link/file")
    assert mode_at(root_fd, "dir/file/below") is None
    with pytest.raises(ToolFailure, match="name too long"):
        mode_at(root_fd, "x" * 300)
    os.close(root_fd)
    assert real_path(str(place.root), "link/file") == "dir/file"
    assert parents_of("a/b/c") == ["a", "a/b"]


def test_what_a_running_command_could_move_is_not_hidden_by_name(sandbox: BubblewrapSandbox, place: Place) -> None:
    place.file("conf/.env", "x")
    with sandbox.launch([PYTHON]):  # it could swap `conf` for a link while the next one is being set up
        for argv in ([PYTHON], ["/usr/bin/cat"]):
            with pytest.raises(ToolFailure, match=r"'conf/\.env' is forbidden and cannot be hidden now"):
                sandbox.launch(argv, understood=understood(argv), masked=["conf/.env"]).__enter__()
    with (
        sandbox.launch([PYTHON], masked=["conf/.env"]),  # here it cannot
        sandbox.launch([PYTHON], masked=["conf/.env"]) as second,
        sandbox.launch(["/usr/bin/cat"], understood=understood(["cat"]), masked=["conf/.env"]),
    ):
        assert second.isolation.masked == ("conf/.env",)
    with (
        sandbox.launch(["/usr/bin/cat"], understood=understood(["cat"])),
        sandbox.launch([PYTHON], masked=["conf/.env"]),
    ):
        pass  # readers move nothing


def test_later_command_hides_what_an_earlier_one_relies_on(sandbox: BubblewrapSandbox, place: Place) -> None:
    place.file("conf/.env", "x")
    with sandbox.launch([PYTHON], masked=["conf/.env"]), sandbox.launch([PYTHON]) as second:
        assert second.isolation.masked == ("conf/.env",)
    with sandbox.launch([PYTHON]) as third:
        assert third.isolation.masked == ()


def _open_descriptors() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def test_hiding_leaves_no_descriptor_open(sandbox: BubblewrapSandbox, place: Place) -> None:
    place.file("a", "x")
    gc.collect()  # what an earlier test left is not ours
    before = _open_descriptors()
    for _ in range(3):
        with sandbox.launch([PYTHON], masked=["a"]):
            pass
    # Not their number: what an earlier test closes aside may be closed only now.
    assert _open_descriptors() - before == set()


def test_no_sandbox_says_that_nothing_is_hidden(place: Place) -> None:
    paths = [f"f{number}" for number in range(12)]
    with NoSandbox(place.root, reason="none").launch(["/bin/true"], masked=paths) as launch:
        assert launch.isolation.masked == ()
        assert launch.isolation.degraded[1].endswith("f9 and 2 more.")


# Protected names that are links.


def _told(isolation: Isolation, name: str) -> str:
    return next(words for words in isolation.degraded if words.startswith(name))


async def test_link_within_the_workspace_protects_what_it_leads_to(sandbox: BubblewrapSandbox, place: Place) -> None:
    place.file("dotfiles/shell/.bashrc", "mine")
    (place.root / ".bashrc").symlink_to("dotfiles/shell/.bashrc")
    lines = (
        *("open('.bashrc', 'a')", "open('dotfiles/shell/.bashrc', 'w')", "os.rename('dotfiles', 'd')"),
        *("os.rename('dotfiles/shell', 'd')", "os.unlink('dotfiles/shell/.bashrc')"),
    )
    assert await _through(sandbox, *lines) == ""
    assert await _through(sandbox, "open('dotfiles/shell/other', 'w')", "open('.bashrc').read()") != ""
    with sandbox.launch([PYTHON]) as launch:
        assert "dotfiles/shell/.bashrc" in launch.isolation.protected
        assert "it is put back" in _told(launch.isolation, ".bashrc is a link to dotfiles/shell/.bashrc")
    assert os.readlink(place.root / ".bashrc") == "dotfiles/shell/.bashrc"


@pytest.mark.parametrize("where", ["../out", "dotfiles"])
async def test_link_that_a_command_replaces_is_put_back(sandbox: BubblewrapSandbox, place: Place, where: str) -> None:
    place.file("dotfiles/tasks.json", "{}")
    (place.root / ".vscode").symlink_to(where)
    script = "import os; os.unlink('.vscode'); os.mkdir('.vscode'); open('.vscode/tasks.json', 'w').write('evil')"
    said, launch = await _run(sandbox, PYTHON, "-c", script)
    assert said == ""
    assert os.readlink(place.root / ".vscode") == where
    (aside,) = launch.created
    assert aside.startswith(".vscode.replaced-")
    assert (place.root / aside / "tasks.json").read_text() == "evil"
    _, launch = await _run(sandbox, PYTHON, "-c", "import os; os.unlink('.vscode')")
    assert (os.readlink(place.root / ".vscode"), launch.created) == (where, [])


async def test_link_whose_target_a_command_makes_or_moves_is_told(sandbox: BubblewrapSandbox, place: Place) -> None:
    (place.root / ".envrc").symlink_to("later")
    _, launch = await _run(sandbox, "/usr/bin/touch", "later")
    assert launch.created == [".envrc"]
    assert "which was not protected" in _told(launch.isolation, ".envrc is a link to later")
    (place.root / ".claude").symlink_to("way/settings")
    place.file("one/settings/x")
    (place.root / "way").symlink_to("one")
    script = "import os; os.makedirs('two/settings'); os.unlink('way'); os.symlink('two', 'way')"
    _, launch = await _run(sandbox, PYTHON, "-c", script)
    assert launch.created == [".claude"]


async def test_link_is_put_back_as_it_was_before_all_that_run(sandbox: BubblewrapSandbox, place: Place) -> None:
    (place.root / ".claude").symlink_to("../out")
    with ExitStack() as held:
        first = held.enter_context(sandbox.launch([PYTHON]))
        (place.root / ".claude").unlink()
        (place.root / ".claude").symlink_to("evil")  # as the first command could
        with sandbox.launch([PYTHON]) as second:
            pass
        assert os.readlink(place.root / ".claude") == "../out"
        assert len(second.created) == 1
    assert first.created == []


async def test_git_may_change_a_link_and_does_not_disturb_one_that_is_held(
    sandbox: BubblewrapSandbox, place: Place
) -> None:
    place.file("dotfiles/.bashrc", "x")
    (place.root / ".bashrc").symlink_to("dotfiles/.bashrc")
    with sandbox.launch(["/usr/bin/git"], understood=understood(["git"])) as git:
        assert ".bashrc is a link and was not protected." in git.isolation.degraded
    with sandbox.launch([PYTHON]), sandbox.launch(["/usr/bin/git"], understood=understood(["git"])) as git:
        # The first one's mounts are named by these paths, so nobody may swap them now.
        assert "dotfiles/.bashrc" in git.isolation.protected


def test_target_that_a_running_command_could_swap_is_not_mounted(sandbox: BubblewrapSandbox, place: Place) -> None:
    place.file("dotfiles/.bashrc", "x")
    with sandbox.launch(["/usr/bin/git"], understood=understood(["git"])):
        (place.root / ".zshrc").symlink_to("dotfiles/.bashrc")
        with sandbox.launch([PYTHON]) as second:
            assert "dotfiles/.bashrc" not in second.isolation.protected
            assert any(words.startswith(".zshrc could be made") for words in second.isolation.degraded)


def test_two_links_to_nested_targets_are_one_mount(sandbox: BubblewrapSandbox, place: Place) -> None:
    place.file("conf/sub/x", "x")
    (place.root / ".vscode").symlink_to("conf")
    (place.root / ".idea").symlink_to("conf/sub")
    (place.root / ".cursor").symlink_to(".")
    with sandbox.launch([PYTHON]) as launch:
        assert [name for name in launch.isolation.protected if name.startswith("conf")] == ["conf"]
        assert "not protected" in _told(launch.isolation, ".cursor is a link to .")
    assert sandbox.probe() is None


def test_link_that_cannot_be_put_back_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / ".bashrc").symlink_to("x")
    root_fd = os.open(place.root, os.O_PATH)
    link = link_at(str(place.root), root_fd, ".bashrc")
    assert link == Link(".bashrc", "x", os.getuid(), os.getgid(), str(place.root / "x"), "x", target_exists=False)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    (place.root / ".bashrc").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(os, "symlink", full)
        assert list(put_back(str(place.root), root_fd, link)) == [".bashrc"]
    assert list(put_back(str(place.root), root_fd, link)) == []
    assert os.readlink(place.root / ".bashrc") == "x"
    os.close(root_fd)


def test_names_are_what_they_were(tmp_path: Path) -> None:
    created: list[str] = []
    (tmp_path / ".git").mkdir()
    with watched_names(tmp_path, created):
        (tmp_path / ".envrc").write_text("x")
    assert created == [".envrc"]
