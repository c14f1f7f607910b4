"""`byleave trust`: let a project's own rules loosen.

Trust covers only what was shown: the stored digest is that of the bytes whose rules were listed. Without a terminal
nobody is asked, so it needs `--yes`.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from byleave.gate import parse_policy
from byleave.policy_files import PROJECT_POLICY, is_trusted, policy_text, read_project_policy, revoke_trust
from byleave.policy_files import trust as store_trust
from byleave.protocol.errors import CallerError
from byleave.protocol.overview import Layer
from byleave.settings import ClientSettings

from .options import AsJson, ExitCode, new_app
from .process import existing_directory, read_settings
from .screen import put, put_json, say, shown

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
    root = str(existing_directory(directory))
    settings = read_settings(ClientSettings)
    if revoke:
        there = revoke_trust(settings.home, root)
        _report(root, "revoked" if there else "was not trusted", trusted=False, as_json=as_json)
        return
    data = read_project_policy(root)
    if data is None:
        raise CallerError(f"There is no {PROJECT_POLICY} in {root!r}.", hint="there is nothing to trust")
    text = policy_text(data, Layer.PROJECT, PROJECT_POLICY)
    layer = parse_policy(text.text, Layer.PROJECT, source=text.source)
    if not layer.loosening:
        _report(root, "loosens nothing, so there is nothing to trust", trusted=False, as_json=as_json)
        return
    if is_trusted(settings.home, root, data):
        _report(root, "is trusted already", trusted=True, as_json=as_json)
        return
    say(f"{PROJECT_POLICY} in {shown(root)} would loosen what agents may do here without asking you:")
    for line in layer.loosening:
        say(f"  {shown(line)}")
    if not (yes or _agreed()):
        _report(root, "is still not trusted", trusted=False, as_json=as_json)
        raise typer.Exit(ExitCode.FAILED)
    store_trust(settings.home, root, data)
    _report(root, "is trusted until it changes", trusted=True, as_json=as_json)
    say("A client that runs already reads it when it starts again.")


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CallerError("Nobody can be asked here.", hint="read the lines above, then add --yes")
    return typer.confirm("Trust it?", default=False, err=True)


def _report(root: str, what: str, *, trusted: bool, as_json: bool) -> None:
    if as_json:
        put_json({"workspace": root, "trusted": trusted})
    else:
        put(f"{PROJECT_POLICY} in {shown(root)} {what}.")
