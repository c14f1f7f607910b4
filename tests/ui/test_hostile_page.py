"""The page against accidents and tricks: what must never be a decision, must never hide, must never be lost."""

import asyncio

import pytest
from playwright.async_api import Locator, Page, expect

from harness.household import Household

from .conftest import answer, question, say

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def middle(button: Locator) -> tuple[float, float]:
    box = await button.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.promise("U")
async def test_a_button_that_just_moved_takes_no_press_of_a_hand_that_trembles(page: Page, home: Household) -> None:
    await say(page, "write notes.md: milk")
    allow = question(page).get_by_role("button", name="Allow once")
    await expect(question(page)).to_contain_text("Create notes.md")
    await expect(allow).to_have_attribute("aria-disabled", "false")
    x, y = await middle(allow)
    await page.mouse.move(x, y + 200)
    # What is above grows: the button moves to where the hand is on its way to.
    await page.evaluate("document.querySelector('.app-top').style.minHeight = '150px'")
    x, y = await middle(allow)
    await page.mouse.click(x, y)
    await expect(allow).to_have_attribute("aria-disabled", "true")
    await expect(allow).to_have_text("Allow once")
    assert not (home.workspace / "notes.md").exists()
    # The same button counts again once it has stood still.
    await allow.click()
    await expect(answer(page)).to_be_visible()
    assert (home.workspace / "notes.md").exists()


@pytest.mark.promise("U", "G8")
async def test_a_double_click_never_switches_to_full_mode(page: Page) -> None:
    mode = page.get_by_role("button", name="Mode:")
    await mode.click()
    switch = page.get_by_role("button", name="Switch to full…")
    x, y = await middle(switch)
    await page.mouse.move(x, y)
    for count in (1, 2, 3):
        await page.mouse.down(click_count=count)
        await page.mouse.up(click_count=count)
    # Wherever in the panel a hurried press lands, also on the button that is there now.
    confirm = page.get_by_role("button", name="Yes, work in full mode")
    x, y = await middle(confirm)
    await page.mouse.click(x, y)
    await expect(mode).to_have_text("Mode: sandbox")
    await expect(confirm).to_be_visible()


@pytest.mark.promise("U")
async def test_a_second_question_moves_nothing_of_the_first(page: Page, home: Household) -> None:
    async with home.agent() as agent:
        first = asyncio.create_task(agent.execute("write_file", {"path": "a.md", "content": "a"}))
        allow = question(page).get_by_role("button", name="Allow once")
        await expect(allow).to_have_attribute("aria-disabled", "false")
        await page.set_viewport_size({"width": 1280, "height": 1600})  # so tall that the card does not fill its place
        await expect(allow).to_have_attribute("aria-disabled", "false")
        before = await middle(allow)
        await page.wait_for_timeout(1000)  # what comes with the first is one change set with it
        second = asyncio.create_task(agent.execute("write_file", {"path": "b.md", "content": "b"}))
        await expect(page.get_by_text("Also waiting")).to_be_visible()
        await expect(page.locator(".card-question")).to_have_count(1)
        allow = question(page).get_by_role("button", name="Allow once")
        assert await middle(allow) == before
        await expect(allow).to_have_attribute("aria-disabled", "false")
        await page.mouse.click(*before)
        assert (await first).status == "completed"
        # What came below has the place now, and what is asked for comes into sight.
        await expect(question(page).get_by_role("button", name="Allow once")).to_be_in_viewport()
        await question(page).get_by_role("button", name="Deny", exact=True).click()
        assert (await second).status == "rejected"
