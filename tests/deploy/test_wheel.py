"""The wheel as others install it: made from the sdist, it has everything, and `byleave up` is the whole product."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDED = ("bwrap", "prlimit", "rg", "git", "sh")
ADAPTERS = {path.stem for path in (ROOT / "src/byleave/adapters").glob("[a-z]*.py")} - {"calls", "versions"}


def _build(source: Path, into: Path, kind: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [made] = into.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree's sdist, unpacked; its dependencies are the tests' own."""
    if not (ROOT / "src/byleave/server/page/index.html").is_file():
        pytest.skip("the page is not built (make ui)")
    place = tmp_path_factory.mktemp("wheel")
    with tarfile.open(_build(ROOT, place, "sdist")) as sdist:
        sdist.extractall(place, filter="data")
    wheel = _build(place / f"byleave-{PROJECT['version']}", place, "wheel")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place / "installed")
    return place / "installed"


def test_every_file_of_the_package_is_in_the_wheel(installed: Path) -> None:
    def files(root: Path) -> set[str]:
        found = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return {str(path.relative_to(root)) for path in found}

    assert files(installed / "byleave") == files(ROOT / "src/byleave")
    assert {"py.typed", "server/page/index.html", "server/page/embed.js"} <= files(installed / "byleave")


def test_without_node_the_wheel_is_up_with_its_page(installed: Path, tmp_path: Path) -> None:
    programs, workspace = tmp_path / "bin", tmp_path / "ws"
    for directory in (programs, workspace):
        directory.mkdir()
    for name in NEEDED:
        if there := shutil.which(name):
            (programs / name).symlink_to(there)
    environment = {
        **os.environ,
        "PATH": str(programs),
        "PYTHONPATH": str(installed),
        "BYLEAVE_HOME": str(tmp_path / "h"),
    }
    command = [sys.executable, "-m", "byleave.cli.main", "up", str(workspace), "--json"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        with urllib.request.urlopen(f"{told['server_url']}/", timeout=30) as answer:
            page = answer.read().decode()
        parts = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert any(part.endswith(".js") for part in parts)
        for part in parts:
            with urllib.request.urlopen(f"{told['server_url']}/{part.lstrip('./')}", timeout=30) as answer:
                assert answer.status == 200
        where = f"/proc/{process.pid}/environ"
        assert str(programs) in Path(where).read_text(encoding="utf-8", errors="replace")
        loaded = subprocess.run(
            [sys.executable, "-c", "import byleave; print(byleave.__file__)"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert loaded.stdout.startswith(str(installed))
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def test_all_brings_every_extra_and_every_adapter_has_one() -> None:
    extras = PROJECT["optional-dependencies"]
    [everything] = extras["all"]
    assert set(re.findall(r"[\w-]+", everything.partition("[")[2])) == set(extras) - {"all"}
    # Pydantic AI is what the server's own agent runs on.
    assert {name.replace("_", "-") for name in ADAPTERS} - {"pydantic-ai"} <= set(extras)


def test_the_page_about_installing_says_what_every_extra_brings() -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([\w-]+)` \|", page, re.M) == list(PROJECT["optional-dependencies"])
