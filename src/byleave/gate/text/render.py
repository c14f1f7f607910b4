"""Render calls and file changes for people, hiding and cutting nothing without saying so.

The text comes from the parameters and from what the machine saw, never from what an agent says about them. A secret is
masked only if it could not act, and the mask says how much it covers (`cover_inert`). Characters that a terminal obeys
or nobody sees appear as `\\x1b` or `\\u{202e}`; long padding is collapsed and counted; every argument is quoted.

A difference holds each text whole or not at all, since half a file would show false changes; `note` says what is not
shown and why. Secrets are masked on both sides, so a change inside one does not show; `note` says that too.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from byleave.protocol.approvals import SeenFile, SeenRole
from byleave.protocol.changes import MAX_SHOWN_TEXT, ChangeKind, ShownChange
from byleave.protocol.tools import MAX_MATCHES, WEB_RESULTS
from byleave.protocol.verdicts import Verdict, VerdictLevel
from byleave.protocol.wire import JsonObject

from .characters import HIDDEN, HIDDEN_CLASS, deceptive_in, escaped, hidden_in, mixed_scripts
from .differences import unified
from .secrets import (
    MASK_PREFIX,
    MAX_SHOWN_CONTENT,
    Cover,
    cover_inert,
    cover_key,
    cover_nothing,
    mask_arguments,
    mask_text,
    masked_params,
)

MAX_REASONS = 5
MAX_TOLD_CONTENT = 300
_MOST_QUOTED = 4096

_OTHER_BLANKS = "\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_BLANKS = f" {_OTHER_BLANKS}"
_MUCH = 24
_PADDING = re.compile(rf"[{_BLANKS}]{{{_MUCH},}}")
# Indentation hides nothing until it leaves the screen.
_PADDING_IN_LINES = re.compile(rf"(?<![{_BLANKS}\n])[{_BLANKS}]{{{_MUCH},}}|[{_BLANKS}]{{80,}}")
_UNSEEN = re.compile(rf"[{_BLANKS}{HIDDEN_CLASS}]{{{_MUCH},}}", re.DOTALL)
_EMPTY_LINES = re.compile(rf"\n(?:(?:(?!\n)[{_BLANKS}{HIDDEN_CLASS}])*+\n){{7,}}", re.DOTALL)
_REPEATED = re.compile(rf"([{HIDDEN_CLASS}])\1{{7,}}", re.DOTALL)
# Within quotes. Other blanks look like an ordinary space.
_LONG_RUN = re.compile(rf"[{_BLANKS}{HIDDEN_CLASS}]{{{_MUCH},}}|([{HIDDEN_CLASS}])\1{{7,}}", re.DOTALL)
_SPELLED_OUT = re.compile(f"[{_OTHER_BLANKS}{HIDDEN_CLASS}]")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_HIDDEN_IN_LINES = re.compile(rf"(?![\n\t])[{HIDDEN_CLASS}]")


def safe_text(text: str, *, lines: bool = False) -> str:
    """Make text safe to print: hidden and control characters are spelled out. `lines` keeps line ends and tabs."""
    if text.isascii() and text.isprintable() and " " * _MUCH not in text:
        return text
    if lines:
        text = _EMPTY_LINES.sub(lambda found: f"\n[{found.group().count(chr(10))} line ends]\n", text)
        text = _PADDING_IN_LINES.sub(_blanks, text)
        return _HIDDEN_IN_LINES.sub(lambda found: escaped(found.group()), text)
    text = _PADDING.sub(_blanks, text)
    text = _REPEATED.sub(lambda found: f"{escaped(found.group(1))} [{len(found.group())} times] ", text)
    text = _UNSEEN.sub(lambda found: f" [{len(found.group())} blank or hidden characters] ", text)
    return HIDDEN.sub(lambda found: escaped(found.group()), text)


def _blanks(found: re.Match[str]) -> str:
    return f" [{len(found.group())} blanks] "


def quote(text: str, cover: Cover = cover_inert) -> str:
    r"""Quote one argument, so that its ends are visible; mask its secrets.

    Apart from masks, two different texts never look the same. A written backslash is always doubled, so a single one
    marks an escape: `\n` is a line end, `\\n` a backslash and an n. Long invisible runs appear as `\[2000 spaces]`.
    """
    shown = mask_text(text, cover).replace("\\", "\\\\").replace("'", "\\'")
    if not (shown.isascii() and shown.isprintable() and " " * _MUCH not in shown):
        shown = _LONG_RUN.sub(lambda found: f"\\[{_run(found.group())}]", shown)
        shown = _SPELLED_OUT.sub(lambda found: escaped(found.group()), shown)
    return f"'{shown}'"


def _word(text: str, cover: Cover = cover_nothing) -> str:
    """An argument or a path as it would be typed: quoted only where it could be misread."""
    return text if _PLAIN_WORD.fullmatch(text) and mask_text(text, cover) == text else quote(text, cover)


def _run(unseen: str) -> str:
    if unseen.count(unseen[0]) == len(unseen):
        return f"{len(unseen)} spaces" if unseen[0] == " " else f"{len(unseen)} times {escaped(unseen[0])}"
    # Spelling out a mixed run would take as long as the run itself.
    digest = hashlib.sha256(unseen.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{len(unseen)} blank or hidden characters, SHA-256 {digest}"


def quoted(text: str, limit: int = 120) -> str:
    """Quote a name for a sentence: visible, shortened, masked as in a question; the record masks more."""
    masked = mask_text(text[:_MOST_QUOTED], cover_inert)
    shown = masked[:limit]
    if hidden_in(shown) is not None:
        shown = "".join(escaped(c) if hidden_in(c) else c for c in shown)
    return f"'{shown}'" if len(masked) <= limit else f"'{shown}…'"


def call_lines(tool_name: str, params: JsonObject | None) -> list[str]:
    """The call on the first line, then notes that a person must see before an answer; safe to print."""
    describer = _DESCRIBERS.get(tool_name)
    if describer is None or params is None:
        # The gate has already escaped such a name.
        return [f"A call of '{safe_text(mask_text(tool_name, cover_inert))}' that cannot be read."]
    return [describer(params), *_notes(tool_name, params)]


def describe(tool_name: str, params: JsonObject | None, verdict: Verdict, cover: Cover = cover_key) -> str:
    """Describe a call with all reasons for its level, safe to print. `cover` is for the content of a write."""
    lines = call_lines(tool_name, params)
    if params is not None and tool_name in _DESCRIBERS:
        lines[1:1] = _content(tool_name, params, verdict, cover)
    reasons = [finding.reason for finding in verdict.findings if finding.level is not VerdictLevel.LOW]
    lines += [safe_text(mask_text(reason, cover_inert)) for reason in reasons[:MAX_REASONS]]
    if len(reasons) > MAX_REASONS:
        lines.append(f"and {len(reasons) - MAX_REASONS} further reasons")
    return "\n".join(lines)


def headline(tool_name: str, params: JsonObject) -> str:
    """The first line of `describe`, for a call that was judged before."""
    return _DESCRIBERS[tool_name](params)


MAX_TOLD_EDIT = 16 * 1024
"""Longest difference that an agent is told."""


def describe_edit(tool_name: str, asked: JsonObject, params: JsonObject) -> str:
    """Tell an agent what the user changed in its call. Both sides are the record's: masked, long content shortened."""
    begins = "The user changed this call before deciding on it. "
    if tool_name != "write_file":
        return f"{begins}Instead of: {headline(tool_name, asked)}. As changed: {headline(tool_name, params)}."
    begins += "Their content differs from yours. "
    difference = "\n".join(unified(str(asked.get("content")).split("\n"), str(params.get("content")).split("\n")))
    if "content_size" in asked or "content_size" in params or not 0 < len(difference) <= MAX_TOLD_EDIT:
        return f"{begins}Read the file to see it."
    return f"{begins}- is yours, + is theirs:\n{difference}"


def _content(tool_name: str, params: JsonObject, verdict: Verdict, cover: Cover) -> list[str]:
    """The content of a HIGH write, if it is short: all of it, never a part."""
    content = params.get("content")
    if tool_name != "write_file" or verdict.level is not VerdictLevel.HIGH or not isinstance(content, str):
        return []
    return [f"Content: {quote(content, cover)}"] if 0 < len(content) <= MAX_TOLD_CONTENT else []


def _notes(tool_name: str, params: JsonObject) -> list[str]:
    """Notes on a call that a person should see whatever its level."""
    notes = [
        f"{quote(name)} mixes alphabets; it may not be what it looks like. One letter is {_letter(letter)}."
        for name in _names(params)
        if (letter := mixed_scripts(name)) is not None
    ]
    small = {name: value for name, value in params.items() if name != "content"}
    if MASK_PREFIX in str(masked_params(tool_name, small, cover_inert)) and MASK_PREFIX not in str(small):
        where = "; it would be sent outside" if tool_name == "search_web" else ""
        notes.append(f"What looks like a secret is masked here, the call holds the real one{where}.")
    content = params.get("content")
    if tool_name == "write_file" and isinstance(content, str):
        trick = deceptive_in(content.removeprefix("\ufeff"))
        if trick is not None:
            notes.append(f"The content holds characters that hide or reorder text, such as {escaped(trick)}.")
        if len(content) > MAX_SHOWN_CONTENT:
            hidden = len(content) - MAX_SHOWN_CONTENT
            notes.append(
                f"The content is long; {hidden} characters in its middle are not shown. "
                "See all of it before you allow it."
            )
    return notes


def _letter(letter: str) -> str:
    return f"{unicodedata.name(letter, 'unnamed').lower()} (U+{ord(letter):04X})"


def _names(params: JsonObject) -> list[str]:
    values = [params.get("path"), params.get("glob"), params.get("command"), *(params.get("args") or ())]
    return [value for value in values if isinstance(value, str)]


def _describe_read(params: JsonObject) -> str:
    start, end = params.get("start_line"), params.get("end_line")
    if start is None and end is None:
        return f"Read {_word(params['path'])}"
    return f"Read lines {start or 1} to {end or 'the last'} of {_word(params['path'])}"


def _describe_write(params: JsonObject) -> str:
    content: str = params["content"]
    size = len(content.encode("utf-8", "surrogatepass"))
    amount = f"{_counted(size, 'byte')}, {_counted(_line_count(content), 'line')}"
    if params.get("mode") == "append":
        return f"Append to {_word(params['path'])}: {amount}"
    return f"Write {_word(params['path'])}: {amount}"


def _line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _describe_command(params: JsonObject) -> str:
    items = mask_arguments([params["command"], *params.get("args", ())], cover_inert)
    return f"Run {' '.join(map(_word, items))} · up to {_time(params.get('timeout', 30))}"


def _time(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 and seconds % 60 == 0 else f"{seconds} s"


def _describe_list(params: JsonObject) -> str:
    below = " and all below it" if params.get("recursive") else ""
    return f"List {_word(params['path'])}{below}, names like {quote(params.get('pattern', '*'))}"


def _describe_search(params: JsonObject) -> str:
    what = "the regular expression" if params.get("regex") else "the text"
    only = f", only files like {quote(params['glob'])}" if params.get("glob") else ""
    case = "" if params.get("case_sensitive", True) else ", upper and lower case alike"
    most = _at_most(params, MAX_MATCHES)
    return f"Search {_word(params['path'])} for {what} {quote(params['pattern'])}{case}{only}{most}"


def _describe_web(params: JsonObject) -> str:
    return f"Search the web for {quote(params['query'])}{_at_most(params, WEB_RESULTS)}"


def _at_most(params: JsonObject, usual: int) -> str:
    most = params.get("max_results", usual)
    return "" if most == usual else f", at most {_counted(most, 'result')}"


_DESCRIBERS: dict[str, Callable[[JsonObject], str]] = {
    "read_file": _describe_read,
    "write_file": _describe_write,
    "execute_command": _describe_command,
    "list_directory": _describe_list,
    "search_files": _describe_search,
    "search_web": _describe_web,
}


def full_text(tool_name: str, params: JsonObject, cover: Cover = cover_key, files: Sequence[SeenFile] = ()) -> str:
    """The whole call, nothing left out: every parameter, every argument, every line; safe to print.

    With `cover_nothing` nothing is masked either. The text of `files` is shown as it comes.
    """
    lines = [safe_text(mask_text(tool_name, cover))]
    for name, value in masked_params(tool_name, params, cover).items():
        label = safe_text(str(name))
        if value is None:  # it was not given
            continue
        if isinstance(value, str) and "\n" in value:
            size = len(value.encode("utf-8", "surrogatepass"))
            lines.append(f"{label} ({_counted(size, 'byte')}, {_counted(_line_count(value), 'line')}):")
            lines += [f"  | {line}" for line in safe_text(value, lines=True).split("\n")]
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            lines.append(f"{label} ({len(items)}):")
            lines += [f"  {number}: {quote(str(item), cover_nothing)}" for number, item in enumerate(items, 1)]
        else:
            lines.append(f"{label}: {quote(value, cover_nothing) if isinstance(value, str) else safe_text(str(value))}")
    return "\n".join([*lines, *file_lines(files)])


def file_lines(files: Sequence[SeenFile]) -> list[str]:
    """The files that a call would run or replace, with all of their text that is known; safe to print."""
    lines: list[str] = []
    for file in files:
        name, text = quote(file.path, cover_nothing), file.text or file.note
        if file.sha256 == MISSING:
            lines += ["", f"{name}: not there"]
            continue
        lines += ["", f"{name} (sha256 {safe_text(file.sha256)}){':' if text else ', empty' if file.size == 0 else ''}"]
        lines += [f"  | {line}" for line in safe_text(text, lines=True).split("\n")] if text else []
        if file.shortened and file.role is SeenRole.RUNS:
            lines.append("(only its beginning is here: the whole file is on the machine)")
    return lines


MISSING = "missing"
NOT_LOOKED = (
    "No machine has looked at the file: what it holds now is not known, and is not compared before it is written."
)
_MAX_SAFE = 2 * MAX_SHOWN_TEXT
_MAX_NOTE = 1000


@dataclass(frozen=True, slots=True)
class Write:
    """The known parts of a write."""

    path: str
    append: bool
    content: str | None
    """The content to write; None if not all of it is at hand."""
    seen: SeenFile | None
    """The file that a machine saw at the path; None if none has looked."""
    text: str | None
    """The current text of the file, masked; None if it is not shown."""
    cover: Cover = cover_key


def write_change(write: Write) -> ShownChange:
    """Show a write as the text before and after, with notes on what is not shown."""
    notes: list[str] = []
    before = _before(write, notes)
    after = _after(write, before, notes)
    if before is not None and after is not None:
        if before == after and _differs(write):
            notes.append("What changes is masked: it looks like a secret.")
        elif MASK_PREFIX in before and MASK_PREFIX in after:
            notes.append("Secrets are masked on both sides; a change inside one does not show.")
    is_new = write.seen is not None and write.seen.sha256 == MISSING
    return ShownChange(
        path=safe_text(write.path)[:4096],
        kind=ChangeKind.CREATE if is_new else ChangeKind.CHANGE,
        before=None if is_new else _safe(before, notes),
        after=_safe(after, notes),
        note=" ".join(dict.fromkeys(notes))[:_MAX_NOTE] or None,
    )


def _before(write: Write, notes: list[str]) -> str | None:
    seen = write.seen
    if seen is None:
        return None  # the question says so
    if seen.sha256 == MISSING or seen.size == 0:
        return ""
    if write.text is None:
        notes.append(f"What it holds now: {safe_text(seen.note)}" if seen.note else "What it holds now is not kept.")
    return write.text


def _after(write: Write, before: str | None, notes: list[str]) -> str | None:
    if write.content is None:
        notes.append("What would be written is too long to be shown here; all of it is shown apart.")
        return None
    if not write.append:
        return _masked_text(write.content, write.cover, notes)
    if before is None:
        notes.append("The whole file as it would be cannot be shown; what would be added is shown apart.")
        return None
    if before and not before.endswith("\n") and write.content:
        notes.append("The file does not end with a newline: what is added continues its last line.")
    return _masked_text(before + write.content, write.cover, notes)


def _masked_text(text: str, cover: Cover, notes: list[str]) -> str | None:
    if len(text) > MAX_SHOWN_TEXT:
        notes.append("The file as it would be is too long to be shown here; what would be written is shown apart.")
        return None
    return mask_text(text, cover)


def _safe(text: str | None, notes: list[str]) -> str | None:
    shown = None if text is None else safe_text(text, lines=True)
    if shown is not None and len(shown) > _MAX_SAFE:
        notes.append("It holds too many characters that nobody sees to be shown here.")
        return None
    return shown


def _differs(write: Write) -> bool:
    """True if the content really changes, by the seen digest and not by the masked text."""
    if write.append or write.content is None or write.seen is None:
        return bool(write.content)
    raw = write.content.encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest() != write.seen.sha256
