"""Output for people and scripts: data on stdout, messages on stderr.

All text from a server, a file or an agent passes `shown`, which makes control and bidi characters visible. JSON is
ASCII: a terminal can obey nothing in it. Colour only supports the words, and is off if `NO_COLOR` is set or the output
is not a terminal. Records and JSON use UTC; people see local time.
"""

import json
import shlex
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from byleave.gate import safe_text
from byleave.protocol.errors import CallerError
from byleave.protocol.wire import JsonObject, moment

if TYPE_CHECKING:  # Rich is imported with the first line for people: JSON output starts without it
    from rich.console import Console
    from rich.text import Text

RISK_STYLES = {"LOW": "green", "MEDIUM": "yellow", "HIGH": "bold red", "REFUSE": "bold red"}


def shown(text: str) -> str:
    """Make foreign text safe for a terminal; lines and tabs stay."""
    return safe_text(text, lines=True)


def shortened(text: str, limit: int = 100) -> str:
    """Return one safe line of at most `limit` characters, marked if it was cut."""
    line = safe_text(" ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)


def put(text: "str | Text", *, end: str = "\n") -> None:
    """Print a line of data, or with another `end` a part of one."""
    _console(stderr=False).print(text, end=end)
    sys.stdout.flush()


def put_json(value: Any) -> None:
    """Print a line of JSON."""
    sys.stdout.write(f"{json.dumps(value, separators=(', ', ': '))}\n")
    sys.stdout.flush()


def say(text: "str | Text") -> None:
    """Print a message."""
    _console(stderr=True).print(text)


def complain(message: str, hint: str | None = None) -> None:
    """Print an error: one sentence, and what to do."""
    from rich.text import Text

    say(Text.assemble(("error: ", "bold red"), shown(message)))
    if hint:
        say(Text.assemble(("hint: ", "bold"), shown(hint)))


def qr_code(rows: Sequence[str]) -> "Text":
    """Draw a QR code, two rows of modules in a line: dark on light whatever the terminal's colours are."""
    from rich.text import Text

    wide = "0" * (len(rows[0]) + 2 * QR_BORDER)
    framed = [wide] * QR_BORDER + [f"{'0' * QR_BORDER}{row}{'0' * QR_BORDER}" for row in rows] + [wide] * QR_BORDER
    framed += [wide] * (len(framed) % 2)
    pairs = zip(framed[::2], framed[1::2], strict=True)
    # The blocks are the light modules: without colour that is right on a dark terminal, as most are.
    lines = ("".join(QR_BLOCKS[up + down] for up, down in zip(*pair, strict=True)) for pair in pairs)
    return Text("\n".join(lines), style="color(231) on color(16)")


QR_BORDER = 2
QR_BLOCKS = {"00": "█", "01": "▀", "10": "▄", "11": " "}


def agreed(question: str, *, refusal: str, hint: str) -> bool:
    """Ask on the terminal; only a `y` agrees. Raise `refusal` without a terminal."""
    if not sys.stdin.isatty():
        raise CallerError(refusal, hint=hint)
    with suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # drop input typed before the question
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:  # the input was closed: end the line of the question
        say("")
    return answer.strip().lower() in ("y", "yes")


def wall_time(at: str) -> str:
    """Format a timestamp in local time, to the second; an invalid one is returned as safe text."""
    try:
        return moment(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return shown(at[:19])


def short_time(at: str) -> str:
    """Format a timestamp in local time for a list, as `ls` does: without the year if it is this one."""
    try:
        then = moment(at).astimezone()
    except (ValueError, OverflowError):
        return shown(at[:12])
    is_recent = then.year == datetime.now().astimezone().year
    return f"{then:%b} {then.day:>2} {then:%H:%M}" if is_recent else f"{then:%b} {then.day:>2}  {then:%Y}"


# Calls and results in words

NAMED_FILES = 5


def call_summary(tool_name: str, params: JsonObject) -> str:
    """Describe a call in one line, not yet safe to print."""
    if tool_name == "execute_command":
        arguments: Any = params.get("args")
        words = cast("list[Any]", arguments) if isinstance(arguments, list) else []
        detail = shlex.join(str(word) for word in [params.get("command"), *words])
    else:
        detail = str(next((params[name] for name in ("path", "query") if name in params), ""))
        if tool_name == "search_files":
            detail = f"{shlex.quote(str(params.get('pattern')))} in {detail or '.'}"
    return f"{tool_name} {detail}".rstrip()


def counted(number: object, one: str, many: str) -> str:
    """Format a number with its noun; `?` if unknown."""
    return f"{'?' if number is None else number} {one if number == 1 else many}"


def changed_files(result: JsonObject) -> str:
    """Describe the files a call changed, safe to print; empty if none."""
    files = [cast(JsonObject, item) for item in items_of(result.get("changed")) if isinstance(item, dict)]
    reported: Any = result.get("changed_count")
    count = max(len(files), reported if isinstance(reported, int) else 0)
    if count == 0:
        return ""
    names = [_changed_name(file) for file in files[:NAMED_FILES]]
    if count > len(names):
        names.append(f"{count - len(names)} more")
    return f"changed {counted(count, 'file', 'files')}: {', '.join(names)}"


def warnings_of(result: JsonObject) -> list[str]:
    """Return the warnings of a result, safe to print."""
    return [shortened(str(warning), 500) for warning in items_of(result.get("warnings"))]


def _changed_name(file: JsonObject) -> str:
    # Quoted, so that one name cannot pass for two.
    name, change = shortened(shlex.quote(str(file.get("path"))), 120), file.get("change")
    return name if change == "changed" else f"{name} ({shortened(str(change), 20)})"


def items_of(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
