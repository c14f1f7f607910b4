"""What a write would do to a file, as a difference people read: the file before and after, secrets masked, safe.

Made from what the machine saw and from what would be written, never from what an agent says. Both texts are whole or
not there at all, since half a file shows a difference that is none; `note` says what is not shown and why. A secret is
masked on both sides, so a change inside one does not show: that is said too.
"""

import hashlib
from dataclasses import dataclass

from byleave.protocol.changes import MAX_SHOWN_TEXT, ChangeKind, ShownChange
from byleave.protocol.inspections import SeenFile

from .render import safe_text
from .secrets import MASK_PREFIX, cover_inert, mask_text

MISSING = "missing"
NOT_LOOKED = (
    "No machine has looked at the file: what it holds now is not known, and is not compared before it is written."
)
_MAX_SAFE = 2 * MAX_SHOWN_TEXT
_MAX_NOTE = 1000


@dataclass(frozen=True, slots=True)
class Write:
    """A write, as far as it is known."""

    path: str
    append: bool
    content: str | None
    """What would be written; None when it is not all at hand."""
    seen: SeenFile | None
    """What a machine saw at the path; None: none has looked."""
    text: str | None
    """What the file holds now, masked; None where it is not shown."""


def write_change(write: Write) -> ShownChange:
    """Before and after."""
    notes: list[str] = []
    before = _before(write, notes)
    after = _after(write, before, notes)
    if before is not None and after is not None:
        if before == after and _differs(write):
            notes.append("What changes is masked: it looks like a secret.")
        elif MASK_PREFIX in before and MASK_PREFIX in after:
            notes.append("Secrets are masked on both sides; a change inside one does not show.")
    is_new = write.seen is not None and write.seen.sha256 == MISSING
    return ShownChange(
        path=safe_text(write.path)[:4096],
        kind=ChangeKind.CREATE if is_new else ChangeKind.CHANGE,
        before=None if is_new else _safe(before, notes),
        after=_safe(after, notes),
        note=" ".join(dict.fromkeys(notes))[:_MAX_NOTE] or None,
    )


def _before(write: Write, notes: list[str]) -> str | None:
    seen = write.seen
    if seen is None:
        notes.append(NOT_LOOKED)
        return None
    if seen.sha256 == MISSING or seen.size == 0:
        return ""
    if write.text is None:
        notes.append(f"What it holds now: {safe_text(seen.note)}" if seen.note else "What it holds now is not kept.")
    return write.text


def _after(write: Write, before: str | None, notes: list[str]) -> str | None:
    if write.content is None:
        notes.append("What would be written is too long to be shown here; all of it is shown apart.")
        return None
    if not write.append:
        return _masked(write.content, notes)
    if before is None:
        notes.append("The whole file as it would be cannot be shown; what would be added is shown apart.")
        return None
    return _masked(before + write.content, notes)


def _masked(text: str, notes: list[str]) -> str | None:
    if len(text) > MAX_SHOWN_TEXT:
        notes.append("The file as it would be is too long to be shown here; what would be written is shown apart.")
        return None
    return mask_text(text, cover_inert)


def _safe(text: str | None, notes: list[str]) -> str | None:
    shown = None if text is None else safe_text(text, lines=True)
    if shown is not None and len(shown) > _MAX_SAFE:
        notes.append("It holds too many characters that nobody sees to be shown here.")
        return None
    return shown


def _differs(write: Write) -> bool:
    """True if the content really changes, by what the machine saw and not by what is shown."""
    if write.append or write.content is None or write.seen is None:
        return bool(write.content)
    raw = write.content.encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest() != write.seen.sha256
