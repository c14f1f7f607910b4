"""What the client keeps of the calls it executes: writes and commands that may change files, under their own id."""

from pathlib import Path

import pytest

from byleave.workspace.paths import PathValidator
from byleave.workspace.undo.restoring import UndoHistory

from .conftest import MakeApproved, MakeHandler, MakeSignal, RecordingLink

pytestmark = pytest.mark.promise("L8-undo")


def entries(root: Path, home: Path) -> dict[str, list[str]]:
    paths = PathValidator(root)
    try:
        return {entry.id: list(entry.changes) for entry in UndoHistory(paths, home).entries()}
    finally:
        paths.close()


async def test_a_write_and_a_command_are_kept_under_their_ids(
    make_handler: MakeHandler,
    link: RecordingLink,
    approved: MakeApproved,
    signal: MakeSignal,
    root: Path,
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    handler = await make_handler()
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "a.txt", "content": "new"}))
    await link.report("exec_1")
    code = "open('Makefile', 'w').write('x')"
    handler.handle_tool_execution_signal(
        approved("exec_2", "execute_command", {"command": "python", "args": ["-c", code]})
    )
    report = await link.report("exec_2")
    assert report["result"]["changed"] == [{"path": "Makefile", "change": "created"}]
    assert "Makefile" in report["result"]["warnings"][0]
    handler.handle_tool_execution_signal(signal("exec_3", "execute_command", {"command": "ls", "args": []}))
    await link.report("exec_3")
    assert entries(root, home) == {"exec_1": ["a.txt"], "exec_2": ["Makefile"]}
