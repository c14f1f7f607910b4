"""Ways out that were found by trying to break out: each was open once. What runs inside is the attacker's own."""

import asyncio
import errno
import fcntl
import os
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from byleave.gate import understand
from byleave.protocol.errors import ByleaveError, ToolFailure
from byleave.protocol.tools import ExecuteCommandResult
from byleave.settings import ClientSettings
from byleave.workspace.sandbox import environment as programs
from byleave.workspace.sandbox import mounts as kernel_mounts
from byleave.workspace.sandbox import mounts as own_code
from byleave.workspace.sandbox.bubblewrap import BubblewrapSandbox, _takes_descriptors, end_orphans
from byleave.workspace.sandbox.environment import command_user, find_program
from byleave.workspace.sandbox.mounts import works_in_another
from byleave.workspace.sandbox.processes import OutputKeeper, run_process
from byleave.workspace.sandbox.protected_names import _STAMP, StandIns, is_stand_in
from byleave.workspace.sandbox.sandbox import HeldBack, may_limit
from byleave.workspace.workspace import Workspace
from harness.place import Place

pytestmark = pytest.mark.promise("T3", "S")
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# A repository inside the workspace whose settings name a program: git runs it, with git's own rights.
_NESTED = """
import os, subprocess
subprocess.run(['git', 'init', '-q', 'sub'], check=True)
open('sub/a', 'w').write('x')
open('sub/.gitattributes', 'w').write('* filter=attack')
program = 'sh ' + os.getcwd() + '/attack.sh; cat'
subprocess.run(['git', '-C', 'sub', 'config', 'filter.attack.clean', program], check=True)
"""


async def _run(workspace: Workspace, *argv: str, network: bool = False) -> ExecuteCommandResult:
    params = {"command": argv[0], "args": list(argv[1:])}
    result = await workspace.run("execute_command", params, network=network)
    assert isinstance(result, ExecuteCommandResult)
    return result


async def _attack_through_git(workspace: Workspace, place: Place, script: str, *args: str) -> ExecuteCommandResult:
    place.file("attack.sh", f"cd {place.root}\n{script}\n")
    assert (await _run(workspace, "python", "-c", _NESTED)).exit_code == 0
    return await _run(workspace, "git", *args)


async def test_program_named_by_a_nested_repository_cannot_change_the_workspaces_own(
    workspace: Workspace, place: Place
) -> None:
    subprocess.run(["git", "init", "-q", place.root], check=True)
    await _attack_through_git(workspace, place, "echo ../evil > .git/commondir", "-C", "sub", "add", "a")
    assert not (place.root / ".git/commondir").exists()


@pytest.mark.parametrize("name", ["commondir", "config.worktree"])
async def test_settings_that_git_would_be_led_to_are_put_aside_and_told(
    name: str, workspace: Workspace, place: Place
) -> None:
    subprocess.run(["git", "init", "-q", place.root], check=True)
    subprocess.run(["git", "-C", place.root, "config", "extensions.worktreeConfig", "true"], check=True)
    # The attack's own repository is named, so the workspace's stays open to git.
    config = ["-c", f"filter.attack.clean=sh {place.root}/attack.sh; cat"]
    place.file(".gitattributes", "a filter=attack")
    place.file("a", "x")
    place.file("attack.sh", f"echo ../evil > {place.root}/.git/{name}")
    result = await _run(workspace, "git", *config, "add", "a")
    assert not (place.root / f".git/{name}").exists()
    (aside,) = result.isolation["created"]
    assert aside.startswith(f".git/{name}.replaced-")
    assert (place.root / aside).read_text() == "../evil\n"


async def test_repository_that_init_mends_keeps_its_settings(workspace: Workspace, place: Place) -> None:
    subprocess.run(["git", "init", "-q", place.root], check=True)
    (place.root / ".git/config").unlink()
    result = await _run(workspace, "git", "init", "-q")
    assert (place.root / ".git/config").exists()
    assert result.isolation["created"] == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("init", True),
        ("sparse-checkout set docs", True),
        ("branch -m old new", True),
        ("branch -d old", True),
        ("config user.name x", False),
        ("remote add origin https://example.org/x", False),
        ("branch plain", False),
        ("-C nested config --file .git/config a.b c", False),
    ],
)
async def test_settings_that_git_could_not_write_are_told(
    workspace: Workspace, place: Place, line: str, told: bool
) -> None:
    for root in (place.root, place.root / "nested"):
        subprocess.run(["git", "init", "-q", root], check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    place.file("a", "x")
    subprocess.run(["git", "-C", place.root, "add", "a"], check=True)
    subprocess.run(["git", "-C", place.root, *identity, "commit", "-qm", "a"], check=True)
    subprocess.run(["git", "-C", place.root, "branch", "old"], check=True)
    subprocess.run(["git", "-C", place.root, "config", "branch.old.description", "x"], check=True)
    before = (place.root / ".git/config").read_bytes()
    result = await _run(workspace, "git", *line.split())
    assert [("settings" in words, "`git config`" in words) for words in result.warnings] == [(True, True)] * told
    assert not told or (place.root / ".git/config").read_bytes() == before


async def test_only_init_makes_a_repository_of_the_workspace(workspace: Workspace, place: Place) -> None:
    await _attack_through_git(workspace, place, "git init -q .", "-C", "sub", "add", "a")
    assert not (place.root / ".git").exists()
    result = await _run(workspace, "git", "init", "-q")
    assert (place.root / ".git/HEAD").exists()
    assert result.isolation["created"] == []


async def test_name_that_is_dressed_as_a_stub_is_told_all_the_same(workspace: Workspace, place: Place) -> None:
    script = f"mkdir .vscode; echo x > .vscode/tasks.json; touch -d @{_STAMP} .vscode"
    result = await _attack_through_git(workspace, place, script, "-C", "sub", "add", "a")
    assert ".vscode" in result.isolation["created"]
    root_fd = os.open(place.root, os.O_PATH)
    assert not is_stand_in(root_fd, ".vscode")
    os.close(root_fd)


async def test_reading_git_can_change_nothing_whatever_it_starts(workspace: Workspace, place: Place) -> None:
    subprocess.run(["git", "init", "-q", place.root], check=True)
    place.file("a", "x")
    config = ["-c", f"alias.x=!echo > {place.root}/made", "-c", f"core.fsmonitor=touch {place.root}/made"]
    result = await _run(workspace, "git", *config, "status", "--short")
    assert (result.exit_code, result.stdout) == (0, "?? a\n")
    assert result.isolation["protected"] == ["."]
    assert not (place.root / "made").exists()


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("status --short", True),
        ("-c a.b=c -C sub --no-pager log -1 --oneline", True),
        ("diff --output=x", False),
        ("diff --outp x", False),
        ("stash list", False),
        ("-C status commit", False),
        ("--version", False),
        ("", False),
    ],
)
def test_git_reads_only_where_its_subcommand_says_so(line: str, reads: bool) -> None:
    assert understand("git", line.split()).only_reads is reads


def test_subcommands_that_make_a_repository_are_known() -> None:
    assert understand("git", ["-c", "a=b", "init", "x"]).makes_repository
    assert understand("git", ["clone", "x", "."]).makes_repository
    assert not understand("git", ["-C", "init", "add", "."]).makes_repository


def test_repository_that_git_works_in_is_known(place: Place) -> None:
    root = str(place.root)
    (place.root / "sub/.git").mkdir(parents=True)
    (place.root / "plain/deep").mkdir(parents=True)
    (place.root / "sub/deep").mkdir()
    assert works_in_another(root, understand("git", ["-C", "sub", "add"]))
    assert works_in_another(root, understand("git", ["-C", "sub", "-c", "a=b", "-C", "deep", "add"]))
    assert works_in_another(root, understand("git", ["--git-dir", "sub/.git", "add"]))
    assert works_in_another(root, understand("git", ["--git-dir=sub/.git", "add"]))
    assert not works_in_another(root, understand("git", ["--git-dir=.git", "add"]))
    assert not works_in_another(root, understand("git", ["-C", "plain/deep", "add"]))
    assert not works_in_another(root, understand("git", ["-C", str(place.outside), "add"]))
    assert not works_in_another(root, understand("git", ["add", "-C", "sub"]))


async def test_repository_that_is_a_link_gets_no_directory_made_behind_it(workspace: Workspace, place: Place) -> None:
    (place.outside / "HEAD").write_text("ref: refs/heads/main")
    (place.root / ".git").symlink_to(place.outside)
    with pytest.raises(ByleaveError, match="is a link"):
        await _run(workspace, "git", "add", ".")
    assert not (place.outside / "hooks").exists()


async def test_granted_network_does_not_open_the_machines_local_sockets(workspace: Workspace) -> None:
    """The network's namespace is also that of abstract sockets: X11 and D-Bus would take orders."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0walls-{os.getpid()}")
        server.listen()
        script = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0walls-{os.getpid()}'); print('connected')"
        result = await _run(workspace, "python", "-c", script, network=True)
    assert "Address family not supported" in result.stderr
    pairs = "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))"
    assert (await _run(workspace, "python", "-c", pairs, network=True)).stdout == "b'x'\n"


async def test_nothing_that_takes_memory_is_without_a_bound(workspace: Workspace) -> None:
    script = (
        "import os\n"
        "for line in open('/proc/self/mountinfo'):\n"
        "    words = line.split()\n"
        "    if ' tmpfs ' in line and words[5].startswith('rw') and 'size=' not in words[-1]: print(words[4])\n"
    )
    assert (await _run(workspace, "python", "-c", script)).stdout == ""
    pool = "import multiprocessing as m; print(m.Pool(2).map(abs, [-1]), m.shared_memory.SharedMemory)"
    pool = "import multiprocessing as m, multiprocessing.shared_memory as s\n" + pool
    assert (await _run(workspace, "python", "-c", pool)).stdout.startswith("[1]")


async def test_when_memory_runs_out_the_command_goes_first(workspace: Workspace) -> None:
    script = "print(open('/proc/self/oom_score_adj').read())"
    assert (await _run(workspace, "python", "-c", script)).stdout.strip() == "1000"


async def test_command_whose_limits_cannot_be_set_does_not_run(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workspace.sandbox.isolation().isolated

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(resource, "prlimit", refuse)
    with pytest.raises(ToolFailure, match="limits could not be set"):
        await _run(workspace, "python", "-c", "open('ran', 'w')")
    assert not (place.root / "ran").exists()
    monkeypatch.undo()
    assert (await _run(workspace, "python", "-c", "print('runs')")).stdout == "runs\n"


@needs_root
async def test_command_that_cannot_join_its_group_does_not_run(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "pids" not in workspace.isolation.limits:
        pytest.skip("no control group for processes here")
    joining = Path.write_text

    def refuse(path: Path, *rest: str) -> int:
        if path.name == "cgroup.procs":
            raise PermissionError(errno.EPERM, "no")
        return joining(path, *rest)

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(ToolFailure, match="limits could not be set"):
        await _run(workspace, "python", "-c", "open('ran', 'w')")
    assert not (place.root / "ran").exists()


async def test_command_that_only_reads_sees_nothing_of_the_kernel(workspace: Workspace) -> None:
    output = OutputKeeper(1 << 16)
    with workspace.sandbox.launch(["/bin/ls", "."], understood=understand("ls", ["."])) as launch:
        # As if it named what it was not given.
        launch = replace(launch, argv=[*launch.argv[:-1], "/proc"])
        assert (await run_process(launch, output, seconds=30)).exit_code == 2
    assert (await _run(workspace, "python", "-c", "import os; print(len(os.listdir('/proc')) > 5)")).stdout == "True\n"


def test_limits_are_set_on_nobody_elses_process() -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    with ExitStack() as held, pytest.raises(OSError, match="not known"):
        HeldBack({"core": 0}, held).let_go(os.getpid(), os.getpid())
    assert resource.getrlimit(resource.RLIMIT_CORE) == before


@pytest.mark.parametrize(("capabilities", "may"), [("0000000001000000", True), ("0000000000ffffff", False)])
def test_limits_of_another_user_are_set_only_with_the_right_to(
    capabilities: str, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_: f"Name: x\nCapEff:\t{capabilities}\n")
    assert may_limit(os.geteuid() + 1) is may
    assert may_limit(None)
    assert may_limit(os.geteuid())


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A workspace of nobody's, that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="walls-") as base:
        os.chmod(base, 0o755)
        root = Path(base) / "ws"
        root.mkdir()
        os.chown(root, NOBODY, NOBODY)
        yield root


@needs_root
async def test_command_does_not_become_root_by_closing_the_workspace(reachable: Path, tmp_path: Path) -> None:
    os.chmod(reachable, 0o000)
    with pytest.raises(ToolFailure, match="may not enter"):
        command_user(reachable)
    workspace = Workspace(reachable, ClientSettings(home=tmp_path / "home"))
    with pytest.raises(ToolFailure, match="may not enter"):
        await _run(workspace, "python", "-c", "import os; print(os.getuid())")
    await workspace.close()


@needs_root
def test_name_is_not_left_open_because_the_workspace_is_closed_just_now(reachable: Path) -> None:
    """Its owner is the command too: it can take the right to write back, and then make the name."""
    os.chmod(reachable, 0o500)
    root_fd = os.open(reachable, os.O_PATH)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(ToolFailure, match="could not be protected"), StandIns().placed(root_fd, [".envrc"]):
            pass
    finally:
        os.seteuid(0)
        os.close(root_fd)


def test_process_that_calls_itself_a_sandbox_does_not_keep_a_client_from_starting(place: Place) -> None:
    disguised, root = place.root / "bwrap", str(place.root)
    shutil.copy("/bin/dash" if os.path.exists("/bin/dash") else "/bin/sh", disguised)
    options = ["--json-status-fd", "x", "--chdir", root, "--"]
    script = "echo up; read line"
    with subprocess.Popen(
        [disguised, "-c", script, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert end_orphans(place.root) == 0
        assert process.poll() is None
        process.kill()


@pytest.mark.parametrize("inside", ["", ".local"])
def test_toolchain_among_the_users_own_files_is_not_shown(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "home" / inside
    (prefix / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.base_prefix", str(prefix))
    programs.toolchains.cache_clear()
    try:
        assert programs.toolchains() == ()
    finally:
        programs.toolchains.cache_clear()


async def test_protected_name_that_becomes_a_link_as_the_command_starts_shows_nothing_outside(
    workspace: Workspace, place: Place
) -> None:
    """Another client's git may do that: what bubblewrap mounts is what was looked at, or nothing."""
    if not _takes_descriptors(find_program("bwrap", place.root)):
        pytest.skip("this bubblewrap mounts by path")
    place.file("deep/.keep")
    place.file(".vscode/tasks.json")
    for way, masked in ((".vscode", []), ("deep", ["deep/.keep"])):
        script = "import os; print(os.path.exists('../out/secret.txt'))"
        argv = [find_program("python", place.root), "-c", script]
        output = OutputKeeper(1 << 16)
        with workspace.sandbox.launch(argv, masked=masked) as launch:
            (place.root / way).rename(place.root / "away")
            (place.root / way).symlink_to("..")
            with suppress(ToolFailure):
                await run_process(launch, output, seconds=30)
        assert "True" not in output.captured().stdout
        (place.root / way).unlink()
        (place.root / "away").rename(place.root / way)


async def test_old_bubblewrap_is_told_paths(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byleave.workspace.sandbox.bubblewrap._takes_descriptors", lambda bwrap: False)
    sandbox = BubblewrapSandbox(place.root)
    assert sandbox.probe() is None
    place.file(".vscode/tasks.json", "{}")
    script = "open('made', 'w'); open('.vscode/tasks.json', 'w')"
    with sandbox.launch([find_program("python", place.root), "-c", script]) as launch:
        assert "--bind" in launch.argv
        assert (await run_process(launch, OutputKeeper(1 << 16), seconds=30)).exit_code == 1
    assert (place.root / "made").exists()
    assert (place.root / ".vscode/tasks.json").read_text() == "{}"
    assert not _takes_descriptors("/bin/false")
    assert not _takes_descriptors("/nonexistent")


async def test_directory_that_took_the_workspaces_place_is_not_worked_in(workspace: Workspace, place: Place) -> None:
    assert (await _run(workspace, "python", "-c", "1")).exit_code == 0
    place.root.rename(place.outside / "moved")
    place.root.symlink_to(place.outside)
    for argv in (("python", "-c", "open('made', 'w')"), ("cat", "secret.txt")):
        with pytest.raises(ToolFailure, match="taken the place"):
            await _run(workspace, *argv)
    assert not (place.outside / "made").exists()


async def test_no_descriptor_of_the_workspace_reaches_the_command(workspace: Workspace, place: Place) -> None:
    """One would lead out of the sandbox by `..`."""
    subprocess.run(["git", "init", "-q", place.root], check=True)
    place.file(".vscode/tasks.json")
    place.file("deep/secret")
    (place.root / ".claude").symlink_to("deep")
    argv = [find_program("python", place.root), "-c", "import os; print(os.listdir('/proc/self/fd'))"]
    with workspace.sandbox.launch(argv, masked=["deep/secret"]) as launch:
        output = OutputKeeper(1 << 16)
        assert (await run_process(launch, output, seconds=30)).exit_code == 0
        assert output.captured().stdout == "['0', '1', '2', '3']\n"  # 3 is the listing itself
    async with asyncio.timeout(20):
        while any(path.startswith(f"{place.root}/") for path in _open_paths()):
            await asyncio.sleep(0.01)  # some are closed aside


async def test_descriptor_that_the_client_inherited_reaches_no_command(workspace: Workspace) -> None:
    """An editor that starts the client may leave some open."""
    inherited = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    kept = fcntl.fcntl(inherited, fcntl.F_DUPFD, 40)  # one that nobody uses
    try:
        script = "import os; print(os.listdir('/proc/self/fd'))"
        result = await _run(workspace, "python", "-c", script)
    finally:
        os.close(inherited)
        os.close(kept)
    assert result.stdout == "['0', '1', '2', '3']\n"  # 3 is the listing itself


def _open_paths() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{fd}")


@pytest.mark.parametrize("file", [".envrc", "shared/envrc"])
async def test_protected_file_that_is_replaced_under_a_command_is_told(
    workspace: Workspace, place: Place, file: str
) -> None:
    """Whoever replaces it from outside takes the mount away with the old one."""
    place.file(file, "old")
    if file != ".envrc":
        (place.root / ".envrc").symlink_to(file)
    script = "open('up', 'w')\nwhile open('.envrc').read() == 'old': pass"
    running = asyncio.create_task(_run(workspace, "python", "-c", script))
    while not (place.root / "up").exists():
        await asyncio.sleep(0.01)
    place.file("new", "new").rename(place.root / file)
    result = await running
    assert result.isolation["created"] == [file]
    assert (await _run(workspace, "python", "-c", "1")).isolation["created"] == []


@needs_root
async def test_directory_for_hooks_belongs_to_the_owner_of_the_repository(reachable: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--template=", reachable], check=True)
    for directory, names, files in os.walk(reachable):
        for name in (".", *names, *files):
            os.chown(os.path.join(directory, name), NOBODY, NOBODY)
    workspace = Workspace(reachable, ClientSettings(home=tmp_path / "home"))
    assert (await _run(workspace, "git", "add", ".")).exit_code == 0
    assert (reachable / ".git/hooks").stat().st_uid == NOBODY
    await workspace.close()


def test_workspace_for_temporary_files_is_no_exception() -> None:
    with tempfile.TemporaryDirectory(prefix="walls-", dir="/var/tmp") as root:
        assert BubblewrapSandbox(Path(root)).probe() is None


@pytest.mark.parametrize("kind", ["environment", "python", "checkout", "whole"])
async def test_code_that_runs_the_client_cannot_be_changed_by_its_commands(
    kind: str, place: Place, settings: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client imports from it, outside every sandbox: a project's environment may be where it is installed."""
    prefix = "" if kind == "whole" else "deep/env/"
    module = place.file(f"{prefix}lib/pydantic.py", "good")
    place.file(f"{prefix}bin/byleave", "good")
    where = place.root / prefix
    if kind == "checkout":
        monkeypatch.setattr(own_code, "_PACKAGE", where)
    else:
        monkeypatch.setattr("sys.base_prefix" if kind == "python" else "sys.prefix", str(where))
    workspace = Workspace(place.root, settings)
    script = (
        "import os, sys\nfor at in sys.argv[1:]:\n"
        " for attempt in (lambda: open(at, 'w'), lambda: os.unlink(at), lambda: open(at + '.pth', 'w'),\n"
        "                 lambda: os.rename(os.path.dirname(at), 'away'), lambda: os.rename('deep', 'away')):\n"
        "  try: attempt()\n  except OSError: pass\n  else: print('CHANGED', at)\n"
        "open('elsewhere', 'w')"
    )
    result = await _run(workspace, "python", "-c", script, f"{prefix}lib/pydantic.py", f"{prefix}bin/byleave")
    assert (result.stdout, result.stderr) == ("", "")
    assert module.read_text() == "good"
    assert (place.root / "elsewhere").exists()
    assert ("lib" if kind == "whole" else "deep/env") in result.isolation["protected"]
    await workspace.close()


async def test_kernels_own_file_system_inside_the_workspace_is_covered(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A tree for chroot has the machine's /proc in it: root could switch the kernel there."""
    root = place.root / "a b"
    for name in ("tree/proc/sys", "tree/volume", "tree/back\\slash"):
        (root / name).mkdir(parents=True)
        (root / name / "inside").touch()
    (root / "tree/null").touch()
    spelled = str(root).replace(" ", "\\040")
    told = tmp_path / "mountinfo"
    told.write_text(
        f"21 1 8:1 / / rw - ext4 /dev/x rw\n"
        f"22 21 0:5 / {spelled}/tree/proc rw,nosuid shared:1 master:2 - proc proc rw\n"
        f"23 21 8:2 / {spelled}/tree/volume rw - ext4 /dev/y rw\n"
        f"24 21 0:6 / {spelled}/tree/back\\134slash rw - sysfs sysfs rw\n"
        f"25 21 0:7 / {spelled}/tree/null rw - devtmpfs x rw\n"
        f"26 21 0:5 / {spelled}-other/proc rw - proc proc rw\n"
    )
    monkeypatch.setattr(kernel_mounts, "_MOUNTS", str(told))
    script = (
        "import os\nfor at in ('tree/proc/sys', 'tree/volume', 'tree/back\\\\slash'):\n"
        "  try: print(os.listdir(at))\n  except OSError: print('covered')\n"
    )
    shown: list[str] = []
    for argv in ([find_program("python", root), "-c", script], ["/usr/bin/ls", "tree/volume"]):
        output = OutputKeeper(1 << 16)
        with BubblewrapSandbox(root).launch(argv) as launch:
            assert f"{root}/tree/proc" in launch.argv
            assert (await run_process(launch, output, seconds=30)).exit_code == 0, output.captured().stderr
        shown.append(output.captured().stdout)
    assert shown == ["covered\n['inside']\ncovered\n", "inside\n"]
