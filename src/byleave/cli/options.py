"""Options, exit codes and ways to run that the commands share.

Loaded by every command, so it imports nothing heavy: `byleave --help` and `byleave version` start at once.
"""

from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON on stdout.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every step to stderr.")]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The server; else BYLEAVE_SERVER_URL, else `byleave up` here."),
]
ProjectId = Annotated[
    str | None, typer.Option("--project", metavar="ID", help="The project; needed when you have several.")
]


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


def new_app() -> typer.Typer:
    """A Typer app for one command or one group of them."""
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


def log_from(level: int, *, verbose: bool = False) -> None:
    """Log to stderr from this level on."""
    from .logs import set_up_logging

    set_up_logging(level, verbose=verbose)


def run(work: Coroutine[Any, Any, ExitCode | None]) -> None:
    """Run a short command to its end and leave with its exit code."""
    from .loop import run_short

    raise typer.Exit(run_short(work) or ExitCode.OK)


def called_alone(context: typer.Context, *, given: bool, names: str) -> bool:
    """Whether the group itself was called; its options belong after a subcommand's name."""
    if context.invoked_subcommand is None:
        return True
    if given:
        raise typer.BadParameter(f"write it after `{context.invoked_subcommand}`", param_hint=names)
    return False


@contextmanager
def needs_extra(extra: str, what: str) -> Generator[None]:
    """Turn a missing library into a sentence that names the extra which brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "byleave":
            raise  # our own module is missing: that is a fault of ours, not of the installation
        from byleave.protocol.errors import ConfigurationError

        raise ConfigurationError(f"This needs {what}.", hint=f"in a checkout: pip install '.[{extra}]'") from error
