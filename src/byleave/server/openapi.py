"""The API's description (OpenAPI 3.1), made from the list of routes and the protocol's own schema.

Every route is in it with its parameters, its answer, its scopes and its errors; every word has the name it has in
`schema/byleave.schema.json`. Nothing here needs a running server.
"""

import json
import threading
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, cast

from pydantic import BaseModel

from byleave.protocol import engine
from byleave.protocol.schema import describe, wire_schema, wire_words
from byleave.protocol.states import Scope
from byleave.protocol.wire import JsonObject
from byleave.server.routes.listing import ROUTES

from .routing import Route

COMPONENTS = "#/components/schemas/"
ALWAYS = (421, 500)
PRIVATE = (401, 403)
SCOPES = {
    Scope.CHAT: "post messages, read the conversation",
    Scope.APPROVE: "decide approvals; never together with `agent`",
    Scope.EXECUTE: "execute tools and report their results",
    Scope.AGENT: "call tools from elsewhere; never approves",
}
_MAKING = threading.Lock()
TAGS = {
    "projects": "Your projects.",
    "chat": "Messages, sessions and runs.",
    "feed": "What happens, as it happens.",
    "tools": "Tool calls and their results.",
    "approvals": "What waits for a person.",
    "grants": "What was allowed beyond one call.",
    "policy": "The rules calls are judged by, and what they would say of one.",
    "audit": "The chain of everything that happened.",
    "mcp": "The tools for hosts that speak MCP.",
    "page": "The chat page, and signing in to it.",
    "health": "For whoever watches the server.",
}


def openapi_document() -> JsonObject:
    """The whole description."""
    paths: JsonObject = {}
    names: set[str] = set()
    for route in ROUTES:
        name = route.endpoint.__name__
        # The same handler under two paths needs two names.
        name = f"{name}_again" if name in names else name
        names.add(name)
        path = route.path.replace(":path}", "}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, name)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Byleave",
            "version": version("byleave"),
            "summary": "Lets AI agents act on a user's own machine, asking first.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _words(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "Scopes, in the claim `scope`: "
                    + "; ".join(f"`{scope}`: {text}" for scope, text in SCOPES.items())
                    + ".",
                }
            },
        },
    }


def openapi_text() -> bytes:
    """The description as it is sent, made when it is first asked for: a start would spend a tenth of its time on it."""
    with _MAKING:  # asked for by many at once it is made once
        return _made()


@cache
def _made() -> bytes:
    return json.dumps(openapi_document()).encode()


def _operation(route: Route, name: str) -> JsonObject:
    operation: JsonObject = {
        "operationId": name,
        "summary": route.summary,
        "description": route.description,
        "tags": [route.tag],
        "parameters": [*_path_parameters(route), *_query_parameters(route.query), *_header_parameters(route)],
        "responses": _responses(route),
    }
    if route.scopes is not None and route.needs_all:
        operation["security"] = [{"bearer": sorted(scope.value for scope in route.scopes)}]
    elif route.scopes is not None:
        operation["security"] = [{"bearer": [scope.value]} for scope in sorted(route.scopes)]
    else:
        operation["security"] = []
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(route.body)}}}
    return operation


def _responses(route: Route) -> JsonObject:
    done: JsonObject = {"description": HTTPStatus(route.status).phrase}
    if route.status not in (204, 303):
        schema = _ref(route.answer) if route.answer else {}
        done["content"] = {route.answer_type: {"schema": schema}}
    errors = {*route.errors, *ALWAYS, *(PRIVATE if route.scopes is not None else ())}
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    return {
        str(route.status): done,
        **{str(status): {"description": HTTPStatus(status).phrase, "content": problem} for status in sorted(errors)},
    }


def _path_parameters(route: Route) -> list[JsonObject]:
    names = [part[1:-1].removesuffix(":path") for part in route.segments if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _header_parameters(route: Route) -> list[JsonObject]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in route.headers
    ]


def _query_parameters(query: type[BaseModel] | None) -> list[JsonObject]:
    if query is None:
        return []
    schema = query.model_json_schema(ref_template=COMPONENTS + "{model}")
    describe(schema, query)
    required = schema.get("required", [])
    parameters: list[JsonObject] = []
    for name, field in cast(dict[str, JsonObject], schema["properties"]).items():
        described = {key: value for key, value in field.items() if key not in ("title", "description")}
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": name in required,
                "description": field.get("description", ""),
                "schema": described,
            }
        )
    return parameters


def _ref(name: str) -> JsonObject:
    return {"$ref": COMPONENTS + name}


def _words() -> JsonObject:
    words: JsonObject = wire_schema()["$defs"]
    # An editor's engine speaks to its editor, not to the server.
    local = {name for name, word in wire_words().items() if word.__module__ == engine.__name__}
    return _moved({name: word for name, word in words.items() if name not in local})


def _moved(value: Any) -> Any:
    """The same schema with its references pointing at where OpenAPI keeps schemas."""
    if isinstance(value, dict):
        return {key: _moved(item) for key, item in cast(JsonObject, value).items()}
    if isinstance(value, list):
        return [_moved(item) for item in cast(list[Any], value)]
    return value.replace("#/$defs/", COMPONENTS) if isinstance(value, str) else value
