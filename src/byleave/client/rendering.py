"""Rendering of a question on a terminal: effect, files that would run, reasons, time left, diff.

Every field is escaped again here, whatever the server did, and foreign text has a mark before each line, so that it
cannot pass for ours. Nothing is left out without saying how to see it. Diffs are bounded: the common beginning and end
are skipped, and a middle too long to compare is shown as removed and added.
"""

import difflib
from collections.abc import Iterator, Sequence
from itertools import chain

from rich.text import Text

from byleave.gate import safe_text
from byleave.protocol.changes import ChangeKind, ShownChange, WriteChange
from byleave.protocol.events import ApprovalRequested
from byleave.protocol.grants import GrantPreview, GrantRule, Suggestion
from byleave.protocol.inspections import Inspection, SeenFile, SeenRole
from byleave.protocol.states import RiskLevel

from .questions import rule_line

DIFFERENCE_LINES = 40
SHOWN_CHARACTERS = 400
COMPARED_LINES = 1000
"""Above this many differing lines on a side, diffing takes too long for a terminal."""
CONTEXT = 3
_STYLES = {"+": "green", "-": "red", "@": "dim"}
MARK = "  | "


def difference_lines(change: WriteChange) -> Iterator[Text]:
    """Yield the diff of a write."""
    shown = change.change
    if shown.note is not None:
        yield Text.assemble(("  note: ", "dim"), safe_text(shown.note))
    if shown.after is None or (shown.before is None and shown.kind is not ChangeKind.CREATE):
        return
    title = "new file" if shown.kind is ChangeKind.CREATE else "difference"
    lines = _unified(shown)
    if not lines:
        yield Text.assemble((f"  {title}: ", "dim"), "none is to be seen")
        return
    yield Text.assemble((f"  {title}:", "dim"))
    for line in lines[:DIFFERENCE_LINES]:
        yield Text(f"{MARK}{_short(line)}", _STYLES.get(line[:1], ""))
    left = len(lines) - DIFFERENCE_LINES
    if left > 0:
        yield Text(f"{MARK}[… {left} more lines of the difference: v shows all that would be written]")


def shows_after(change: WriteChange | None) -> bool:
    """Return True if the diff shows the whole new text, so that it need not be shown twice."""
    return (
        change is not None
        and change.change.after is not None
        and (change.change.before is not None or change.change.kind is ChangeKind.CREATE)
    )


def _unified(shown: ShownChange) -> list[str]:
    before, after = _lines(shown.before or ""), _lines(shown.after or "")
    start = _shared(before, after)
    end = _shared(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if not old and not new:
        return []
    first = max(0, start - CONTEXT)
    if max(len(old), len(new)) > COMPARED_LINES:
        head = f"@@ {len(old)} lines from {start + 1} become {len(new)} @@"
        return [head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    tail = min(end, CONTEXT)
    near = before[first:start], before[len(before) - end : len(before) - end + tail]
    return list(_hunks([*near[0], *old, *near[1]], [*near[0], *new, *near[1]], first))


def _hunks(old: Sequence[str], new: Sequence[str], offset: int) -> Iterator[str]:
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        yield f"@@ -{group[0][1] + offset + 1} +{group[0][3] + offset + 1} @@"
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[old_from:old_to])
            else:
                yield from chain(
                    (f"-{line}" for line in old[old_from:old_to]), (f"+{line}" for line in new[new_from:new_to])
                )


def _lines(text: str) -> list[str]:
    """Split into safe lines; mark a last line without a newline."""
    if not text:
        return []
    lines = safe_text(text, lines=True).split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], f"{lines[-1]} [no line end]"]


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the lines both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _short(line: str) -> str:
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]} [… {len(line)} characters]"


RISK_STYLE = {RiskLevel.LOW: "green", RiskLevel.MEDIUM: "yellow", RiskLevel.HIGH: "bold red"}
SHOWN_LINES = 20
SHOWN_LINE_CHARACTERS = 400
_IN_DESCRIPTION = {
    "execute_command": frozenset({"command", "args", "timeout"}),
    "write_file": frozenset({"path", "mode", "content_size"}),
}
"""Parameters that the description already shows in full."""


def question_lines(
    event: ApprovalRequested, seconds: float, change: WriteChange | None = None, *, unknown: str | None = None
) -> Iterator[Text]:
    """Yield a question without its answers. `unknown` is the reason there is no diff."""
    risk = event.risk_level
    yield Text.assemble("\n", (f"{risk.value} ", RISK_STYLE[risk]), (safe_text(event.tool_name), "bold"))
    # Reasons and content have lines of their own below; the rest of the description says what would happen.
    reasons = {finding.reason for finding in event.findings}
    first, *rest = event.description.split("\n")
    rest = [
        line
        for line in rest
        if line not in reasons and not ("content" in event.tool_params and line.startswith("Content: "))
    ]
    yield Text(quoted("\n".join([first, *rest])))
    described = _IN_DESCRIPTION.get(event.tool_name, frozenset[str]())
    if shows_after(change):
        described |= {"content"}
    for name, value in event.tool_params.items():
        if name not in described:
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
    """Yield one rule to choose."""
    yield Text.assemble((f"  {number}  ", "bold"), safe_text(suggestion.text))
    yield Text.assemble(("     at most: ", "dim"), safe_text(suggestion.widest))


def rule_lines(rule: GrantRule, text: str, widest: str) -> Iterator[Text]:
    """Yield a rule exactly as it would be saved."""
    line = rule_line(rule)
    yield Text.assemble(("  rule: ", "dim"), (f"{safe_text(rule.tool)}{'' if line is None else f'  {line}'}", "bold"))
    for path, digest in rule.files.items():
        yield Text.assemble(("  only while: ", "dim"), f"'{safe_text(path)}' has sha256 {safe_text(digest[:12])}…")
    yield Text.assemble(("  covers: ", "dim"), safe_text(text))
    yield Text.assemble(("  at most: ", "dim"), safe_text(widest))


def preview_lines(preview: GrantPreview) -> Iterator[Text]:
    """Yield the preview of a rule."""
    yield Text.assemble(("  so far: ", "dim"), safe_text(preview.sentence))
    for call in preview.refused:
        yield Text.assemble(("    you refused: ", "yellow"), safe_text(call.description))


def everything_of(inspection: Inspection | None, whole: str) -> str:
    """Return the whole call and all known files it would run. Not yet safe to print."""
    parts = [whole]
    for file in inspection.files if inspection is not None else ():
        parts.append(f"\n'{file.path}' (sha256 {file.sha256}):\n{file.text or file.note or '(no text)'}")
        if file.shortened and file.role is SeenRole.RUNS:
            parts.append("(only its beginning is here: the whole file is on the machine)")
    return "\n".join(parts)


def rows(text: str, width: int) -> list[str]:
    """Split text into safe, marked rows that fit the screen."""
    room = max(10, width - len(MARK) - 1)
    return [
        f"{MARK}{line[start : start + room]}"
        for line in safe_text(text, lines=True).expandtabs(4).split("\n")
        for start in range(0, max(1, len(line)), room)
    ]


def shortened(text: str) -> str:
    """Return the first lines, and how to see the rest."""
    lines = text.split("\n")
    shown = [
        line if len(line) <= SHOWN_LINE_CHARACTERS else f"{line[:SHOWN_LINE_CHARACTERS]} [… v shows all of this line]"
        for line in lines[:SHOWN_LINES]
    ]
    left = len(lines) - SHOWN_LINES
    return "\n".join([*shown, f"[… {left} more lines: v shows all]"] if left > 0 else shown)


def quoted(text: str, *, short: bool = False) -> str:
    """Return safe text with each line marked, so that none can pass for ours."""
    safe = safe_text(text, lines=True)
    return "\n".join(f"{MARK}{line}" for line in (shortened(safe) if short else safe).split("\n"))


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02d}"
