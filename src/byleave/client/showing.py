"""What a question looks like on a terminal: what would happen, what would run, why it asks, how long there is.

Everything is made safe again here, field by field, whatever the server did, and what came from elsewhere has a mark
before each line, so that none can pass for a line of ours. Nothing is left out without saying how to see it.
"""

from collections.abc import Iterator

from rich.text import Text

from byleave.gate import safe_text
from byleave.protocol.changes import WriteChange
from byleave.protocol.events import ApprovalRequested
from byleave.protocol.grants import GrantPreview, GrantRule, Suggestion
from byleave.protocol.inspections import Inspection, SeenFile, SeenRole
from byleave.protocol.states import RiskLevel

from .differences import difference_lines, shows_after
from .terms import rule_line

RISK_STYLE = {RiskLevel.LOW: "green", RiskLevel.MEDIUM: "yellow", RiskLevel.HIGH: "bold red"}
SHOWN_LINES = 20
SHOWN_LINE_CHARACTERS = 400
MARK = "  | "
_IN_DESCRIPTION = {
    "execute_command": frozenset({"command", "args", "timeout"}),
    "write_file": frozenset({"path", "mode", "content_size"}),
}
"""Parameters that the description already shows in full."""


def question_lines(
    event: ApprovalRequested, seconds: float, change: WriteChange | None = None, *, unknown: str | None = None
) -> Iterator[Text]:
    """All of a question but the answers. `unknown`: why there is no difference to show."""
    risk = event.risk_level
    yield Text.assemble("\n", (f"{risk.value} ", RISK_STYLE[risk]), (safe_text(event.tool_name), "bold"))
    # Reasons and content have lines of their own below; what is left of the description says what would happen.
    reasons = {finding.reason for finding in event.findings}
    first, *rest = event.description.split("\n")
    rest = [
        line
        for line in rest
        if line not in reasons and not ("content" in event.tool_params and line.startswith("Content: "))
    ]
    yield Text(quoted("\n".join([first, *rest])))
    told = _IN_DESCRIPTION.get(event.tool_name, frozenset[str]())
    if shows_after(change):
        told |= {"content"}
    for name, value in event.tool_params.items():
        if name not in told:
            yield _named(safe_text(name), value if isinstance(value, str) else repr(value))
    if event.inspection is not None and change is None:
        yield from _inspection_lines(event.inspection)
    if change is not None:
        yield from difference_lines(change)
    elif unknown is not None:
        yield _named("difference", unknown)
    for finding in event.findings:
        yield _named("why", finding.reason)
    yield Text("  network: it may use the network" if event.network else "  network: none")
    if event.agent_id is not None:
        yield Text(f"  agent: {safe_text(event.agent_id)}")
    yield Text(f"  time left: {clock(seconds)}")


def _named(name: str, text: str) -> Text:
    shown = f"\n{quoted(text, short=True)}" if "\n" in text else f" {shortened(safe_text(text))}"
    return Text.assemble((f"  {name}:", "dim"), shown)


def _inspection_lines(inspection: Inspection) -> Iterator[Text]:
    if inspection.problem is not None:
        yield Text.assemble(("  what it runs: ", "dim"), "it could not be looked at: ", safe_text(inspection.problem))
    for file in inspection.files:
        yield Text.assemble((f"  {file.role.value}: ", "dim"), _seen(file))
        if file.text:
            yield Text(quoted(file.text, short=True))
        if file.shortened and file.role is SeenRole.RUNS:
            yield Text("  (only its beginning is here: the whole file is on the machine)")


def _seen(file: SeenFile) -> str:
    name = f"'{safe_text(file.path)}'"
    if file.sha256 == "missing":
        return f"{name}, which is not there"
    size = "" if file.size is None else f", {file.size} bytes"
    unseen = safe_text(file.note) if file.note else "whose content is not text"
    if file.role is SeenRole.REPLACES and file.note is None:
        unseen = "which is not shown here"
    what = "which holds:" if file.text else "which is empty" if file.size == 0 else unseen
    return f"{name}{size}, sha256 {safe_text(file.sha256[:12])}…, {what}"


def suggestion_lines(number: int, suggestion: Suggestion) -> Iterator[Text]:
    """One rule to choose."""
    yield Text.assemble((f"  {number}  ", "bold"), safe_text(suggestion.text))
    yield Text.assemble(("     at most: ", "dim"), safe_text(suggestion.widest))


def rule_lines(rule: GrantRule, text: str, widest: str) -> Iterator[Text]:
    """A rule exactly as it would be saved."""
    line = rule_line(rule)
    yield Text.assemble(("  rule: ", "dim"), (f"{safe_text(rule.tool)}{'' if line is None else f'  {line}'}", "bold"))
    for path, digest in rule.files.items():
        yield Text.assemble(("  only while: ", "dim"), f"'{safe_text(path)}' has sha256 {safe_text(digest[:12])}…")
    yield Text.assemble(("  covers: ", "dim"), safe_text(text))
    yield Text.assemble(("  at most: ", "dim"), safe_text(widest))


def preview_lines(preview: GrantPreview) -> Iterator[Text]:
    """What the rule would have covered."""
    yield Text.assemble(("  so far: ", "dim"), safe_text(preview.sentence))
    for call in preview.refused:
        yield Text.assemble(("    you refused: ", "yellow"), safe_text(call.description))


def everything_of(inspection: Inspection | None, whole: str) -> str:
    """All there is to see: the whole call, and all that is known of what it would run. Not yet safe to print."""
    parts = [whole]
    for file in inspection.files if inspection is not None else ():
        parts.append(f"\n'{file.path}' (sha256 {file.sha256}):\n{file.text or file.note or '(no text)'}")
        if file.shortened and file.role is SeenRole.RUNS:
            parts.append("(only its beginning is here: the whole file is on the machine)")
    return "\n".join(parts)


def rows(text: str, width: int) -> list[str]:
    """Safe text cut into rows that fit a screen, each marked."""
    room = max(10, width - len(MARK) - 1)
    return [
        f"{MARK}{line[start : start + room]}"
        for line in safe_text(text, lines=True).expandtabs(4).split("\n")
        for start in range(0, max(1, len(line)), room)
    ]


def shortened(text: str) -> str:
    """The first lines, and how to see the rest."""
    lines = text.split("\n")
    shown = [
        line if len(line) <= SHOWN_LINE_CHARACTERS else f"{line[:SHOWN_LINE_CHARACTERS]} [… v shows all of this line]"
        for line in lines[:SHOWN_LINES]
    ]
    left = len(lines) - SHOWN_LINES
    return "\n".join([*shown, f"[… {left} more lines: v shows all]"] if left > 0 else shown)


def quoted(text: str, *, short: bool = False) -> str:
    """Safe text, each line marked, so that none can pass for a line of ours."""
    safe = safe_text(text, lines=True)
    return "\n".join(f"{MARK}{line}" for line in (shortened(safe) if short else safe).split("\n"))


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02d}"
