"""Errors as RFC 9457 problem+json, in one place.

Every error leaves the server as a `Problem`: a sentence, a hint, and with a conflict the state that holds. An internal
error is logged under an id and sent without details; nothing here ever puts a body, a parameter, a token or a traceback
on the wire.
"""

import json
import secrets
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from byleave.protocol.errors import ByleaveError, ConfigurationError, ConflictError, Problem
from byleave.protocol.wire import JsonObject
from byleave.settings import ServerSettings
from byleave.store import DAMAGE_HINT, STORAGE_ERRORS, DamagedError, StorageError

from .errors import MethodNotAllowed, NoToken, TooMany, Unauthenticated, WrongForm

log = structlog.stdlib.get_logger(__name__)

PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = "5"
MCP = "/mcp"
RESOURCE_METADATA = "/.well-known/oauth-protected-resource"


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Error responses of a route, for the OpenAPI description."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def _wrong_form(complaints: Sequence[Any]) -> WrongForm:
    """FastAPI's validation errors, field by field, without the input: it may contain a secret."""
    errors: list[JsonObject] = [
        {"field": ".".join(str(part) for part in complaint["loc"][1:]), "message": complaint["msg"]}
        for complaint in complaints[:20]
    ]
    first = errors[0]
    place = f"{first['field']}: " if first["field"] else ""
    return WrongForm(
        f"The {complaints[0]['loc'][0]} does not have the right form: {place}{first['message']}.",
        hint="See `errors`, and /openapi.json for the form.",
        errors=errors,
    )


def problem_response(error: Exception, scope: Scope) -> Response:
    """Make the response for any error of a request."""
    if isinstance(error, RequestValidationError):
        error = _wrong_form(error.errors())
    elif isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names only the methods of the first route with this path. A path with fewer names in it is this one:
        # `/my/tools/execute` is no `/my/tools/{tool_id}`.
        matching = [route for route in scope["app"].routes if route.matches(scope)[0] is not Match.NONE]
        fewest = min(len(route.param_convertors) for route in matching)
        routes = [route for route in matching if len(route.param_convertors) == fewest]
        error = MethodNotAllowed(scope["method"][:20], sorted({method for route in routes for method in route.methods}))
    if isinstance(error, ByleaveError):
        return _of_byleave(error, scope)
    if isinstance(error, STORAGE_ERRORS):
        log.error("the record cannot be written", error=str(error))
        if isinstance(error, DamagedError):
            return _response(503, f"The record is damaged, or its disk fails: {error}.", hint=DAMAGE_HINT)
        if isinstance(error, StorageError):
            return _response(503, str(error), hint=error.hint)
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


def _of_byleave(error: ByleaveError, scope: Scope) -> Response:
    # A wrong setting concerns the operator: to the caller the server is unavailable.
    status = 503 if isinstance(error, ConfigurationError) else error.status_code
    headers: dict[str, str] = {}
    if isinstance(error, Unauthenticated):
        # An error is named only if there was a token: hosts would else throw theirs away.
        wrong = "" if isinstance(error, NoToken) else ', error="invalid_token"'
        headers["WWW-Authenticate"] = f'Bearer realm="byleave"{wrong}{_where_to_get_one(scope)}'
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    if isinstance(error, TooMany) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    state = error.state if isinstance(error, ConflictError) else None
    errors = error.errors if isinstance(error, WrongForm) else None
    return _response(status, error.message, hint=error.hint, state=state, errors=errors, headers=headers)


def _where_to_get_one(scope: Scope) -> str:
    """For hosts that speak MCP: where it is told who gives tokens (RFC 9728)."""
    if not is_mcp(scope["path"]) or issuer_of(scope["app"].settings) is None:
        return ""
    return f', resource_metadata="{origin_of(scope)}{RESOURCE_METADATA}{scope["path"]}"'


def is_mcp(path: str) -> bool:
    return path == MCP or path.startswith(f"{MCP}/")


def issuer_of(settings: ServerSettings) -> str | None:
    """The issuer of the tokens that this server takes; None if it makes them itself."""
    issuer = settings.token_issuer or settings.oidc_issuer
    elsewhere = settings.jwks_url is not None or settings.public_key is not None
    return issuer if elsewhere and issuer is not None and issuer.startswith(("https://", "http://")) else None


def origin_of(scope: Scope) -> str:
    """The server's address as the sender of a request sees it; its host was checked."""
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    return f"{scope['scheme']}://{host}"


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
    # Encoded as ASCII: a message may quote lone surrogates, which UTF-8 cannot encode.
    body = json.dumps(problem.model_dump(mode="python", exclude_none=True), separators=(",", ":")).encode("ascii")
    return Response(body, status, headers=sent, media_type=PROBLEM_TYPE)
