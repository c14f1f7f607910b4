"""Tool calls in ACP's words: kinds, titles, places, and what came of them.

Only shows what the feed already made safe and short. A path that leaves the session's directory is never named to the
editor as a place to open or read.
"""

import json
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from acp.helpers import start_tool_call, text_block, tool_content, update_tool_call
from acp.schema import ToolCallLocation, ToolCallProgress, ToolCallStart, ToolKind

from byleave.gate import safe_text
from byleave.protocol.events import ToolFinished, ToolStarted
from byleave.protocol.states import ExecutionStatus

KINDS: dict[str, ToolKind] = {
    "read_file": "read",
    "write_file": "edit",
    "execute_command": "execute",
    "list_directory": "read",
    "search_files": "search",
    "search_web": "fetch",
}
TITLE_CHARACTERS = 200
SHOWN_CHARACTERS = 4000
"""The most of a call's output that is shown with it."""
DIFF_CHARACTERS = 200_000
LEFT_OUT = " characters left out …"
"""What the feed writes into a text that it shortened."""


def begun(event: ToolStarted, directory: Path) -> ToolCallStart:
    path = absolute(event.tool_params, directory)
    return start_tool_call(
        event.tool_id,
        title(event.tool_name, event.tool_params),
        kind=KINDS.get(event.tool_name, "other"),
        status="in_progress" if event.approved_by is not None else "pending",
        locations=[ToolCallLocation(path=str(path))] if path is not None else None,
        raw_input=event.tool_params,
    )


def ended(event: ToolFinished) -> ToolCallProgress:
    done = event.status is ExecutionStatus.COMPLETED
    text = "" if done else (event.error or event.status.value)
    if done or event.result:  # what a command printed before it was stopped is there all the same
        text = "\n".join(part for part in (text, _result(event.tool_name, event.result or {})) if part)
    return update_tool_call(
        event.tool_id,
        status="completed" if done else "failed",
        # A write keeps the change that was shown with its question.
        content=None if done and event.tool_name == "write_file" else [tool_content(text_block(text))],
        raw_output=event.result,
    )


def title(tool_name: str, params: Mapping[str, Any]) -> str:
    match tool_name, params:
        case "execute_command", {"command": str(command)}:
            args = params.get("args")
            text = " ".join([command, *map(str, cast(list[Any], args) if isinstance(args, list) else ())])
        case _, {"path": str(path)}:
            text = f"{tool_name} {path}"
        case _, {"query": str(query)}:
            text = f"{tool_name} {query}"
        case _:
            text = tool_name
    line = safe_text(" ".join(text.split()))
    return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1]}…"


def absolute(params: Mapping[str, Any], directory: Path) -> Path | None:
    """The path of a call as the editor knows it; None for one that is not inside the directory."""
    path = params.get("path")
    if not isinstance(path, str):
        return None
    root = str(directory)
    whole = posixpath.normpath(posixpath.join(root, path))
    return Path(whole) if whole.startswith(root.rstrip("/") + "/") else None


def written(params: Mapping[str, Any], before: str) -> str | None:
    """What a file would hold after a write; None when not all of it is known."""
    content = params.get("content")
    if not isinstance(content, str) or LEFT_OUT in content:
        return None
    after = before + content if params.get("mode") == "append" else content
    return after if len(after) + len(before) <= DIFF_CHARACTERS else None


def output_tail(before: str, more: str) -> str:
    return (before + more)[-SHOWN_CHARACTERS:]


def _result(tool_name: str, result: Mapping[str, Any]) -> str:
    match tool_name:
        case "read_file" if result.get("encoding") != "base64":
            text = str(result.get("content", ""))
        case "execute_command":
            parts = [str(result.get("stdout", "")), str(result.get("stderr", "")), f"exit {result.get('exit_code')}"]
            text = "\n".join(part.rstrip("\n") for part in parts if part)
        case _:
            text = json.dumps(result, ensure_ascii=False, indent=1)
    half = SHOWN_CHARACTERS // 2
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:half]}\n…\n{text[-half:]}"
