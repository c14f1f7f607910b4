"""A conversation as a document, and the files and commands of its calls, from the record alone.

Pure: rows in, values out. Nothing here asks a machine; what a file holds now, only the machine knows.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, cast

from byleave.gate import safe_text
from byleave.protocol.chat import Message
from byleave.protocol.conversations import ChangedPath, RanCommand, SessionChanges, SessionExport
from byleave.protocol.executions import Execution
from byleave.protocol.states import ExecutionStatus
from byleave.protocol.wire import JsonObject
from byleave.store.conversations import ChangingCall

MOST_FILES = 500
MOST_COMMANDS = 500
MOST_TEXT = 16 * 1024
"""Characters of one text in a Markdown document."""
NAME_CHARACTERS = 60
VERBS = {
    "read_file": "Read",
    "write_file": "Write",
    "execute_command": "Run",
    "list_directory": "List",
    "search_files": "Search",
    "search_web": "Search the web",
}
_UNFIT = re.compile(r"[^\w.-]+")


def changes_of(
    session_id: str, calls: Iterable[ChangingCall], workspace: str | None, *, complete: bool
) -> SessionChanges:
    """The files that these calls changed, each with its net change, and the commands."""
    files: dict[str, ChangedPath | None] = {}
    touched: dict[str, list[str]] = {}
    commands: list[RanCommand] = []
    beyond = 0
    for call in calls:
        for path, change in _changed_by(call, workspace):
            touched.setdefault(path, []).append(call.id)
            files[path] = _net(path, files.get(path), change, known=path in files, tool_ids=touched[path])
        if call.tool_name == "execute_command":
            commands.append(_command(call))
            beyond += _beyond(call.result)
    listed = sorted((file for file in files.values() if file is not None), key=lambda file: file.path)
    return SessionChanges(
        session_id=session_id,
        files=listed[:MOST_FILES],
        total_files=len(listed) + beyond,
        commands=commands[-MOST_COMMANDS:],
        complete=complete and len(commands) <= MOST_COMMANDS,
    )


def _net(path: str, before: ChangedPath | None, change: str, *, known: bool, tool_ids: list[str]) -> ChangedPath | None:
    """A file's change from the first call to this one; None if it is as if nothing had happened."""
    was_there = change != "created" if not known else before is not None and before.change != "created"
    is_there = change != "deleted"
    if not was_there and not is_there:
        return None
    kind = "created" if not was_there else "changed" if is_there else "deleted"
    return ChangedPath(path=path, change=kind, tool_ids=list(tool_ids))


def _changed_by(call: ChangingCall, workspace: str | None) -> list[tuple[str, str]]:
    if call.tool_name == "write_file":
        path = call.params.get("path")
        if call.status != ExecutionStatus.COMPLETED.name or not isinstance(path, str):
            return []
        return [(_inside(path, workspace), "created" if "missing" in call.bound.values() else "changed")]
    files = call.result.get("changed") if call.result else None
    entries = [cast(JsonObject, one) for one in cast("list[Any]", files if isinstance(files, list) else [])]
    known = ("created", "changed", "deleted")
    return [(str(one["path"]), one["change"]) for one in entries if one.get("change") in known and one.get("path")]


def _inside(path: str, workspace: str | None) -> str:
    """The path from the workspace, as commands name it."""
    if workspace is not None:
        path = path.removeprefix(f"{workspace.rstrip('/')}/")
    return path.removeprefix("./")


def _beyond(result: Mapping[str, object] | None) -> int:
    """Files a command changed that its record does not name."""
    if result is None:
        return 0
    count, files = result.get("changed_count"), result.get("changed")
    listed = len(cast("list[Any]", files)) if isinstance(files, list) else 0
    return max(0, count - listed) if isinstance(count, int) else 0


def _command(call: ChangingCall) -> RanCommand:
    exit_code = call.result.get("exit_code") if call.result else None
    return RanCommand(
        tool_id=call.id,
        line=_line(call.params),
        status=ExecutionStatus[call.status],
        exit_code=exit_code if isinstance(exit_code, int) else None,
        created_at=call.created_at,
    )


def _line(params: Mapping[str, object]) -> str:
    """A command as it would be typed."""
    args = params.get("args")
    words = cast("list[Any]", args) if isinstance(args, list) else []
    return shlex.join(str(word) for word in [params.get("command"), *words])


# As a document


def file_name(title: str) -> str:
    """A file name for an export, without its ending."""
    return _UNFIT.sub("-", title)[:NAME_CHARACTERS].strip("-.") or "conversation"


def markdown(export: SessionExport) -> str:
    """The conversation as Markdown: messages as they are, calls with parameters and results as the record has them."""
    parts = [
        f"# {_inline(export.session.title) or 'Untitled'}",
        f"Project {_inline(export.project_name)} · begun {export.session.created_at} · "
        f"exported from Byleave {export.exported_at}",
        "Secrets in calls are masked, as in the record.",
    ]
    if not export.complete:
        parts.append("Older messages and calls are left out.")
    entries = [*((message.created_at, _message(message)) for message in export.messages)]
    entries += ((call.created_at, _call(call)) for call in export.calls)
    # A stable sort: of the same moment, the message comes first.
    parts += [text for _, text in sorted(entries, key=lambda entry: entry[0])]
    return "\n\n".join(parts) + "\n"


def _message(message: Message) -> str:
    who = "You" if message.role == "user" else "Agent"
    return f"## {who}\n\n{message.created_at}\n\n{message.content.strip()}"


def _call(call: Execution) -> str:
    head = f"### {VERBS.get(call.tool_name, call.tool_name)} {_code(_subject(call))}"
    facts = [call.created_at, f"{call.risk_level.value} risk", f"allowed by {call.approved_by}", call.status.value]
    if call.approved_by is None:
        facts.remove(f"allowed by {call.approved_by}")
    parts = [head, _inline(" · ".join(facts)), f"Call `{call.tool_id}`"]
    params = {name: value for name, value in call.tool_params.items() if value is not None}
    parts += _texts("Parameters", params)
    if call.error is not None:
        parts.append(f"Error: {_inline(call.error)}")
    if call.result is not None:
        parts += _texts("Result", call.result)
    return "\n\n".join(parts)


def _subject(call: Execution) -> str:
    params = call.tool_params
    if call.tool_name == "execute_command":
        return _line(params)
    return str(next((params[name] for name in ("path", "pattern", "query") if name in params), ""))


def _texts(name: str, values: JsonObject) -> list[str]:
    """Long texts each in a fence of its own, the other values together."""
    long = {key: value for key, value in values.items() if isinstance(value, str) and "\n" in value}
    short = [f"- {_inline(key)}: {_code(str(value))}" for key, value in values.items() if key not in long]
    parts = [f"{name}:\n\n" + "\n".join(short)] if short else []
    return parts + [f"{name}, {_inline(key)}:\n\n{_fenced(value)}" for key, value in long.items()]


def _fenced(text: str) -> str:
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]}\n… {len(text) - MOST_TEXT:,} more characters"
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _code(text: str) -> str:
    """Text in a code span that nothing in it can end."""
    text = _inline(text)[:MOST_TEXT] or " "
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * (longest + 1)
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{blank}{text}{blank}{ticks}"


def _inline(text: str) -> str:
    return " ".join(safe_text(text).split())
