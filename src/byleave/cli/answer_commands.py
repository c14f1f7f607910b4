r"""The commands about answers: `byleave approvals` and `byleave grants`, their options and their help.

Registered by `commands`. Bodies import what they need when they run, as there. Nothing is decided here.
"""

import logging
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

approvals_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
grants_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON on stdout.")]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The server; else BYLEAVE_SERVER_URL, else `byleave up` here."),
]


def _run(work: Coroutine[Any, Any, None]) -> None:
    from .logs import set_up_logging
    from .looping import run_short

    set_up_logging(logging.WARNING, verbose=False)
    run_short(work)


def _only_alone(context: typer.Context, *, given: bool, names: str) -> bool:
    """Whether the group itself was called; its options belong after a subcommand's name."""
    if context.invoked_subcommand is None:
        return True
    if given:
        raise typer.BadParameter(f"write it after `{context.invoked_subcommand}`", param_hint=names)
    return False


@approvals_app.callback(invoke_without_command=True)
def approvals(context: typer.Context, server: Server = None, as_json: AsJson = False) -> None:
    """List what waits for your decision, or decide it.

    \b
    Example:
      byleave approvals
      byleave approvals approve appr_1
      byleave approvals reject appr_1 --reason "not in this directory"
    """
    if _only_alone(context, given=server is not None or as_json, names="--server / --json"):
        from .records import list_approvals

        _run(list_approvals(server_url=server, as_json=as_json))


@approvals_app.command()
def show(
    approval_id: Annotated[str, typer.Argument(metavar="ID", help="The approval.")],
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show all of what waits, also what it would run.

    \b
    Example:
      byleave approvals show appr_1
    """
    from .records import show_approval

    _run(show_approval(approval_id, server_url=server, as_json=as_json))


@approvals_app.command()
def approve(
    approval_id: Annotated[str, typer.Argument(metavar="ID", help="The approval.")],
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Let a call run: exactly as it was shown, once.

    \b
    Example:
      byleave approvals approve appr_1
    """
    from .records import decide

    _run(decide(approval_id, approve=True, reason=None, server_url=server, as_json=as_json))


@approvals_app.command()
def reject(
    approval_id: Annotated[str, typer.Argument(metavar="ID", help="The approval.")],
    reason: Annotated[str | None, typer.Option(metavar="WHY", help="Told to the agent.")] = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Say no; the agent is told why.

    \b
    Example:
      byleave approvals reject appr_1 --reason "use npm ci instead"
    """
    from .records import decide

    _run(decide(approval_id, approve=False, reason=reason, server_url=server, as_json=as_json))


@grants_app.callback(invoke_without_command=True)
def grants(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List what you allowed beyond one call, or take it back.

    By which rule, in which session, how often it was used, when it ends. Newest first.

    \b
    Example:
      byleave grants
      byleave grants revoke grant_1
      byleave grants preview '{"tool": "write_file", "paths": ["src/**"]}'
    """
    if _only_alone(context, given=server is not None or as_json or everything, names="--all / --server / --json"):
        from .grants import list_grants

        _run(list_grants(all_of_them=everything, server_url=server, as_json=as_json))


@grants_app.command()
def revoke(
    grant_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The grant.")] = None,
    all_of_them: Annotated[bool, typer.Option("--all-of-them", help="Every grant in force.")] = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Take a grant back: calls that come later ask again.

    \b
    Example:
      byleave grants revoke grant_1
      byleave grants revoke --all-of-them
    """
    if (grant_id is None) is not all_of_them:
        raise typer.BadParameter("give the ID of a grant, or --all-of-them", param_hint="ID")
    from .grants import revoke_grants

    _run(revoke_grants(grant_id, server_url=server, as_json=as_json))


@grants_app.command()
def preview(
    rule: Annotated[str, typer.Argument(metavar="JSON", help="The rule.")],
    project: Annotated[
        str | None, typer.Option("--project", metavar="ID", help="The project; needed when you have several.")
    ] = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Say what a rule would have covered; saves nothing.

    Held against your last 200 calls in the project, also those you refused.

    \b
    Example:
      byleave grants preview '{"tool": "execute_command", "command": ["git", "commit"]}'
    """
    from .grants import preview_rule

    _run(preview_rule(rule, project_id=project, server_url=server, as_json=as_json))
