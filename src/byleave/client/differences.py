"""A difference as a terminal shows it: unified, a bounded number of bounded lines, nothing a screen would obey.

Both texts came masked and safe and are made safe again. Comparing is bounded: what both begin and end with is set
aside, and a middle that is too long to compare is shown as taken out and put in. `v` shows all that would be written.
"""

import difflib
from collections.abc import Iterator, Sequence
from itertools import chain

from rich.text import Text

from byleave.gate import safe_text
from byleave.protocol.changes import ChangeKind, ShownChange, WriteChange

SHOWN_LINES = 40
SHOWN_CHARACTERS = 400
COMPARED_LINES = 1000
"""Beyond this many different lines on a side, comparing could take a terminal's patience."""
CONTEXT = 3
_STYLES = {"+": "green", "-": "red", "@": "dim"}
MARK = "  | "


def difference_lines(change: WriteChange) -> Iterator[Text]:
    """What a write would do to its file."""
    shown = change.change
    if shown.note is not None:
        yield Text.assemble(("  note: ", "dim"), safe_text(shown.note))
    if shown.after is None or (shown.before is None and shown.kind is not ChangeKind.CREATE):
        return
    words = "new file" if shown.kind is ChangeKind.CREATE else "difference"
    lines = _unified(shown)
    if not lines:
        yield Text.assemble((f"  {words}: ", "dim"), "none is to be seen")
        return
    yield Text.assemble((f"  {words}:", "dim"))
    for line in lines[:SHOWN_LINES]:
        yield Text(f"{MARK}{_short(line)}", _STYLES.get(line[:1], ""))
    left = len(lines) - SHOWN_LINES
    if left > 0:
        yield Text(f"{MARK}[… {left} more lines of the difference: v shows all that would be written]")


def shows_after(change: WriteChange | None) -> bool:
    """Whether the difference shows what would be written, so that it need not be shown twice."""
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
    """Lines, made safe; a last one without its end says so."""
    if not text:
        return []
    lines = safe_text(text, lines=True).split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], f"{lines[-1]} [no line end]"]


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _short(line: str) -> str:
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]} [… {len(line)} characters]"
