r"""The command `byleave doctor`: its options and its help.

Registered by `commands`. The body imports what it needs when it runs, as there. Nothing is decided here.
"""

import logging
from pathlib import Path
from typing import Annotated

import typer


def doctor(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="The directory agents may work in.")] = Path(),
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="The server to reach; else BYLEAVE_SERVER_URL.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON on stdout.")] = False,
) -> None:
    """Check this machine: the sandbox, programs, rules, server and clock.

    Tries every way out of the sandbox that we know, on this very kernel, in a directory of its own that is removed
    afterwards. One line for each check: ok, warn or fail, and what to do. Exit 1 when a check fails.

    \b
    Example:
      byleave doctor
      byleave doctor ~/code/app --json
    """
    from .doctor import doctor as work
    from .logs import set_up_logging
    from .looping import run_short

    set_up_logging(logging.ERROR)  # what a log would warn of is a line of its own here

    raise typer.Exit(run_short(work(directory, server_url=server, as_json=as_json)))
