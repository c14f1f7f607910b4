"""Signing in with a one-time link, as a browser or as a program, and signing out.

The cookie of a sign-in is HttpOnly and SameSite=Strict, has the scopes chat and approve only, and authorizes nothing
without its key (`auth.tokens`). A link signs a browser in at once if it was typed or opened from outside the browser.
If another page led there, or another user is signed in, a page asks first: the link may be someone else's, and a person
must not act under another name unawares.

Programs exchange a link for a token, with no more scopes than the asker of the link has. Pages may not exchange, not
even our own: a page's cookie may not execute, and a link followed in a browser is for the browser.
"""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import structlog
from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from byleave.addresses import is_loopback
from byleave.protocol.errors import ConflictError, RefusedError
from byleave.protocol.sign_in import ExchangeBody, ExchangedToken, PhoneLink, SignInLink
from byleave.protocol.states import Scope
from byleave.protocol.wire import WireModel
from byleave.server.auth.sign_ins import CODE_SECONDS, PROGRAM_SECONDS, Code, cookie_name, cookies_in
from byleave.server.auth.tokens import HEADER, Principal, issue_session, issue_token, new_key
from byleave.server.dependencies import Allow, Parts, StrictRoute, from_a_program, from_our_form, from_our_page
from byleave.server.errors import Unauthenticated
from byleave.server.isolation import Headers, is_of
from byleave.server.problems import problems
from byleave.server.services import Services

from .page import named, plain_page, reads_html

router = APIRouter(route_class=StrictRoute, tags=["page"])

log = structlog.stdlib.get_logger(__name__)

KEEP_KEY = (
    "const root = document.documentElement;"
    "try {"
    'localStorage.setItem("byleave-page-key", root.dataset.key + " " + root.dataset.user);'
    "root.hidden = true;"
    'location.replace("/");'
    "} catch {}"
)
"""Runs before anything is shown; `ui/src/page_key.ts` reads the stored key."""


class SignInQuery(WireModel):
    code: str = Field(min_length=1, max_length=200, description="The code from the link.")


SIGN_IN: dict[str, Any] = {
    "summary": "Sign in to the page",
    "response_class": HTMLResponse,
    "responses": problems(401, 403, 503),
}


@router.post("/my/signin", summary="A link that signs a browser in", responses=problems(429, 503))
async def sign_in_link(
    parts: Parts,
    principal: Annotated[Principal, Depends(Allow(Scope.CHAT, Scope.APPROVE, every=True, people_only=True))],
) -> SignInLink:
    """Works once within ten minutes, for chat and approve; its sign-in lasts no longer than the token or the sign-in
    that asked for it. A program may exchange it at `/signin/exchange` for a token with no more scopes than the asker.
    Needs both scopes. Too many at once are a 429."""
    code = await parts.sign_in.asked_for(
        principal.user_id, until=principal.expires_at, scopes=principal.scopes, led_by=principal.sign_ins
    )
    return SignInLink(path=f"/signin?code={quote(code)}", expires_in_seconds=round(CODE_SECONDS))


@router.post("/my/signin/phone", summary="A link that signs another device in", responses=problems(409, 429, 503))
async def phone_link(
    parts: Parts,
    request: Request,
    principal: Annotated[Principal, Depends(Allow(Scope.CHAT, Scope.APPROVE, every=True, people_only=True))],
) -> PhoneLink:
    """As `/my/signin`, with the whole address, and as a QR code. The address is that of BYLEAVE_PUBLIC_URL, else the
    one this request was sent to; a 409 if only this machine can open that."""
    base = _address_elsewhere(parts, request)
    link = await sign_in_link(parts, principal)
    url = base + link.path
    # In a thread: drawing takes some milliseconds.
    rows = await asyncio.to_thread(_qr_rows, url)
    return PhoneLink(url=url, qr=rows, expires_in_seconds=link.expires_in_seconds)


def _address_elsewhere(parts: Services, request: Request) -> str:
    """The address at which other devices reach this server."""
    if parts.settings.public_url is not None:
        return parts.settings.public_url
    headers: Headers = request.scope["byleave.headers"]
    host, origin = headers.get(b"host", ""), headers.get(b"origin", "")
    if is_loopback(urlsplit(f"//{host}").hostname or ""):
        raise ConflictError(
            f"This server is reached at {host}, which only its own machine can open.",
            state="local",
            hint="Set BYLEAVE_PUBLIC_URL to an address your phone can open; docs/phone.md shows how to get one.",
        )
    # The page knows whether a proxy in front speaks https, also where we do not believe the proxy.
    return origin if origin and is_of(origin, host, request.url.scheme) else f"{request.url.scheme}://{host}"


def _qr_rows(text: str) -> list[str]:
    import segno

    code = segno.make_qr(text, error="l")
    return ["".join("1" if module else "0" for module in row) for row in code.matrix]


@router.get("/signin", **SIGN_IN)
@router.get("/sign-in", **SIGN_IN, operation_id="sign_in_again")
async def sign_in(parts: Parts, request: Request, query: Annotated[SignInQuery, Query()]) -> Response:
    """Takes the one-time code of a link, sets the page's cookie, and gives the browser the key that goes with it.
    If another page led here, or another user is signed in, a page asks first."""
    code = query.code
    found = await parts.sign_in.look_up(code)
    other = await signed_in_as(parts, request, None if found is None else found.user)
    if found is None:
        # An old tab, reloaded with its used link in a browser that is signed in: go on to the page.
        return RedirectResponse("/", status_code=303) if other is not None and reads_html(request) else _over(request)
    if _led_here(request) or (other is not None and other != found.user):
        return _asked(request, code, found, other)
    return await _signed_in(parts, request, code)


def _led_here(request: Request) -> bool:
    """True if another page may have led here. Without Sec-Fetch-Site, as over plain HTTP, any browser's request counts;
    also one that accepts no HTML, since another page can make it load an image."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site != "none"
    return reads_html(request) or request.headers.get("user-agent", "").startswith("Mozilla/")


@router.post(
    "/signin",
    summary="Sign in to the page after being asked",
    response_class=HTMLResponse,
    responses=problems(401, 403, 503),
    dependencies=[Depends(from_our_form)],
)
async def confirm_sign_in(parts: Parts, request: Request, query: Annotated[SignInQuery, Query()]) -> Response:
    """The button of that question posts here. Accepted only from a page of this server."""
    return await _signed_in(parts, request, query.code)


async def _signed_in(parts: Services, request: Request, code: str) -> Response:
    found = await parts.sign_in.use(code)
    if found is None:
        return _over(request)
    key, seconds = new_key(), found.session_seconds(parts.settings.sign_in_hours * 3600)
    response = _handing_over(key, found.user)
    set_cookie(parts, request, response, found.user, seconds, key, led_by=found.led_by)
    return response


def set_cookie(
    parts: Services,
    request: Request,
    response: Response,
    user: str,
    seconds: int,
    key: str,
    *,
    led_by: tuple[str, ...] = (),
) -> None:
    """Sign a browser in: its cookie, of use only together with the key."""
    response.set_cookie(
        cookie_name(request.headers.get("host", "")),
        issue_session(parts.settings, user, seconds, key=key, led_by=led_by),
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


def _handing_over(key: str, user: str) -> Response:
    """Make the page that stores the key and goes on to the chat. Its text is seen only if that fails."""
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


async def signed_in_as(parts: Services, request: Request, wanted: str | None) -> str | None:
    """The user of a valid cookie, preferably another than `wanted`; None if there is none. A browser that follows a
    link sends no key: use this only to ask before a user is replaced, and for nothing else."""
    holders = await parts.sessions.holders(_cookies(request))
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


@router.post(
    "/signout",
    summary="Sign out of the page",
    status_code=204,
    responses=problems(403, 413, 415, 503),
    dependencies=[Depends(from_our_page)],
)
async def sign_out(parts: Parts, request: Request) -> Response:
    """Ends the sign-in, all sign-ins that came from its links, and the feeds they read, and clears the cookie. Accepted
    only from a page of this server."""
    # The cookie is cleared in any case; ending the sign-in needs its key, like everything else.
    sessions = parts.sessions
    # A sign-in that has ended needs no sign-out.
    with suppress(Unauthenticated):
        await sessions.end(await sessions.verify(_cookies(request), request.headers.get(HEADER, "")))
    response = Response(status_code=204)
    response.delete_cookie(
        cookie_name(request.headers.get("host", "")),
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.post(
    "/signin/exchange",
    summary="A token for a one-time link",
    responses=problems(401, 403, 429, 503),
    dependencies=[Depends(from_a_program)],
)
async def exchange(parts: Parts, body: ExchangeBody, response: Response) -> ExchangedToken:
    """For programs: takes the code of a link, once, and gives a token with no more scopes and no longer life than the
    asker of the link. Refused to pages. Too many wrong codes are a 429."""
    code = body.code
    if parts.settings.jwks_url or parts.settings.public_key:
        raise RefusedError(
            "This server's tokens come from your identity provider, so a link gives none.", hint="Get a token there."
        )
    found = await parts.sign_in.look_up(code)
    if found is not None and Scope.EXECUTE not in found.scopes:
        raise RefusedError(
            "This link was made by a page, which may not execute, so it signs in a browser only.",
            hint="Run `byleave link` in a terminal, and use the link it prints.",
        )
    # Of several that found it, one gets it.
    if found is None or await parts.sign_in.use(code) is None:
        parts.sign_in.count_wrong()
        raise Unauthenticated(
            "This link was used already or is too old: it works once, and for 10 minutes.",
            hint="Run `byleave link` for a new one.",
        )
    seconds = found.session_seconds(PROGRAM_SECONDS)
    scopes = sorted(found.scopes)
    log.info("a program was signed in by a link", user=found.user)
    token = issue_token(parts.settings, found.user, scopes, seconds)
    response.headers["cache-control"] = "no-store"
    return ExchangedToken(token=token, user_id=found.user, scopes=scopes, expires_in_seconds=seconds)
