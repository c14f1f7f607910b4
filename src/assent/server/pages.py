"""What needs no token: the chat page, signing in and out, health, and the API's description.

The page's files are read once when the server starts and served from memory by name, so that no path of a request
ever reaches the file system. The cookie a sign-in sets is HttpOnly and SameSite=Strict and holds chat and approve only.
"""

import asyncio
import mimetypes
from functools import cache
from pathlib import Path

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from assent.protocol.errors import NotFound
from assent.protocol.values import Word

from .auth import issue_session
from .bodies import read_query
from .refusals import Unauthenticated
from .routing import JsonAnswer, Route, parts_of
from .signin import COOKIE, SESSION_SECONDS

PAGE = Path(__file__).parent / "page"


class SignInQuery(Word):
    code: str = Field(min_length=1, max_length=200, description="The code from the link.")


class Health(Word):
    status: str


@cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """Every file of the page by its name, with its type."""
    files: dict[str, tuple[bytes, str]] = {}
    for path in sorted(PAGE.rglob("*")):
        if path.is_file():
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            files[path.relative_to(PAGE).as_posix()] = (path.read_bytes(), kind)
    return files


async def index(request: Request) -> Response:
    return _file("index.html")


async def page_file(request: Request) -> Response:
    return _file(request.path_params["name"])


async def sign_in(request: Request) -> Response:
    parts = parts_of(request)
    user = parts.sign_in.redeem(read_query(request, SignInQuery).code)
    if user is None:
        raise Unauthenticated(
            "This link was used already or is too old.",
            hint="Ask for a new one: `assent up` prints one when it starts.",
        )
    response = RedirectResponse("/", status_code=303)
    response.set_cookie(
        COOKIE,
        issue_session(parts.settings, user, SESSION_SECONDS),
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )
    return response


async def sign_out(request: Request) -> Response:
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


async def healthz(request: Request) -> Response:
    return JsonAnswer(Health(status="ok"))


async def readyz(request: Request) -> Response:
    # Any read will do: it goes through the same thread and file as all others.
    await parts_of(request).store.feed.head("")
    return JsonAnswer(Health(status="ready"))


async def description(request: Request) -> Response:
    # On a thread: the first time it takes a while, and streams must not wait for it.
    text = await asyncio.to_thread(request.app.state.description)
    return Response(text, media_type="application/json")


def _file(name: str) -> Response:
    found = page_files().get(name)
    if found is None:
        raise NotFound("There is nothing here.", hint="The chat page is at /.")
    content, kind = found
    return Response(content, media_type=kind)


ROUTES = (
    Route("GET", "/healthz", healthz, "Alive", "The process answers.", "health"),
    Route("GET", "/readyz", readyz, "Ready", "The record answers.", "health", errors=(503,)),
    Route("GET", "/openapi.json", description, "This description", "OpenAPI 3.1.", "health"),
    Route("GET", "/", index, "The chat page", "HTML.", "page", answer_type="text/html"),
    Route(
        "GET",
        "/page/{name}",
        page_file,
        "A file of the chat page",
        "Its script or its style.",
        "page",
        answer_type="*/*",
        errors=(404,),
    ),
    *(
        Route(
            "GET",
            path,
            sign_in,
            "Sign in to the page",
            "Takes the one-time code of a link and sets the page's cookie.",
            "page",
            query=SignInQuery,
            status=303,
            answer_type="",
            errors=(400, 401),
        )
        for path in ("/signin", "/sign-in")
    ),
    Route("POST", "/signout", sign_out, "Sign out of the page", "Clears the cookie.", "page", status=204),
)
