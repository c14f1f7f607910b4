"""A question on a terminal: headline, facts, reasons, then the difference or the script.

Foreign text is escaped and marked row by row. What is too long for the screen is left out by whole lines and counted;
`details` has all of it. A call's words come from its parameters, never from what an agent says about it.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from rich.text import Text

from byleave.gate import safe_text
from byleave.gate.text.differences import unified
from byleave.gate.text.render import file_lines
from byleave.protocol.approvals import SeenFile, SeenRole
from byleave.protocol.changes import ChangeKind, ShownChange, WriteChange
from byleave.protocol.events import ApprovalRequested
from byleave.protocol.grants import GrantPreview, GrantRule, Suggestion
from byleave.protocol.states import RiskLevel

from .rules import rule_line
from .screen import MARK, fitted, rows
from .words import SHOWN_BY_NAME, ago, call_words, counted, masked_parts, span, word

RISK_STYLE = {RiskLevel.LOW: "green", RiskLevel.MEDIUM: "yellow", RiskLevel.HIGH: "bold red"}
LEAST_LINES = 10
OTHER_ROWS = 12
"""Rows of a question beside its longest part, roughly."""
MOST_CHARACTERS = 400
MISSING = "missing"
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
NO_STYLES: Mapping[str, str] = {}


def lines_that_fit(height: int) -> int:
    """Return how many lines of a difference or script a question shows on a screen of this height."""
    return max(LEAST_LINES, height - OTHER_ROWS)


def question_lines(
    event: ApprovalRequested, change: WriteChange | None = None, *, most: int, unknown: str | None = None
) -> Iterator[Text]:
    """Yield a question without its answers. `unknown` is the reason there is no difference."""
    yield from head_lines(event, change)
    known = SHOWN_BY_NAME.get(event.tool_name, frozenset[str]())
    if shows_after(change):
        known |= {"content"}
    for name, value in event.tool_params.items():
        if name not in known and value is not None:
            yield from _named(safe_text(name), value if isinstance(value, str) else repr(value), most)
    if change is not None and change.asked is not None and change.change.after is not None:
        yield Text("  changed (- as the agent asked, + now):", "dim")
        yield from _first(unified(_lines(change.asked), _lines(change.change.after)), most, _STYLES)
        yield Text("  the file:", "dim")
    if change is not None:
        yield from _change_lines(change.change, most)
        return
    if unknown is not None:
        yield from _named("difference", unknown, most)
    if event.inspection is not None:
        if event.inspection.problem is not None:
            yield from _named("what it runs", f"cannot be known: {event.inspection.problem}", most)
        for file in event.inspection.files:
            yield from _file_lines(file, event.timestamp, most)


def head_lines(event: ApprovalRequested, change: WriteChange | None = None) -> Iterator[Text]:
    """Yield headline, facts, reasons and notes."""
    creates = _creates(event, change)
    yield Text(call_words(event.tool_name, event.tool_params, creates=creates), "bold")
    yield _facts(event, creates=creates)
    for finding in event.findings:
        yield Text.assemble(("  why: ", "dim"), safe_text(finding.reason))
    first, *notes = event.description.split("\n")
    if event.tool_name not in SHOWN_BY_NAME:
        notes.insert(0, first)
    for note in notes:
        yield Text(quoted(note), "yellow")


def _creates(event: ApprovalRequested, change: WriteChange | None) -> bool:
    if change is not None:
        return change.change.kind is ChangeKind.CREATE
    files = () if event.inspection is None else event.inspection.files
    return event.tool_name == "write_file" and [file.sha256 for file in files] == [MISSING]


def _facts(event: ApprovalRequested, *, creates: bool) -> Text:
    facts = ["uses the network"] if event.network else []
    if event.tool_name == "execute_command" and not event.network:
        facts.append("no network")  # only of a command is that news
    timeout = event.tool_params.get("timeout")
    if isinstance(timeout, int | float):
        facts.append(f"up to {span(timeout)}")
    if creates:
        facts.append("new file")
    files = () if event.inspection is None else event.inspection.files
    running = [word(file.path) for file in files if file.role is SeenRole.RUNS and file.sha256 != MISSING]
    if running:
        facts.append(f"runs {', '.join(running)}")
    masked = masked_parts(event.tool_params, *(file.text for file in files))
    if masked:
        facts.append(counted(masked, "masked part", "masked parts"))
    if event.agent_id is not None:
        facts.append(f"agent {safe_text(event.agent_id)}")
    if event.calls > 1:
        facts.append(f"{event.calls} identical calls")
    risk = event.risk_level
    return Text.assemble("  ", (f"{risk.value.lower()} risk", RISK_STYLE[risk]), *(f" · {fact}" for fact in facts))


def _named(name: str, text: str, most: int) -> Iterator[Text]:
    """Yield a value beside its name, or below it if it has several lines."""
    if "\n" not in text:
        yield Text.assemble((f"  {name}: ", "dim"), _short(safe_text(text)))
        return
    yield Text(f"  {name}:", "dim")
    yield from _first(safe_text(text, lines=True).split("\n"), most)


def _first(lines: Iterable[str], most: int, styles: Mapping[str, str] = NO_STYLES) -> Iterator[Text]:
    """Yield the first lines, marked, and how to see the others."""
    found = iter(lines)
    for line in islice(found, most):
        yield Text(f"{MARK}{_short(line)}", styles.get(line[:1], ""))
    left = sum(1 for _ in found)
    if left > 0:
        yield Text(f"  [… {counted(left, 'more line', 'more lines')}: v shows all]", "bold")


def _short(line: str) -> str:
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} [… v shows all of this line]"


def _file_lines(file: SeenFile, now: str, most: int) -> Iterator[Text]:
    """Yield a file that the call runs or replaces; nothing for one that is not there."""
    if file.sha256 == MISSING:
        return
    title = f"  {file.role.value}: {word(file.path)}{_looks(file, now)}"
    if not file.text:
        unseen = file.note or ("it is empty" if file.size == 0 else "its content is not shown here")
        yield Text(f"{title}: {safe_text(unseen)}")
        return
    yield Text(title)
    # A part of a file, such as the scripts of package.json, says nothing of where the file ends.
    lines = (
        _lines(file.text if file.text.endswith("\n") else f"{file.text}\n")
        if file.role is SeenRole.RUNS
        else _lines(file.text)
    )
    yield from _first(lines, most)
    if file.shortened and file.role is SeenRole.RUNS:
        yield Text("  (only its beginning is here: the whole file is on the machine)")


def _looks(file: SeenFile, now: str) -> str:
    """Return size and age of a file, as far as they are known."""
    facts = [] if file.size is None else [counted(file.size, "byte", "bytes")]
    if file.written_at is not None:
        facts.append(f"written by the agent {ago(now, file.written_at)}")
    elif file.modified_at is not None:
        facts.append(f"changed {ago(now, file.modified_at)}")
    return f" ({', '.join(facts)})" if facts else ""


def _bound(event: ApprovalRequested) -> Iterator[Text]:
    """Yield what becomes of the call if a file changes before it runs."""
    for file in () if event.inspection is None else event.inspection.files:
        name, runs = word(file.path), file.role is SeenRole.RUNS
        nothing = "nothing runs" if runs else "nothing is written"
        if file.sha256 == MISSING:
            yield Text(f"  bound to: {name}, not there; if it appears first, {nothing}", "dim")
        else:
            looks = _looks(file, event.timestamp)
            yield Text(f"  bound to: {name} as it is now{looks}; if it changes first, {nothing}", "dim")


# Differences


def shows_after(change: WriteChange | None) -> bool:
    """Return True if the difference shows the whole new text, so that it need not be shown twice."""
    return (
        change is not None
        and change.change.after is not None
        and (change.change.before is not None or change.change.kind is ChangeKind.CREATE)
    )


def _change_lines(shown: ShownChange, most: int) -> Iterator[Text]:
    if shown.note is not None:
        yield Text.assemble(("  note: ", "dim"), safe_text(shown.note))
    if shown.after is None or (shown.before is None and shown.kind is not ChangeKind.CREATE):
        return
    lines = list(unified(_lines(shown.before or ""), _lines(shown.after)))
    if shown.kind is ChangeKind.CREATE:
        lines = lines[1:]  # every line is new: no need to say where
    if lines:
        yield from _first(lines, most, _STYLES)
    else:
        yield Text("  no difference is to be seen", "dim")


def _lines(text: str) -> list[str]:
    """Split into safe lines; mark a last line without a newline."""
    if not text:
        return []
    lines = safe_text(text, lines=True).split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]} [no line end]"]


# All of it


def detail_rows(event: ApprovalRequested, change: WriteChange | None, whole: str | None, width: int) -> list[Text]:
    """Return everything that is known of the call, nothing cut. `whole` is the server's text of it, if it gave one."""
    lines = [*head_lines(event, change), *_bound(event)]
    if change is not None:
        found = unified(_lines(change.change.before or ""), _lines(change.change.after or ""))
        lines += [Text("\n  difference:"), *(Text(f"{MARK}{line}", _STYLES.get(line[:1], "")) for line in found)]
    lines.append(Text("\n  whole call:"))
    if whole is None:
        files = () if event.inspection is None else event.inspection.files
        whole = "\n".join([event.description, *file_lines(files)])
    shown = [row for line in lines for row in fitted(line, width)]
    # Content may be 100 MB: plain strings, which cost less.
    return [
        *shown,
        *map(Text, rows(whole, width)),
        Text(f"  digest: {safe_text(event.digest)}", "dim"),
    ]


def quoted(text: str) -> str:
    """Return safe text with each line marked, so that none can pass for ours."""
    return "\n".join(f"{MARK}{line}" for line in safe_text(text, lines=True).split("\n"))


# Rules


def suggestion_lines(number: int, suggestion: Suggestion, *, chosen: bool) -> Iterator[Text]:
    """Yield one rule to choose."""
    mark = "→" if chosen else " "
    yield Text.assemble((f"{mark} {number}  ", "bold"), safe_text(suggestion.text))


def rule_lines(rule: GrantRule, text: str, widest: str) -> Iterator[Text]:
    """Yield a rule exactly as it would be saved."""
    line = rule_line(rule)
    yield Text.assemble(("  rule: ", "dim"), (f"{safe_text(rule.tool)}{'' if line is None else f'  {line}'}", "bold"))
    for path, digest in rule.files.items():
        yield Text.assemble(("  only while: ", "dim"), f"{word(path)} is unchanged (sha256 {safe_text(digest[:12])}…)")
    yield Text.assemble(("  covers: ", "dim"), safe_text(text))
    yield Text.assemble(("  widest effect: ", "dim"), safe_text(widest))


def preview_lines(preview: GrantPreview) -> Iterator[Text]:
    """Yield the preview of a rule."""
    yield Text.assemble(("  so far: ", "dim"), safe_text(preview.sentence))
    for call in preview.refused:
        yield Text.assemble(("  you denied: ", "yellow"), safe_text(call.description))
