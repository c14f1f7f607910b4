"""Differences of two texts for people: unified, with three lines of context.

The common beginning and end are skipped before comparing, so that a long file costs what changed in it. A middle that
is too long to compare is shown as removed and added, never as a part of either.
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

CONTEXT = 3
MOST_LINES = 1000
"""Above this many differing lines on a side, comparing takes too long for a terminal."""
MOST_PAIRS = 100_000
"""Above this many pairs of equal lines, frequent lines are no anchors: tangled texts would take minutes."""


def unified(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a unified diff; nothing if the texts are equal."""
    start = _equal_lines(before, after)
    end = _equal_lines(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if not old and not new:
        return
    if max(len(old), len(new)) > MOST_LINES:
        yield f"@@ {len(old)} lines from {start + 1} become {len(new)} @@"
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    first, last = max(0, start - CONTEXT), min(end, CONTEXT)
    yield from _hunks(before[first : len(before) - end + last], after[first : len(after) - end + last], first)


def _hunks(old: Sequence[str], new: Sequence[str], offset: int) -> Iterator[str]:
    # Without `autojunk=False` every line that a file of 200 repeats often is ignored, and hunks run together.
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=_pairs(old, new) > MOST_PAIRS)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        yield f"@@ -{group[0][1] + 1 + offset} +{group[0][3] + 1 + offset} @@"
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[old_start:old_end])
                continue
            yield from (f"-{line}" for line in old[old_start:old_end])
            yield from (f"+{line}" for line in new[new_start:new_end])


def _pairs(old: Sequence[str], new: Sequence[str]) -> int:
    counts = Counter(new)
    return sum(number * counts[line] for line, number in Counter(old).items())


def _equal_lines(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the lines both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))
