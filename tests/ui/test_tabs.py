"""Several tabs of one browser: they share its six connections, what they hear, and how they end."""

import asyncio
from collections.abc import Callable

import pytest
from playwright.async_api import Page, expect

from byleave.protocol.executions import ToolResponse
from byleave.server.feed import FeedStream
from harness.household import Household

from .conftest import Faults, OpenPage, answer, question, say, shot

pytestmark = pytest.mark.asyncio(loop_scope="module")
TABS = 8


def feeds(home: Household) -> set[FeedStream]:
    return set(home.listening.parts.streams._streams["alice"])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.promise("U", "R5", "R2")
async def test_eight_tabs_in_sight_hear_everything_over_one_stream_whoever_leaves(
    open_page: OpenPage, home: Household
) -> None:
    # A browser opens six connections to a server: streams of eight tabs would leave none for an answer.
    others = feeds(home)  # the client's, and the one the test itself reads
    pages = [await open_page() for _ in range(TABS)]
    for page in pages:
        assert await page.evaluate("document.visibilityState") == "visible"
        await expect(page.get_by_text("Connected")).to_be_visible()
    assert len(feeds(home) - others) == 1
    first, last = pages[0], pages[-1]
    await say(last, "write notes.md: milk")
    for page in pages:
        await expect(question(page)).to_contain_text("notes.md")
    # The one that holds the stream goes, without a word and in the middle of it.
    await first.close()
    await question(last).get_by_role("button", name="Allow once").click()
    await expect(answer(last)).to_contain_text("notes.md")
    for page in pages[1:]:
        await expect(question(page)).to_have_count(0)
    await until(lambda: len(feeds(home) - others) == 1)

    # The stream breaks off: one takes it up again, and what happened meanwhile reaches everybody.
    async with home.agent() as agent:
        for stream in feeds(home) - others:
            stream.close()
        call: asyncio.Task[ToolResponse] = asyncio.create_task(
            agent.execute("write_file", {"path": "late.md", "content": "x"})
        )
        for page in pages[1:]:
            await expect(question(page)).to_contain_text("late.md")
        await question(pages[3]).get_by_role("button", name="Deny", exact=True).click()
        assert (await call).status == "rejected"
    for page in pages[1:]:
        await expect(page.get_by_role("button", name="All clear")).to_be_visible()
    await until(lambda: len(feeds(home) - others) == 1)


FROZEN = "Page.setWebLifecycleState"


@pytest.mark.promise("U", "R5")
async def test_a_tab_that_the_browser_froze_keeps_nothing_from_the_others(open_page: OpenPage, home: Household) -> None:
    first = await open_page()
    await expect(first.get_by_text("Connected")).to_be_visible()
    second = await open_page()
    await expect(second.get_by_text("Connected")).to_be_visible()
    session = await first.context.new_cdp_session(first)
    await session.send(FROZEN, {"state": "frozen"})
    async with home.agent() as agent:
        call = asyncio.create_task(agent.execute("write_file", {"path": "late.md", "content": "x"}))
        # The person turns to the second one.
        await second.evaluate("window.dispatchEvent(new Event('focus'))")
        await expect(question(second)).to_contain_text("late.md")
        await question(second).get_by_role("button", name="Deny", exact=True).click()
        assert (await call).status == "rejected"
    await session.send(FROZEN, {"state": "active"})
    await expect(first.get_by_role("button", name="All clear")).to_be_visible()


@pytest.mark.promise("U", "S")
async def test_signing_out_in_one_tab_ends_all_of_them_and_leaves_nothing_written_behind(
    page: Page, open_page: OpenPage, home: Household, faults: Faults
) -> None:
    faults.expected.append("401")
    await page.get_by_label("Message", exact=True).fill("my password is")
    other = await open_page()
    await other.get_by_label("Message", exact=True).fill("a secret draft")
    await other.get_by_role("button", name="Settings").click()
    await other.get_by_role("checkbox", name="Play a sound").check()
    await other.get_by_role("button", name="Close").click()
    await other.get_by_role("button", name="Sign out alice").click()
    for each in (page, other):
        await expect(each.get_by_role("heading", name="You are not signed in")).to_be_visible()
        kept = await each.evaluate("JSON.stringify({ ...localStorage })")
        assert "secret" not in kept
        assert "password" not in kept
        assert "proj_" not in kept
    assert "sound" in await page.evaluate("JSON.stringify({ ...localStorage })"), "what one prefers stays"
    await shot(page, "signed-out-elsewhere")
