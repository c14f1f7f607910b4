r"""The commands about rules: `byleave policy` and `byleave trust`, their options and their help.

Registered by `commands`. Bodies import what they need when they run, as there. Nothing is decided here.
"""

from pathlib import Path
from typing import Annotated

import typer

from byleave.protocol.states import Layer

policy_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON on stdout.")]
Workspace = Annotated[Path, typer.Option(metavar="DIR", help="The directory agents may work in.")]


@policy_app.callback(invoke_without_command=True)
def policy(context: typer.Context, workspace: Workspace = Path(), as_json: AsJson = False) -> None:
    """Show the rules that hold here, or check a file of rules.

    Layer by layer: this machine's, yours, the project's. What a project's file would loosen is held back until you
    trust it with `byleave trust`.

    \b
    Example:
      byleave policy --workspace ~/code/app
      byleave policy check .byleave/policy.toml
    """
    if context.invoked_subcommand is not None:
        if as_json or workspace != Path():
            raise typer.BadParameter(
                f"write it after `{context.invoked_subcommand}`", param_hint="--workspace / --json"
            )
        return
    from .policy import show_policy

    show_policy(workspace, as_json=as_json)


@policy_app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of rules.")],
    layer: Annotated[Layer, typer.Option(help="Read it as this layer.")] = Layer.USER,
    as_json: AsJson = False,
) -> None:
    """Read a file of rules and run its examples.

    Exit 1 with a sentence that names the rule and the field when anything in it is wrong.

    \b
    Example:
      byleave policy check .byleave/policy.toml --layer project
    """
    from .policy import check_policy

    check_policy(file, layer, as_json=as_json)


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
    from .policy import trust_project

    raise typer.Exit(trust_project(directory, revoke=revoke, yes=yes, as_json=as_json))
