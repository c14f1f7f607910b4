"""What needs no token: the chat page, signing in and out, health, and the API's description.

The cookie a sign-in sets is HttpOnly and SameSite=Strict, holds chat and approve only, and opens nothing without the
key that comes with it (`page_key`). A link signs a browser in at
once when it was typed or opened from outside the browser. When another page led there, or somebody else is signed in
here, a person is asked first: a link can be anybody's, and who follows it must not talk in another's name unawares.
"""

import asyncio
import re
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import quote

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from byleave.protocol.errors import NotFound, RefusedError
from byleave.protocol.wire import WireModel
from byleave.server.auth.links import Code, cookie_name, cookies_in
from byleave.server.auth.tokens import HEADER, issue_session, new_key
from byleave.server.bodies import read_query
from byleave.server.page_files import PageFile, named, plain_page, reads_html
from byleave.server.problems import Unauthenticated
from byleave.server.routing import JsonAnswer, Route, parts_of

FOREVER = "public, max-age=31536000, immutable"
ANEW = "no-cache"
NO_WEIGHT = re.compile(r"q=0(\.0*)?")
KEEP_KEY = (
    "const root = document.documentElement;"
    "try {"
    'localStorage.setItem("byleave-page-key", root.dataset.key + " " + root.dataset.user);'
    "root.hidden = true;"
    'location.replace("/");'
    "} catch {}"
)
"""Runs before anything is shown; `ui/src/page_key.ts` reads what it keeps."""


class SignInQuery(WireModel):
    code: str = Field(min_length=1, max_length=200, description="The code from the link.")


class Health(WireModel):
    status: str


async def index(request: Request) -> Response:
    found = parts_of(request).page.index()
    if found is None:
        return plain_page(
            "The chat page was not built",
            "This server was started from a checkout without it. Run `make ui` there, then load this page again.",
            "Everything else works: `byleave chat` talks to the agent in a terminal.",
            status=503,
        )
    return await _sent(request, found)


async def page_file(request: Request) -> Response:
    found = parts_of(request).page.file(request.path_params["name"])
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


# Signing in


async def sign_in(request: Request) -> Response:
    """Follow a link: at once, or after a person was asked."""
    code = read_query(request, SignInQuery).code
    parts = parts_of(request)
    found = parts.sign_in.look_up(code)
    other = await _signed_in_as(request, None if found is None else found.user)
    if found is None:
        # A tab that comes back with its old link, in a browser that is signed in: nothing is lost.
        return RedirectResponse("/", status_code=303) if other is not None and reads_html(request) else _over(request)
    if _led_here(request) or (other is not None and other != found.user):
        return _asked(request, code, found, other)
    return _signed_in(request, code)


def _led_here(request: Request) -> bool:
    """Whether another page may have led here. A browser that does not say (over plain HTTP none does) may have been;
    also one that seems to want no page, since another page can have it ask for an image."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site != "none"
    return reads_html(request) or request.headers.get("user-agent", "").startswith("Mozilla/")


async def confirm_sign_in(request: Request) -> Response:
    """The button of that question; `isolation` has seen that it was pressed on a page of ours."""
    return _signed_in(request, read_query(request, SignInQuery).code)


def _signed_in(request: Request, code: str) -> Response:
    parts = parts_of(request)
    found = parts.sign_in.use(code)
    if found is None:
        return _over(request)
    key, seconds = new_key(), found.session_seconds()
    response = _handing_over(key, found.user)
    response.set_cookie(
        cookie_name(request.headers.get("host", "")),
        issue_session(parts.settings, found.user, seconds, key=key, led_by=found.led_by),
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )
    return response


def _handing_over(key: str, user: str) -> Response:
    """The page that keeps the key and goes on to the chat. Its text is seen only where that does not work."""
    return plain_page(
        "This browser cannot stay signed in",
        "The chat page needs JavaScript, and must be able to keep a key in this browser (site data, also called local "
        "storage). One of the two is switched off here.",
        "Allow both for this address, then open a new link: `byleave link` in a terminal prints one.",
        status=200,
        script=KEEP_KEY,
        data={"key": key, "user": user},
    )


def _asked(request: Request, code: str, found: Code, other: str | None) -> Response:
    if not reads_html(request):
        raise RefusedError(
            "Another page led here, or somebody else is signed in.", hint="Open the link in a browser by itself."
        )
    now = "" if other is None or other == found.user else f" This browser is signed in as {named(other)} now."
    return plain_page(
        "Sign in?",
        f"This link signs this browser in as {named(found.user)}.{now}",
        "Go on only if that is you and you asked for the link: what you write would be seen by whoever this is.",
        status=200,
        button=(f"Sign in as {named(found.user)}", f"/signin?code={quote(code)}"),
    )


async def _signed_in_as(request: Request, wanted: str | None) -> str | None:
    """Whose cookie came along, rather one who is not the wanted; None when there is none, or it is good no more. A
    browser that follows a link sends no key: this serves to ask before somebody is replaced, and for nothing else."""
    holders = await parts_of(request).sessions.holders(_cookies(request))
    users = sorted((each.user_id for each in holders), key=lambda user: user == wanted)
    return users[0] if users else None


def _cookies(request: Request) -> list[str]:
    return cookies_in("; ".join(request.headers.getlist("cookie")))


def _over(request: Request) -> Response:
    error = Unauthenticated(
        "This link was used already or is too old.",
        hint="Run `byleave link` for a new one; `byleave up` prints one when it starts.",
    )
    if not reads_html(request):
        raise error
    return plain_page(
        "This link no longer works",
        "A link signs in once, and within 10 minutes. This one was used already or is too old.",
        "Run `byleave link` in a terminal for a new one.",
        status=HTTPStatus.UNAUTHORIZED,
    )


async def sign_out(request: Request) -> Response:
    """The browser forgets its cookie in any case; the sign-in ends for who has its key, as for all else."""
    sessions = parts_of(request).sessions
    # One that is over is signed out of already.
    with suppress(Unauthenticated):
        await sessions.end(await sessions.verify(_cookies(request), request.headers.get(HEADER, "")))
    response = Response(status_code=204)
    response.delete_cookie(cookie_name(request.headers.get("host", "")), path="/", httponly=True, samesite="strict")
    return response


async def healthz(request: Request) -> Response:
    return JsonAnswer(Health(status="ok"))


async def readyz(request: Request) -> Response:
    # Any read will do: it goes through the same thread and file as all others.
    store = parts_of(request).store
    await store.feed.head("")
    await store.check_writable()
    return JsonAnswer(Health(status="ready"))


async def description(request: Request) -> Response:
    # On a thread: the first time it takes a while, and streams must not wait for it.
    text = await asyncio.to_thread(request.app.state.description)
    return Response(text, media_type="application/json")


ROUTES = (
    Route("GET", "/healthz", healthz, "Alive", "The process answers.", "health"),
    Route("GET", "/readyz", readyz, "Ready", "The record answers, and can be written.", "health", errors=(503,)),
    Route("GET", "/openapi.json", description, "This description", "OpenAPI 3.1.", "health"),
    Route("GET", "/", index, "The chat page", "HTML.", "page", answer_type="text/html", errors=(503,)),
    Route(
        "GET",
        "/page/{name}",
        page_file,
        "A file of the chat page",
        "Its script or its style. A name with a hash in it never changes.",
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
            "Takes the one-time code of a link, sets the page's cookie, and hands the browser the key that goes with "
            "it. When another page led here, or somebody else is signed in, a page asks first.",
            "page",
            query=SignInQuery,
            answer_type="text/html",
            errors=(400, 401, 403),
        )
        for path in ("/signin", "/sign-in")
    ),
    Route(
        "POST",
        "/signin",
        confirm_sign_in,
        "Sign in to the page after being asked",
        "What the button of that question posts; only from a page of this server.",
        "page",
        query=SignInQuery,
        plain_form=True,
        answer_type="text/html",
        errors=(400, 401, 403),
    ),
    Route(
        "POST",
        "/signout",
        sign_out,
        "Sign out of the page",
        "Ends the sign-in, those that links it asked for led to, and the feeds they read, and clears the cookie; only "
        "from a page of this server.",
        "page",
        status=204,
        errors=(403, 415, 503),
    ),
)
