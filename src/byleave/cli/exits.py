"""Exit codes, the same for every command."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script can tell from the end of a command."""

    OK = 0
    """Done, or stopped as asked (Ctrl-C or SIGTERM of something that serves)."""
    FAILED = 1
    """Refused or failed; the sentence on stderr says why."""
    USAGE = 2
    """The command was not written as its help says."""
    UNREACHABLE = 3
    """The server cannot be reached."""
    INTERRUPTED = 130
    """Ctrl-C before it was done."""
