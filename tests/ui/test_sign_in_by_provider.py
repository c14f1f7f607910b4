"""A person signs in with the operator's identity provider, in a real Chromium and at a real provider."""

from pathlib import Path
from typing import Unpack
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, expect
from pydantic import SecretStr

from byleave.settings import ServerSettings
from harness.browser import new_context
from harness.http_server import SECRET, running_server
from harness.identity_provider import client, provider
from harness.options import ServerOptions
from harness.ports import free_port
from harness.proxies import in_front_of, why_not

from .conftest import SHOTS

pytestmark = pytest.mark.asyncio(loop_scope="module")


def settings_for(place: Path, port: int, **changes: Unpack[ServerOptions]) -> ServerSettings:
    """Of a server whose provider listens on this port."""
    values: ServerOptions = {
        "home": place / "home",
        "secret": SecretStr(SECRET),
        "oidc_issuer": f"http://127.0.0.1:{port}",
        "oidc_client_id": "byleave",
        "oidc_client_secret": SecretStr("s/e:c r%et"),
        "oidc_name": "Example",
        **changes,
    }
    return ServerSettings(**values)


async def sign_in(page: Page, url: str) -> None:
    """Press the button, sign in at the provider, and come back."""
    await page.get_by_role("button", name="Sign in with Example", exact=True).click()
    await page.get_by_placeholder("Enter any login").fill("ada")
    await page.get_by_placeholder("and password").fill("any")
    await page.get_by_role("button", name="Sign-in").click()
    await page.get_by_role("button", name="Continue").click()
    # Not the page that the provider leads back to, which still has to post.
    await page.wait_for_url(lambda address: urlsplit(address)[:3] == urlsplit(f"{url}/")[:3])
    await expect(page.get_by_text("You are not signed in")).to_have_count(0)


async def test_the_button_leads_to_the_provider_and_back_to_the_page(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    settings = settings_for(tmp_path, port)
    async with running_server(settings) as server, provider(port, [client(server.url)], {"ada": {}}):
        context = await new_context(browser)
        page = await context.new_page()
        await page.goto(server.url)
        await expect(page.get_by_role("button", name="Sign in with Example", exact=True)).to_be_visible()
        await page.screenshot(path=SHOTS / "signed-out-provider.png")
        await sign_in(page, server.url)
        kept = await page.evaluate("localStorage.getItem('byleave-page-key')")
        assert kept.endswith(" ada")
        assert await page.evaluate("localStorage.getItem('byleave-sign-in')") is None

        # Cancelled there: told, and nobody is signed in.
        other = await (await new_context(browser)).new_page()
        await other.goto(f"{server.url}/signin/provider")
        await other.get_by_role("link", name="Cancel").click()
        await expect(other.get_by_text("The sign-in was cancelled.")).to_be_visible()
        # An answer that this browser did not ask for ends nowhere.
        await other.goto(f"{server.url}/signin/provider/return?code=x&state=y")
        await expect(other.get_by_role("heading", name="You are not signed in")).to_be_visible()
        assert "code=" not in other.url
        await other.context.close()
        await context.close()


async def test_behind_nginx_with_tls_a_person_signs_in_and_the_page_works(browser: Browser, tmp_path: Path) -> None:
    reason = why_not("nginx")
    if reason is not None:
        pytest.skip(reason)
    port = free_port()
    settings = settings_for(tmp_path, port, allowed_hosts=("localhost", "127.0.0.1"), trusted_proxies=("127.0.0.1",))
    async with (
        running_server(settings) as server,
        in_front_of("nginx", tmp_path / "nginx", [server.listening.port], "localhost") as proxy,
        provider(port, [client(proxy.url)], {"ada": {}}),
    ):
        await server.user("ada").project("payments")
        context = await browser.new_context(ignore_https_errors=True)
        page = await context.new_page()
        await page.goto(proxy.url)
        await sign_in(page, proxy.url)
        (cookie,) = [one for one in await context.cookies() if (one.get("name") or "").startswith("byleave_session")]
        assert (cookie.get("name"), cookie.get("secure")) == (f"byleave_session_{proxy.port}", True)
        # Read through the proxy with that cookie, and followed on its feed.
        await expect(page.get_by_text("payments").first).to_be_visible()
        await page.screenshot(path=SHOTS / "behind-nginx.png")
        await context.close()
