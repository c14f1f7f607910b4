"""Failures of a run, each as one sentence for the user with a hint.

All errors between us and a model end here. Texts of providers are shortened and masked: they may quote keys, and the
chat shows them.
"""

import traceback
from dataclasses import dataclass

from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    IncompleteToolCall,
    ModelAPIError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    UnexpectedModelBehavior,
)

from byleave.gate import mask_text
from byleave.protocol.errors import ByleaveError

from .history import whole_characters
from .limits import LimitReached

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
    text = " ".join(mask_text(whole_characters(str(error))).split()) or type(error).__name__
    text = text.split(" Consider raising ")[0]  # advice for developers, not for users
    return text if len(text) <= DETAIL_CHARACTERS else text[: DETAIL_CHARACTERS - 1] + "…"
