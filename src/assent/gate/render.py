r"""What people are shown: calls in plain words, with nothing hidden, nothing cut off out of sight, secrets masked.

Made from the parameters alone, never from what an agent says about them. Characters that a screen obeys or that
nobody sees come out as `\x1b` or `\u{202e}`; long padding is collapsed and said so; every argument has its own quotes.
"""

import hashlib
import re
from collections.abc import Callable
from typing import cast

from assent.protocol.values import JsonObject
from assent.protocol.verdicts import Verdict, VerdictLevel

from .characters import HIDDEN, HIDDEN_CLASS, escaped, mixed_scripts
from .secrets import mask_arguments, mask_text, mask_value

MAX_SHOWN_CONTENT = 16 * 1024
_EDGE = MAX_SHOWN_CONTENT // 2
_CONTEXT = 64 * 1024
"""How much around a shown piece is looked at for secrets that begin or end outside it."""
_MASK_WHOLE = 256 * 1024
MAX_REASONS = 5

_BLANKS = " \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_PADDING = re.compile(rf"[{_BLANKS}]{{24,}}")
_EMPTY_LINES = re.compile(rf"\n(?:[{_BLANKS}]*+\n){{7,}}")
_REPEATED = re.compile(rf"([{HIDDEN_CLASS}])\1{{7,}}", re.DOTALL)
_HIDDEN_IN_LINES = re.compile(rf"(?![\n\t])[{HIDDEN_CLASS}]")


def safe_text(text: str, *, lines: bool = False) -> str:
    """Text that shows all it holds and moves no cursor. `lines` keeps line ends and tabs, for output and content."""
    if text.isascii() and text.isprintable() and "                        " not in text:
        return text
    if lines:
        text = _EMPTY_LINES.sub(lambda found: f"\n[{found.group().count(chr(10))} line ends]\n", text)
    text = _PADDING.sub(lambda found: f" [{len(found.group())} blanks] ", text)
    if lines:
        return _HIDDEN_IN_LINES.sub(lambda found: escaped(found.group()), text)
    text = _REPEATED.sub(lambda found: f"{escaped(found.group(1))} [{len(found.group())} times] ", text)
    return HIDDEN.sub(lambda found: escaped(found.group()), text)


def quote(text: str) -> str:
    """One argument between quotes, so that its ends are visible; secrets masked."""
    shown = safe_text(mask_text(text)).replace("'", "\\'")
    return f"'{shown}'"


def describe(tool_name: str, params: JsonObject | None, verdict: Verdict) -> str:
    """What would happen, in one to a few lines, safe to print."""
    describer = _DESCRIBERS.get(tool_name)
    if describer is None or params is None:
        lines = [f"A call of {quote(tool_name)} that cannot be read."]
    else:
        lines = [describer(params)]
        lines += [
            f"Note: {quote(name)} mixes alphabets; its letters may not be what they look like."
            for name in _names(params)
            if mixed_scripts(name)
        ]
        if tool_name == "write_file" and len(params["content"]) > MAX_SHOWN_CONTENT:
            hidden = len(params["content"]) - MAX_SHOWN_CONTENT
            lines.append(f"Note: the content is long; {hidden} characters in its middle are not shown.")
    reasons = [finding.reason for finding in verdict.findings if finding.level is not VerdictLevel.LOW]
    lines += [safe_text(mask_text(reason)) for reason in reasons[:MAX_REASONS]]
    if len(reasons) > MAX_REASONS:
        lines.append(f"and {len(reasons) - MAX_REASONS} further reasons")
    return "\n".join(lines)


def _names(params: JsonObject) -> list[str]:
    values = [params.get("path"), params.get("command"), *(params.get("args") or ())]
    return [value for value in values if isinstance(value, str)]


def _describe_read(params: JsonObject) -> str:
    start, end = params.get("start_line"), params.get("end_line")
    if start is None and end is None:
        return f"Read {quote(params['path'])}"
    return f"Read lines {start or 1} to {end or 'the last'} of {quote(params['path'])}"


def _describe_write(params: JsonObject) -> str:
    content: str = params["content"]
    size = len(content.encode("utf-8", "surrogatepass"))
    lines = content.count("\n") + (not content.endswith("\n")) if content else 0
    amount = f"{_counted(size, 'byte')}, {_counted(lines, 'line')}"
    if params.get("mode") == "append":
        return f"Append to {quote(params['path'])}: {amount}"
    return f"Write {quote(params['path'])}, replacing the file if there is one: {amount}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _describe_command(params: JsonObject) -> str:
    items = mask_arguments([params["command"], *params.get("args", ())])
    line = " ".join(quote(item) for item in items)
    return f"Run {line} for at most {params.get('timeout', 30)} seconds"


def _describe_list(params: JsonObject) -> str:
    below = " and all below it" if params.get("recursive") else ""
    return f"List {quote(params['path'])}{below}, names like {quote(params.get('pattern', '*'))}"


def _describe_search(params: JsonObject) -> str:
    what = "the regular expression" if params.get("regex") else "the text"
    only = f", only files like {quote(params['glob'])}" if params.get("glob") else ""
    return f"Search {quote(params['path'])} for {what} {quote(params['pattern'])}{only}"


def _describe_web(params: JsonObject) -> str:
    return f"Search the web for {quote(params['query'])}"


_DESCRIBERS: dict[str, Callable[[JsonObject], str]] = {
    "read_file": _describe_read,
    "write_file": _describe_write,
    "execute_command": _describe_command,
    "list_directory": _describe_list,
    "search_files": _describe_search,
    "search_web": _describe_web,
}


def shown_params(tool_name: str, params: JsonObject) -> JsonObject:
    """Parameters for the record and for events: secrets masked, long content shortened and said so."""
    content = params.get("content")
    if tool_name != "write_file" or not isinstance(content, str) or len(content) <= MAX_SHOWN_CONTENT:
        masked = mask_value(params)
        return cast("JsonObject", masked) if isinstance(masked, dict) else {"withheld": masked}
    raw = content.encode("utf-8", "surrogatepass")
    others = {key: value for key, value in params.items() if key != "content"}
    return {
        **shown_params(tool_name, others),
        "content": _shortened(content),
        "content_size": len(raw),
        "content_sha256": hashlib.sha256(raw).hexdigest(),
    }


def _shortened(content: str) -> str:
    left_out = f"\n[… {len(content) - MAX_SHOWN_CONTENT} characters left out …]\n"
    if len(content) <= _MASK_WHOLE:
        masked = mask_text(content)
        return masked if len(masked) <= MAX_SHOWN_CONTENT else f"{masked[:_EDGE]}{left_out}{masked[-_EDGE:]}"
    head = mask_text(content[: _EDGE + _CONTEXT])[:_EDGE]
    tail = mask_text(content[-_EDGE - _CONTEXT :])[-_EDGE:]
    return f"{head}{left_out}{tail}"
