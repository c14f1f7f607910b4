"""The chat page and its files; nothing here depends on who asks."""

import asyncio
import re

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from byleave.protocol.errors import NotFound
from byleave.server.dependencies import Parts, StrictRoute
from byleave.server.page_files import PageFile, plain_page
from byleave.server.problems import problems

router = APIRouter(route_class=StrictRoute, tags=["page"])

FOREVER = "public, max-age=31536000, immutable"
ANEW = "no-cache"
NO_WEIGHT = re.compile(r"q=0(\.0*)?")


@router.get("/", summary="The chat page", response_class=HTMLResponse, responses=problems(503))
async def index(parts: Parts, request: Request) -> Response:
    """HTML."""
    found = parts.page.index()
    if found is None:
        return plain_page(
            "The chat page was not built",
            "This server was started from a checkout without it. Run `make ui` there, then load this page again.",
            "Everything else works: `byleave chat` talks to the agent in a terminal.",
            status=503,
        )
    return await _sent(request, found)


@router.get(
    "/page/{name}",
    summary="A file of the chat page",
    response_class=Response,
    responses={200: {"content": {"*/*": {"schema": {}}}}, **problems(404)},
)
async def page_file(parts: Parts, request: Request, name: str) -> Response:
    """Its script or its style. A name with a hash in it never changes."""
    found = parts.page.file(name)
    if found is None:
        raise NotFound("There is nothing here.", hint="The chat page is at /.")
    return await _sent(request, found)


async def _sent(request: Request, file: PageFile) -> Response:
    headers = {
        "cache-control": FOREVER if file.never_changes else ANEW,
        "etag": file.tag,
        "vary": "Accept-Encoding",
    }
    if file.tag in _tags(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        # Compressed once, beside the loop: it takes a while.
        packed = await asyncio.to_thread(lambda: file.packed)
        if packed is not None:
            return Response(packed, headers={**headers, "content-encoding": "gzip"}, media_type=file.media_type)
    return Response(file.content, headers=headers, media_type=file.media_type)


def _tags(header: str) -> list[str]:
    tags = [tag.strip() for tag in header.split(",")]
    return [tag if tag.startswith("W/") else f"W/{tag}" for tag in tags]


def _takes_gzip(header: str) -> bool:
    for coding in header.lower().split(","):
        name, _, weight = coding.strip().partition(";")
        if name.strip() == "gzip":
            return NO_WEIGHT.fullmatch(weight.replace(" ", "")) is None
    return False
