"""Landlock, the sandbox where bubblewrap does not work: what it stops, what it says it cannot, how it ends things."""

import asyncio
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from byleave.gate import UNKNOWN_COMMAND, UnderstoodCommand, understand
from byleave.protocol.errors import ConfigurationError, ToolFailure
from byleave.protocol.tools import ExecuteCommandResult
from byleave.settings import ClientSettings
from byleave.workspace.commands.executor import CommandExecutor
from byleave.workspace.sandbox import backends as sandboxes_module
from byleave.workspace.sandbox import confine
from byleave.workspace.sandbox import landlock as landlock_module
from byleave.workspace.sandbox.backends import NoSandbox, choose_sandbox
from byleave.workspace.sandbox.bubblewrap import BubblewrapSandbox
from byleave.workspace.sandbox.conformance import KNOWN_GAPS, ROWS, Probe, run_conformance
from byleave.workspace.sandbox.landlock import LandlockSandbox, landlock_version, working_landlock
from byleave.workspace.sandbox.processes import Ended, OutputKeeper, run_process
from byleave.workspace.sandbox.sandbox import NOTHING_WITHHELD, BoundFile, Launch, Withheld
from byleave.workspace.sandbox.seatbelt import SeatbeltSandbox
from byleave.workspace.stopping import CommandTimeout
from byleave.workspace.workspace import Workspace
from harness.lines import understood
from harness.place import Place

pytestmark = [
    pytest.mark.promise("T3", "S"),
    pytest.mark.skipif(landlock_version() < 1, reason="this kernel has no Landlock"),
]
NOBODY = 65534
GAPS = set(KNOWN_GAPS["landlock"])
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PYTHON = "/usr/bin/python3"


@pytest.fixture
def sandbox(place: Place) -> LandlockSandbox:
    return LandlockSandbox(place.root)


@pytest.fixture
def others_directory() -> Iterator[Path]:
    """A directory of another user that every user can reach; pytest's own are closed to others at any time."""
    with tempfile.TemporaryDirectory(prefix="walls-") as base:
        os.chmod(base, 0o755)
        path = Path(base) / "theirs"
        path.mkdir()
        os.chown(path, NOBODY, NOBODY)
        yield path


def _unexpected(probes: list[Probe]) -> dict[str, str]:
    return {row.name: row.detail for row in probes if row.stopped is not (row.name not in GAPS)}


async def _run(
    sandbox: LandlockSandbox, *argv: str, seconds: float = 20, network: bool = False
) -> tuple[Ended, str, Launch]:
    keeper = OutputKeeper(100_000)
    with sandbox.launch(list(argv), understood=understood(argv), network=network) as launch:
        ended = await run_process(launch, keeper, seconds=seconds)
    captured = keeper.captured()
    return ended, captured.stdout + captured.stderr, launch


async def _python(sandbox: LandlockSandbox, script: str, *, network: bool = False) -> str:
    return (await _run(sandbox, PYTHON, "-I", "-S", "-c", script, network=network))[1]


async def test_nothing_gets_out_but_what_it_is_known_for(tmp_path: Path) -> None:
    probes = await run_conformance(LandlockSandbox, tmp_path)
    assert _unexpected(probes) == {}
    assert [row.name for row in probes] == list(ROWS)


@needs_root
async def test_nothing_gets_out_where_root_serves_anothers_workspace(others_directory: Path) -> None:
    probes = await run_conformance(LandlockSandbox, others_directory)
    assert _unexpected(probes) == {}
    isolation = LandlockSandbox(others_directory).isolation()
    assert isolation.runs_as == "owner"
    assert "nproc" in isolation.limits


@needs_root
def test_root_gives_nothing_away_below_what_the_owner_already_has(
    others_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chown, ways = os.chown, dict[str, int]()

    def watched(path: Path, uid: int, gid: int) -> None:
        ways[path.name] = path.parent.stat().st_uid  # who could swap it now for a link to a file of root's
        chown(path, uid, gid)

    monkeypatch.setattr(os, "chown", watched)
    sandbox = LandlockSandbox(others_directory, files={".gitconfig": "[user]\n"})
    with sandbox.launch(["/bin/true"], understood=understood(["true"])) as launch:
        home = Path(launch.env["HOME"])
        assert {path.stat().st_uid for path in (home, home.parent, home / ".gitconfig")} == {NOBODY}
    assert len(ways) == 4
    assert set(ways.values()) == {0}


AS_NOBODY = """
import asyncio, json, os, sys, tempfile
from pathlib import Path
from byleave.workspace.sandbox.conformance import run_conformance
from byleave.workspace.sandbox.landlock import LandlockSandbox
from byleave.workspace.sandbox.environment import toolchains

def rows():
    with tempfile.TemporaryDirectory() as base:
        return {row.name: row.stopped for row in asyncio.run(run_conformance(LandlockSandbox, Path(base)))}

rows()  # imports all there is while it can still be read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ["HOME"] = "/nonexistent"
os.chdir("/")
toolchains.cache_clear()
print(json.dumps({"uid": os.geteuid(), "rows": rows()}), flush=True)
os._exit(0)  # nobody may not write coverage data
"""


@needs_root
@pytest.mark.skipif(not Path(PYTHON).exists(), reason="an ordinary user has no Python here")
def test_nothing_gets_out_as_an_ordinary_user() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": "/tmp"}
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["uid"] == NOBODY
    assert {name for name, stopped in told["rows"].items() if stopped is not True} == GAPS


async def test_first_version_of_landlock_leaves_signals_open_and_says_so(tmp_path: Path) -> None:
    probes = await run_conformance(lambda root: LandlockSandbox(root, version=1), tmp_path)
    assert set(_unexpected(probes)) == {"signal"}
    assert any("signal other programs" in words for words in LandlockSandbox(tmp_path, version=1).isolation().degraded)
    assert not any("signal" in words for words in LandlockSandbox(tmp_path, version=6).isolation().degraded)


def test_isolation_says_what_is_weaker(sandbox: LandlockSandbox) -> None:
    isolation = sandbox.isolation()
    assert (isolation.isolated, isolation.backend, isolation.fs, isolation.net) == (
        True,
        "landlock",
        "allowlist",
        "none",
    )
    assert (isolation.pidns, isolation.seccomp, isolation.protected) == (False, True, ())
    assert any(".git" in words for words in isolation.degraded)
    assert any("chmod" in words for words in isolation.degraded)
    assert any("root" in words for words in isolation.degraded) is (os.geteuid() == 0)
    assert sandbox.isolation(network=True).net == "host"


async def test_exit_codes_and_signals_are_the_commands_own(sandbox: LandlockSandbox) -> None:
    ended, said, _ = await _run(sandbox, "/bin/sh", "-c", "echo out; echo err >&2; exit 7")
    assert (ended.exit_code, said) == (7, "out\nerr\n")
    assert (await _run(sandbox, "/bin/sh", "-c", "kill -9 $$"))[0].exit_code == 137
    assert (await _run(sandbox, "/bin/true"))[0].exit_code == 0


async def test_command_that_cannot_be_started_is_told(sandbox: LandlockSandbox, place: Place) -> None:
    for argv, words in (
        (["/usr/bin/no-such-program"], "No such file"),
        ([str(place.outside / "program")], "Permission denied|No such file"),
        (["/bin/echo", "x" * 200_000], "Argument list too long"),
    ):
        with pytest.raises(ToolFailure, match=f"could not start the command: ({words})"):
            await _run(sandbox, *argv)


async def test_broken_pipe_ends_a_program_quietly(sandbox: LandlockSandbox) -> None:
    ended, said, _ = await _run(sandbox, "/bin/sh", "-c", "yes | head -1")
    assert (ended.exit_code, said) == (0, "y\n")


async def test_command_has_no_descriptors_of_ours(sandbox: LandlockSandbox) -> None:
    script = (
        "import os\n"
        "for n in range(3, 64):\n"
        "    try: os.fstat(n); print(n)\n"
        "    except OSError: pass\n"
        "print(os.getsid(0) == os.getpid())"
    )
    assert await _python(sandbox, script) == "True\n"


async def test_environment_home_and_temporary_files_are_its_own(
    sandbox: LandlockSandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYLEAVE_TOKEN", "tell-nobody")
    script = (
        "import os; home, tmp = os.environ['HOME'], os.environ['TMPDIR']\n"
        "open(home + '/x', 'w').write('x'); open(tmp + '/x', 'w').write('x')\n"
        "print(home); print(sorted(os.environ)); print(os.environ.get('BYLEAVE_TOKEN'))"
    )
    said = await _python(sandbox, script)
    home, names, token = said.splitlines()
    assert not Path(home).exists()
    assert "GIT_CONFIG_NOSYSTEM" in names
    assert token == "None"


async def test_commands_that_only_read_can_change_nothing(sandbox: LandlockSandbox, place: Place) -> None:
    place.file("x", "x")
    os.utime(place.root / "x", (1, 1))
    ended, said, launch = await _run(sandbox, "/usr/bin/find", ".", "-name", "x")
    assert (ended.exit_code, said, launch.isolation.protected) == (0, "./x\n", (".",))
    # As if the reader were wicked: the same rights, and a program that tries.
    reads = _Reading(place.root)
    script = _attempts(
        *("open('x', 'a')", "open('new', 'w')", "os.unlink('x')", "os.chmod('x', 0)", "os.utime('x')"),
        *("os.mkdir('d')", "os.rename('x', 'y')", "os.truncate('x', 0)", "os.setxattr('x', 'user.a', b'')"),
    )
    assert await _python(reads, script + "print(open('x').read())") == "x\n"
    assert ((place.root / "x").stat().st_mtime, (place.root / "x").read_text()) == (1, "x")


def _attempts(*lines: str) -> str:
    """A script that tries each line and prints those that got through."""
    return f"import os\nfor line in {lines!r}:\n    try: exec(line); print(line)\n    except OSError: pass\n"


class _Reading(LandlockSandbox):
    """Gives every command the rights of one that only reads."""

    def _order(self, argv: list[str], home: Path, *, network: bool, reads: bool) -> dict[str, object]:
        return super()._order(argv, home, network=network, reads=True)


async def test_writing_outside_is_refused_in_every_way(sandbox: LandlockSandbox, place: Place) -> None:
    secret = place.outside / "secret.txt"
    place.file("mine", "x")
    there, away = repr(str(secret)), str(place.outside)
    script = _attempts(
        *(f"open({there}).read()", f"open({there}, 'a')", f"os.truncate({there}, 0)", f"os.unlink({there})"),
        *(f"os.rename('mine', '{away}/mine')", f"os.link({there}, 'copy')", f"os.symlink('x', '{away}/link')"),
        *(f"os.mkdir('{away}/d')", f"os.listdir('{away}')", "os.mknod('device', 0o60600, os.makedev(254, 0))"),
        *("open('/usr/bin/evil', 'w')", "open('/dev/shm/x', 'w')", "open('/tmp/x', 'w')"),
    )
    assert await _python(sandbox, script) == ""
    assert [path.name for path in place.outside.iterdir()] == ["secret.txt"]
    assert secret.read_text() == "SECRET"


async def test_of_optional_packages_only_those_of_programs_are_there(
    sandbox: LandlockSandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed, beside = place.outside / "needed/code.js", place.outside / "beside/code.js"
    for file in (needed, beside):
        file.parent.mkdir()
        file.write_text("needle")
    monkeypatch.setattr(landlock_module, "optional_packages", lambda: (str(needed.parent),))
    script = f"for path in ({str(needed)!r}, {str(beside)!r}):\n    try: print(open(path).read())\n"
    script += "    except PermissionError: print('refused')\n"
    assert await _python(sandbox, script) == "needle\nrefused\n"
    assert await _python(sandbox, _attempts("os.listdir('/opt')", "os.listdir('/srv')")) == ""


async def test_network_comes_only_when_granted_and_local_sockets_never(sandbox: LandlockSandbox) -> None:
    script = (
        "import socket\n"
        "for family, kind in ((2, 1), (2, 2), (10, 1), (1, 1), (1, 2), (16, 3), (40, 1)):\n"
        "    try: socket.socket(family, kind); print(family, kind)\n"
        "    except OSError: pass\n"
        "socket.socketpair()\n"
        "for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):\n"
        "    try: socket.socketpair(socket.AF_UNIX, kind); print('pair', kind)\n"
        "    except OSError: pass\n"
    )
    assert await _python(sandbox, script) == ""
    assert await _python(sandbox, script, network=True) == "2 1\n2 2\n10 1\n16 3\n"


async def test_limits_of_other_programs_cannot_be_set(sandbox: LandlockSandbox) -> None:
    script = (
        "import resource as r; print(r.prlimit(0, r.RLIMIT_CORE))\n"
        f"try: print(r.prlimit({os.getpid()}, r.RLIMIT_CPU))\n"
        "except PermissionError: print('no')"
    )
    assert await _python(sandbox, script) == "(0, 0)\nno\n"


DAEMONS = """
import os, signal, sys
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            while True: signal.pause()
        os._exit(0)
print("started", flush=True)
if sys.argv[1] == "stay": signal.pause()
"""


def _left(root: Path) -> list[str]:
    """Processes whose working directory is the workspace."""
    found: list[str] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == str(root):
                found.append(name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", ["stay", "go"])
async def test_daemons_end_with_their_command(sandbox: LandlockSandbox, place: Place, how: str) -> None:
    ended, said, _ = await _run(sandbox, PYTHON, "-c", DAEMONS, how, seconds=3 if how == "stay" else 20)
    assert ended.timed_out is (how == "stay")
    assert said == "started\n"
    assert _left(place.root) == []


BOMB = """
import os, time
first, end = os.getpid(), time.monotonic() + 8  # whatever happens, it is over then
print("started", flush=True)
while time.monotonic() < end:
    try:
        if os.fork() and first != os.getpid() and os.getpid() % 2: os._exit(0)  # half hop from process to process
    except OSError: pass
"""


async def test_fork_bomb_is_bounded_and_ended(sandbox: LandlockSandbox, place: Place) -> None:
    ended, said, _ = await _run(sandbox, PYTHON, "-I", "-S", "-c", BOMB, seconds=1.5)
    assert (ended.timed_out, said.splitlines()[0]) == (True, "started")
    assert _left(place.root) == []


CLIENT = """
import asyncio, sys
from pathlib import Path
from byleave.workspace.sandbox.landlock import LandlockSandbox
from byleave.workspace.sandbox.processes import OutputKeeper
from byleave.workspace.sandbox.processes import run_process

async def main(root, *argv):
    keeper = OutputKeeper(1000, lambda stream, text: print(text, end="", flush=True))
    with LandlockSandbox(Path(root)).launch(list(argv)) as launch:
        await run_process(launch, keeper, seconds=20)

asyncio.run(main(*sys.argv[1:]))
"""


def test_everything_ends_when_the_client_is_killed(place: Place) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(place.outside)}
    argv = [sys.executable, "-c", CLIENT, str(place.root), PYTHON, "-c", DAEMONS, "stay"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == b"started\n"
            # Front, link, keeper, command, daemons; the keeper ends last, so nobody is left when all of these are gone.
            watched = [os.pidfd_open(int(name)) for name in _left(place.root)]
            assert len(watched) >= 4
        finally:
            client.kill()
    for pidfd in watched:
        _wait(pidfd)
    assert _left(place.root) == []


def _wait(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(10_000), "a process outlived the client"
    os.close(pidfd)


async def test_trusted_names_that_a_command_makes_are_told(sandbox: LandlockSandbox) -> None:
    launch = (await _run(sandbox, "/usr/bin/touch", ".envrc", "plain"))[2]
    assert launch.created == [".envrc"]


def test_what_cannot_be_hidden_or_covered_is_said(sandbox: LandlockSandbox, place: Place) -> None:
    place.file("secret", "x")
    with sandbox.launch(["/bin/true"], bound_files=[BoundFile("run.py", 0, 0o600)], masked=["secret"]) as launch:
        assert (launch.isolation.masked, launch.covered) == ((), False)
        assert any("could not be hidden from the command: secret." in words for words in launch.isolation.degraded)
        assert any("run.py was checked and watched only" in words for words in launch.isolation.degraded)


def test_kernel_without_landlock_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolFailure, match="no Landlock"):
        LandlockSandbox(place.root, version=0)
    monkeypatch.setattr(landlock_module, "landlock_version", lambda: 0)
    assert working_landlock(place.root) == "This kernel has no Landlock."


def test_unknown_machine_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock_module, "filter_for", lambda **_: None)
    assert "cannot be filtered" in str(working_landlock(place.root))


def test_probe_really_runs_something(place: Place, sandbox: LandlockSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sandbox.probe() is None
    assert isinstance(working_landlock(place.root, reason="no bwrap"), LandlockSandbox)
    monkeypatch.setattr(landlock_module, "_PROGRAM", b"raise SystemExit('broken')")
    assert sandbox.probe() == "Landlock does not work here: broken"


@needs_root
def test_root_without_control_groups_says_that_processes_are_not_limited(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock_module, "pids_group", lambda: None)
    sandbox = LandlockSandbox(place.root)
    assert sandbox.probe() is None
    assert {"nproc", "pids"}.isdisjoint(sandbox.isolation().limits)
    assert any("number of processes is not limited" in words for words in sandbox.isolation().degraded)


def test_landlock_comes_after_bubblewrap_and_before_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_sandbox(place.root), BubblewrapSandbox)
    monkeypatch.setattr(BubblewrapSandbox, "probe", lambda self: "bubblewrap does not work here: no")
    found = choose_sandbox(place.root)
    assert isinstance(found, LandlockSandbox)
    assert found.isolation().degraded[0] == "bubblewrap does not work here: no"
    monkeypatch.setattr(LandlockSandbox, "probe", lambda self: "Landlock does not work here: no")
    found = choose_sandbox(place.root)
    assert isinstance(found, NoSandbox)
    assert found.isolation().degraded == ("bubblewrap does not work here: no Landlock does not work here: no",)


def test_sandbox_can_be_named_and_is_never_replaced_by_a_weaker_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(choose_sandbox(place.root, "landlock"), LandlockSandbox)
    assert isinstance(choose_sandbox(place.root, "bwrap"), BubblewrapSandbox)
    none = choose_sandbox(place.root, "none")
    assert (none.isolation().isolated, none.isolation().degraded) == (
        False,
        ("BYLEAVE_SANDBOX says that commands are not isolated.",),
    )
    monkeypatch.setattr(BubblewrapSandbox, "probe", lambda self: "bubblewrap does not work here: no")
    with pytest.raises(ConfigurationError, match="wants 'bwrap', which does not work here: bubblewrap does not"):
        choose_sandbox(place.root, "bwrap")
    with pytest.raises(ConfigurationError, match="wants 'seatbelt', which does not work here"):
        choose_sandbox(place.root, "seatbelt")
    monkeypatch.setenv("BYLEAVE_SANDBOX", "landlock")
    assert Workspace(place.root, ClientSettings(home=place.outside)).isolation.backend == "landlock"


def test_other_systems_have_their_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes_module.sys, "platform", "darwin")
    monkeypatch.setattr(SeatbeltSandbox, "probe", lambda self: None)
    assert isinstance(choose_sandbox(place.root), SeatbeltSandbox)


@pytest.fixture
async def weaker(place: Place, tmp_path: Path) -> CommandExecutor:
    return CommandExecutor(place.root, LandlockSandbox(place.root), ClientSettings(home=tmp_path / "home"))


async def test_timeout_gives_what_was_said_until_then(weaker: CommandExecutor) -> None:
    line = understand("python", ["-c", DAEMONS, "stay"])
    with pytest.raises(CommandTimeout) as caught:
        await weaker.run(line, 2)
    partial = caught.value.partial
    assert isinstance(partial, ExecuteCommandResult)
    assert (partial.stdout, partial.isolation["backend"]) == ("started\n", "landlock")


def test_children_are_found_with_and_without_the_kernels_list() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        assert child.pid in confine.children()
        assert child.pid in confine.children_by_scan()
        assert confine.tasks_of(os.getuid()) >= 2
        child.kill()


COVERED = """
import os, sys
from byleave.workspace.sandbox import confine

def saving(real):
    def act(*arguments):
        if (current := measured()) is not None:
            current.save()
        real(*arguments)
    return act

def measured():
    return sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None

os._exit, os.execve = saving(os._exit), saving(os.execve)
confine.main(int(sys.argv[1]))
"""


class _Imported(LandlockSandbox):
    """Runs `confine` as a module, so that it can be measured; its rights are wider by what that takes."""

    @contextmanager
    def launch(
        self,
        argv: list[str],
        *,
        understood: UnderstoodCommand = UNKNOWN_COMMAND,
        network: bool = False,
        bound_files: Sequence[BoundFile] = (),
        masked: Sequence[str] = (),
        withheld: Withheld = NOTHING_WITHHELD,
    ) -> Generator[Launch]:
        with super().launch(argv, understood=understood, network=network) as launch:
            order = launch.argv[-1]
            measuring = {name: value for name, value in os.environ.items() if name.startswith("COV")}
            env = launch.env | measuring | {"PYTHONPATH": os.pathsep.join(sys.path)}
            yield replace(launch, argv=[sys.executable, "-c", COVERED, order], env=env)

    def _order(self, argv: list[str], home: Path, *, network: bool, reads: bool) -> dict[str, object]:
        order = super()._order(argv, home, network=network, reads=reads)
        rules = order["rules"]
        assert isinstance(rules, list)
        measured = Path(os.environ.get("COVERAGE_FILE", "x")).resolve().parent
        order["rules"] = [*rules, (str(measured), 0x7FFF), (sys.prefix, 0xF), (os.getcwd(), 0xF)]
        return order


@pytest.mark.parametrize(
    ("argv", "code"),
    [(["/bin/sh", "-c", "echo hello; exit 3"], 3), (["/bin/sh", "-c", "setsid sleep 60 & kill -15 $$"], 143)],
)
async def test_program_does_the_same_as_a_module(place: Place, argv: list[str], code: int) -> None:
    assert (await _run(_Imported(place.root), *argv))[0].exit_code == code
    assert _left(place.root) == []


async def test_module_tells_why_it_could_not_start(place: Place) -> None:
    with pytest.raises(ToolFailure, match="No such file or directory"):
        await _run(_Imported(place.root), "/usr/bin/no-such-program")


async def test_module_ends_all_when_the_front_is_killed(place: Place) -> None:
    up = asyncio.Event()
    keeper = OutputKeeper(1000, lambda _, __: up.set())
    with _Imported(place.root).launch(["/bin/sh", "-c", "setsid sleep 60 & echo up; sleep 60"]) as launch:
        running = asyncio.create_task(run_process(launch, keeper, seconds=60))
        await up.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert _left(place.root) == []


def test_process_whose_parent_is_gone_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(confine.os, "_exit", ended.append)
    confine.die_with(os.getppid(), 0)
    assert ended == []
    confine.die_with(1 if os.getppid() != 1 else 2, 0)
    assert ended == [1]


def test_failing_call_is_an_error_with_its_reason() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        confine._prctl(10_000, 0)
