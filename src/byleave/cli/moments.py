"""When something was, as a person reads it: by the clock on this machine's wall.

Records keep UTC, and so does JSON. What cannot be read as a moment is shown as it stands, made safe: it came from a
server or a file. Nothing here decides anything by a time.
"""

from byleave.protocol.wire import moment

from .screen import shown


def wall_time(at: str) -> str:
    """Date and time in this machine's own zone, to the second."""
    try:
        return moment(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return shown(at[:19])
