"""Fixtures of the page's tests: a real server, client and offline agent in the test's loop, and a real Chromium.

One browser for a module's tests, a fresh context (cookies, storage) for each. Waits are for a change of the page, never
for a time; a console error, a page error or a request to anywhere but the server fails the test that caused it.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
)

from harness.browser import USUAL_MS, fill_project, need_chromium, new_context, open_browser
from harness.household import Household, open_household

PAGE = Path(__file__).resolve().parents[2] / "src" / "byleave" / "server" / "page" / "index.html"
SHOTS = Path(__file__).resolve().parents[2] / "tests" / "ui" / "shots"
"""Screenshots of the main states, made anew by the tests and looked at by people; not committed."""

expect.set_options(timeout=USUAL_MS)


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    need_chromium()
    assert PAGE.exists(), "the page is not built: make ui"
    SHOTS.mkdir(exist_ok=True)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def home(tmp_path: Path) -> AsyncIterator[Household]:
    """Everything that is up, with a small project in the workspace."""
    fill_project(tmp_path / "workspace")
    async with open_household(tmp_path) as household:
        yield household


class Faults:
    """What a page did that it must not do."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        self.found: list[str] = []
        self.expected: list[str] = []
        """Services of console messages that this test means to cause, such as a refused request."""

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(part in message.text for part in self.expected):
            self.found.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        where = urlsplit(request.url)
        if where.scheme in ("http", "https") and where.netloc != self._host:
            self.found.append(f"request to {request.url[:200]}")


@pytest_asyncio.fixture(loop_scope="module")
async def faults(home: Household) -> AsyncIterator[Faults]:
    faults = Faults(home.url)
    yield faults
    assert not faults.found, "\n".join(faults.found)


@pytest_asyncio.fixture(loop_scope="module")
async def context(browser: Browser, faults: Faults) -> AsyncIterator[BrowserContext]:
    context = await new_context(browser)
    context.on("page", faults.watch)
    yield context
    await context.close()


OpenPage = Callable[[], Awaitable[Page]]


@pytest.fixture
def open_page(context: BrowserContext, home: Household) -> OpenPage:
    """Another signed-in tab of the same browser, opened as people do: only the first one needs a link."""

    async def opened() -> Page:
        page = await context.new_page()
        await page.goto(home.url if await context.cookies() else await sign_in_link(home))
        return page

    return opened


@pytest_asyncio.fixture(loop_scope="module")
async def page(open_page: OpenPage) -> Page:
    return await open_page()


async def sign_in_link(home: Household, user: str = "alice") -> str:
    return f"{home.url}/signin?code={await home.listening.parts.sign_in.new_code(user)}"


async def open_signed_out(page: Page, faults: Faults) -> Page:
    """A page in another browser's place: no cookie, no storage."""
    browser = page.context.browser
    assert browser is not None
    context = await new_context(browser)
    context.on("page", faults.watch)
    return await context.new_page()


async def say(page: Page, message: str, *, first: bool = True) -> None:
    """Write a message and send it as a person would; when the agent still works on another, after that."""
    field = page.get_by_label("Message", exact=True)
    await field.fill(message)
    if first:
        await field.press("Enter")
        return
    # The sign that the agent works comes a moment after the message before: until then Enter is taken for nothing.
    for _ in range(10):
        await expect(page.locator(".app-working")).to_have_count(0)
        await field.press("Enter")
        with contextlib.suppress(AssertionError):
            await expect(field).to_have_value("", timeout=2000)
            return
    raise AssertionError("the message was not sent")


def cards(page: Page) -> Locator:
    return page.locator(".card-tool")


def card(page: Page) -> Locator:
    return cards(page).last


def question(page: Page) -> Locator:
    """The question that waits; there must be one."""
    return page.locator(".card-question:not([data-settled])")


async def more(page: Page, words: str) -> None:
    """Choose one of the further ways to answer."""
    await page.get_by_role("button", name="More ways to answer", exact=True).click()
    await page.get_by_role("menuitem", name=words).click()


async def deny(page: Page, reason: str) -> None:
    """Deny what waits, with a reason."""
    await more(page, "Deny with a reason…")
    await question(page).get_by_label("Reason to deny, told to the agent; Enter denies").fill(reason)
    await question(page).get_by_role("button", name="Deny", exact=True).click()


def answer(page: Page, number: int = 0) -> Locator:
    """What the agent said in the end, counted from the first."""
    return page.locator(".app-said:not(.app-said-mine)[aria-busy=false]").nth(number)


def answer_with(page: Page, words: str) -> Locator:
    """What the agent said in the end with these words: of a long conversation only what is near is on the page."""
    return page.locator(".app-said:not(.app-said-mine)[aria-busy=false]").filter(has_text=words)


def beside(page: Page) -> Locator:
    """The page that is shown in place of the conversation."""
    return page.locator(".page")


async def choose(page: Page, label: str, option: str) -> None:
    """Choose one of a list's values by its words."""
    await page.get_by_role("combobox", name=label, exact=True).click()
    await page.get_by_role("option", name=option, exact=True).click()


async def shot(page: Page, name: str) -> None:
    await page.screenshot(path=SHOTS / f"{name}.png")
