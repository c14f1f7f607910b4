"""Options and exit codes shared by the commands.

Imported by every command, so it imports nothing heavy: `byleave --help` and `byleave version` start at once.
"""

from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated

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
WorkspaceDir = Annotated[Path, typer.Option("--workspace", metavar="DIR", help="The directory agents may work in.")]
AgentsDir = Annotated[Path, typer.Argument(metavar="[DIR]", help="The directory agents may work in.")]


class ExitCode(IntEnum):
    """Exit codes for scripts."""

    OK = 0
    """Done, or stopped as requested (Ctrl-C or SIGTERM of a command that serves)."""
    FAILED = 1
    """Refused or failed; the sentence on stderr says why."""
    USAGE = 2
    """Wrong usage; see the command's help."""
    UNREACHABLE = 3
    """The server cannot be reached."""
    INTERRUPTED = 130
    """Ctrl-C before it was done."""


def new_app() -> typer.Typer:
    """Return a Typer app for a command or a group."""
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


def called_alone(context: typer.Context, *, given: bool, names: str) -> bool:
    """Return True if the group itself was called; reject group options before a subcommand."""
    if context.invoked_subcommand is None:
        return True
    if given:
        raise typer.BadParameter(f"write it after `{context.invoked_subcommand}`", param_hint=names)
    return False


@contextmanager
def needs_extra(extra: str, what: str) -> Generator[None]:
    """Turn a missing library into an error that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "byleave":
            raise  # our own module is missing: our bug, not a faulty installation
        from byleave.installation import install_command
        from byleave.protocol.errors import ConfigurationError

        raise ConfigurationError(f"This needs {what}.", hint=install_command(extra)) from error
