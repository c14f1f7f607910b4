"""Signing in to the page by the operator's identity provider, and signing out there.

The page that begins keeps the attempt's ticket where only this origin reads it, and leads to the provider. The page
that the provider leads back to posts ticket and code to `/signin/provider/finish`, and gets what a link gives: cookie
and key. So an answer that another page or a program on another port brings along ends nowhere. As with links, nobody is
signed in over somebody else, or because another page led there, before they were asked.
"""

from typing import Any

import structlog
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from byleave.protocol.errors import NotFound, RefusedError
from byleave.protocol.sign_in import SignInFinishBody, SignInFinished, SignInWays
from byleave.server.auth.provider import IdentityProvider
from byleave.server.auth.tokens import PAGE_SCOPES, new_key
from byleave.server.dependencies import Parts, StrictRoute, from_our_form, from_our_page
from byleave.server.errors import Unavailable
from byleave.server.problems import problems
from byleave.server.services import Services

from .page import named, plain_page, reads_html
from .sign_in import set_cookie, signed_in_as

router = APIRouter(route_class=StrictRoute, tags=["page"])

log = structlog.stdlib.get_logger(__name__)

BEGIN = (
    "const root = document.documentElement;"
    "try {"
    'localStorage.setItem("byleave-sign-in", root.dataset.ticket);'
    "root.hidden = true;"
    "location.replace(root.dataset.address);"
    "} catch {}"
)
FINISH = (
    "(async () => {"
    "const given = new URLSearchParams(location.search);"
    'history.replaceState(null, "", location.pathname);'
    "const told = (title, text) => {"
    "if (document.readyState === 'loading') {"
    "addEventListener('DOMContentLoaded', () => told(title, text));"
    "} else {"
    'document.querySelector("h1").textContent = title;'
    'document.querySelector("p").textContent = text;'
    "}"
    "};"
    "try {"
    'const ticket = localStorage.getItem("byleave-sign-in");'
    'localStorage.removeItem("byleave-sign-in");'
    "const said = await fetch('/signin/provider/finish', {method: 'POST', "
    "headers: {'Content-Type': 'application/json'}, body: JSON.stringify({ticket: ticket ?? '', "
    "code: given.get('code') ?? '', state: given.get('state') ?? '', iss: given.get('iss')})});"
    "const answer = await said.json();"
    "if (said.ok) {"
    "localStorage.setItem('byleave-page-key', answer.key + ' ' + answer.user_id);"
    "location.replace('/');"
    "} else {"
    "told('You are not signed in', answer.detail + ' ' + (answer.hint ?? ''));"
    "}"
    "} catch {"
    "told('You are not signed in', 'The server does not answer. Sign in again in a while.');"
    "}"
    "})();"
)
"""`ui/src/page_key.ts` reads the stored key."""


PAGE: dict[str, Any] = {"response_class": HTMLResponse, "responses": problems(404, 503)}


@router.get("/signin/ways", summary="Ways to sign in to the page")
async def ways(parts: Parts) -> SignInWays:
    """Whether an identity provider signs people in, beside one-time links."""
    return SignInWays(provider=None if parts.provider is None else parts.provider.name)


@router.get("/signin/provider", summary="Sign in by the identity provider", **PAGE)
async def begin(parts: Parts, request: Request) -> Response:
    """Leads to the provider. If another page led here, or somebody is signed in, a page asks first."""
    provider = _provider(parts)
    other = await signed_in_as(parts, request, None)
    if request.headers.get("sec-fetch-site") not in ("none", "same-origin") or other is not None:
        now = "" if other is None else f" This browser is signed in as {named(other)} now."
        return plain_page(
            "Sign in?",
            f"You go on to {named(provider.name)}, and come back signed in as whoever you are there.{now}",
            status=200,
            button=(f"Go on to {named(provider.name)}", "/signin/provider"),
        )
    return await _led_on(provider, request)


@router.post(
    "/signin/provider",
    summary="Sign in by the identity provider after being asked",
    response_class=HTMLResponse,
    responses=problems(403, 404, 503),
    dependencies=[Depends(from_our_form)],
)
async def confirm_begin(parts: Parts, request: Request) -> Response:
    """The button of that question posts here. Accepted only from a page of this server."""
    return await _led_on(_provider(parts), request)


async def _led_on(provider: IdentityProvider, request: Request) -> Response:
    try:
        attempt = await provider.begin(f"{_origin(request)}/signin/provider/return")
    except Unavailable as error:
        if not reads_html(request):
            raise
        return plain_page("Sign-in does not work now", error.message, error.hint or "", status=503)
    return plain_page(
        "This browser cannot sign in",
        "Signing in needs JavaScript, and a page that may keep data in this browser (site data, also called local "
        "storage). One of the two is switched off here.",
        "Allow both for this address, then try again.",
        status=200,
        script=BEGIN,
        data={"ticket": attempt.ticket, "address": attempt.address},
    )


@router.get("/signin/provider/return", summary="Where the identity provider leads back to", **PAGE)
async def come_back(parts: Parts, request: Request) -> Response:
    """Its script posts what the provider led back with."""
    _provider(parts)
    error = request.query_params.get("error")
    if error is not None:
        cancelled = error == "access_denied"
        why = "The sign-in was cancelled." if cancelled else f"The identity provider says: {named(error[:100])}."
        return plain_page("You are not signed in", why, "Open `/` to try again.", status=403 if cancelled else 400)
    return plain_page(
        "Signing in …",
        "One moment. If this stays, allow JavaScript and site data for this address, then sign in again.",
        status=200,
        script=FINISH,
        asks=True,
    )


@router.post(
    "/signin/provider/finish",
    summary="Finish a sign-in by the identity provider",
    responses=problems(401, 403, 404, 503),
)
async def finish(parts: Parts, request: Request, body: SignInFinishBody, response: Response) -> SignInFinished:
    """Exchanges the provider's code, sets the page's cookie, and gives the browser the key that goes with it. Accepted
    only from a page of this server, with the ticket of the attempt that it began."""
    await from_our_page(request)
    provider = _provider(parts)
    claims = await provider.finish(body.ticket, code=body.code, state=body.state, issuer=body.iss)
    user = provider.claim_map.user(claims)
    try:
        provider.claim_map.page_scopes(claims, frozenset(PAGE_SCOPES))
    except RefusedError:
        log.warning("a person without a role signed in", user=user)
        raise
    key = new_key()
    set_cookie(parts, request, response, user, round(parts.settings.sign_in_hours * 3600), key)
    log.info("signed in by the identity provider", user=user)
    response.headers["cache-control"] = "no-store"
    return SignInFinished(key=key, user_id=user)


@router.get("/signin/provider/out", summary="Sign out at the identity provider", **PAGE)
async def out(parts: Parts, request: Request) -> Response:
    """Leads to the provider's page for signing out, if it has one. Of our own page, `/signout` signs out."""
    address = await _provider(parts).sign_out_address(f"{_origin(request)}/")
    if address is None:
        raise NotFound("The identity provider has no page for signing out.", hint="Sign out on its own pages.")
    return RedirectResponse(address, status_code=303)


def _provider(parts: Services) -> IdentityProvider:
    if parts.provider is None:
        raise NotFound(
            "This server has no identity provider for its page.",
            hint="Sign in with a link from `byleave link`; BYLEAVE_OIDC_ISSUER names a provider.",
        )
    return parts.provider


def _origin(request: Request) -> str:
    """The server's address as the browser sees it; its host was checked."""
    return f"{request.url.scheme}://{request.headers.get('host', '')}"
