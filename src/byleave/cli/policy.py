"""`byleave policy`: show the rules of a directory, or check a file of rules."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from byleave.gate import LayerPolicy, PolicyError, Rule, parse_policy
from byleave.policy_files import (
    DEVICE_POLICY,
    PROJECT_POLICY,
    load_policy,
    policy_bytes,
    policy_text,
    user_policy_path,
)
from byleave.protocol.overview import Layer
from byleave.settings import ClientSettings

from .options import AsJson, WorkspaceDir, new_app
from .process import existing_directory, read_settings
from .screen import put, put_json, say, shown

app = new_app()


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
def policy(context: typer.Context, workspace: WorkspaceDir = Path(), as_json: AsJson = False) -> None:
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
    directory = existing_directory(workspace)
    settings = read_settings(ClientSettings)
    loaded = load_policy(settings, directory).policy
    if as_json:
        layers = [_layer_json(layer) for layer in loaded.layers]
        put_json({"workspace": str(directory), "widest_mode": loaded.widest_mode.value, "layers": layers})
        return
    for layer in loaded.layers:
        for line in _layer_lines(layer):
            put(line)
    if not loaded.layers:
        put("No rules of yours: what is built in holds.")
        for name, path in (("user", user_policy_path(settings)), ("device", settings.device_policy or DEVICE_POLICY)):
            say(f"hint: {name} rules go to {path}")
        say(f"hint: a project's own go to {PROJECT_POLICY} in it")


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
    parsed = _parsed(file, layer)
    if as_json:
        put_json({"valid": True, **_layer_json(parsed)})
        return
    for line in _layer_lines(parsed):
        put(line)
    put(f"{shown(str(file))} is right.")
