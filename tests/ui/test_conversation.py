"""The conversation in a real browser: what a person writes, what the agent does, and what must harm nothing."""

import pytest
from playwright.async_api import Page, expect

from harness.household import Household

from .conftest import Faults, answer, answer_with, card, cards, open_signed_out, question, say, shot

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.promise("U", "U-version", "W13")
async def test_a_stranger_signs_in_reads_the_version_and_a_reload_keeps_the_conversation(
    page: Page, faults: Faults
) -> None:
    faults.expected.append("401")
    await say(page, "Read the package.json and tell me the version")
    for _ in range(2):
        await expect(answer(page)).to_contain_text("3.2.1")
        await expect(card(page)).to_contain_text("package.json")
        await expect(card(page)).to_contain_text("done in")
        await expect(page.locator(".app-row")).to_have_count(3)
        await page.reload()
    await expect(answer(page)).to_contain_text("3.2.1")
    await shot(page, "conversation")


@pytest.mark.promise("U")
async def test_who_is_not_signed_in_is_told_how(page: Page, home: Household, faults: Faults) -> None:
    faults.expected.append("401")
    await page.get_by_role("button", name="Sign out alice").click()
    await expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
    await expect(page.get_by_text("byleave link", exact=True)).to_be_visible()
    await shot(page, "signed-out")
    await page.goto(f"{home.url}/signin?code=used-or-wrong")
    await expect(page.locator("body")).to_contain_text("byleave link")


@pytest.mark.promise("U")
async def test_another_browser_is_signed_in_by_a_link_from_this_one(page: Page, faults: Faults) -> None:
    faults.expected.append("409")
    await page.get_by_role("button", name="Use your phone").click()
    await page.get_by_role("button", name="Show a code").click()
    await expect(page.get_by_role("alert")).to_contain_text("BYLEAVE_PUBLIC_URL")
    link = await page.get_by_label("Sign-in link").input_value()
    other = await open_signed_out(page, faults)
    await other.goto(link)
    await confirm_sign_in(other)
    await expect(other.get_by_label("Message", exact=True)).to_be_visible()
    await other.context.close()


async def confirm_sign_in(page: Page) -> None:
    """Where a link asks first whose it is."""
    button = page.get_by_role("button", name="Sign in")
    await expect(button.or_(page.get_by_label("Message", exact=True))).to_be_visible()
    if await button.count():
        await button.click()


@pytest.mark.promise("U", "S")
async def test_what_an_agent_and_files_say_harms_nothing(page: Page, home: Household) -> None:
    """A script, an image beacon, ANSI and bidi tricks, a very long line: all of it is text. `faults` sees requests."""
    bomb = "\x1b[31m" * 5000 + "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \u202egnp.exe\u202c " + "x" * 1_000_000
    (home.workspace / "bomb.txt").write_text(bomb)
    (home.workspace / "page.md").write_text(
        "<script>document.title = 'owned'</script>\n![beacon](http://127.0.0.1:9/beacon.png)\n"
        "[click](javascript:alert(1)) <img src=x onerror=alert(1)>\n"
    )
    await say(page, "read page.md")
    await expect(answer(page)).to_be_visible()
    await card(page).get_by_role("button").first.click()
    await expect(card(page)).to_contain_text("<script>document.title = 'owned'</script>")
    await say(page, "run cat bomb.txt")
    await expect(cards(page)).to_have_count(2)
    await expect(answer_with(page, "ran without an error")).to_be_visible()
    await say(page, "<script>alert(1)</script> ![x](http://127.0.0.1:9/b.png) <b>bold</b> \u202eevil")
    await expect(answer_with(page, "I did not understand")).to_be_visible()
    assert await page.title() == "Byleave"
    assert await page.locator("main img, main script, main b, main iframe").count() == 0
    assert "\u202e" not in await page.locator("body").inner_text()
    hrefs = await page.eval_on_selector_all("main a", "found => found.map(each => each.getAttribute('href'))")
    assert not [href for href in hrefs if not href.startswith(("#", "http://", "https://", "mailto:"))]
    assert await page.evaluate("document.querySelectorAll('*').length") < 6000
    assert await page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.promise("U", "T3")
async def test_output_is_seen_while_a_command_runs_and_stop_ends_it(page: Page, home: Household) -> None:
    (home.workspace / "slow.py").write_text(
        "import time\nprint('\\x1b[32mgreen\\x1b[0m light', flush=True)\ntime.sleep(600)\n"
    )
    await say(page, "run python slow.py")
    await expect(question(page)).to_contain_text("time.sleep(600)")
    await question(page).get_by_role("button", name="Allow once").click()
    await expect(card(page)).to_contain_text("green light")
    await shot(page, "running")
    await card(page).get_by_role("button", name="Stop the command").click()
    await expect(card(page)).to_contain_text("stopped")
    await expect(answer(page)).to_be_visible()


@pytest.mark.promise("U")
async def test_results_read_as_what_they_are(page: Page) -> None:
    await say(page, "list src")
    await say(page, "search TODO in src", first=False)
    await expect(answer(page, 1)).to_be_visible()
    await cards(page).nth(0).get_by_role("button").first.click()
    await expect(cards(page).nth(0).get_by_role("table")).to_contain_text("app.py")
    await cards(page).nth(1).get_by_role("button").first.click()
    await expect(cards(page).nth(1)).to_contain_text("TODO: greet")
    await shot(page, "results")


@pytest.mark.promise("U", "T4")
async def test_a_refused_call_says_why_and_the_agent_goes_on(page: Page) -> None:
    await say(page, "run rm -rf /")
    await expect(card(page)).to_contain_text("Command not allowed: rm")
    await expect(answer(page)).to_be_visible()


@pytest.mark.promise("U", "G7")
async def test_full_mode_takes_a_second_step_and_then_asks_less(page: Page, home: Household) -> None:
    await page.get_by_role("button", name="Mode: sandbox").click()
    await page.get_by_role("button", name="Switch to full…").click()
    await expect(page.get_by_role("alert")).to_contain_text("without asking")
    await page.get_by_role("button", name="Yes, work in full mode").click()
    await say(page, "write notes.md: milk")
    await expect(answer(page)).to_be_visible()
    assert (home.workspace / "notes.md").read_text() == "milk"
    await expect(card(page)).to_contain_text("mode full")
    await expect(page.get_by_role("button", name="Mode: full")).to_be_visible()
    await shot(page, "full-mode")


@pytest.mark.promise("U")
async def test_connected_machines_and_their_isolation_are_in_sight(page: Page, home: Household) -> None:
    chip = page.locator(".app-top-facts").get_by_role("button").first
    await expect(chip).to_contain_text("bwrap")
    await home.connection.close()
    await expect(page.locator("main")).to_contain_text("byleave connect")
    await shot(page, "no-machine")
