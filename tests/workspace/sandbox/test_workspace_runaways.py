"""Programs that run away: endless output, forks, memory, daemons, a client that is killed meanwhile. All bounded."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from byleave.protocol.tools import ExecuteCommandResult
from byleave.settings import ClientSettings
from byleave.workspace.sandbox.bubblewrap import end_orphans
from byleave.workspace.sandbox.processes import KeptStream
from byleave.workspace.stopping import CommandTimeout
from byleave.workspace.workspace import Workspace
from harness.place import Place

pytestmark = pytest.mark.promise("T3")

NOBODY = 65534
MEGABYTE = 1024 * 1024


@pytest.fixture(params=["root", "owner"])
def owned(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A workspace of ours, and one of somebody else's that root serves."""
    with tempfile.TemporaryDirectory() as base:
        root = Path(base) / "ws"
        root.mkdir()
        if request.param == "owner":
            if os.geteuid() != 0:
                pytest.skip("only root can give a directory away")
            os.chmod(base, 0o755)
            os.chown(root, NOBODY, NOBODY)
        yield root


@pytest.fixture
def marker(tmp_path: Path) -> str:
    """A word by which a test's processes are told from all others."""
    return f"runaway-{os.getpid()}-{tmp_path.parent.name}-{tmp_path.name}"


def _alive(marker: str) -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def _until_none(marker: str, seconds: float = 10) -> list[int]:
    until = time.monotonic() + seconds
    while (left := _alive(marker)) and time.monotonic() < until:
        time.sleep(0.01)
    return left


async def _run(workspace: Workspace, *args: str, timeout: int = 30) -> ExecuteCommandResult:
    result = await workspace.run("execute_command", {"command": "python", "args": list(args), "timeout": timeout})
    assert isinstance(result, ExecuteCommandResult)
    return result


POUR = """
import os
os.write(1, b"first out\\n"); os.write(2, b"first err\\n")
for n in range(2400):
    os.write(1, b"o" * 65535 + b"\\n"); os.write(2, b"e" * 65535 + b"\\n")
os.write(1, b"last out\\n"); os.write(2, b"last err\\n")
"""
CLIENT_THAT_DRAINS = """
import asyncio, json, sys
from pathlib import Path
from byleave.settings import ClientSettings
from byleave.workspace.workspace import Workspace

def most():  # not getrusage: that still counts who started us
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])

async def main():
    workspace = Workspace(sys.argv[1], ClientSettings(home=Path(sys.argv[2])))
    call = lambda code: workspace.run("execute_command", {"command": "python", "args": ["-c", code], "timeout": 120})
    await call("print(1)")
    before = most()
    result = await call(sys.argv[3])
    grown = most() - before
    print(json.dumps({"grown": grown, "result": result.model_dump(mode="json")}))
    await workspace.close()

asyncio.run(main())
"""


@pytest.mark.promise("G4")
def test_three_hundred_megabytes_on_both_streams_cost_little_memory(place: Place, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT_THAT_DRAINS, str(place.root), str(tmp_path / "home"), POUR],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    result = told["result"]
    print(f"{told['grown']} KiB more for 300 MB, {result['execution_time']} s")
    assert told["grown"] < 24 * 1024
    assert (result["exit_code"], result["truncated"]) == (0, True)
    for stream, first, last in (("stdout", "first out\n", "last out\n"), ("stderr", "first err\n", "last err\n")):
        assert result[stream].startswith(first)
        assert result[stream].endswith(last)
    assert len(result["stdout"]) + len(result["stderr"]) <= MEGABYTE


@pytest.mark.promise("G4")
def test_output_in_single_bytes_weighs_no_more_than_what_it_holds() -> None:
    stream = KeptStream(10_000)
    tracemalloc.start()
    try:
        for _ in range(40_000):
            stream.feed(b"x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 10_000
    assert len(stream.text(10_000)) <= 10_000


BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(1)
"""


class Counted:
    """Counts, beside what runs, how many processes carry the marker."""

    def __init__(self, marker: str) -> None:
        self._marker, self._stop = marker, threading.Event()
        self.most = 0
        self._thread = threading.Thread(target=self._count)

    def _count(self) -> None:
        while not self._stop.wait(0.05):
            self.most = max(self.most, len(_alive(self._marker)))

    def __enter__(self) -> "Counted":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


async def test_fork_bomb_is_bounded_and_gone(owned: Path, settings: ClientSettings, marker: str) -> None:
    workspace = Workspace(owned, settings)
    isolation = workspace.isolation
    if not {"nproc", "pids"} & set(isolation.limits):
        pytest.skip("this machine has no way to bound root's processes")
    for seconds in (3, 30):  # on a machine that is busy, three seconds are not enough to get anywhere
        with Counted(marker) as counted, pytest.raises(CommandTimeout, match=f"ran longer than {seconds} s"):
            await _run(workspace, "-c", BOMB, marker, timeout=seconds)
        assert _alive(marker) == []
        if counted.most >= 200:
            break
    print(f"at most {counted.most} processes as {isolation.runs_as}")
    assert 200 <= counted.most <= 270
    assert (await _run(workspace, "-c", "print('well')")).stdout == "well\n"
    await workspace.close()


async def test_memory_hog_is_ended_and_says_why(owned: Path, settings: ClientSettings) -> None:
    workspace = Workspace(owned, settings)
    # Reserved first, so that the machine is safe even where the limit is not; then touched.
    result = await _run(workspace, "-c", "x = bytearray(8 << 30); x[::4096] = b'x' * len(x[::4096])")
    assert result.exit_code == 1
    assert "MemoryError" in result.stderr
    await workspace.close()


STUBBORN = {
    "that ignores every signal": (
        "import signal, time\nfor n in range(1, 32):\n    if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\n"
        "print('up', flush=True); time.sleep(100)"
    ),
    "that stopped itself": "import os; print('up', flush=True); os.kill(os.getpid(), 19)",
    "that closed its pipes": "import os, time; os.write(1, b'up\\n'); os.close(1); os.close(2); time.sleep(100)",
}


@pytest.mark.parametrize("script", STUBBORN.values(), ids=STUBBORN.keys())
async def test_stubborn_command_is_ended_in_time(workspace: Workspace, marker: str, script: str) -> None:
    workspace.isolation  # noqa: B018 - probed before the clock starts
    began = time.monotonic()
    with pytest.raises(CommandTimeout) as caught:
        await _run(workspace, "-c", script, marker, timeout=1)
    assert time.monotonic() - began < 4
    assert caught.value.partial is not None
    assert (caught.value.partial.stdout, caught.value.partial.exit_code) == ("up\n", None)
    assert _alive(marker) == []


async def test_command_that_closed_its_pipes_is_waited_for(workspace: Workspace) -> None:
    script = "import os, time; os.write(1, b'up\\n'); os.close(1); os.close(2); time.sleep(0.3); os._exit(7)"
    result = await _run(workspace, "-c", script)
    assert (result.stdout, result.exit_code) == ("up\n", 7)
    assert 0.3 <= result.execution_time < 5


@pytest.mark.parametrize(
    ("code", "script"),
    [
        (0, "pass"),
        (1, "raise SystemExit('no')"),
        (255, "raise SystemExit(255)"),
        (137, "import os; os.kill(os.getpid(), 9)"),
        (139, "import os; os.kill(os.getpid(), 11)"),
        (134, "import os; os.abort()"),
    ],
)
async def test_exit_code_is_the_commands_own(workspace: Workspace, code: int, script: str) -> None:
    result = await _run(workspace, "-c", script)
    assert (result.exit_code, result.success) == (code, True)


DAEMONS = """
import os, time
told, ready = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(ready, b"x")
            for fd in range(3): os.close(fd)
            time.sleep(1000)
        os._exit(0)
for _ in range(3): os.read(told, 1)
print("up", flush=True)
time.sleep(1000)
"""
CLIENT_THAT_DIES = """
import asyncio, sys
from pathlib import Path
from byleave.settings import ClientSettings
from byleave.workspace.workspace import Workspace

async def main():
    workspace = Workspace(sys.argv[1], ClientSettings(home=Path(sys.argv[2])))
    args = ["-c", sys.argv[3], sys.argv[4]]
    say = lambda stream, text: print(text, end="", flush=True)
    await workspace.run("execute_command", {"command": "python", "args": args, "timeout": 60}, on_output=say)

asyncio.run(main())
"""


@pytest.mark.promise("C8")
def test_nothing_of_a_command_outlives_a_killed_client(owned: Path, tmp_path: Path, marker: str) -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT_THAT_DIES, str(owned), str(tmp_path / "home"), DAEMONS, marker],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    with client:
        assert client.stdout.readline() == "up\n"
        assert len(_alive(marker)) >= 5
        client.kill()
    assert _until_none(marker) == []


@pytest.mark.promise("C8")
def test_a_command_without_a_sandbox_does_not_outlive_a_killed_client_either(
    place: Place, tmp_path: Path, marker: str
) -> None:
    code = "import time; print('up', flush=True); time.sleep(1000)"
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT_THAT_DIES, str(place.root), str(tmp_path / "home"), code, marker],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BYLEAVE_SANDBOX": "none"},
    )
    assert client.stdout is not None
    with client:
        assert client.stdout.readline() == "up\n"
        client.kill()
    assert _until_none(marker) == []


# The client forks here, once all is imported, and is killed between the start of the sandbox and its readiness.
CLIENT_KILLED_EARLY = """
import asyncio, os, random, sys, time
from pathlib import Path
from byleave.workspace.sandbox.processes import OutputKeeper
from byleave.workspace.sandbox.processes import run_process
from byleave.workspace.sandbox.backends import choose_sandbox

sandbox = choose_sandbox(Path(sys.argv[1]))

async def run(ready):
    with sandbox.launch(["/usr/bin/tail", "-f", "/dev/null", sys.argv[2]]) as launch:
        os.write(ready, b"x")
        await run_process(launch, OutputKeeper(1000), seconds=60)

for number in range(int(sys.argv[3])):
    read_end, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        asyncio.run(run(ready))
    os.read(read_end, 1)
    time.sleep(random.random() * 0.012)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""


@pytest.mark.promise("C8")
def test_sandbox_of_a_client_killed_while_it_started_is_ended_by_the_next(owned: Path, marker: str) -> None:
    subprocess.run([sys.executable, "-c", CLIENT_KILLED_EARLY, str(owned), marker, "40"], check=True)
    before = _alive(marker)
    ended = end_orphans(owned)
    print(f"{len(before)} of 40 left, {ended} ended")
    assert _until_none(marker, 5) == []
    assert end_orphans(owned) == 0


@pytest.mark.promise("C8")
async def test_sandbox_of_a_living_client_is_no_stray(owned: Path, settings: ClientSettings, marker: str) -> None:
    workspace = Workspace(owned, settings)
    up = asyncio.Event()
    call = asyncio.create_task(
        workspace.run(
            "execute_command",
            {"command": "python", "args": ["-c", DAEMONS, marker], "timeout": 60},
            on_output=lambda stream, text: up.set(),
        )
    )
    await up.wait()
    running = _alive(marker)
    assert await asyncio.to_thread(end_orphans, owned) == 0
    assert await asyncio.to_thread(end_orphans, owned.parent) == 0
    assert _alive(marker) == running
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert _alive(marker) == []
    await workspace.close()


@pytest.mark.promise("C8")
def test_what_only_looks_like_a_sandbox_is_left_alone(place: Place) -> None:
    """Anybody may give a program such arguments; only bubblewrap itself is ended."""
    arguments = ["--json-status-fd", "9", "--chdir", str(place.root), "--"]
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)", *arguments], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert end_orphans(place.root) == 0
        assert other.poll() is None
        other.send_signal(signal.SIGKILL)


@pytest.mark.promise("C8")
def test_sandbox_to_which_nobody_listens_is_ended(place: Place, marker: str) -> None:
    read_end, write_end = os.pipe()
    inside = ["--json-status-fd", str(write_end), "--chdir", str(place.root), "--", "tail", "-f", "/dev/null", marker]
    with subprocess.Popen(
        ["bwrap", "--unshare-user", "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/", *inside],
        pass_fds=(write_end,),
    ) as sandbox:
        os.close(write_end)
        with open(read_end, "rb", buffering=0) as told:
            said = b""
            while not said.endswith(b"}\n"):  # later it would die of what it cannot write
                said += told.read(1000)
            assert end_orphans(place.root) == 0
        assert end_orphans(place.root) >= 1
        assert sandbox.wait(5) == -signal.SIGKILL
    assert _until_none(marker) == []
