"""`byleave tool` told to stop while its command runs: it ends in order, says so, and leaves nothing behind."""

import json
import os
import signal
from pathlib import Path

import pytest

from .conftest import Program

pytestmark = pytest.mark.promise("L7")

# Another one leaves the session, as a daemon does.
CODE = """
import os, time
up = os.open('up', os.O_WRONLY)
if os.fork() == 0:
    os.setsid()
os.write(up, b'x')
os.close(up)
time.sleep(1000)
"""


def _running(marker: str) -> list[str]:
    found: list[str] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            arguments = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in arguments:
            found.append(name)
    return found


@pytest.mark.parametrize(("number", "sandbox"), [(signal.SIGTERM, "none"), (signal.SIGHUP, "auto")])
def test_what_runs_ends_in_order_and_nothing_is_left(
    byleave: Program, workspace: Path, number: signal.Signals, sandbox: str
) -> None:
    os.mkfifo(workspace / "up")
    before = sorted(os.listdir(workspace))
    marker = f"stopped-{os.getpid()}-{workspace.parent.name}"
    params = {"command": "python3", "args": ["-c", CODE, marker], "timeout": 100}
    tool = byleave.start(
        "tool", "execute_command", json.dumps(params), "--workspace", str(workspace), BYLEAVE_SANDBOX=sandbox
    )
    with (workspace / "up").open() as up:
        assert up.read() == "xx"
    assert _running(marker)
    code, said, _ = tool.stop(number)
    told = json.loads(said)
    assert (code, told["success"], told["error_type"]) == (1, False, "cancelled")
    assert "part of its effect may remain" in told["error"]
    assert _running(marker) == []
    assert sorted(os.listdir(workspace)) == before
