"""The directory a command has for itself: gone with it, whatever it left there."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from assent.workspace import NoSandbox
from assent.workspace.homes import own_home, remove_left, remove_tree
from assent.workspace.output import OutputKeeper
from assent.workspace.processes import run_process

from .conftest import Place

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
    yield tmp_path
    remove_tree(tmp_path / "outside")


async def test_what_a_command_nested_deep_goes_with_it(place: Place, temporary: Path) -> None:
    sandbox = NoSandbox(place.root, reason="for a test")
    program = f"import os; os.chdir(os.environ['TMPDIR'])\n{_NESTS}"
    with sandbox.launch([sys.executable, "-c", program, "3000"]) as launch:
        ended = await run_process(launch, OutputKeeper(1000), seconds=60)
    assert ended.exit_code == 0
    assert not list(temporary.glob("assent-*"))


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
from assent.workspace.homes import own_home
with own_home() as home:
    (home / 'file').touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(temporary)}, check=False)
    assert len(list(temporary.glob("assent-home-*"))) == 1
    (temporary / "assent-other").mkdir()
    (temporary / "assent-home-file").touch()
    (temporary / "assent-home-link").symlink_to(temporary / "assent-other")
    with own_home() as used:
        remove_left()
        left = {path.name for path in temporary.glob("assent-*")}
    assert left == {used.name, "assent-other", "assent-home-file", "assent-home-link"}


def test_what_cannot_be_removed_is_no_error(temporary: Path) -> None:
    remove_tree(temporary / "missing")
    (temporary / "file").touch()
    remove_tree(temporary / "file")
    assert (temporary / "file").exists()
