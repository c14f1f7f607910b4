"""Limits of a run: steps, working time, tokens, retries, and repeated failures.

Usage is read from the stored conversation, so neither a restart nor a wait of days changes it. The error for an
exceeded limit names the setting that raises it. Nothing here waits or stores.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse

from . import history

SAME_FAILURES = 5
"""Times in a row a model may send the same failing call."""
RETRIES = 4
"""Retries of a failing provider for one answer."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
SECONDS_KEY = "byleave_seconds"
"""Metadata key of a response for the seconds it and its tools took."""


class LimitReached(Exception):
    """A run may not continue; names the limit and how to raise it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Used:
    """Usage of a run so far."""

    steps: int
    seconds: float
    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def used(messages: Sequence[ModelMessage]) -> Used:
    """Sum the usage of all responses since the user's last message."""
    responses = history.responses_since_prompt(messages)
    return Used(
        steps=len(responses),
        seconds=sum(float((response.metadata or {}).get(SECONDS_KEY, 0.0)) for response in responses),
        input_tokens=sum(response.usage.input_tokens for response in responses),
        output_tokens=sum(response.usage.output_tokens for response in responses),
    )


def count_seconds(response: ModelResponse, seconds: float) -> None:
    """Add to the seconds of a response."""
    metadata = response.metadata or {}
    response.metadata = {**metadata, SECONDS_KEY: round(metadata.get(SECONDS_KEY, 0.0) + seconds, 3)}


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one run."""

    steps: int = 50
    seconds: float = 1800.0
    tokens: int = 2_000_000

    def check(self, messages: Sequence[ModelMessage]) -> Used:
        """Return the usage so far, if another step is allowed. Raise LimitReached otherwise."""
        so_far = used(messages)
        if so_far.steps >= self.steps:
            raise LimitReached(
                f"The agent stopped after {self.steps} steps without an answer.",
                "Ask for less at once, send another message to go on, or raise BYLEAVE_RUN_STEPS.",
            )
        if so_far.seconds >= self.seconds:
            raise self.too_slow()
        if so_far.tokens >= self.tokens:
            raise LimitReached(
                f"The agent stopped after {so_far.tokens:,} tokens without an answer; {self.tokens:,} are allowed.",
                "Ask for less at once, send another message to go on, or raise BYLEAVE_RUN_TOKENS.",
            )
        repeated = history.same_failure(messages)
        if repeated.times >= SAME_FAILURES:
            raise LimitReached(
                f"The agent stopped: it sent the same {repeated.tool_name} call {repeated.times} times in a row, and "
                "it failed each time.",
                "See why the call failed, and say what to do instead.",
            )
        return so_far

    def too_slow(self) -> LimitReached:
        return LimitReached(
            f"The agent stopped after {self.seconds:g} seconds of work without an answer.",
            "Ask for less at once, send another message to go on, or raise BYLEAVE_RUN_SECONDS.",
        )


def pause_before_retry(error: ModelAPIError, tries: int) -> float | None:
    """Return the seconds to wait before a retry; None if it would not help or there were enough."""
    if tries >= RETRIES or not _is_transient(error):
        return None
    backoff = min(FIRST_PAUSE_SECONDS * 2**tries, LONGEST_PAUSE_SECONDS) * random.uniform(0.75, 1.25)  # noqa: S311
    return backoff if error.retry_after is None else max(error.retry_after, 0.0)


def _is_transient(error: ModelAPIError) -> bool:
    """Return True if the error may pass."""
    match error:
        case ModelQuotaExceededError():
            return False
        case ModelRateLimitError() | ModelUnavailableError() | ModelServerError() | ModelConnectionError():
            return True
        case ModelHTTPError():
            return error.status_code in (408, 429) or error.status_code >= 500
        case _:
            return False
