"""`byleave policy` and `byleave trust`: show rules, check a file of rules, trust a project's rules.

Trust covers only what was shown: the stored digest is that of the bytes whose rules were listed. Without a terminal
nobody is asked, so it needs `--yes`.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from byleave.gate import LayerPolicy, PolicyError, Rule, parse_policy
from byleave.policy_files import (
    DEVICE_POLICY,
    PROJECT_POLICY,
    is_trusted,
    load_policy,
    policy_bytes,
    policy_text,
    read_project_policy,
    revoke_trust,
    trust,
    user_policy_path,
)
from byleave.protocol.errors import CallerError
from byleave.protocol.overview import Layer
from byleave.settings import ClientSettings

from .options import AsJson, ExitCode, new_app
from .process import existing_directory, read_settings
from .screen import put, put_json, say, shown

app = new_app()
Workspace = Annotated[Path, typer.Option(metavar="DIR", help="The directory agents may work in.")]


def show_policy(directory: Path, *, as_json: bool) -> None:
    """Show all layers and rules for a directory."""
    workspace = existing_directory(directory)
    settings = read_settings(ClientSettings)
    policy = load_policy(settings, workspace).policy
    if as_json:
        layers = [_layer_json(layer) for layer in policy.layers]
        put_json({"workspace": str(workspace), "widest_mode": policy.widest_mode.value, "layers": layers})
        return
    for layer in policy.layers:
        for line in _layer_lines(layer):
            put(line)
    if not policy.layers:
        put("No rules of yours: what is built in holds.")
        for name, path in (("user", user_policy_path(settings)), ("device", settings.device_policy or DEVICE_POLICY)):
            say(f"hint: {name} rules go to {path}")
        say(f"hint: a project's own go to {PROJECT_POLICY} in it")


def check_policy(path: Path, layer: Layer, *, as_json: bool) -> None:
    """Parse a file of rules and run its examples."""
    parsed = _parsed(path, layer)
    if as_json:
        put_json({"valid": True, **_layer_json(parsed)})
        return
    for line in _layer_lines(parsed):
        put(line)
    put(f"{shown(str(path))} is right.")


def trust_project(directory: Path, *, revoke: bool, yes: bool, as_json: bool) -> ExitCode:
    """Let a project's file loosen rules, after its owner has seen how."""
    workspace = existing_directory(directory)
    settings = read_settings(ClientSettings)
    root = str(workspace)
    if revoke:
        there = revoke_trust(settings.home, root)
        _report_trust(root, "revoked" if there else "was not trusted", trusted=False, as_json=as_json)
        return ExitCode.OK
    data = read_project_policy(root)
    if data is None:
        raise CallerError(f"There is no {PROJECT_POLICY} in {root!r}.", hint="there is nothing to trust")
    text = policy_text(data, Layer.PROJECT, PROJECT_POLICY)
    layer = parse_policy(text.text, Layer.PROJECT, source=text.source)
    if not layer.loosening:
        _report_trust(root, "loosens nothing, so there is nothing to trust", trusted=False, as_json=as_json)
        return ExitCode.OK
    if is_trusted(settings.home, root, data):
        _report_trust(root, "is trusted already", trusted=True, as_json=as_json)
        return ExitCode.OK
    say(f"{PROJECT_POLICY} in {shown(root)} would loosen what agents may do here without asking you:")
    for line in layer.loosening:
        say(f"  {shown(line)}")
    if not (yes or _agreed()):
        _report_trust(root, "is still not trusted", trusted=False, as_json=as_json)
        return ExitCode.FAILED
    trust(settings.home, root, data)
    _report_trust(root, "is trusted until it changes", trusted=True, as_json=as_json)
    say("A client that runs already reads it when it starts again.")
    return ExitCode.OK


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CallerError("Nobody can be asked here.", hint="read the lines above, then add --yes")
    return typer.confirm("Trust it?", default=False, err=True)


def _report_trust(root: str, what: str, *, trusted: bool, as_json: bool) -> None:
    if as_json:
        put_json({"workspace": root, "trusted": trusted})
    else:
        put(f"{PROJECT_POLICY} in {shown(root)} {what}.")


def _parsed(path: Path, layer: Layer) -> LayerPolicy:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise PolicyError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    try:
        text = policy_text(policy_bytes(descriptor, str(path)), layer, str(path))
    finally:
        os.close(descriptor)
    return parse_policy(text.text, layer, source=text.source)


def _layer_lines(layer: LayerPolicy) -> list[Text]:
    lines = [Text(f"{layer.layer.value}  {shown(layer.source)}", style="bold")]
    if layer.turned_on:
        mark = "" if layer.trusted else "   held back: run `byleave trust`"
        lines.append(Text(f"  turns on {', '.join(sorted(layer.turned_on))}{mark}"))
    if layer.widest_mode != "full":
        lines.append(Text(f"  widest mode {layer.widest_mode.value}"))
    for rule in layer.rules:
        lines += _rule_lines(rule, held_back=rule not in layer.in_force)
    return lines


def _rule_lines(rule: Rule, *, held_back: bool) -> list[Text]:
    lines = [Text(f"  {rule.number:>3}  {shown(rule.text)}{'   held back: run `byleave trust`' if held_back else ''}")]
    if rule.because:
        lines.append(Text(f"       because {shown(rule.because)}"))
    if rule.instead:
        lines.append(Text(f"       instead {shown(rule.instead)}"))
    return lines


def _layer_json(layer: LayerPolicy) -> dict[str, Any]:
    in_force = layer.in_force
    return {
        "layer": layer.layer.value,
        "source": layer.source,
        "trusted": layer.trusted,
        "commands": sorted(layer.turned_on),
        "widest_mode": layer.widest_mode.value,
        "rules": [
            {
                "rule": rule.name,
                "action": rule.action.value,
                "text": rule.text,
                "because": rule.because,
                "instead": rule.instead,
                "held_back": rule not in in_force,
            }
            for rule in layer.rules
        ],
        "held_back": list(layer.held_back),
    }


@app.callback(invoke_without_command=True)
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
    show_policy(workspace, as_json=as_json)


@app.command()
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
    check_policy(file, layer, as_json=as_json)
