"""Errors as RFC 9457 problem+json, in one place.

Whatever goes wrong leaves the server as a `Problem`: a sentence, a hint, and with a conflict what already holds. What
is our own fault is logged under an id and told without its inside; nothing here ever puts a body, a parameter, a
token or a traceback on the wire.

What a request can be refused for, each with its HTTP status.

Nothing but words: how they look on the wire is in `problems`. This module must stay cheap to import, since making a
token needs it and nothing else of the server.
"""

import json
import secrets
from http import HTTPStatus
from typing import Any

import structlog
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from byleave.protocol.errors import ByleaveError, CallerError, ConfigurationError, ConflictError, Problem
from byleave.protocol.wire import JsonObject
from byleave.store import STORAGE_ERRORS


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


log = structlog.stdlib.get_logger(__name__)

PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = "5"


def wrong_form(error: ValidationError, what: str) -> WrongForm:
    """A model's complaints, field by field, without repeating the input: it may hold a secret."""
    errors: list[JsonObject] = [
        {"field": ".".join(str(part) for part in complaint["loc"]), "message": complaint["msg"]}
        for complaint in error.errors(include_url=False, include_context=False, include_input=False)[:20]
    ]
    first = errors[0]
    place = f"{first['field']}: " if first["field"] else ""
    return WrongForm(
        f"{what} does not have the right form: {place}{first['message']}.",
        hint="See `errors`, and /openapi.json for the form.",
        errors=errors,
    )


def problem_response(error: Exception) -> Response:
    """The answer for any error."""
    if isinstance(error, ByleaveError):
        return _of_byleave(error)
    if isinstance(error, STORAGE_ERRORS):
        log.error("the record cannot be written", error=str(error))
        return _response(
            503,
            "The record cannot be written.",
            hint="Nothing of this request was kept. Free disk space on the server, then send it again.",
        )
    if isinstance(error, HTTPException):
        detail = "There is nothing here." if error.status_code == 404 else f"{error.detail}."
        return _response(error.status_code, detail, hint="See /openapi.json for what there is.", headers=error.headers)
    incident = secrets.token_hex(6)
    log.error("unexpected error", incident=incident, exc_info=error)
    return _response(500, "Something went wrong in the server.", hint=f"Its log says more under {incident}.")


async def handle(request: Request, error: Exception) -> Response:
    """FastAPI's way to the same."""
    return problem_response(error)


def _of_byleave(error: ByleaveError) -> Response:
    # A setting that is wrong is the operator's business: for who asks, the server is not available.
    status = 503 if isinstance(error, ConfigurationError) else error.status_code
    headers: dict[str, str] = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="byleave", error="invalid_token"'
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    if isinstance(error, TooMany) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    state = error.state if isinstance(error, ConflictError) else None
    errors = error.errors if isinstance(error, WrongForm) else None
    return _response(status, error.message, hint=error.hint, state=state, errors=errors, headers=headers)


def _response(
    status: int,
    detail: str,
    *,
    hint: str | None = None,
    state: str | None = None,
    errors: list[JsonObject] | None = None,
    headers: Any = None,
) -> Response:
    problem = Problem(
        title=HTTPStatus(status).phrase, status=status, detail=detail, hint=hint, state=state, errors=errors
    )
    sent = dict(headers or {})
    if status == 503:
        sent["Retry-After"] = RETRY_SECONDS
    # Written by hand into ASCII: a message may quote what no UTF-8 can say.
    body = json.dumps(problem.model_dump(mode="python", exclude_none=True), separators=(",", ":")).encode("ascii")
    return Response(body, status, headers=sent, media_type=PROBLEM_TYPE)
