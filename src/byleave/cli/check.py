"""`byleave check`: the gate's verdict on a call, with reasons. Runs nothing, and reads no file's content.

A call that passes the gate is also checked against the workspace's directory, as the client would (links that lead
out, pipes that never end). The stream answers each line of input with exactly one line, in order; a line that is not a
call is refused like any malformed call. All values pass `shown`, so a terminal can obey nothing in them.
"""

import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer
from rich.text import Text

from byleave.gate import Gate, Judgement, Policy, mask_text
from byleave.gate.policy.policy import decider, meaning
from byleave.policy_files import load_policy, machine_gate
from byleave.protocol.errors import InvalidParameters
from byleave.protocol.verdicts import Finding, Verdict, VerdictLevel, verdict_of
from byleave.settings import ClientSettings

from .options import ExitCode, new_app
from .process import read_settings
from .screen import RISK_STYLES, complain, put, put_json, shortened, shown

if TYPE_CHECKING:
    from byleave.workspace.commands.operands import DryRun

app = new_app()


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
    from byleave.workspace.commands.operands import DryRun  # not at the top: `byleave tool` imports this module

    with DryRun(root) as disk:
        judgement = _judge(gate, disk, tool_name, params, root)
    if as_json:
        put_json(_line(judgement.verdict))
        return
    for line in explained(judgement, loaded.policy):
        put(line)


def check_stream(workspace: Path | None, lines: BinaryIO | None = None) -> None:
    """Answer JSON lines, one each."""
    from byleave.workspace.commands.operands import DryRun

    root = _root(workspace)
    gate = client_gate(read_settings(ClientSettings), root)
    write, flush = sys.stdout.write, sys.stdout.flush
    with DryRun(root) as disk:
        for line in lines if lines is not None else sys.stdin.buffer:
            write(f"{json.dumps(_answer(gate, disk, line, root))}\n")
            flush()


def read_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; raise InvalidParameters that says what the text is instead."""
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
    """Return the gate with this machine's rules for a workspace."""
    return machine_gate(settings, load_policy(settings, workspace))


def _root(workspace: Path | None) -> str:
    return os.path.realpath(workspace or Path())


def _judge(gate: Gate, disk: "DryRun", tool_name: str, params: dict[str, Any], root: str) -> Judgement:
    """Return the gate's verdict, or the disk's refusal if the gate lets the call pass."""
    judgement = gate.judge(tool_name, params, workspace=root)
    name, known, verdict, _ = judgement
    if verdict.refused or known is None:
        return judgement
    # Rules match names only: a link must also pass the rules of its target.
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


def _answer(gate: Gate, disk: "DryRun", line: bytes, root: str) -> dict[str, Any]:
    try:
        call = read_object(line)
    except InvalidParameters as error:
        return {"verdict": VerdictLevel.REFUSE.value, "reasons": [error.message]}
    # Passed on as they are, even if missing or of another type: the gate says what is wrong.
    name, params = cast("Any", call.get("tool_name")), cast("Any", call.get("tool_params"))
    return _line(_judge(gate, disk, name, params, root).verdict)


def _line(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict.level.value, "reasons": [mask_text(reason) for reason in verdict.reasons]}


LONGEST_LINE = 2000


def explained(judgement: Judgement, policy: Policy) -> Iterable[Text]:
    """Yield the lines for a person."""
    verdict = judgement.verdict
    level = verdict.level.value
    yield Text.assemble((level, RISK_STYLES[level]), f"  {shown(judgement.tool_name)}: {meaning(verdict)}")
    for finding in verdict.findings:
        yield Text(f"  because  {shown(finding.reason)}  ({finding.level.value}, rule {shown(finding.rule)})")
        if finding.instead:
            yield Text(f"  safer    {shown(finding.instead)}")
    yield Text(f"  decided  {_decided(verdict, policy)}")
    if verdict.always_asks and not verdict.refused:
        yield Text("  always   asks in full mode too, and no grant covers it")
    yield from _given(judgement)
    if verdict.understood is not None:
        yield from _parsed_lines(verdict.understood)
    if verdict.runs:
        yield Text(f"  runs     the content of {shown(', '.join(verdict.runs))}")
    yield Text(f"  network  {'yes: allowing it lets it use the network' if verdict.network else 'none'}")


def _decided(verdict: Verdict, policy: Policy) -> str:
    rule, text, layer, source = decider(verdict, policy)
    waives = f" ({shown(text)}) waives the question" if text is not None else ""
    return f"rule {shown(rule)}{waives}, layer {layer.value}" + (f" ({shown(source)})" if source else "")


def _given(judgement: Judgement) -> Iterator[Text]:
    params = judgement.params or {}
    if judgement.tool_name == "execute_command" and params:
        yield Text(f"  line     {_short(shlex.join([params['command'], *params['args']]))}")
        return
    for name, value in params.items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            yield Text(f"  given    {name}: {_short(text)}")


def _parsed_lines(understood: Mapping[str, Any]) -> Iterator[Text]:
    """Yield a line for the command, for each option and for the operands; then the same for its subcommand."""
    reading: Mapping[str, Any] | None = understood
    indent = "  "
    head = "read as"
    while reading is not None:
        yield Text(f"{indent}{head}  {shown(str(reading['command']))}")
        for spelled, value in reading["options"]:
            value_text = f" with the value {_short(shlex.quote(value))}" if value is not None else ""
            yield Text(f"{indent}         option {shown(spelled)}{value_text}")
        inner = cast("Mapping[str, Any] | None", reading.get("subcommand"))
        operands = cast("list[str]", reading["operands"])
        if operands and inner is None:
            yield Text(f"{indent}         operand{'s' if len(operands) > 1 else ''} {_short(shlex.join(operands))}")
        reading, head = inner, "then   "


def _short(text: str) -> str:
    return shortened(mask_text(text), LONGEST_LINE)


@app.command()
def check(
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="Name of the tool.")] = None,
    params: Annotated[str | None, typer.Argument(metavar="[JSON]", help="Its parameters.")] = None,
    workspace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The workspace to judge for; left out: the current directory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON; without TOOL: answer the lines of stdin.")] = False,
) -> None:
    """Say what the gate would say, and why.

    Runs nothing. With --json and no TOOL it reads lines {"tool_name": …, "tool_params": …} from stdin and answers each
    with one line {"verdict": "LOW"|"MEDIUM"|"HIGH"|"REFUSE", "reasons": […]}, in order.

    \b
    Example:
      byleave check execute_command '{"command": "rm", "args": ["-rf", "/"]}'
      byleave check --json --workspace ~/code/app < calls.jsonl
    """
    if tool is not None and params is not None:
        check_one(tool, params, workspace, as_json=as_json)
    elif tool is None and as_json:
        check_stream(workspace)
    else:
        raise typer.BadParameter("give TOOL and JSON, or --json alone to read lines from stdin", param_hint="TOOL JSON")
