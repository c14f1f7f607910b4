"""Failures of a run, each as one sentence for the user with a hint, and the limits that end one.

Usage is read from the stored conversation, so neither a restart nor a wait of days changes it. The error for an
exceeded limit names the setting that raises it. All errors between us and a model end here. Texts of providers are
shortened and masked: they may quote keys, and the chat shows them.
"""

import random
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    IncompleteToolCall,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelMessage, ModelResponse

from byleave.gate import mask_start, mask_text
from byleave.protocol.errors import ByleaveError

from . import history
from .history import whole_characters

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


DETAIL_CHARACTERS = 300
TRACE_CHARACTERS = 8000


@dataclass(frozen=True, slots=True)
class Failure:
    """Message to the user."""

    error: str
    hint: str | None = None
    ours: bool = False
    """True for a fault of this server, worth a traceback in its log."""


class EndlessAnswer(Exception):
    """The model's answer did not end."""


class TooManyCalls(Exception):
    """The model requested too many calls at once."""

    def __init__(self, wanted: int, most: int) -> None:
        super().__init__(wanted, most)
        self.wanted = wanted
        self.most = most


def explain(error: Exception, *, model: str, model_seconds: float, tries: int = 1, silent: bool = False) -> Failure:
    """Return the message and hint for an error that ended a run. `silent`: the last response was empty."""
    match error:
        case ByleaveError():
            return Failure(error.message, error.hint)
        case LimitReached():
            return Failure(error.message, error.hint)
        case EndlessAnswer():
            return Failure(f"The model {model!r} did not come to an end, so it was stopped.", "Ask for less at once.")
        case TooManyCalls():
            return Failure(
                f"The model {model!r} asked for {error.wanted:,} calls at once, so it was stopped; {error.most:,} are "
                "allowed.",
                "Ask for less at once.",
            )
        case TimeoutError():
            return Failure(
                f"The model {model!r} did not answer within {model_seconds:g} seconds.", "Send the message again."
            )
        case ModelAPIError():
            return _of_provider(error, model, tries)
        case ContentFilterError():
            return Failure(f"The model {model!r} refused to answer.", "Word the message differently.")
        case UnexpectedModelBehavior() if silent:
            return Failure(
                f"The model {model!r} returned nothing.",
                "Send the message again, or choose another model with BYLEAVE_MODEL.",
            )
        case IncompleteToolCall() | UnexpectedModelBehavior():
            return Failure(
                f"The model {model!r} answered in a way that cannot be used: {_detail(error)}",
                "Send the message again, or choose another model with BYLEAVE_MODEL.",
            )
        case AgentRunError():
            return Failure(f"The model {model!r} could not answer: {_detail(error)}", "Send the message again.")
        case _:
            return Failure(
                f"The agent could not go on: something failed inside the server ({type(error).__name__}).",
                "Send the message again; the server's log has the details.",
                ours=True,
            )


def trace(error: BaseException) -> str:
    """Format a traceback for the log, as plain text.

    A renderer that prints the local variables of a framework's frames takes seconds and blocks the server.
    """
    return whole_characters(mask_text("".join(traceback.format_exception(error))[-TRACE_CHARACTERS:]))


def _of_provider(error: ModelAPIError, model: str, tries: int) -> Failure:
    often = f" It was asked {tries} times." if tries > 1 else ""
    match error:
        case ModelAuthenticationError() | ModelHTTPError(status_code=401 | 403):
            return Failure(f"The provider of {model!r} did not accept the key.", "Check the key of the provider.")
        case ModelQuotaExceededError():
            return Failure(f"The account at the provider of {model!r} is used up.", "See to its quota or billing.")
        case ModelRateLimitError() | ModelHTTPError(status_code=429):
            wait = f" It says to wait {error.retry_after:,.0f} seconds." if error.retry_after else ""
            return Failure(
                f"The provider of {model!r} is asked too often just now.{often}{wait}",
                "Wait a little and send it again.",
            )
        case ModelContextWindowExceededError():
            return Failure(f"This conversation is too long for {model!r}.", "Start a new session.")
        case ModelNotFoundError() | ModelHTTPError(status_code=404):
            return Failure(f"The provider does not know the model {model!r}.", "Correct BYLEAVE_MODEL.")
        case ModelHTTPError():
            return Failure(
                f"The provider of {model!r} answered with status {error.status_code}.{often}",
                "Send the message again later.",
            )
        case _:
            return Failure(
                f"The model {model!r} could not be reached: {_detail(error).rstrip('.')}.{often}",
                "Check the connection.",
            )


def _detail(error: Exception) -> str:
    """Return the beginning of an error message, masked, on one line."""
    text = " ".join(mask_start(str(error), 4 * DETAIL_CHARACTERS).split()) or type(error).__name__
    text = text.split(" Consider raising ")[0]  # advice for developers, not for users
    return text if len(text) <= DETAIL_CHARACTERS else text[: DETAIL_CHARACTERS - 1] + "…"
