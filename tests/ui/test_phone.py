"""A person approves from a phone: scans a code, is signed in, is told by a push message, and answers.

The phone is Chromium with a phone's screen, and `phone.test` an address that is not this machine's own. What a headless
browser has not got is its push service: the subscription is one of our own service on this machine, and what that takes
is handed to the browser as its push service would.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import segno
from playwright.async_api import Browser, BrowserContext, CDPSession, Page, expect

from byleave.sdk import Machine
from harness.browser import fill_project, new_context, open_browser, phone_context
from harness.household import Household, open_household
from harness.json_values import JsonObject
from harness.push_service import PushService, push_service

from .conftest import Faults, question, say, shot, sign_in_link
from .test_lasting import serious
from .test_rolling import press_until_it_counts

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.promise("A-elsewhere")]

NAME = "phone.test"
SUBSCRIBE = """(told) => {
  let made = null;
  const subscription = () => ({
    toJSON: () => ({ endpoint: told.endpoint, keys: { p256dh: told.p256dh, auth: told.auth } }),
    options: { applicationServerKey: null },
    unsubscribe: async () => { made = null; return true; },
  });
  PushManager.prototype.subscribe = async function ({ userVisibleOnly, applicationServerKey }) {
    if (!userVisibleOnly || typeof applicationServerKey !== "string") throw new Error("not as browsers want it");
    return (made = subscription());
  };
  PushManager.prototype.getSubscription = async () => made;
}"""
NOTES = """async () => {
  const worker = await navigator.serviceWorker.ready;
  return (await worker.getNotifications()).map(({ title, body, data }) => [title, body, data]);
}"""
TAP = """async () => {
  const [notification] = await self.registration.getNotifications();
  self.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
}"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser(names=NAME) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def pushing() -> AsyncIterator[PushService]:
    async with push_service() as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def home(tmp_path: Path) -> AsyncIterator[Household]:
    fill_project(tmp_path / "workspace")
    async with open_household(
        tmp_path, allowed_hosts=("127.0.0.1", NAME), push_allow_private=True, notify_after_seconds=0.5
    ) as household:
        yield household


def _elsewhere(url: str) -> str:
    return url.replace("127.0.0.1", NAME)


@pytest_asyncio.fixture(loop_scope="module")
async def faults(home: Household) -> AsyncIterator[Faults]:
    """Of pages at the server's other name."""
    faults = Faults(_elsewhere(home.url))
    yield faults
    assert not faults.found, "\n".join(faults.found)


@pytest_asyncio.fixture(loop_scope="module")
async def phone(browser: Browser, home: Household) -> AsyncIterator[BrowserContext]:
    """A phone that is signed in, at an address that browsers take for as safe as https."""
    faults = Faults(home.url)
    context = await phone_context(browser)
    await context.grant_permissions(["notifications"], origin=home.url)
    context.on("page", faults.watch)
    page = await context.new_page()
    await page.goto(await sign_in_link(home))
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()
    yield context
    await context.close()
    assert not faults.found, "\n".join(faults.found)


async def _menu(page: Page, name: str) -> None:
    """Choose from the menu, which a phone hides."""
    opener = page.get_by_role("button", name="Open the menu")
    if await opener.is_visible():
        await opener.click()
    await page.get_by_role("button", name=name, exact=True).click()


async def test_phone_that_scans_the_code_is_signed_in_and_answers_what_waits(
    browser: Browser, home: Household, faults: Faults
) -> None:
    desk, there = await new_context(browser), await phone_context(browser)
    for context in (desk, there):
        context.on("page", faults.watch)
    page = await desk.new_page()
    await page.goto(_elsewhere(await sign_in_link(home)))
    await page.get_by_role("button", name="Sign in as").click()
    await _menu(page, "Use your phone")
    await page.get_by_role("button", name="Show a code").click()
    link = await page.get_by_label("Sign-in link").input_value()
    assert link.startswith(f"{_elsewhere(home.url)}/signin?code=")
    drawn = await page.get_by_role("img", name="Code to scan").locator("path").last.get_attribute("d")
    rows = segno.make_qr(link, error="l").matrix
    dark = [f"M{x + 4} {y + 4}h1v1h-1z" for y, row in enumerate(rows) for x, module in enumerate(row) if module]
    assert drawn == "".join(dark)
    await expect(page.get_by_text("Notifications on the phone need https.")).to_be_visible()
    await shot(page, "phone-code")
    assert await serious(page) == []
    await page.keyboard.press("Escape")

    phone = await there.new_page()
    await phone.goto(link)
    await shot(phone, "phone-asked")
    # Over plain http a browser does not say that nobody led it here.
    await phone.get_by_role("button", name="Sign in as").click()
    await expect(phone.get_by_label("Message", exact=True)).to_be_visible()
    await shot(phone, "phone-signed-in")
    await say(page, "write notes.md: buy milk")
    await expect(question(phone)).to_contain_text("notes.md")
    await shot(phone, "phone-question")
    await question(phone).get_by_role("button", name="Allow once").tap()
    await expect(page.locator(".app-said:not(.app-said-mine)[aria-busy=false]")).to_be_visible()
    assert (home.workspace / "notes.md").read_text().strip() == "buy milk"
    await _menu(phone, "Settings")
    await expect(phone.get_by_text("This needs https, and this page came over plain http.")).to_be_visible()
    await expect(phone.get_by_label("Notify this device")).to_be_disabled()
    await shot(phone, "phone-plain-http")
    faults.expected.append("401")
    await phone.goto(link)  # the browser is signed in, so an old link leads on
    await expect(phone.get_by_label("Message", exact=True)).to_be_visible()
    await desk.close()
    await there.close()


async def test_phone_is_notified_and_a_tap_leads_to_the_question(
    phone: BrowserContext, home: Household, pushing: PushService
) -> None:
    await phone.add_init_script(f"({SUBSCRIBE})({pushing.subscription()})")
    [page] = phone.pages
    await page.reload()
    await _menu(page, "Settings")
    here = page.get_by_label("Notify this device")
    await here.click()
    await expect(here).to_be_checked()
    await expect(page.get_by_role("dialog")).to_contain_text("Chrome on Android (this device)")
    await expect(page.get_by_role("dialog")).to_contain_text("Sent when something has waited")
    await page.get_by_role("button", name="Send a test").click()
    await expect(page.get_by_role("status").filter(has_text="sent.")).to_have_text("Chrome on Android: sent.")
    await shot(page, "phone-notifications")
    assert await serious(page) == []
    assert (await pushing.message()).text["title"] == "Byleave: a test"
    await page.keyboard.press("Escape")

    session = await page.context.new_cdp_session(page)
    registered = await _registration(session)
    async with home.agent() as agent:
        asked = await agent.start("write_file", {"path": "first.txt", "content": "1"})
    text = (await pushing.message()).text
    assert text["body"].startswith("Medium risk. Expires in ")
    assert text["path"] == f"/#/review/{asked.approval_id}"
    message = {"origin": home.url, "registrationId": registered, "data": json.dumps(text)}
    for _ in range(10):  # a message that comes while the worker starts may get lost; a push service keeps it
        await session.send("ServiceWorker.deliverPushMessage", message)
        with contextlib.suppress(TimeoutError):
            await _notified(page, [[text["title"], text["body"], text["path"]]], seconds=3)
            break
    await page.evaluate("location.hash = '#/history'")
    await expect(page.get_by_role("heading", name="History")).to_be_visible()
    [worker] = phone.service_workers
    await worker.evaluate(TAP)
    await expect(question(page)).to_contain_text("first.txt")
    await expect(question(page)).to_be_in_viewport()
    await shot(page, "phone-tapped")
    await _notified(page, [])
    await page.go_back()
    await expect(page.get_by_role("heading", name="History")).to_be_visible()
    await page.go_forward()
    await question(page).get_by_role("button", name="Deny", exact=True).tap()
    await expect(question(page)).to_have_count(0)

    # Turned off, the browser is listed no more.
    await _menu(page, "Settings")
    await here.click()
    await expect(page.get_by_role("button", name="Send a test")).to_have_count(0)
    assert (await home.person.api.notices()).devices == []


async def _notified(page: Page, notes: list[list[str]], seconds: float = 20) -> None:
    """Wait until these notifications are what the browser shows."""
    async with asyncio.timeout(seconds):
        while await page.evaluate(NOTES) != notes:
            await asyncio.sleep(0.05)


async def _registration(session: CDPSession) -> str:
    """The browser's number of the page's service worker."""
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(event: JsonObject) -> None:
        for each in event["registrations"]:
            if not found.done():
                found.set_result(each["registrationId"])

    session.on("ServiceWorker.workerRegistrationUpdated", heard)
    await session.send("ServiceWorker.enable")
    async with asyncio.timeout(20):
        return await found


async def test_link_of_a_notification_opens_the_question_in_its_project_or_says_that_it_is_over(
    phone: BrowserContext, home: Household
) -> None:
    other = (await home.person.api.create_project("another project")).project_id
    asked: list[str] = []
    for project_id, path in ((home.project_id, "here.txt"), (other, "one.txt"), (other, "two.txt")):
        async with Machine(home.url, home.token(), project_id) as agent:
            answer = await agent.start("write_file", {"path": path, "content": "1"})
        assert answer.approval_id is not None
        asked.append(answer.approval_id)
    [page] = phone.pages
    await expect(question(page)).to_contain_text("here.txt")
    tapped = await phone.new_page()
    await tapped.goto(f"{home.url}/#/review/{asked[2]}")
    await expect(question(tapped)).to_contain_text("two.txt")
    await expect(tapped.locator(".app-title-project")).to_have_text("another project · from outside this chat")
    two = question(tapped).filter(has_text="two.txt")
    await press_until_it_counts(two.get_by_role("button", name="Deny", exact=True))
    await expect(question(tapped)).to_contain_text("one.txt")
    await tapped.evaluate(f"location.hash = '#/review/{asked[2]}'")
    await expect(tapped.get_by_text("This request was answered already, or it expired.")).to_be_visible()
    assert await tapped.evaluate("location.hash") != f"#/review/{asked[2]}"
    await shot(tapped, "phone-over")


async def test_link_is_pasted_where_there_is_no_address_bar(browser: Browser, home: Household) -> None:
    faults = Faults(home.url)
    faults.expected.append("401")
    context = await phone_context(browser)
    context.on("page", faults.watch)
    page = await context.new_page()
    await page.goto(home.url)
    await page.get_by_label("Sign-in link").fill(await sign_in_link(home))
    await shot(page, "phone-signed-out")
    assert await serious(page) == []
    await page.get_by_role("button", name="Sign in", exact=True).tap()
    await page.get_by_role("button", name="Sign in as").tap()
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()
    await context.close()
    assert not faults.found
