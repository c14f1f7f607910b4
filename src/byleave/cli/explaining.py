"""A verdict in words: what was understood, what was found, which rule decided and in which layer.

For `byleave check`. Everything a call holds passes `shown`, so a terminal can obey nothing in it. Judges nothing.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from rich.text import Text

from byleave.gate import Judgement, Policy, mask_text
from byleave.gate.policy.explain import decider, meaning
from byleave.protocol.verdicts import Verdict

from .screen import RISK_STYLES, shortened, shown

LONGEST_LINE = 2000


def explained(judgement: Judgement, policy: Policy) -> Iterable[Text]:
    """The lines for a person."""
    verdict = judgement.verdict
    level = verdict.level.value
    yield Text.assemble((level, RISK_STYLES[level]), f"  {shown(judgement.tool_name)}: {meaning(verdict)}")
    for finding in verdict.findings:
        yield Text(f"  because  {shown(finding.reason)}  ({finding.level.value}, rule {shown(finding.rule)})")
        if finding.instead:
            yield Text(f"  instead  {shown(finding.instead)}")
    yield Text(f"  decided  {_decided(verdict, policy)}")
    if verdict.always_asks and not verdict.refused:
        yield Text("  always   asks in full mode too, and no grant covers it")
    yield from _given(judgement)
    if verdict.understood is not None:
        yield from _read_as(verdict.understood)
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


def _read_as(understood: Mapping[str, Any]) -> Iterator[Text]:
    """One line for the command, one for each option, one for the operands; then the same for its subcommand."""
    reading: Mapping[str, Any] | None = understood
    indent = "  "
    head = "read as"
    while reading is not None:
        yield Text(f"{indent}{head}  {shown(str(reading['command']))}")
        for spelled, value in reading["options"]:
            told = f" with the value {_short(shlex.quote(value))}" if value is not None else ""
            yield Text(f"{indent}         option {shown(spelled)}{told}")
        inner = cast("Mapping[str, Any] | None", reading.get("subcommand"))
        operands = cast("list[str]", reading["operands"])
        if operands and inner is None:
            yield Text(f"{indent}         operand{'s' if len(operands) > 1 else ''} {_short(shlex.join(operands))}")
        reading, head = inner, "then   "


def _short(text: str) -> str:
    return shortened(mask_text(text), LONGEST_LINE)
