"""Calls in words for people, safe to print.

The words come from the parameters as the question shows them: secrets are masked already, and what cannot be seen is
spelled out here. Nothing is cut: a person reads all of a command line, or of a path.
"""

import re
from typing import Any, cast

from byleave.gate import MASK_PREFIX
from byleave.gate.text.render import quote
from byleave.gate.text.secrets import cover_nothing
from byleave.protocol.wire import JsonObject, moment

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~^\[\]{}-]+")
SHOWN_BY_NAME = {
    "execute_command": frozenset({"command", "args", "timeout"}),
    "write_file": frozenset({"path", "mode", "content_size"}),
    "read_file": frozenset({"path", "start_line", "end_line"}),
    "list_directory": frozenset({"path"}),
    "search_files": frozenset({"path", "pattern"}),
    "search_web": frozenset({"query"}),
}
"""Parameters that `call_words` and the facts of a question show in full."""


def word(value: object) -> str:
    """Return one argument or path; quoted unless it is plain, so that its ends are visible."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else quote(text, cover_nothing)


def call_words(tool_name: str, params: JsonObject, *, creates: bool = False) -> str:
    """Describe a call in one line, with its whole command line or path."""
    path = word(params.get("path", "."))
    match tool_name:
        case "execute_command":
            arguments: Any = params.get("args")
            words = cast("list[Any]", arguments) if isinstance(arguments, list) else []
            return f"Run {' '.join(word(one) for one in [params.get('command'), *words])}"
        case "write_file" if params.get("mode") == "append":
            return f"Append to {path}"
        case "write_file":
            return f"{'Create' if creates else 'Write'} {path}"
        case "read_file":
            first, last = params.get("start_line"), params.get("end_line")
            some = "" if first is None and last is None else f", lines {word(first or 1)} to {word(last or 'the last')}"
            return f"Read {path}{some}"
        case "list_directory":
            return f"List {path}"
        case "search_files":
            return f"Search {path} for {quote(str(params.get('pattern')), cover_nothing)}"
        case "search_web":
            return f"Search the web for {quote(str(params.get('query')), cover_nothing)}"
        case _:
            return f"Call {word(tool_name)}"


def masked_parts(*texts: object) -> int:
    """Count what is masked."""
    return sum(str(text).count(MASK_PREFIX) for text in texts)


def span(seconds: float) -> str:
    """Format a time limit: `30 s`, `5 min`."""
    whole = round(seconds)
    return f"{whole // 60} min" if whole >= 60 and whole % 60 == 0 else f"{whole} s"


def ago(now: str, then: str) -> str:
    """Format how long ago a time was, in its largest fitting unit."""
    seconds = max(0, round((moment(now) - moment(then)).total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit} {name} ago"
    return f"{seconds // 86_400} days ago"


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02d}"


def counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
