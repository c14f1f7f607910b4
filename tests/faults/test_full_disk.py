"""A disk that is really full: a small file system of its own, in a mount namespace of the process that meets it."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

from byleave.protocol.states import Scope
from byleave.server import issue_token
from byleave.settings import ServerSettings
from harness.json_values import Json

SMALL_DISK = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size="$1" tmpfs "$0" && shift && exec "$@"')
FULL_DISK = (*SMALL_DISK[:-1], 'mount -t tmpfs -o size=64k tmpfs "$0"; head -c 99k /dev/zero > "$0/fill"; exec "$@"')
BYLEAVE = (sys.executable, "-m", "byleave.cli.main")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory that a process of the test can mount a file system on."""
    place = tmp_path / "home"
    place.mkdir()
    if subprocess.run([*SMALL_DISK, place, "64k", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    return place


@contextlib.contextmanager
def serving(home: Path) -> Generator[tuple[str, Path]]:
    """A server whose state directory has 4 MB; its address, and that directory as seen from here."""
    with subprocess.Popen(
        [*SMALL_DISK, home, "4m", *BYLEAVE, "serve", "--port", "0", "--json"],
        env={**os.environ, "BYLEAVE_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], Path(f"/proc/{process.pid}/root{home}")
        finally:
            process.terminate()


def answer(url: str) -> tuple[int, Json]:
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.promise("D")
def test_server_on_a_full_disk_is_not_ready_until_there_is_room_again(home: Path) -> None:
    with serving(home) as (url, seen):
        assert answer(f"{url}/readyz")[0] == 200
        with contextlib.suppress(OSError), (seen / "fill").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        status, problem = answer(f"{url}/readyz")
        assert (status, problem["detail"]) == (503, "The disk of the record is full.")
        assert answer(f"{url}/healthz")[0] == 200
        (seen / "fill").unlink()
        assert answer(f"{url}/readyz")[0] == 200


def test_client_that_is_started_on_a_full_disk_says_what_to_do(home: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "workspace").mkdir()
    with serving(tmp_path / "state") as (url, seen):
        settings = ServerSettings(home=seen)
        token = issue_token(settings, "alice", (Scope.CHAT, Scope.APPROVE, Scope.EXECUTE), 600)
        head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/my/projects", b'{"name":"demo"}', head)
        with urllib.request.urlopen(request) as response:
            project = json.load(response)["project_id"]
        connect = ("connect", "--server", url, "--project", project, "--workspace", str(tmp_path / "workspace"))
        done = subprocess.run(
            [*FULL_DISK, home, *BYLEAVE, *connect],
            env={**os.environ, "BYLEAVE_HOME": str(home), "BYLEAVE_TOKEN": token},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert "No space is left on the disk" in done.stderr
    assert "hint: free some" in done.stderr
