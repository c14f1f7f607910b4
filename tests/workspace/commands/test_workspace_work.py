"""Ordinary work goes on inside: git, npm, Python and a compiler, in each sandbox, as each kind of user."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from byleave.protocol.tools import ExecuteCommandResult
from byleave.settings import ClientSettings, SandboxName
from byleave.workspace.sandbox.landlock import landlock_version
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("T3")
NOBODY = 65534
BACKENDS: list[SandboxName] = ["bwrap", "landlock"] if landlock_version() else ["bwrap"]
WORK: tuple[tuple[str, ...], ...] = (
    ("git", "init", "-q"),
    ("git", "add", "main.c", "package.json"),
    ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "one"),
    ("git", "log", "--oneline"),
    ("gcc", "-O1", "-o", "program", "main.c"),
    ("python", "-c", "import subprocess; print(subprocess.run(['./program'], capture_output=True).stdout.decode())"),
    ("python", "-c", "import tempfile; print(tempfile.TemporaryFile().write(b'five!'))"),
    ("npm", "test"),
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("git", "gcc", "npm", "node"))), reason="a tool is not installed"
)


def fill(root: Path) -> None:
    """A small project."""
    (root / "main.c").write_text('#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n')
    test = 'node -e \'const c = require("child_process"); console.log(String(c.execSync("echo tested")))\''
    (root / "package.json").write_text(json.dumps({"name": "x", "version": "1.0.0", "scripts": {"test": test}}))


async def work(root: Path, home: Path, backend: SandboxName) -> list[JsonObject]:
    """Do all of it; gives what each step said."""
    workspace = Workspace(root, ClientSettings(home=home, sandbox=backend))
    told: list[JsonObject] = []
    for command, *args in WORK:
        result = await workspace.run("execute_command", {"command": command, "args": args, "timeout": 60})
        assert isinstance(result, ExecuteCommandResult)
        isolation = {"backend": result.isolation["backend"], "runs_as": result.isolation["runs_as"]}
        told.append(
            {"command": command, "code": result.exit_code, "out": result.stdout, "err": result.stderr} | isolation
        )
    await workspace.close()
    return told


def check(told: list[JsonObject], backend: str, runs_as: str) -> None:
    assert [(step["command"], step["err"]) for step in told if step["code"] != 0] == []
    assert {(step["backend"], step["runs_as"]) for step in told} == {(backend, runs_as)}
    said = [step["out"] for step in told]
    assert ("one" in said[3], "compiled" in said[5], "5" in said[6], "tested" in said[7]) == (True, True, True, True)


@needs_tools
@pytest.mark.parametrize("backend", BACKENDS)
async def test_work_goes_on_in_the_users_own_workspace(tmp_path: Path, backend: SandboxName) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    fill(root)
    check(await work(root, tmp_path / "home", backend), backend, "root" if os.geteuid() == 0 else "user")
    assert {path.name for path in root.iterdir()} == {"main.c", "package.json", "program", ".git"}


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A project of another user, where they can reach it."""
    with tempfile.TemporaryDirectory(prefix="walls-") as base:
        os.chmod(base, 0o755)
        root = Path(base) / "ws"
        root.mkdir()
        fill(root)
        for path in (root, *root.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        yield root


@needs_root
@needs_tools
@pytest.mark.parametrize("backend", BACKENDS)
async def test_work_goes_on_where_root_serves_anothers_workspace(
    theirs: Path, tmp_path: Path, backend: SandboxName
) -> None:
    check(await work(theirs, tmp_path / "home", backend), backend, "owner")
    assert {path.stat().st_uid for path in theirs.rglob("*")} == {NOBODY}


def as_nobody(root: str, backend: SandboxName) -> None:
    """Become an ordinary user and do all of it; run by the test below in a process of its own."""
    from byleave.workspace.sandbox.environment import toolchains

    with tempfile.TemporaryDirectory() as warm:  # imports all there is while it can still be read
        (Path(warm) / "ws").mkdir()
        fill(Path(warm) / "ws")
        asyncio.run(work(Path(warm) / "ws", Path(warm) / "home", backend))
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.environ["HOME"] = "/nonexistent"
    os.chdir("/")
    toolchains.cache_clear()
    with tempfile.TemporaryDirectory() as home:
        print(json.dumps(asyncio.run(work(Path(root), Path(home), backend))), flush=True)
    os._exit(0)  # nobody may not write coverage data


@needs_root
@needs_tools
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="an ordinary user has no Python here")
@pytest.mark.parametrize("backend", BACKENDS)
def test_work_goes_on_as_an_ordinary_user(theirs: Path, backend: SandboxName) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]), "TMPDIR": "/tmp"}
    script = f"from {Path(__file__).stem} import as_nobody; as_nobody({str(theirs)!r}, {backend!r})"
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout), backend, "user")
