"""What a command left behind, told with its result: the files it changed, and which of them run later.

`recorded` runs a command between two looks at the workspace. A cancelled or timed-out command is looked at too, before
the call ends. A look that fails costs the record, not the command: the result says so. It never decides anything.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeVar

from assent.gate import mask_text, trusted_name
from assent.protocol.tools import MAX_CHANGES, ExecuteCommandParams, ExecuteCommandResult, FileChange

from .commands import CommandTimeout
from .paths import visible
from .snapshots import Change
from .undo import Running, UndoRecorder

T = TypeVar("T")

_MAX_WARNINGS = 20
_MAX_SUMMARY = 200


def command_summary(params: ExecuteCommandParams) -> str:
    """A command in one line, without secrets."""
    return mask_text(shlex.join([params.command, *params.args]))[:_MAX_SUMMARY]


async def recorded(
    recorder: UndoRecorder,
    tool_id: str,
    params: ExecuteCommandParams,
    run: Callable[[], Awaitable[ExecuteCommandResult]],
) -> ExecuteCommandResult:
    """Run a command, and tell what it changed."""
    try:
        running = await _begin(recorder, tool_id, command_summary(params))
    except OSError as error:
        return _with_warning(await run(), f"What it changed was not recorded ({error.strerror}); it cannot be undone.")
    try:
        result = await run()
    except CommandTimeout as timeout:
        if timeout.partial is not None:
            timeout.partial = await _end(recorder, running, timeout.partial)
        raise
    except BaseException:
        await _end(recorder, running, None)
        raise
    return await _end(recorder, running, result)


async def _begin(recorder: UndoRecorder, tool_id: str, summary: str) -> Running:
    began: list[Running] = []
    try:
        await _to_its_end(lambda: began.append(recorder.begin(tool_id, "execute_command", summary)))
    except asyncio.CancelledError:
        if began:
            await _to_its_end(lambda: recorder.end(began[0]))
        raise
    return began[0]


async def _end(recorder: UndoRecorder, running: Running, result: ExecuteCommandResult | None) -> ExecuteCommandResult:
    try:
        changes = await _to_its_end(lambda: recorder.end(running))
    except OSError as error:
        changes = running.changes
        why = f"What it changed was not recorded ({error.strerror}); it cannot be undone."
        return _with_warning(with_effects(result or _NOTHING, changes), why)
    return with_effects(result or _NOTHING, changes)


_NOTHING = ExecuteCommandResult(stdout="", stderr="", exit_code=None, execution_time=0)


async def _to_its_end(work: Callable[[], T]) -> T:
    """Work in a thread that is over when this returns, also when the call was cancelled."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()
        raise


def with_effects(result: ExecuteCommandResult, changes: Mapping[str, Change]) -> ExecuteCommandResult:
    """The result with what the command changed."""
    files = [change for path, pair in sorted(changes.items()) if (change := _file_change(path, pair)) is not None]
    warnings = [*result.warnings, *_warnings(files)]
    update = {"changed": files[:MAX_CHANGES], "changed_count": len(files), "warnings": warnings}
    return result.model_copy(update=update)


def _file_change(path: str, pair: Change) -> FileChange | None:
    before, after = pair
    if {state.kind for state in pair if state is not None} == {"directory"}:
        return None  # what lies in it tells more
    change: Literal["created", "changed", "deleted"] = "changed"
    if before is None or after is None:
        change = "created" if before is None else "deleted"
    return FileChange(path=visible(path), change=change)


def _warnings(files: list[FileChange]) -> list[str]:
    """Which of the files run later, in plain words."""
    found: list[str] = []
    for file in files:
        because = None if file.change == "deleted" else trusted_name(file.path)
        if because is not None:
            found.append(f"It {file.change} {file.path!r}. {because}")
    left_out = len(found) - _MAX_WARNINGS
    return found if left_out <= 0 else [*found[:_MAX_WARNINGS], f"So did {left_out} more files that run later."]


def _with_warning(result: ExecuteCommandResult, warning: str) -> ExecuteCommandResult:
    return result.model_copy(update={"warnings": [*result.warnings, warning]})
