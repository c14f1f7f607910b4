"""A question for a person, its answer, and the parsing of a grant's terms.

Nothing here draws: an unattended client never loads terminal code (`prompts`). A person types a grant's
rule, expiry and number of uses; a line that cannot be parsed is an error, never a guess, because a mistyped rule must
not become a wider one.
"""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from byleave.gate import safe_text
from byleave.protocol.changes import WriteChange
from byleave.protocol.errors import CallerError
from byleave.protocol.events import ApprovalRequested
from byleave.protocol.grants import LONGEST_GRANT_SECONDS, GrantPreview, GrantRule, GrantTerms
from byleave.protocol.states import ApprovalScope


@dataclass(frozen=True)
class Answer:
    """A person's decision."""

    allow: bool
    reason: str | None = None
    scope: ApprovalScope = ApprovalScope.ONCE
    terms: GrantTerms | None = None
    """Set for a scope wider than this call."""


@dataclass(frozen=True, eq=False)
class Question:
    """An approval to ask for. `closed` gets a sentence if it ends without an answer from here."""

    event: ApprovalRequested
    closed: asyncio.Future[str]
    until: float
    """On the loop's clock."""
    preview: Callable[[GrantRule], Awaitable[GrantPreview]] | None = None
    """Previews a rule on past calls, on the server."""
    whole: Callable[[bool], Awaitable[str]] | None = None
    """Returns the whole call if the question shows a part; with True, unmasked."""
    change: Callable[[], Awaitable[WriteChange]] | None = None
    """Returns the effect of a write on its file."""


class ApprovalPrompt(Protocol):
    """Asks a person, one question at a time."""

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer; None if there was none."""
        ...

    def say(self, sentence: str) -> None:
        """Show a sentence to the person."""
        ...


OPEN = "..."
"""Suffix of a command prefix: anything may follow."""
MOST_USES = 10_000
_PLAIN_WORD = re.compile(r"[^\s'\"\\]+")
_SPAN = re.compile(r"(\d{1,6})\s*(s|sec|m|min|h)?", re.ASCII)
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}


def rule_line(rule: GrantRule) -> str | None:
    """Return the editable part of a rule, as typed; None if there is none."""
    if rule.tool == "execute_command":
        return safe_text(_joined((*rule.command, *(() if rule.exact else (OPEN,)))))
    return safe_text(_joined(rule.paths)) if rule.paths else None


def _joined(words: tuple[str, ...]) -> str:
    return " ".join(word if _PLAIN_WORD.fullmatch(word) else shlex.quote(word) for word in words)


def read_rule(line: str, rule: GrantRule) -> GrantRule:
    """Return the rule with its editable part as typed; bound files stay."""
    if safe_text(line) != line:
        raise CallerError("The line holds characters that cannot be seen.", hint="type it anew")
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise CallerError("A quotation mark is not closed.", hint="type it anew") from error
    if not words:
        raise CallerError("A rule needs at least one word.")
    changed = rule.model_dump()
    if rule.tool == "execute_command":
        is_open = words[-1] in (OPEN, "…")
        changed |= {"command": words[:-1] if is_open else words, "exact": not is_open}
    else:
        changed |= {"paths": words}
    try:
        return GrantRule.model_validate(changed)
    except ValidationError as error:
        raise CallerError("A rule cannot have so many or such long words.", hint="shorten it") from error


def read_span(text: str) -> int:
    """Parse `30m`, `2h` or `45` (minutes) into seconds."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise CallerError(f"{safe_text(text)!r} is no time.", hint="write it as 30m or 2h")
    seconds = int(found[1]) * _SECONDS[found[2] or "m"]
    if not 1 <= seconds <= LONGEST_GRANT_SECONDS:
        raise CallerError(f"A grant lasts between 1 second and {span_words(LONGEST_GRANT_SECONDS)}.")
    return seconds


def read_uses(text: str) -> int:
    """Parse a maximum number of uses."""
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit()) or not 1 <= int(plain[:9]) <= MOST_USES:
        raise CallerError(f"{safe_text(text)!r} is no number from 1 to {MOST_USES}.")
    return int(plain)


def span_words(seconds: float) -> str:
    """Format a duration in its largest fitting unit: `45 seconds`, `30 minutes`, `8 hours`."""
    whole = max(0, round(seconds))
    for unit, one in ((3600, "hour"), (60, "minute")):
        if whole >= 2 * unit or whole == unit:
            return f"{round(whole / unit)} {one if round(whole / unit) == 1 else one + 's'}"
    return f"{whole} second{'' if whole == 1 else 's'}"


def uses_words(uses: int | None) -> str:
    """Format a limit of uses."""
    return "as often as wanted" if uses is None else "once" if uses == 1 else f"at most {uses} times"


def approved_by_text(
    actor: str | None, *, user_id: str | None = None, grants: Mapping[str, str] | None = None
) -> str | None:
    """Describe the person or rule that let a call run, safe to print; None if nothing did.

    `user_id` is the reader; `grants` holds the texts of known grants.
    """
    kind, _, name = (actor or "").partition(":")
    shown = safe_text(name)
    match kind:
        case "":
            return None
        case "person":
            return "by your answer" if name == user_id else f"by {shown}"
        case "grant":
            text = (grants or {}).get(name)
            return f"by grant {shown}" + (f" ({safe_text(text).rstrip('.')})" if text else "")
        case "rule":
            return f"by rule {shown}"
        case "mode":
            return f"by mode {shown}, unasked"
        case "risk":
            return f"unasked, {shown}"
        case _:
            return f"by {safe_text(actor or '')}"
