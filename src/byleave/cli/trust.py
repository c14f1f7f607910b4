r"""`byleave trust`: let a project's own rules loosen."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, new_app
from .policy import trust_project

app = new_app()


@app.command()
def trust(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="The project's directory.")] = Path(),
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the trust back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a project's own rules loosen.

    A project's .byleave/policy.toml tightens at once. What it allows, and the commands it turns on, count only after
    you trust it here, and only while it stays as it is: a change of the file ends the trust. Shows what it would
    loosen, then asks.

    \b
    Example:
      byleave trust ~/code/app
      byleave trust --revoke
    """
    raise typer.Exit(trust_project(directory, revoke=revoke, yes=yes, as_json=as_json))
