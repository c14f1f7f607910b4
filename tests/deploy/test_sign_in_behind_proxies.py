"""People sign in by a real identity provider, and out again, through the real nginx and Caddy with TLS."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import SecretStr

from harness.identity_provider import FROM_TYPING, Visitor, client, provider, visitor
from harness.ports import free_port
from harness.proxies import KINDS, NAME, Kind

from .conftest import Behind, Deployed
from .test_proxies import FORGED

pytestmark = [pytest.mark.promise("S"), pytest.mark.parametrize("kind", KINDS)]


@asynccontextmanager
async def signing_in(behind: Behind, kind: Kind) -> AsyncGenerator[tuple[Deployed, Visitor]]:
    """A server behind a proxy, its identity provider, and a browser that reaches both. The provider leads back to the
    public address alone."""
    port = free_port()
    async with AsyncExitStack() as stack:
        deployed = await stack.enter_async_context(
            behind(
                kind,
                oidc_issuer=f"http://127.0.0.1:{port}",
                oidc_client_id="byleave",
                oidc_client_secret=SecretStr("s/e:c r%et"),
            )
        )
        url = deployed.proxy.url
        await stack.enter_async_context(provider(port, [client(url)], {"ada": {}}))
        yield deployed, await stack.enter_async_context(visitor(url, deployed.proxy.connector()))


async def test_person_signs_in_and_out_with_a_secure_cookie(behind: Behind, kind: Kind) -> None:
    async with signing_in(behind, kind) as (deployed, browser):
        url = deployed.proxy.url
        status, said = await browser.sign_in("ada")
        assert status == 200, said
        (cookie,) = [one for one in browser.session.cookie_jar if one.key.startswith("byleave_session")]
        assert cookie.key == f"byleave_session_{deployed.proxy.port}"
        assert (cookie["secure"], cookie["httponly"], cookie["samesite"].lower()) == (True, True, "strict")
        assert (await browser.me())["user_id"] == "ada"

        # Only our own page, at its public address, works with the cookie.
        for origin in ("https://evil.example", f"http://{NAME}:{deployed.proxy.port}", f"https://{NAME}"):
            marks = {**browser.headers, "Origin": origin}
            async with browser.session.post(f"{url}/my/projects", json={"name": "x"}, headers=marks) as refused:
                assert refused.status == 403, origin
        marks = {**browser.headers, "Origin": url}
        async with browser.session.post(f"{url}/my/projects", json={"name": "x"}, headers=marks) as taken:
            assert taken.status == 201, await taken.text()

        async with browser.session.post(f"{url}/signout", json={}, headers=marks) as answer:
            assert answer.status == 204
            assert "secure" in answer.headers["Set-Cookie"].lower()
        async with browser.session.get(f"{url}/my/me", headers=browser.headers) as answer:
            assert answer.status == 401
        async with browser.session.get(f"{url}/signin/provider/out", allow_redirects=False) as answer:
            assert _query(answer.headers["Location"])["post_logout_redirect_uri"] == f"{url}/"


async def test_provider_leads_back_to_the_public_address_whatever_a_sender_forges(behind: Behind, kind: Kind) -> None:
    async with signing_in(behind, kind) as (deployed, browser):
        browser.session.headers.update(FORGED)
        _, address = await browser.begin()
        assert _query(address)["redirect_uri"] == f"{deployed.proxy.url}/signin/provider/return"
        # Nor would it lead to another host if the proxy passed these on.
        async with browser.session.get(f"{deployed.server.url}/signin/provider", headers=FROM_TYPING) as answer:
            assert answer.status == 421
        # The provider accepts the public address alone: the attempt ends as it began.
        status, said = await browser.sign_in("ada")
        assert (status, said["user_id"]) == (200, "ada")


async def test_codes_of_the_provider_are_not_in_the_proxys_logs(behind: Behind, kind: Kind) -> None:
    async with signing_in(behind, kind) as (deployed, browser):
        ticket, address = await browser.begin()
        given = await browser.sign_in_there(address, "ada")
        async with browser.session.get(f"{browser.url}/signin/provider/return", params=given) as answer:
            assert answer.status == 200
        assert (await browser.finish(ticket, given))[0] == 200
        deployed.proxy.process.terminate()
        await deployed.proxy.process.wait()
        assert given["code"] not in deployed.proxy.log()
        if kind == "nginx":
            assert "/signin/provider/return" in deployed.proxy.log()


def _query(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
