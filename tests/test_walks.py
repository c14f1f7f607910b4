"""The walks of ARCHITECTURE.md are true: a call passes the modules it names, in its order.

Each walk is made for real and every module of Byleave that is entered is written down. A module that the document
names and the call does not pass, or passes in another order, fails; so does a walk that grew longer than it says.
"""

import asyncio
import re
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import byleave
from byleave.client.local_calls import run_here
from byleave.gate import Gate
from byleave.settings import ClientSettings, ServerSettings
from byleave.workspace.workspace import Workspace
from harness.desk import completed, open_desk
from harness.json_values import JsonObject

SOURCE = str(Path(byleave.__file__).parent) + "/"
DOCUMENT = Path(__file__).resolve().parent.parent / "ARCHITECTURE.md"


@contextmanager
def walked() -> Generator[list[str]]:
    """Modules in the order in which they were entered; one that is entered again is there again."""
    steps: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCE) and frame.f_code.co_name != "<module>":
            step = name.removeprefix(SOURCE)
            if not steps or steps[-1] != step:
                steps.append(step)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]


def promised(title: str) -> tuple[list[str], int]:
    """The modules that the document names for a walk, and how many it says a call passes."""
    section = DOCUMENT.read_text("utf-8").split(f"### {title}\n")[1].split("\n### ")[0].split("\n## ")[0]
    modules = re.findall(r"^\d+\. `([\w/]+\.py)`", section, re.MULTILINE)
    (most,) = re.findall(r"at most (\d+) modules", section)
    return modules, int(most)


def check(title: str, steps: list[str]) -> None:
    modules, most = promised(title)
    assert len(modules) >= 6
    first = list(dict.fromkeys(steps))
    assert [module for module in first if module in modules] == modules, f"the walk is: {first}"
    assert len(first) <= most, f"{title} passes {len(first)} modules: {first}"


def test_every_module_that_the_document_names_is_there() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|toml|sql))`", DOCUMENT.read_text("utf-8")))
    named -= {"cli/X.py", "tests/test_walks.py"}  # a pattern, and not of the package
    assert len(named) > 30
    assert [name for name in sorted(named) if not Path(SOURCE, name).exists()] == []


def test_every_module_to_read_first_is_in_its_room() -> None:
    rooms = re.findall(r"^\| `([\w/]+)/` \|.*\| (`.*`) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    first = [f"{room}/{name}" for room, names in rooms for name in re.findall(r"`([\w.]+)`", names)]
    assert len(first) > 20
    assert [name for name in first if not Path(SOURCE, name).exists()] == []


def test_every_function_that_the_document_names_is_where_it_says() -> None:
    named = re.findall(r"`(\w+)` in `([\w/]+\.py)`", DOCUMENT.read_text("utf-8"))
    assert {name for name, _ in named} >= {"standing_answer", "to_leave_out", "Allow"}
    for name, module in named:
        text = Path(SOURCE, module).read_text("utf-8")
        assert re.search(rf"^(?:async )?(?:def|class) {name}\b", text, re.MULTILINE), f"no {name} in {module}"


async def test_a_low_read_in_the_server(tmp_path: Path) -> None:
    async with open_desk(ServerSettings(home=tmp_path)) as desk, desk.client(lambda signal: completed(content="x")):
        await desk.executor.execute_tool("read_file", {"path": "f.txt"}, desk.session.id)
        with walked() as steps:
            answer = await desk.executor.execute_tool("read_file", {"path": "f.txt"}, desk.session.id)
    assert answer.status == "completed"
    check("A LOW read in the server", steps)


async def test_an_approved_write_in_the_server(tmp_path: Path) -> None:
    params = {"path": "a.txt", "content": "x"}
    async with open_desk(ServerSettings(home=tmp_path)) as desk, desk.client(lambda signal: completed()):
        with walked() as steps:
            call = asyncio.ensure_future(desk.executor.execute_tool("write_file", params, desk.session.id))
            await asyncio.sleep(0)
            waiting = await desk.next_approval()
            await desk.approvals.approve_tool(waiting.id, "alice")
            answer = await call
    assert answer.status == "completed"
    check("An approved write in the server", steps)


@pytest.mark.parametrize(
    ("title", "tool", "params"),
    [
        ("A read on the machine", "read_file", {"path": "f.txt"}),
        ("A command on the machine", "execute_command", {"command": "ls", "args": ["-l"]}),
    ],
)
async def test_a_call_on_the_machine(tmp_path: Path, title: str, tool: str, params: JsonObject) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "f.txt").write_text("x")
    gate = Gate()
    with walked() as steps:
        workspace = Workspace(tmp_path / "ws", ClientSettings(home=tmp_path / "home"))
        try:
            await run_here(gate, workspace, tool, params)  # which also opens it, and finds out what sandbox there is
            steps.clear()
            answer = await run_here(gate, workspace, tool, params)
        finally:
            await workspace.close()
    assert answer["success"]
    check(title, steps)
