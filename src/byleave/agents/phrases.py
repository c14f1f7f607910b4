"""What the offline agent understands: plain phrases in, tool calls out.

One step per line, or joined with "then VERB". Text inside quotes is never taken apart, and neither is the body of a
write: whatever stands in it stays text and cannot become a command. Nothing here judges a call; the gate does, as for
every other model.
"""

import functools
import re
import shlex
from dataclasses import dataclass

from byleave.protocol.tools import MAX_COMMAND_SECONDS
from byleave.protocol.wire import JsonObject

MAX_STEPS = 40
"""More than this in one message is not attempted; a run has 50 steps in all."""

MAX_PHRASE_CHARACTERS = 2000
"""A longer line (outside the body of a write) is not a phrase."""


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call."""

    tool_name: str
    params: JsonObject
    field: str | None = None
    """With a read: the one value that was asked for, such as `version`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a message asks for. With `unclear`, nothing of it is done."""

    steps: tuple[Step, ...]
    unclear: str | None = None


_POLITE = re.compile(
    r"(?:[-*•]|\d+[.)]|(?:please|kindly|hey|hi|hello|ok|okay|now|so|first|next|finally|and|then|also|(?:can|could|would|"
    r"will) you|i want you to|i'd like you to|let's|let us)\b[,:!]?)\s+",
    re.IGNORECASE,
)
_VERB = (
    r"(?:please\s+)?(?:read|show(?!\s+me\s+(?:the|its|what)\b)|open|cat|print|display|what|list|ls|search|find|grep|look|"
    r"google|write|save|create|append|add|run|execute)\b"
)
# Possessive (`++`) wherever blanks repeat: a message full of blanks must not cost more than its length.
_THEN = rf"(?:and[ \t]++)?then[ \t]++(?={_VERB})"
_PIECE = re.compile(
    r"\"[^\"\n]*\"|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)"
    rf"|(?P<cut>\n|(?:[,;][ \t]++|(?<![ \t])[ \t]++){_THEN}|;[ \t]*+(?={_VERB}))|.",
    re.IGNORECASE,
)
_NEXT_STEP = re.compile(rf"[ \t]*+[,;.]?[ \t]*+(?:\r?\n|$|{_THEN})", re.IGNORECASE)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”"}

_NAME = r"(?P<path>\"[^\"]+\"|'[^']+'|`[^`]+`|\S+)"
_THE = r"(?:(?:the|my|our|this)\s+)?(?:(?:file|folder|directory)\s+)?"
_READ = r"(?:read|open|cat|print|display|check|look\s+(?:at|in|into)|show(?:\s+me)?)"
_HERE = {"here", "directory", "folder", "project", "workspace", "root", "files", "everything", "it"}
_SLOW = {"npm", "node", "python", "python3", "gcc"}
"""Commands whose usual work takes longer than the default 30 seconds."""


def _phrase(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_BODY_FOLLOWS = (
    _phrase(
        r"(?P<verb>write|save|create|append|add)\s+(?:(?:in|on)?to\s+)?" + _THE + r"(?P<path>\"[^\"\n]+\"|'[^'\n]+'|"
        r"`[^`\n]+`|[^\s\"'`:]\S*?)\s*:(?:[ \t]|\r?\n|$)"
    ),
    _phrase(
        r"(?P<verb>write|save|create|append|add)\s+(?:(?:in|on)?to\s+)?" + _THE + r"(?P<path>[^\s\"'`:]+):(?=\S)",
    ),
)
_FIELD = _phrase(
    _READ + r"\s+" + _THE + _NAME + r"(?:\s+file)?,?\s+(?:and\s+then|and|then)\s+(?:tell|give|show)\s+me\s+"
    r"(?:what\s+is\s+the\s+|what\s+the\s+|what\s+its\s+|the\s+|its\s+|what\s+)?(?P<field>[\w.-]+)"
    r"(?:\s+(?:is|it\s+(?:is|has|says)|number|field))?"
)
_FIELD_IN = _phrase(
    r"(?:what(?:'s|\s+is)?|which|tell\s+me|give\s+me|show\s+me)\s+(?:the\s+)?(?P<field>[\w.-]+)\s+"
    r"(?:number\s+)?(?:is\s+)?(?:in|of|from)\s+" + _THE + _NAME
)
_LINES = _phrase(
    _READ + r"\s+(?:the\s+)?lines?\s+(?P<first>\d{1,9})(?:\s*(?:-|to)\s*(?P<last>\d{1,9}))?\s+(?:of|from|in)\s+"
    + _THE + _NAME
)  # fmt: skip
_WHOLE = _phrase(_READ + r"\s+" + _THE + _NAME + r"(?:\s+file)?")
_LIST = _phrase(
    r"(?:list|ls)(?:\s+(?:all\s+)?(?:the\s+)?(?:files|contents)(?:\s+(?:in|of|under|below))?)?"
    r"(?:\s+(?!recursively\b)" + _THE + _NAME + r")?(?P<deep>\s+recursively)?"
)
_WEB = _phrase(
    r"(?:(?:search|look)\s+(?:on\s+|in\s+|up\s+on\s+)?(?:the\s+)?(?:web|internet|online)\s*(?:for\s+|:\s*|\s)|"
    r"web\s+search\s+(?:for\s+)?|google\s+(?:for\s+)?)(?P<query>.+)"
)
_SEARCH_THERE = _phrase(r"(?:search|grep|look)\s+(?:in\s+)?" + _THE + r"(?!for\s)" + _NAME + r"\s+for\s+(?P<what>.+)")
_SEARCH = _phrase(
    r"(?:search|find|grep|look)\s+(?:for\s+)?(?:(?:the\s+)?(?:word|text|string)\s+)?"
    r"(?P<what>\"[^\"]+\"|'[^']+'|`[^`]+`|.+?)(?:(?<!\s)\s++(?:in|under|below|inside)\s++(?:all\s+)?"
    + _THE
    + _NAME
    + r")?"
)
_RUN = _phrase(r"(?:run|execute)\s+(?:(?:the\s+)?command\s+)?(?P<line>.+)")


@functools.lru_cache(maxsize=256)  # asked again at every step of a run
def understand(message: str) -> Plan:
    """The steps of a message; none for a message that asks for nothing this agent knows."""
    steps: list[Step] = []
    rest = _without_courtesy(message.strip())
    while rest:
        written = _written(rest)
        if written is not None:
            step, rest = written
        else:
            segment, rest = _first_segment(rest)
            step = _step(segment)
            if step is None:
                return Plan((), unclear=segment)
        steps.append(step)
        if len(steps) > MAX_STEPS:
            return Plan((), unclear=f"more than {MAX_STEPS} steps at once")
        rest = _without_courtesy(rest)
    return Plan(tuple(steps))


def _without_courtesy(text: str) -> str:
    text = text.lstrip(" \t\r\n,;")
    while match := _POLITE.match(text):
        text = text[match.end() :]
    return text


def _first_segment(text: str) -> tuple[str, str]:
    """Up to the end of the line or to "then VERB", whichever comes first outside quotes."""
    for piece in _PIECE.finditer(text):
        if piece.group("cut") is not None:
            return text[: piece.start()].strip(), text[piece.end() :]
    return text.strip(), ""


def _written(text: str) -> tuple[Step, str] | None:
    """A write or append at the start of the text, and what follows it."""
    match = next((found for pattern in _BODY_FOLLOWS if (found := pattern.match(text))), None)
    if match is None:
        return None
    body, rest = _body(text[match.end() :])
    append = match.group("verb").lower() in ("append", "add")
    if append and not body.endswith("\n"):
        body += "\n"  # so that what is appended next starts on a line of its own
    params: JsonObject = {"path": _bare(match.group("path")), "content": body}
    if append:
        params["mode"] = "append"
    return Step("write_file", params), rest


def _body(text: str) -> tuple[str, str]:
    """A body in quotes ends with them, if a step or nothing follows; any other body is all there is."""
    closing = _QUOTES.get(text[:1])
    end = text.find(closing, 1) if closing is not None else -1
    if end > 0 and _NEXT_STEP.match(text, end + 1):
        return text[1:end], text[end + 1 :]
    return text, ""


def _step(segment: str) -> Step | None:
    """One phrase, or None."""
    if len(segment) > MAX_PHRASE_CHARACTERS:
        return None
    segment = re.sub(r"(?:,\s*+|(?<!\s)\s++)please\s*+[.!?]*+$", "", segment, flags=re.IGNORECASE)
    if match := _RUN.fullmatch(segment):
        return _command(match.group("line"))
    segment = re.sub(r"(?<=[\w\"'`)])\.$", "", segment.rstrip("!? \t"))
    if match := _WEB.fullmatch(segment):
        return Step("search_web", {"query": _bare(match.group("query").strip())})
    return _reading(segment) or _listing(segment) or _searching(segment)


def _reading(segment: str) -> Step | None:
    if match := _LINES.fullmatch(segment):
        first = int(match.group("first"))
        last = int(match.group("last") or first)
        return Step("read_file", {"path": _bare(match.group("path")), "start_line": first, "end_line": last})
    for pattern in (_FIELD, _FIELD_IN):
        if match := pattern.fullmatch(segment):
            return Step("read_file", {"path": _bare(match.group("path"))}, field=match.group("field"))
    if match := _WHOLE.fullmatch(segment):
        return Step("read_file", {"path": _bare(match.group("path"))})
    return None


def _listing(segment: str) -> Step | None:
    match = _LIST.fullmatch(segment)
    if match is None:
        return None
    params: JsonObject = {"path": _place(match.group("path"))}
    if match.group("deep"):
        params["recursive"] = True
    return Step("list_directory", params)


def _searching(segment: str) -> Step | None:
    match = _SEARCH_THERE.fullmatch(segment) or _SEARCH.fullmatch(segment)
    if match is None:
        return None
    return Step("search_files", {"pattern": _bare(match.group("what")), "path": _place(match.group("path"))})


def _command(line: str) -> Step:
    """A command line as a list of arguments. Nothing in it is expanded: there is no shell anywhere."""
    line = line.strip()
    if len(line) > 1 and line[0] == line[-1] == "`":
        line = line[1:-1]
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    command, args = (words[0], words[1:]) if words else ("", [])
    params: JsonObject = {"command": command, "args": args}
    if command in _SLOW:
        params["timeout"] = MAX_COMMAND_SECONDS
    return Step("execute_command", params)


def _bare(name: str) -> str:
    """Without the quotes around it."""
    if len(name) > 2 and _QUOTES.get(name[0]) == name[-1]:
        return name[1:-1]
    return name.rstrip(",;") or name


def _place(path: str | None) -> str:
    return "." if path is None or path.lower() in _HERE else _bare(path)
