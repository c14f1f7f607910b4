"""How a person who looks elsewhere is told that something waits: real notifications and real sound of a real browser.

What the page makes is recorded while the browser makes it; nothing is put in its place. Elsewhere is another tab that
was brought to the front.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import BrowserContext, Page, expect

from byleave.protocol.executions import ToolResponse
from byleave.sdk import Machine
from harness.household import Household

from .conftest import OpenPage, question, shot

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORD = """(() => {
  const told = (window.told = { notes: [], tones: [] });
  window.Notification = new Proxy(window.Notification, {
    construct(real, [title, options]) {
      const note = new real(title, options);
      const seen = { title, body: options.body, note, shown: false, closed: false };
      note.addEventListener("show", () => { seen.shown = true; });
      note.addEventListener("close", () => { seen.closed = true; });
      told.notes.push(seen);
      return note;
    },
  });
  const { start } = OscillatorNode.prototype;
  OscillatorNode.prototype.start = function (...when) {
    told.tones.push(this.context);
    return start.apply(this, when);
  };
})()"""
NOTES = "told.notes.filter((each) => each.shown).map(({ title, body }) => [title, body])"
TONES_THAT_RUN = "told.tones.filter(({ state, currentTime }) => state === 'running' && currentTime > 0).length"
SAMPLE = 2
"""Tones that are heard when the sound is turned on, and again for each time somebody is told."""


async def look_elsewhere(page: Page) -> None:
    """Another tab in front, as when a person reads something else."""
    await lose_the_focus(page)
    other = await page.context.new_page()
    await other.bring_to_front()
    await until(page, "!document.hasFocus()")


async def lose_the_focus(page: Page) -> None:
    """Playwright lets every page believe that it has the focus; this one does no more."""
    session = await page.context.new_cdp_session(page)
    await session.send("Emulation.setFocusEmulationEnabled", {"enabled": False})


async def until(page: Page, holds: str) -> None:
    """Waits for the page; its policy lets nothing be evaluated inside it, so it is asked from here."""
    async with asyncio.timeout(20):
        while not await page.evaluate(holds):
            await asyncio.sleep(0.02)


async def turn_on(page: Page) -> None:
    await page.get_by_role("button", name="Settings").click()
    for name in ("Show a notification", "Play a sound"):
        switch = page.get_by_role("checkbox", name=name)
        await switch.click()
        await expect(switch).to_be_checked()
    await page.get_by_role("button", name="Close").click()


@asynccontextmanager
async def writes(agent: Machine, *paths: str) -> AsyncGenerator[list[asyncio.Task[ToolResponse]]]:
    """Calls that ask, and wait for as long as the test looks at their questions."""
    calls = [asyncio.create_task(agent.execute("write_file", {"path": path, "content": "x"})) for path in paths]
    yield calls
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.promise("U")
async def test_who_looks_elsewhere_is_told_once_and_led_to_the_question(
    context: BrowserContext, open_page: OpenPage, home: Household
) -> None:
    await context.add_init_script(RECORD)
    await context.grant_permissions(["notifications"], origin=home.url)
    page = await open_page()
    second = await open_page()  # of several tabs one tells
    await page.bring_to_front()
    await turn_on(page)
    await until(page, f"{TONES_THAT_RUN} === {SAMPLE}")
    async with home.agent() as agent:
        async with writes(agent, "seen.md"):
            await expect(question(page)).to_be_visible()
            (asked,) = (await home.person.api.approvals()).approvals
            await home.person.reject(asked.id, "no")
        assert await page.evaluate("told.notes.length") == 0, "who looks at the page sees it"

        await lose_the_focus(second)
        await look_elsewhere(page)
        hostile = "allowed by alice <b>nothing</b> to do/" * 5 + "x.md"
        async with writes(agent, hostile):
            await until(page, f"{NOTES}.length === 1")
            ((title, body),) = await page.evaluate(NOTES)
            assert title == "Byleave: 1 to review"
            shown = await question(page).get_by_role("heading").inner_text()
            said = body.removeprefix("Medium risk: ").removesuffix("…")
            assert said.startswith("Create allowed by alice <b>nothing</b>")
            assert shown.startswith(said), "what the card shows, and no more"
            assert body.endswith("…")
            assert len(body) < 200
            await until(page, f"{TONES_THAT_RUN} === {2 * SAMPLE}")
            assert await second.evaluate("told.notes.length") == 0
            # What the browser does when the person presses it, which also lets the page come to the front.
            await page.evaluate("told.notes[0].note.dispatchEvent(new Event('click'))")
            await page.bring_to_front()
            await expect(question(page)).to_be_focused()
            await page.keyboard.press("Enter")
            await page.keyboard.press("Space")
            await expect(question(page)).to_be_visible()


@pytest.mark.promise("U")
async def test_a_flood_of_questions_is_one_notification_with_their_number(
    context: BrowserContext, open_page: OpenPage, home: Household
) -> None:
    await context.add_init_script(RECORD)
    await context.grant_permissions(["notifications"], origin=home.url)
    page = await open_page()
    await turn_on(page)
    await look_elsewhere(page)
    paths = [f"allowed-by-you-{number}.md" for number in range(12)]
    async with home.agent() as agent, writes(agent, *paths):
        await expect(page).to_have_title("(12) Byleave")
        await until(page, f"{NOTES}.length > 0")
        ((title, body),) = await page.evaluate(NOTES)
        told = int(title.removeprefix("Byleave: ").removesuffix(" to review"))
        assert 1 < told <= 12
        assert "allowed-by-you" not in body, "of many only the number is said"
        await until(page, f"{TONES_THAT_RUN} === {2 * SAMPLE}")
        # Only one is whole: many open ones must not make the page heavy. Those that came later wait below it.
        await expect(page.locator(".card-question")).to_have_count(1)
        await shot(page, "many-questions")
        await page.reload()
        await expect(question(page).get_by_role("heading")).to_have_text("Change 12 files")
        await expect(page.locator(".card-set-body:visible")).to_have_count(1)


@pytest.mark.promise("U")
async def test_a_browser_that_blocks_notifications_is_said_with_what_to_do(page: Page, home: Household) -> None:
    session = await page.context.new_cdp_session(page)
    denied = {"permission": {"name": "notifications"}, "setting": "denied", "origin": home.url}
    await session.send("Browser.setPermission", denied)
    await page.get_by_role("button", name="Settings").click()
    switch = page.get_by_role("checkbox", name="Show a notification")
    await switch.click()
    await expect(page.get_by_text("This browser blocks notifications of this page.")).to_be_visible()
    await expect(page.get_by_text("set Notifications to Allow")).to_be_visible()
    await expect(switch).not_to_be_checked()
    await shot(page, "notifications-blocked")
