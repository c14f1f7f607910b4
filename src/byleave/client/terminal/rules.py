"""A grant's rule, expiry and number of uses as a person types them.

A line that cannot be parsed is an error, never a guess: a mistyped rule must not become a wider one.
"""

import re
import shlex

from pydantic import ValidationError

from byleave.client.approvals import span_words
from byleave.gate import safe_text
from byleave.protocol.errors import CallerError
from byleave.protocol.grants import LONGEST_GRANT_SECONDS, GrantRule

OPEN = "..."
"""Suffix of a command prefix: anything may follow."""
MOST_USES = 10_000
_PLAIN_WORD = re.compile(r"[^\s'\"\\]+")
_SPAN = re.compile(r"(\d{1,6})\s*(s|sec|m|min|h|d)?", re.ASCII)
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 24 * 3600}


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
        raise CallerError("The line holds characters that cannot be seen.", hint="type it again")
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise CallerError("A quotation mark is not closed.", hint="close it") from error
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


def read_span(text: str, longest: int = LONGEST_GRANT_SECONDS) -> int:
    """Parse `30m`, `2h`, `7d` or `45` (minutes) into seconds."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise CallerError(f"{safe_text(text)!r} is no time.", hint="write it as 30m or 2h")
    seconds = int(found[1]) * _SECONDS[found[2] or "m"]
    if not 1 <= seconds <= longest:
        raise CallerError(f"A grant lasts between 1 second and {span_words(longest)}.")
    return seconds


def read_uses(text: str) -> int:
    """Parse a maximum number of uses."""
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit()) or not 1 <= int(plain[:9]) <= MOST_USES:
        raise CallerError(f"{safe_text(text)!r} is no number from 1 to {MOST_USES}.")
    return int(plain)
