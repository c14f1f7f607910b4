"""What goes wrong around the page while somebody works in it: a server that restarts, a sign-in that ends elsewhere, a
page that the browser puts aside, a clock that is off, answers that get lost. Nothing is lost, nothing happens twice.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from byleave.server.auth.tokens import HEADER
from harness.browser import fill_project, new_context, open_browser
from harness.forks import Forks
from harness.household import Household
from harness.processes import User, environment, open_site

from .conftest import Faults, answer, card, question, say, shot, sign_in_link

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def forks(root: Path) -> AsyncGenerator[Forks]:
    """What the server and the client are forked from: each would take seconds to start."""
    made = Forks(environment(root))
    yield made
    made.close()


@pytest.mark.promise("U", "R1", "R5")
async def test_a_server_that_restarts_in_the_middle_of_a_run_loses_nothing(browser: Browser, tmp_path: Path) -> None:
    async with forks(tmp_path) as made, open_site(tmp_path / "site", made, model="offline") as site:
        fill_project(site.workspace)
        server = await site.serve()
        token = site.token("alice")
        user = User(site.url, token)
        project = (await user.post("/my/projects", {"name": "demo"})).body["project_id"]
        await site.connect(project, token)
        link = (await user.post("/my/signin")).body["path"]
        context = await new_context(browser)
        page = await context.new_page()
        await page.goto(site.url + link)
        await say(page, "write notes.md: milk")
        await expect(question(page)).to_contain_text("Create")
        field = page.get_by_label("Message", exact=True)
        await field.fill("a draft")
        await server.kill()
        await expect(page.locator(".app-link-state")).to_contain_text("Connection lost")
        await shot(page, "server-gone")
        await site.serve()
        await page.evaluate("window.dispatchEvent(new Event('online'))")  # it would try by itself, a little later
        await expect(page.locator(".app-link-state")).to_contain_text("Connected")
        await expect(field).to_have_value("a draft")
        await expect(page.locator(".app-trouble")).to_have_count(0)
        await expect(page.locator(".app-said-mine")).to_have_count(1)
        await question(page).get_by_role("button", name="Allow once").click()
        await expect(answer(page)).to_contain_text("notes.md")
        assert (site.workspace / "notes.md").read_text() == "milk"
        await context.close()
        await user.close()


@pytest.mark.promise("U", "S")
async def test_a_sign_in_that_ends_elsewhere_leads_to_the_sign_in_and_keeps_the_draft(
    page: Page, home: Household, faults: Faults
) -> None:
    faults.expected.append("401")
    await say(page, "write notes.md: milk")
    await expect(question(page)).to_be_visible()
    await page.get_by_label("Message", exact=True).fill("a draft")
    where = page.url
    # The same sign-in, ended with its own cookie and key as another window would.
    key = (await page.evaluate("localStorage.getItem('byleave-page-key')")).partition(" ")[0]
    await page.context.request.post(f"{home.url}/signout", data="{}", headers={**json_from(home), HEADER: key})
    await expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
    assert "notes.md" not in await page.locator("body").inner_text()
    await page.goto(await sign_in_link(home))
    await page.goto(where)
    await expect(question(page)).to_contain_text("notes.md")
    await expect(page.get_by_label("Message", exact=True)).to_have_value("a draft")


def json_from(home: Household) -> dict[str, str]:
    return {"Content-Type": "application/json", "Origin": home.url}


@pytest.mark.promise("U", "W7")
async def test_a_clock_that_is_off_changes_no_countdown(page: Page, home: Household) -> None:
    await page.clock.set_system_time(datetime.now(UTC) + timedelta(minutes=10))
    await page.reload()
    await say(page, "write notes.md: milk")
    # Five minutes by the server's clock: by this one the question would be over already.
    await expect(question(page).locator(".card-countdown")).to_contain_text("4:")
    await question(page).get_by_role("button", name="Allow once").click()
    await expect(answer(page)).to_contain_text("notes.md")
    assert (home.workspace / "notes.md").exists()


@pytest.mark.promise("U", "R1")
async def test_a_message_whose_answer_got_lost_arrives_once(page: Page, home: Household, faults: Faults) -> None:
    faults.expected += ["net::ERR", "Failed to load resource"]
    lost = 0

    async def lose(route: Route) -> None:
        nonlocal lost
        if route.request.method != "POST" or lost >= 4:
            await route.continue_()
            return
        lost += 1
        if lost != 2:
            await route.fetch()  # it arrives, and the answer does not
        await route.abort("connectionreset")

    await page.route("**/chat/messages", lose)
    await say(page, "list src")
    # By itself it goes three times; then the person has it back, and sends it once more as it is.
    await expect(page.get_by_role("alert")).to_contain_text("No answer came")
    await expect(page.get_by_text("Retrying is safe; it won't be sent twice.")).to_be_visible()
    await shot(page, "answer-lost")
    field = page.get_by_label("Message", exact=True)
    await expect(field).to_have_value("list src")
    await field.press("Enter")
    await expect(answer(page)).to_be_visible()
    await expect(field).to_have_value("")
    assert lost == 4
    sessions = (await home.person.api.list_sessions(home.project_id)).sessions
    assert len(sessions) == 1
    assert len(await home.person.record()) == 1
    await expect(page.locator(".app-said-mine")).to_have_count(1)


@pytest.mark.promise("U", "R2")
async def test_what_could_not_be_read_is_said_and_read_again(page: Page, faults: Faults) -> None:
    faults.expected += ["net::ERR", "Failed to load resource"]
    await say(page, "read package.json")
    await expect(answer(page)).to_be_visible()

    async def fail(route: Route) -> None:
        # Until it is asked for again: the page tries by itself as well, and would take the button away.
        asked = await page.evaluate("window.asked === true")
        await (route.continue_() if asked else route.abort("connectionreset"))

    await page.route("**/chat/messages?*", fail)
    await page.reload()
    await page.evaluate("addEventListener('click', () => { window.asked = true; }, true)")
    await expect(page.get_by_text("Not everything could be read")).to_be_visible()
    await expect(page.get_by_text("What should the agent do?")).to_have_count(0)
    await shot(page, "not-read")
    await page.get_by_role("button", name="Try again").click()
    await expect(answer(page)).to_be_visible()
    await expect(page.locator(".app-trouble")).to_have_count(0)


@pytest.mark.promise("U", "R5")
async def test_a_page_that_the_browser_put_aside_comes_back_with_what_happened_meanwhile(home: Household) -> None:
    # Playwright switches off what people's browsers do.
    async with open_browser(without=("--disable-back-forward-cache",)) as browser:
        context = await new_context(browser)
        page = await context.new_page()
        await page.goto(await sign_in_link(home))
        await expect(page.get_by_text("Connected")).to_be_visible()
        await page.evaluate("window.addEventListener('pageshow', (event) => { window.kept = event.persisted; })")
        await page.goto("about:blank")
        async with home.agent() as agent:
            call = asyncio.create_task(agent.execute("write_file", {"path": "late.md", "content": "x"}))
            await home.person.until("tool.approval_request")
            await page.go_back(wait_until="commit")
            await expect(question(page)).to_contain_text("late.md")
            await expect(page.get_by_text("Connected")).to_be_visible()
            await question(page).get_by_role("button", name="Deny").click()
            assert (await call).status == "rejected"
        assert await page.evaluate("window.kept"), "it was not loaded anew"
        await expect(card(page)).to_have_count(0)
        await context.close()
