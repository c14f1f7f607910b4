"""A person signs in with the operator's identity provider, in a real Chromium and at a real provider."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from pydantic import SecretStr

from byleave.settings import ServerSettings
from harness.browser import new_context
from harness.http_server import SECRET, running_server
from harness.identity_provider import client, provider
from harness.ports import free_port

from .conftest import SHOTS

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_button_leads_to_the_provider_and_back_to_the_page(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    settings = ServerSettings(
        home=tmp_path / "home",
        secret=SecretStr(SECRET),
        oidc_issuer=f"http://127.0.0.1:{port}",
        oidc_client_id="byleave",
        oidc_client_secret=SecretStr("s/e:c r%et"),
        oidc_name="Example",
    )
    async with running_server(settings) as server, provider(port, [client(server.url)], {"ada": {}}):
        context = await new_context(browser)
        page = await context.new_page()
        await page.goto(server.url)
        button = page.get_by_role("button", name="Sign in with Example", exact=True)
        await expect(button).to_be_visible()
        await page.screenshot(path=SHOTS / "signed-out-provider.png")
        await button.click()
        await page.get_by_placeholder("Enter any login").fill("ada")
        await page.get_by_placeholder("and password").fill("any")
        await page.get_by_role("button", name="Sign-in").click()
        await page.get_by_role("button", name="Continue").click()
        await page.wait_for_url(f"{server.url}/**")
        await expect(page.get_by_text("You are not signed in")).to_have_count(0)
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
