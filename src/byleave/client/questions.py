"""A question that waits for a person, its answer, and what can put it to them.

Only these words live here, so that a client that nobody sits at never loads what draws on a terminal (`prompts`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from byleave.protocol.changes import WriteChange
from byleave.protocol.events import ApprovalRequested
from byleave.protocol.grants import GrantPreview, GrantRule, GrantTerms
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
