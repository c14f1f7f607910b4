"""`byleave check`: what the gate would say of a call, and why. Runs nothing, and of files looks at names only.

The gate's verdict comes first; what passes it is held against the workspace's directory as the client would (links that
lead out, pipes that never end).

The stream answers each line of its input with exactly one line, in order, whatever the line holds: what cannot be
read as a call is refused like any other malformed call.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO, cast

import typer

from byleave.gate import Gate, Judgement
from byleave.policy_files import load_policy, machine_gate
from byleave.protocol.errors import InvalidParameters
from byleave.protocol.verdicts import Finding, Verdict, VerdictLevel, verdict_of
from byleave.settings import ClientSettings
from byleave.workspace.commands.operands import DryRun

from .exits import ExitCode
from .explaining import explained
from .preferences import read_settings
from .screen import complain, put, put_json

HINT = 'write the parameters between single quotes: \'{"path": "README.md"}\''


def check_one(tool_name: str, text: str, workspace: Path | None, *, as_json: bool) -> None:
    """Explain one call."""
    try:
        params = read_object(text)
    except InvalidParameters as error:
        complain(error.message, error.hint)
        raise typer.Exit(ExitCode.USAGE) from error
    root = _root(workspace)
    settings = read_settings(ClientSettings)
    loaded = load_policy(settings, root)
    gate = machine_gate(settings, loaded)
    with DryRun(root) as disk:
        judgement = _judged(gate, disk, tool_name, params, root)
    if as_json:
        put_json(_line(judgement.verdict))
        return
    for line in explained(judgement, loaded.policy):
        put(line)


def check_stream(workspace: Path | None, lines: BinaryIO | None = None) -> None:
    """Answer JSON lines, one each."""
    root = _root(workspace)
    gate = client_gate(read_settings(ClientSettings), root)
    write, flush = sys.stdout.write, sys.stdout.flush
    with DryRun(root) as disk:
        for line in lines if lines is not None else sys.stdin.buffer:
            write(f"{json.dumps(_answer(gate, disk, line, root))}\n")
            flush()


def read_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object, or a sentence that says what it is instead."""
    try:
        value: Any = json.loads(text)
    except RecursionError:
        raise InvalidParameters("The JSON is nested too deeply.") from None
    except ValueError as error:
        raise InvalidParameters(f"Not JSON: {error}.", hint=HINT) from None
    if not isinstance(value, dict):
        raise InvalidParameters(f"A JSON object is needed, not {_json_name(value)}.", hint=HINT)
    return cast("dict[str, Any]", value)


def _json_name(value: object) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "a number"


def client_gate(settings: ClientSettings, workspace: str | Path) -> Gate:
    """The gate with this machine's own rules for a workspace."""
    return machine_gate(settings, load_policy(settings, workspace))


def _root(workspace: Path | None) -> str:
    return os.path.realpath(workspace or Path())


def _judged(gate: Gate, disk: DryRun, tool_name: str, params: dict[str, Any], root: str) -> Judgement:
    """The gate's verdict; where it lets a call pass and the disk does not, the disk's."""
    judgement = gate.judge(tool_name, params, workspace=root)
    name, known, verdict, _ = judgement
    if verdict.refused or known is None:
        return judgement
    # A rule knows names only: a link meets the rules of what it leads to as well.
    real = disk.under_real_names(known) if gate.rules.policy.has_rules else known
    if real != known:
        behind = gate.judge(name, real, workspace=root).verdict
        judgement = judgement if behind.level.rank <= verdict.level.rank else Judgement(name, known, behind)
    refusal = None if judgement.verdict.refused else disk.refusal(name, known)
    if refusal is None:
        return judgement
    finding = Finding(level=VerdictLevel.REFUSE, reason=refusal.message, rule="workspace.disk", instead=refusal.hint)
    verdict = verdict_of([finding, *judgement.verdict.findings], understood=judgement.verdict.understood)
    return Judgement(name, known, verdict)


def _answer(gate: Gate, disk: DryRun, line: bytes, root: str) -> dict[str, Any]:
    try:
        call = read_object(line)
    except InvalidParameters as error:
        return {"verdict": VerdictLevel.REFUSE.value, "reasons": [error.message]}
    # Handed on as they are, also when they are missing or of another type: the gate says what is wrong with them.
    name, params = cast("Any", call.get("tool_name")), cast("Any", call.get("tool_params"))
    return _line(_judged(gate, disk, name, params, root).verdict)


def _line(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict.level.value, "reasons": verdict.reasons}
