r"""The command `assent undo`: its options and its help.

Registered by `commands`. Its body imports what it needs when it runs, as there. Nothing is decided here.
"""

from pathlib import Path
from typing import Annotated

import typer


def undo(
    tool_id: Annotated[
        str | None, typer.Argument(metavar="[TOOL_ID]", help="The call; left out: the last one that can be undone.")
    ] = None,
    workspace: Annotated[Path, typer.Option(metavar="DIR", help="The directory it worked in.")] = Path(),
    show_list: Annotated[bool, typer.Option("--list", help="Say what calls changed here; change nothing.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many --list shows.")] = 50,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Also where part of it cannot be brought back.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON on stdout.")] = False,
) -> None:
    """Bring back what a call changed.

    Shows the difference and asks. Where a file changed since, it says which and touches nothing. It removes only what
    the call made, and leaves git's own state alone. An undo can be undone itself. Works without the server.

    \b
    Example:
      assent undo
      assent undo exec_1 --workspace ~/code/app
      assent undo --list
    """
    from .undo import list_changes
    from .undo import undo as work

    if show_list:
        list_changes(workspace, limit=limit, as_json=as_json)
    else:
        raise typer.Exit(work(tool_id, workspace, yes=yes, partial=partial, as_json=as_json))
