"""A program on another port of the same host: it gets the page's cookie, as browsers have it, and nothing for it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page, expect

from byleave.server.auth.sign_ins import COOKIE
from byleave.server.auth.tokens import HEADER
from harness.browser import new_context
from harness.household import Household
from harness.json_values import JsonObject

from .conftest import Faults, OpenPage, question, say, shot, sign_in_link

pytestmark = pytest.mark.asyncio(loop_scope="module")
KEPT = "localStorage.getItem('byleave-page-key')"


class OtherPort:
    """What an agent could start with `npm run dev`: it writes down what browsers send it."""

    def __init__(self) -> None:
        self.url = ""
        self.cookies: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.cookies.append(request.headers.get("Cookie", ""))
        return web.Response(text="<title>dev server</title>", content_type="text/html")


@pytest_asyncio.fixture(loop_scope="module")
async def other_port() -> AsyncIterator[OtherPort]:
    other, app = OtherPort(), web.Application()
    app.router.add_get("/{path:.*}", other.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    other.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    yield other
    await runner.cleanup()


async def signed_in(page: Page) -> None:
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()


async def signed_out(page: Page) -> None:
    await expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()


@pytest.mark.promise("U", "S", "A")
async def test_a_program_on_another_port_gets_the_cookie_and_cannot_use_it(
    page: Page, home: Household, other_port: OtherPort, faults: Faults
) -> None:
    faults.expected += ["CORS policy", "ERR_FAILED", "401"]
    await say(page, "write notes.md: milk")
    await expect(question(page)).to_contain_text("notes.md")
    key = (await page.evaluate(KEPT)).partition(" ")[0]
    [approval] = (await home.person.api.approvals()).approvals
    tab = await page.context.new_page()
    await tab.goto(other_port.url)
    faults.found.clear()  # that it asked another port is what this is about
    stolen = other_port.cookies[0]
    assert stolen.startswith(COOKIE), "browsers do not tell ports apart; should they ever, this test can go"
    assert await tab.evaluate(KEPT) is None, "storage they do tell apart"

    async def used(method: str, path: str, **more: str) -> int:
        """As a program that says it is our page."""
        forged = {"Cookie": stolen, "Origin": home.url, "Sec-Fetch-Site": "same-origin", **more}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, home.url + path, json={"decision": "approved"}, headers=forged) as answer,
        ):
            return answer.status

    confirm = f"/my/approvals/{approval.id}/confirm"
    for path in ("/my/me", "/my/projects", f"/my/projects/{home.project_id}/chat/stream"):
        assert await used("GET", path) == 401, path
    for path in (confirm, "/my/signin"):
        assert await used("POST", path) == 401, path
        assert await used("POST", path, **{HEADER: "x" * len(key)}) == 401, path
    await expect(question(page)).to_contain_text("notes.md")
    assert not (home.workspace / "notes.md").exists()
    # From its page it cannot send the key either, even if it knew it.
    sends = f"fetch('{home.url}/my/me', {{ credentials: 'include', headers: {{ '{HEADER}': '{key}' }} }})"
    assert await tab.evaluate(f"{sends}.then(() => 'read', () => 'refused')") == "refused"
    faults.found.clear()
    assert await used("GET", "/my/me", **{HEADER: key}) == 200, "the key was all that was missing"


@pytest.mark.promise("U", "S")
async def test_the_key_is_in_no_address_and_a_reload_and_a_second_tab_stay_signed_in(
    browser: Browser, home: Household, faults: Faults
) -> None:
    context = await new_context(browser)
    context.on("page", faults.watch)
    page = await context.new_page()
    addresses: list[str] = []
    page.on("framenavigated", lambda frame: addresses.append(frame.url))
    page.on("request", lambda request: addresses.append(request.url))
    await page.goto(await sign_in_link(home))
    await signed_in(page)
    kept = await page.evaluate(KEPT)
    key, _, user = kept.partition(" ")
    assert (len(key) >= 43, user) == (True, "alice")
    session = await context.new_cdp_session(page)
    history: JsonObject = await session.send("Page.getNavigationHistory")
    addresses += [entry["url"] for entry in history["entries"]]
    assert not any(key in address for address in addresses)
    assert not any("code=" in entry["url"] for entry in history["entries"]), "nor does going back lead to the link"
    await page.reload()
    await signed_in(page)
    second = await context.new_page()
    await second.goto(home.url)
    await signed_in(second)
    # Signed in anew in the second: the first goes on, with the new key.
    await page.evaluate("window.same = true")
    await second.goto(await sign_in_link(home))
    await signed_in(second)
    assert await page.evaluate(KEPT) != kept
    await say(page, "list src")
    await expect(page.locator(".app-said:not(.app-said-mine)[aria-busy=false]")).to_be_visible()
    assert await page.evaluate("window.same")
    await context.close()


@pytest.mark.promise("U", "S")
async def test_who_signed_out_comes_back_in_all_tabs_and_as_somebody_else_nothing_of_before_is_there(
    page: Page, open_page: OpenPage, home: Household, faults: Faults
) -> None:
    faults.expected.append("401")
    await say(page, "search for TODO in src")
    other = await open_page()
    await signed_in(other)
    await other.get_by_role("button", name="Sign out alice").click()
    for tab in (page, other):
        await signed_out(tab)
        assert await tab.evaluate(KEPT) is None
    await other.goto(await sign_in_link(home))
    for tab in (page, other):
        await signed_in(tab)
    # Another person's link asks first, and then both tabs are theirs.
    await other.goto(await sign_in_link(home, "bob"))
    await expect(other.get_by_text("This browser is signed in as alice now")).to_be_visible()
    assert (await page.evaluate(KEPT)).endswith(" alice")
    await other.get_by_role("button", name="Sign in as bob").click()
    for tab in (other, page):
        await expect(tab.get_by_role("button", name="Sign out bob")).to_be_visible()
        await expect(tab.get_by_text("search for TODO in src")).to_have_count(0)
        await expect(tab.get_by_role("alert")).to_have_count(0)


@pytest.mark.promise("U", "S")
async def test_tabs_that_are_signed_in_one_over_the_other_all_end_signed_in(
    page: Page, home: Household, faults: Faults
) -> None:
    # While they still load: in between a tab has the cookie of one sign-in and the key of another.
    faults.expected.append("401")
    tabs = [page, *[await page.context.new_page() for _ in range(5)]]
    for tab in tabs:
        await tab.goto(await sign_in_link(home))
    for tab in tabs:
        await expect(tab.get_by_text("Connected")).to_be_visible()


@pytest.mark.promise("U", "S")
async def test_a_cookie_whose_key_is_gone_is_a_sign_in_anew(page: Page, home: Household, faults: Faults) -> None:
    faults.expected.append("401")
    await signed_in(page)
    await page.evaluate("localStorage.clear()")
    await page.reload()
    await signed_out(page)
    await page.goto(await sign_in_link(home))
    await signed_in(page)


@pytest.mark.promise("U")
async def test_a_browser_that_keeps_nothing_is_told_why_it_cannot_sign_in(
    browser: Browser, home: Household, faults: Faults
) -> None:
    faults.expected.append("401")
    context = await new_context(browser)
    context.on("page", faults.watch)
    # As with site data blocked for this address.
    await context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('x', 'SecurityError') } })"
    )
    page = await context.new_page()
    await page.goto(await sign_in_link(home))
    await expect(page.get_by_role("heading", name="This browser cannot stay signed in")).to_be_visible()
    await shot(page, "no-storage")
    await page.goto(home.url)
    await signed_out(page)
    await expect(page.get_by_role("alert")).to_contain_text("keeps nothing for this page")
    await context.close()
