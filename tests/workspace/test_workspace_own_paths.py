"""Paths of our own, beside the labelled ones: judged by the gate and then run, as the client does."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from byleave.gate import Gate
from byleave.protocol.errors import ByleaveError
from byleave.settings import ClientSettings
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject
from harness.place import Place

pytestmark = pytest.mark.promise("G1", "T1", "T2", "T4", "T5", "S")

CASES: list[JsonObject] = [
    json.loads(line) for line in (Path(__file__).parent / "cases" / "own_paths.jsonl").read_text("ascii").splitlines()
]
GATE = Gate()
KEPT = {".git/config": "git's", ".env": "KEY=1", "tool.so": "program", "run.sh": "script", "package.json": "{}"}
TOOLS: dict[str, tuple[str, JsonObject]] = {
    "read": ("read_file", {}),
    "list": ("list_directory", {}),
    "search": ("search_files", {"pattern": "SECRET"}),
    "write": ("write_file", {"content": "new"}),
    "append": ("write_file", {"content": "new", "mode": "append"}),
}


def _closed(path: Path) -> None:
    if path.name == "kd":
        path.mkdir()
        (path / "a.txt").touch()
    else:
        path.touch()
    path.chmod(0)


def _socket(path: Path) -> None:
    here = os.open(path.parent, os.O_PATH)  # its whole path may be too long
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o20666, os.makedev(1, 3))
    except PermissionError:
        path.symlink_to("/dev/null")


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


MAKERS: dict[str, Callable[[Path], object]] = {
    "closed": _closed,
    "device": _device,
    "fifo": os.mkfifo,
    "hard": lambda path: path.hardlink_to(path.parent / "README.md"),
    "socket": _socket,
    "sparse": _sparse,
}


@pytest.fixture
def furnished(place: Place) -> Iterator[Place]:
    for name, content in {"src/a.py": "print()\n", "README.md": "# readme\n", **KEPT}.items():
        place.file(name, content)
    yield place
    if (place.root / "kd").exists():
        (place.root / "kd").chmod(0o755)


def _spelled(path: str, at: Place) -> str:
    return path.replace("{WSNAME}", at.root.name).replace("{WS}", str(at.root)).replace("{OUT}", str(at.outside))


async def _answer(case: JsonObject, at: Place, settings: ClientSettings) -> tuple[str, str]:
    tool, rest = TOOLS[case["op"]]
    params = {"path": _spelled(case["path"], at), **rest}
    judgement = GATE.judge(tool, params, workspace=str(at.root))
    if judgement.verdict.refused or judgement.params is None:
        return "REFUSE", str(judgement.verdict.message)
    workspace = Workspace(at.root, settings)
    try:
        return "OK", (await workspace.run(judgement.tool_name, judgement.params)).model_dump_json()
    except ByleaveError as error:
        return "REFUSE", error.message
    finally:
        await workspace.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_path_is_answered_as_labelled_and_nothing_else_is_touched(
    case: JsonObject, furnished: Place, settings: ClientSettings
) -> None:
    setup = dict(case.get("setup", {}))
    for name, target in setup.pop("links", {}).items():
        (furnished.root / name).symlink_to(_spelled(target, furnished))
    for kind, name in setup.items():
        MAKERS[kind](furnished.root / name)
    answer, told = await _answer(case, furnished, settings)
    assert answer == case["expect"], told
    assert "SECRET" not in told
    assert "\x1b" not in told
    assert len(told) < 1000
    assert {name: (furnished.root / name).read_text() for name in KEPT} == KEPT
    assert os.listdir(furnished.outside) == ["secret.txt"]
    assert (furnished.outside / "secret.txt").read_text() == "SECRET"
    assert {path.name for path in furnished.root.parent.iterdir()} <= {"ws", "out", "home"}
