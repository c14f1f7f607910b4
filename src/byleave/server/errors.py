"""Errors of the server itself, each with its HTTP status; `problems` puts them on the wire.

This module stays cheap to import: making a token needs it and nothing else of the server.
"""

from byleave.protocol.errors import ByleaveError, CallerError
from byleave.protocol.wire import JsonObject


class WrongForm(CallerError):
    """A malformed request."""

    def __init__(self, message: str, *, hint: str | None = None, errors: list[JsonObject] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errors = errors


class Unauthenticated(CallerError):
    """The token or cookie is missing, unknown or no longer valid."""

    status_code = 401


class NoToken(Unauthenticated):
    """The request carries neither a token nor a cookie."""


class TooLarge(CallerError):
    """The body exceeds the route's limit."""

    status_code = 413


class WrongMediaType(CallerError):
    """The body is not declared as JSON."""

    status_code = 415


class Misdirected(CallerError):
    """A request for a host this server does not answer to."""

    status_code = 421


class TooMany(CallerError):
    """A limit per user is exceeded."""

    status_code = 429

    def __init__(self, message: str, *, hint: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        """Seconds to wait before another try, if known."""


class Unavailable(ByleaveError):
    """The server cannot do it now, or was installed without it."""

    status_code = 503


class MethodNotAllowed(CallerError):
    """The path exists, the method does not."""

    status_code = 405

    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(f"{method} is not possible here.", hint=f"Use {' or '.join(allowed)}.")
        self.allowed = allowed
