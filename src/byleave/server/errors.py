"""Errors of the server itself, each with its HTTP status; `problems` puts them on the wire.

This module stays cheap to import: making a token needs it and nothing else of the server.
"""

from byleave.protocol.errors import ByleaveError, CallerError
from byleave.protocol.wire import JsonObject


class WrongForm(CallerError):
    """A request that does not have the form it must have."""

    def __init__(self, message: str, *, hint: str | None = None, errors: list[JsonObject] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errors = errors


class Unauthenticated(CallerError):
    """Nobody we know."""

    status_code = 401


class TooLarge(CallerError):
    """More bytes than this route takes."""

    status_code = 413


class WrongMediaType(CallerError):
    """A body that does not say it is JSON."""

    status_code = 415


class Misdirected(CallerError):
    """A request for a host this server does not answer to."""

    status_code = 421


class TooMany(CallerError):
    """More at once than one user may have."""

    status_code = 429

    def __init__(self, message: str, *, hint: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        """Seconds, where it is known when it makes sense again."""


class Unavailable(ByleaveError):
    """This server cannot do it now, or was installed without it."""

    status_code = 503


class MethodNotAllowed(CallerError):
    """The path exists, the method does not."""

    status_code = 405

    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(f"{method} is not possible here.", hint=f"Use {' or '.join(allowed)}.")
        self.allowed = allowed
