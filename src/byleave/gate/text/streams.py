"""Masks a text that comes in pieces, so that a secret which straddles two of them is not passed on in halves.

A line is held back until it ends, a private key until its last line; a line without end leaves in parts that are cut
where no secret stands. What already left is remembered for a while: it may say what the next line means (`machine`,
`login`, then `password`). Memory is bounded. If masking fails, the piece is withheld.
"""

from .secrets import WITHHELD, mask_text

MAX_HELD = 64 * 1024
"""A line, or a key, longer than this leaves in parts."""
REMEMBERED = 4096
_LONGEST_SECRET = 4096
_TRIES = 16
_KEY_BEGINS, _KEY_ENDS = "-----BEGIN ", "-----END "


class MaskedStream:
    """One stream of text: `feed` gives what may leave, masked; `end` gives the rest."""

    def __init__(self) -> None:
        self._held = ""
        self._before = ""

    @property
    def held(self) -> int:
        """How many characters wait for the end of their line."""
        return len(self._held)

    def feed(self, text: str) -> str:
        """Take a piece; gives back, masked, what can no longer be part of a secret to come."""
        text = self._held + text
        at = _end_of_lines(text)
        if len(text) - at > MAX_HELD:
            at = _safe_cut(text)
        self._held = text[at:]
        return self._pass_on(text[:at])

    def end(self) -> str:
        """No more comes: the rest, masked."""
        text, self._held = self._held, ""
        return self._pass_on(text)

    def drop(self) -> None:
        """Forget what is held: its end will never be known."""
        self._held = ""

    def _pass_on(self, text: str) -> str:
        if not text:
            return ""
        before, self._before = self._before, (self._before + text)[-REMEMBERED:]
        whole = mask_text(before + text)
        known = mask_text(before)
        if WITHHELD in (whole, known):
            return f"{WITHHELD}\n"
        # What came before is there to explain; when masking changed it, the new text has to speak for itself.
        return whole[len(known) :] if whole.startswith(known) else mask_text(text)


def _end_of_lines(text: str) -> int:
    """Where the last whole line ends; a private key counts as one line, from its first to its last."""
    at = text.rfind("\n") + 1
    key = text.rfind(_KEY_BEGINS, 0, at)
    while key >= 0 and text.find(_KEY_ENDS, key, at) < 0:
        at = text.rfind("\n", 0, key) + 1
        key = text.rfind(_KEY_BEGINS, 0, at)
    return at


def _safe_cut(text: str) -> int:
    """Where an endless line may be cut: at a blank on both sides of which masking sees what it sees in the whole."""
    at = len(text) - _LONGEST_SECRET
    for _ in range(_TRIES):
        at = max(text.rfind(blank, 0, at) for blank in " \t\n,;")
        if at <= len(text) - 2 * _LONGEST_SECRET:
            break
        left, right = text[at - _LONGEST_SECRET : at], text[at : at + _LONGEST_SECRET]
        if mask_text(left) + mask_text(right) == mask_text(left + right):
            return at
    # Nothing but one long word: no known secret is that long.
    return len(text) - _LONGEST_SECRET
