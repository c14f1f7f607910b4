r"""The command `byleave undo`: its options and its help.

Registered by `commands`. Its body imports what it needs when it runs, as there. Nothing is decided here.
"""

from pathlib import Path
from typing import Annotated

import typer


def undo(
    tool_id: Annotated[
        str | None,
        typer.Argument(
            metavar="TOOL_ID", help="Which call, as --list names it; left out: the last one that is not undone."
        ),
    ] = None,
    workspace: Annotated[Path, typer.Option(metavar="DIR", help="The directory the call worked in.")] = Path(),
    show_list: Annotated[
        bool, typer.Option("--list", help="Only list the calls that changed files here, newest first.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many calls --list shows.")] = 50,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Undo what can be undone, where something was too large to be kept.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON on stdout; asks nothing, so give --yes.")] = False,
) -> None:
    """Put files back to what they were before an agent's call changed them.

    Shows the difference, then asks. A file that was changed again since the call is named, and then nothing is
    touched. A file the call made is removed only if it is still exactly what the call left, and its content is kept:
    an undo can itself be undone. Commits, branches and the rest of git's state stay as they are. Needs no server.
    Exit code 0: done, or already as it was. 1: refused, or you said no.

    \b
    Example:
      byleave undo
      byleave undo --list
      byleave undo exec_1 --workspace ~/code/app
    """
    from .undo import list_changes
    from .undo import undo as work

    if show_list:
        list_changes(workspace, limit=limit, as_json=as_json)
    else:
        raise typer.Exit(work(tool_id, workspace, yes=yes, partial=partial, as_json=as_json))
