"""Output for people and scripts: data on stdout, messages on stderr.

All text from a server, a file or an agent passes `shown`, which makes control and bidi characters visible. JSON is
ASCII: a terminal can obey nothing in it. Colour only supports the words, and is off if `NO_COLOR` is set or the output
is not a terminal. Records and JSON use UTC; people see local time.
"""

import json
import sys
from typing import TYPE_CHECKING, Any

from byleave.gate import safe_text

if TYPE_CHECKING:  # Rich is imported with the first line for people: JSON output starts without it
    from rich.console import Console
    from rich.text import Text
from byleave.protocol.wire import moment

RISK_STYLES = {"LOW": "green", "MEDIUM": "yellow", "HIGH": "bold red", "REFUSE": "bold red"}


def shown(text: str) -> str:
    """Make foreign text safe for a terminal; lines and tabs stay."""
    return safe_text(text, lines=True)


def shortened(text: str, limit: int = 100) -> str:
    """Return one safe line of at most `limit` characters, marked if it was cut."""
    line = safe_text(" ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def out() -> "Console":
    """Console of data."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)


def err() -> "Console":
    """Console of messages."""
    from rich.console import Console

    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def put(text: "str | Text") -> None:
    """Print a line of data."""
    out().print(text)
    sys.stdout.flush()


def put_json(value: Any) -> None:
    """Print a line of JSON."""
    sys.stdout.write(f"{json.dumps(value, separators=(', ', ': '))}\n")
    sys.stdout.flush()


def say(text: "str | Text") -> None:
    """Print a message."""
    err().print(text)


def complain(message: str, hint: str | None = None) -> None:
    """Print an error: one sentence, and what to do."""
    from rich.text import Text

    say(Text.assemble(("error: ", "bold red"), shown(message)))
    if hint:
        say(Text.assemble(("hint: ", "bold"), shown(hint)))


def wall_time(at: str) -> str:
    """Format a timestamp in local time, to the second; an invalid one is returned as safe text."""
    try:
        return moment(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return shown(at[:19])
