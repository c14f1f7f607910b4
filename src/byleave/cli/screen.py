r"""What people and scripts see: data on stdout, messages on stderr.

Everything that comes from a server, a file or an agent passes `shown`, which makes control and bidi characters
visible. JSON is written in ASCII: a terminal can obey nothing in it. Colour only underlines what the words say, and
is left out where `NO_COLOR` is set or nobody looks.

When something was, as a person reads it: by the clock on this machine's wall.

Records keep UTC, and so does JSON. What cannot be read as a moment is shown as it stands, made safe: it came from a
server or a file. Nothing here decides anything by a time.
"""

import json
import sys
from typing import TYPE_CHECKING, Any

from byleave.gate import safe_text

if TYPE_CHECKING:  # Rich is loaded with the first line for people: what writes JSON alone starts without it
    from rich.console import Console
    from rich.text import Text
from byleave.protocol.wire import moment

RISK_STYLES = {"LOW": "green", "MEDIUM": "yellow", "HIGH": "bold red", "REFUSE": "bold red"}


def shown(text: str) -> str:
    """Text from elsewhere, safe on a terminal; lines and tabs stay."""
    return safe_text(text, lines=True)


def shortened(text: str, limit: int = 100) -> str:
    """One safe line of at most `limit` characters that says when something is left out."""
    line = safe_text(" ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def out() -> "Console":
    """Where data goes."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)


def err() -> "Console":
    """Where messages go."""
    from rich.console import Console

    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def put(text: "str | Text") -> None:
    """One line of data."""
    out().print(text)
    sys.stdout.flush()


def put_json(value: Any) -> None:
    """One line of JSON."""
    sys.stdout.write(f"{json.dumps(value, separators=(', ', ': '))}\n")
    sys.stdout.flush()


def say(text: "str | Text") -> None:
    """One message."""
    err().print(text)


def complain(message: str, hint: str | None = None) -> None:
    """An error: one sentence, and what to do."""
    from rich.text import Text

    say(Text.assemble(("error: ", "bold red"), shown(message)))
    if hint:
        say(Text.assemble(("hint: ", "bold"), shown(hint)))


def wall_time(at: str) -> str:
    """Date and time in this machine's own zone, to the second."""
    try:
        return moment(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return shown(at[:19])
