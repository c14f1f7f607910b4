"""A question for a person, its answer, and the words of a grant.

Nothing here draws: a client that nobody sits at never loads what draws on a terminal (`prompts`, `showing`). What a
person types of a grant is read here: its rule on one line, how long it lasts and how often. A line that cannot be read
is an error, never a guess: a mistyped rule must not become a wider one.
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
    """With a scope beyond this call."""


@dataclass(frozen=True, eq=False)
class Question:
    """One approval to be asked. `closed` gets a sentence when it ended without an answer from here."""

    event: ApprovalRequested
    closed: asyncio.Future[str]
    until: float
    """On the loop's clock."""
    preview: Callable[[GrantRule], Awaitable[GrantPreview]] | None = None
    """What a rule would have covered, as the server says."""
    whole: Callable[[bool], Awaitable[str]] | None = None
    """All of the call, where the question shows a part; with True also what is masked in it."""
    change: Callable[[], Awaitable[WriteChange]] | None = None
    """What a write would do to its file."""


class ApprovalPrompt(Protocol):
    """Puts questions to a person, one at a time."""

    async def ask(self, question: Question) -> Answer | None:
        """The answer; None when there was none."""
        ...

    def say(self, sentence: str) -> None:
        """Tell the person something."""
        ...


OPEN = "..."
"""At the end of a command's words: anything may follow."""
MOST_USES = 10_000
_PLAIN_WORD = re.compile(r"[^\s'\"\\]+")
_SPAN = re.compile(r"(\d{1,6})\s*(s|sec|m|min|h)?", re.ASCII)
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}


def rule_line(rule: GrantRule) -> str | None:
    """The part of a rule that may be edited, as one would type it; None where there is none."""
    if rule.tool == "execute_command":
        return safe_text(_joined((*rule.command, *(() if rule.exact else (OPEN,)))))
    return safe_text(_joined(rule.paths)) if rule.paths else None


def _joined(words: tuple[str, ...]) -> str:
    return " ".join(word if _PLAIN_WORD.fullmatch(word) else shlex.quote(word) for word in words)


def read_rule(line: str, rule: GrantRule) -> GrantRule:
    """The rule with its editable part as typed; what it is bound to stays."""
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
    """Seconds of `30m`, `2h` or `45` (minutes)."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise CallerError(f"{safe_text(text)!r} is no time.", hint="write it as 30m or 2h")
    seconds = int(found[1]) * _SECONDS[found[2] or "m"]
    if not 1 <= seconds <= LONGEST_GRANT_SECONDS:
        raise CallerError(f"A grant lasts between 1 second and {span_words(LONGEST_GRANT_SECONDS)}.")
    return seconds


def read_uses(text: str) -> int:
    """How many times at most."""
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit()) or not 1 <= int(plain[:9]) <= MOST_USES:
        raise CallerError(f"{safe_text(text)!r} is no number from 1 to {MOST_USES}.")
    return int(plain)


def span_words(seconds: float) -> str:
    """A span in the largest unit that says it well: `45 seconds`, `30 minutes`, `8 hours`."""
    whole = max(0, round(seconds))
    for unit, one in ((3600, "hour"), (60, "minute")):
        if whole >= 2 * unit or whole == unit:
            return f"{round(whole / unit)} {one if round(whole / unit) == 1 else one + 's'}"
    return f"{whole} second{'' if whole == 1 else 's'}"


def uses_words(uses: int | None) -> str:
    """A limit of uses."""
    return "as often as wanted" if uses is None else "once" if uses == 1 else f"at most {uses} times"


def let_by(actor: str | None, *, user_id: str | None = None, grants: Mapping[str, str] | None = None) -> str | None:
    """Who or what let a call run, in plain words, safe to print; None when nothing did.

    `user_id`: who reads it. `grants`: what known grants say.
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
