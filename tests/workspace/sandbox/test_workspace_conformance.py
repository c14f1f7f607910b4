"""Every way out of the sandbox that we know, as the users that run Byleave; and proof that the suite can fail."""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from byleave.gate import UNKNOWN_COMMAND, UnderstoodCommand
from byleave.protocol.errors import ToolFailure
from byleave.workspace.sandbox import conformance as conformance_module
from byleave.workspace.sandbox import probe
from byleave.workspace.sandbox.backends import NoSandbox, choose_sandbox
from byleave.workspace.sandbox.bubblewrap import BubblewrapSandbox, Part
from byleave.workspace.sandbox.conformance import ROWS, Probe, run_conformance
from byleave.workspace.sandbox.mounts import WorkspaceMounts
from byleave.workspace.sandbox.protected_names import StandIns
from byleave.workspace.sandbox.sandbox import NOTHING_WITHHELD, BoundFile, Launch, Sandbox, Withheld

pytestmark = pytest.mark.promise("T3", "S")
NOBODY = 65534
HOLDS_WITHOUT_A_SANDBOX = {"environment", "memory", "daemons", "pipe"}
"""What a clean environment, limits and the sweep of processes give even then."""
DEPENDS_ON_THE_KERNEL = {"alg", "vsock", "perf", "userfaultfd", "terminal", "kernel-switches", "read-shadow"}
"""What may be closed on some machine anyway."""


@pytest.fixture
def others_directory() -> Iterator[Path]:
    """A directory of another user. Not in pytest's own, which the next pytest to start closes to others again."""
    with tempfile.TemporaryDirectory(prefix="walls-") as base:
        os.chmod(base, 0o755)
        path = Path(base) / "theirs"
        path.mkdir()
        os.chown(path, NOBODY, NOBODY)
        yield path


def _open(probes: list[Probe]) -> set[str]:
    return {row.name for row in probes if row.stopped is False}


async def test_nothing_gets_out(tmp_path: Path) -> None:
    probes = await run_conformance(choose_sandbox, tmp_path)
    assert {row.name: row.detail for row in probes if row.stopped is not True} == {}
    assert [row.name for row in probes] == list(ROWS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
async def test_nothing_gets_out_where_root_serves_anothers_workspace(others_directory: Path) -> None:
    chosen: list[Sandbox] = []

    def make(root: Path) -> Sandbox:
        chosen.append(choose_sandbox(root))
        return chosen[0]

    probes = await run_conformance(make, others_directory)
    assert {row.name: row.detail for row in probes if row.stopped is not True} == {}
    isolation = chosen[0].isolation()
    assert (isolation.runs_as, isolation.degraded) == ("owner", ())
    assert "nproc" in isolation.limits


AS_NOBODY = """
import asyncio, json, os, sys, tempfile
from pathlib import Path
from byleave.workspace.sandbox.conformance import run_conformance
from byleave.workspace.sandbox.environment import toolchains
from byleave.workspace.sandbox.backends import choose_sandbox

def rows():
    with tempfile.TemporaryDirectory() as base:
        return {row.name: row.stopped for row in asyncio.run(run_conformance(choose_sandbox, Path(base)))}

rows()  # imports all there is while it can still be read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ["HOME"] = "/nonexistent"
os.chdir("/")
toolchains.cache_clear()
print(json.dumps({"uid": os.geteuid(), "rows": rows()}), flush=True)
os._exit(0)  # nobody may not write coverage data
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="an ordinary user has no Python here")
def test_nothing_gets_out_as_an_ordinary_user() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": "/tmp"}
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["uid"] == NOBODY
    assert {name: stopped for name, stopped in told["rows"].items() if stopped is not True} == {}
    assert list(told["rows"]) == list(ROWS)


async def test_without_a_sandbox_the_suite_fails_and_tries_only_what_is_harmless(tmp_path: Path) -> None:
    probes = await run_conformance(lambda root: NoSandbox(root, reason="for a test"), tmp_path)
    stopped = {row.name for row in probes if row.stopped}
    assert {row.name for row in probes if row.stopped is None} == probe.HARMFUL
    assert stopped - DEPENDS_ON_THE_KERNEL - HOLDS_WITHOUT_A_SANDBOX == set()
    assert len(_open(probes)) >= 20
    assert all(row.hint for row in probes if not row.stopped)


async def test_without_the_filter_its_rows_fail(tmp_path: Path) -> None:
    def make(root: Path) -> Sandbox:
        return BubblewrapSandbox(root, without=frozenset[Part]({"seccomp"}))

    probes = await run_conformance(make, tmp_path)
    assert {"netlink", "keys", "io-uring", "setuid-file"} <= _open(probes)
    assert _open(probes) <= {name for name, (_, hint) in ROWS.items() if "seccomp" in hint}
    assert make(tmp_path).isolation().seccomp is False
    assert any("not filtered" in words for words in make(tmp_path).isolation().degraded)


async def test_without_stubs_missing_names_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def nothing(self: StandIns, root_fd: int, names: Sequence[str]) -> Generator[None]:
        yield

    monkeypatch.setattr(StandIns, "placed", nothing)
    assert _open(await run_conformance(BubblewrapSandbox, tmp_path)) == {"create-envrc", "create-bashrc"}


async def test_without_protection_the_repository_can_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkspaceMounts, "_mount", lambda *_, **__: None)
    names = {"git-hooks", "git-config", "vscode", "rename-git"}
    assert names <= _open(await run_conformance(BubblewrapSandbox, tmp_path))


class _WithNetwork:
    """A sandbox that always gives the network."""

    def __init__(self, root: Path) -> None:
        self._sandbox = BubblewrapSandbox(root)
        self.isolation = self._sandbox.isolation

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
        with self._sandbox.launch(argv, network=True, bound_files=bound_files, masked=masked) as launch:
            yield launch


async def test_with_the_network_only_the_network_opens(tmp_path: Path) -> None:
    assert _open(await run_conformance(_WithNetwork, tmp_path)) == {"tcp", "udp", "netlink"}


async def test_effect_seen_from_outside_overrules_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lies = conformance_module._PROGRAM.replace('"stopped": False', '"stopped": True')
    monkeypatch.setattr(conformance_module, "_PROGRAM", lies)
    probes = await run_conformance(lambda root: NoSandbox(root, reason="for a test"), tmp_path)
    seen = {"tcp", "udp", "path-socket", "write-outside", "git-hooks", "rename-git", "setuid-file", "create-envrc"}
    assert seen <= _open(probes)


async def test_probe_that_cannot_run_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance_module, "_PROGRAM", "import os; os._exit(0)")
    probes = await run_conformance(BubblewrapSandbox, tmp_path / "a")
    assert {row.stopped for row in probes} == {None}

    def missing(name: str, root: Path) -> str:
        raise ToolFailure(f"{name} is not installed on this machine.")

    monkeypatch.setattr(conformance_module, "find_program", missing)
    probes = await run_conformance(BubblewrapSandbox, tmp_path / "b")
    assert {row.stopped for row in probes} == {None}
    assert "python is not installed" in probes[0].detail


def test_probes_and_rows_agree() -> None:
    assert set(ROWS) == {*probe.PROBES, "daemons", "pipe"}
    assert set(probe.PROBES) >= probe.HARMFUL


def test_probe_tells_apart_what_was_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").mkdir()
    scene = {"root": str(tmp_path), "outside": str(tmp_path), "secret": "word", "secrets": [str(tmp_path)], "pid": 1}
    monkeypatch.setenv("WORD", "word")
    names = ["write-outside", "read-secrets", "git-hooks", "environment", "setuid-programs", "user-namespace"]
    probe.main(json.dumps({"scene": scene, "names": names}))
    told = {row["name"]: row["stopped"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert told.pop("user-namespace") in (True, False)  # as the machine is set up; it was tried in a child
    assert told == {
        "write-outside": False,
        "read-secrets": False,
        "git-hooks": True,
        "environment": False,
        "setuid-programs": False,
    }
    assert probe.tried("read-through-link", scene)["stopped"] is True
    monkeypatch.delenv("WORD")
    assert probe.tried("environment", scene)["stopped"] is True
    assert probe.tried("memory", scene)["stopped"] in (True, False)
    assert probe.tried("signal", {"pid": os.getpid()})["stopped"] is False
    assert probe.tried("setuid-file", scene)["stopped"] is False
    (tmp_path / ".git").mkdir()
    assert probe.tried("rename-git", scene)["stopped"] is False


def test_probe_program_gets_through_what_is_harmless_when_nothing_stops_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as held:
        scene = conformance_module._Scene(tmp_path, held)
        names = [name for name in probe.PROBES if name not in probe.HARMFUL]
        probe.main(json.dumps({"scene": scene.told, "names": names}))
    told = {row["name"]: row["stopped"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert list(told) == names
    assert {"write-outside", "tcp", "udp", "path-socket", "create-envrc"} <= {n for n in told if not told[n]}


MEASURED = """
import os, sys
from byleave.workspace.sandbox import probe

def leave(code, real=os._exit):
    if "coverage" in sys.modules and (current := sys.modules["coverage"].Coverage.current()) is not None:
        current.save()
    real(code)

os._exit = leave
probe.main(sys.argv[1])
"""


def _as_module(order: dict[str, object]) -> list[str]:
    """What the program says as a module in a process of its own, where it can be measured."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", MEASURED, json.dumps(order)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_probes_that_change_their_process_do_so_in_a_child(tmp_path: Path) -> None:
    with ExitStack() as held:
        scene = conformance_module._Scene(tmp_path, held)
        names = sorted(probe._OWN_PROCESS - probe.HARMFUL)
        told = [json.loads(line) for line in _as_module({"scene": scene.told, "names": names})]
    assert [row["name"] for row in told] == names
    assert all(row["detail"] for row in told)


def test_daemons_of_the_probe_outlive_it_where_nothing_ends_them() -> None:
    marker = secrets.token_hex(16)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", MEASURED, json.dumps({"daemons": marker, "stay": False})]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as main:
        assert main.stdout is not None
        assert main.stdout.readline() == b"started\n"
        main.wait()
        left = conformance_module._carrying(marker)
        assert left
        while left := conformance_module._carrying(marker):  # one may just have been born
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_probe_of_processes_counts_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_FORKS", 3)
    assert probe.tried("forks", {}) == {"name": "forks", "stopped": False, "detail": "3 processes started"}
    real, turns = os.fork, iter([True, False])

    def fork() -> int:
        if next(turns):
            return real()
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(probe.os, "fork", fork)
    assert probe.tried("forks", {})["detail"] == "stopped after 1 processes"


def test_probe_says_what_stopped_it(tmp_path: Path) -> None:
    nowhere = {"root": str(tmp_path / "missing"), "shm": 1 << 30, "socket": str(tmp_path / "missing"), "secrets": []}
    for name in ("mount", "shared-memory", "path-socket", "read-secrets"):
        assert probe.tried(name, nowhere)["stopped"] is True
    scene = {"pid": os.getpid(), "secret": "no such word in any environment"}
    assert probe.tried("proc-environ", scene)["detail"] in ("no secret there", "Permission denied")


def test_probe_traces_what_it_may() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as victim:
        assert probe.tried("ptrace", {"pid": victim.pid})["detail"] != ""
        victim.kill()
