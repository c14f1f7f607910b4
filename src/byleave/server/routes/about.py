"""What a server says of itself: its health, the API's description, and the same for people to read.

`/docs` is plain HTML without a script or anything from elsewhere: it works offline and under the strictest policy.
"""

import asyncio
from html import escape
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from byleave.protocol.wire import JsonObject, WireModel
from byleave.server.dependencies import Parts, StrictRoute
from byleave.server.page_files import html_page
from byleave.server.problems import problems

router = APIRouter(route_class=StrictRoute, tags=["health"])


class Health(WireModel):
    status: str


@router.get("/healthz", summary="Alive")
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", summary="Ready", responses=problems(503))
async def readyz(parts: Parts) -> Health:
    """The record answers, and can be written."""
    # Any read will do: it goes through the same thread and file as all others.
    await parts.store.feed.head("")
    await parts.store.check_writable()
    return Health(status="ready")


@router.get("/openapi.json", summary="This description", response_model=dict[str, Any])
async def description(request: Request) -> Response:
    """OpenAPI 3.1."""
    # In a thread: the first time it takes a while, and streams must not wait for it.
    text = await asyncio.to_thread(lambda: request.app.openapi_text)
    return Response(text, media_type="application/json")


@router.get("/docs", summary="This description for people", response_class=HTMLResponse)
async def docs(request: Request) -> Response:
    """HTML, without a script."""
    document = await asyncio.to_thread(request.app.openapi)
    return html_page("API", _listing(document), status=200)


def _listing(document: JsonObject) -> str:
    """All operations, below the name of their tag."""
    found: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            found[operation["tags"][0]].append(_operation(f"{method.upper()} {path}", operation))
    texts = {tag["name"]: tag["description"] for tag in document["tags"]}
    listed = "".join(f"<h2>{escape(texts[tag])}</h2>{''.join(each)}" for tag, each in found.items())
    return f'<p>The same for programs: <a href="/openapi.json">/openapi.json</a>.</p>{listed}'


def _operation(name: str, operation: JsonObject) -> str:
    lines = [escape(operation["description"])]
    lines += [
        f"<code>{escape(one['name'])}</code> ({one['in']}{', needed' if one['required'] else ''}): "
        f"{escape(one.get('description', ''))}"
        for one in operation["parameters"]
    ]
    scopes = [" and ".join(need["bearer"]) for need in operation["security"]]
    lines.append(f"Scopes: {' or '.join(scopes)}." if scopes else "Needs no token.")
    if "requestBody" in operation:
        lines.append(f"Takes {_schemas(operation['requestBody']['content'])}.")
    lines += [
        f"{status} {escape(answer['description'])} {_schemas(answer.get('content', {}))}"
        for status, answer in operation["responses"].items()
    ]
    told = "".join(f"<p>{line}</p>" for line in lines)
    return f"<details><summary><code>{escape(name)}</code> {escape(operation['summary'])}</summary>{told}</details>"


def _schemas(content: JsonObject) -> str:
    """Names of the words in a body."""
    names = [one["schema"].get("$ref", kind).rpartition("/")[2] for kind, one in content.items()]
    return ", ".join(f"<code>{escape(name)}</code>" for name in names)
