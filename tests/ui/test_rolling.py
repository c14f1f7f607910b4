"""The page while the servers behind it are restarted one after the other: three of them, on one record, behind nginx.

Nobody reloads anything, no error stays on the screen, and nothing happens twice.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect
from playwright.async_api import Error as PlaywrightError

from harness import postgres
from harness.browser import HEIGHT, WIDTH, fill_project
from harness.fleet import Fleet, open_fleet
from harness.postgres import PostgresServer
from harness.processes import Process, User

from .conftest import answer, answer_with, beside, card, choose, deny, more, question, say, shot

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.promise("D", "U"), pytest.mark.timeout(180)]

TROUBLE = (
    ".app-trouble, .app-notice, .app-composer-error, .page-trouble, .card-question [role=alert]:not(:empty), "
    ".card-question .card-caution"
)


@pytest.fixture(scope="module")
def database() -> Generator[PostgresServer]:
    """A server of our own: it goes away in the middle."""
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def fleet(database: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with open_fleet(tmp_path_factory.mktemp("fleet"), database.url()) as fleet:
        yield fleet


async def sign_in(browser: Browser, user: User) -> Page:
    """A page in a browser of its own, signed in by a link."""
    link = await user.post("/my/signin")
    assert link.status in (200, 201), link.body
    # The proxy's certificate is its own.
    context = await browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce", ignore_https_errors=True
    )
    page = await context.new_page()
    await page.goto(user.url + link.body["path"])
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()
    await page.evaluate("window.loadedOnce = true")
    return page


async def machine(fleet: Fleet, user: User, workspace: Path) -> str:
    """A project whose machine is connected."""
    fill_project(workspace)
    project = (await user.post("/my/projects", {"name": "demo"})).body["project_id"]
    await fleet.connect(project, user.token, workspace)
    return project


async def test_every_flow_works_while_servers_are_restarted(fleet: Fleet, browser: Browser, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    async with fleet.user("alice") as user:
        project = await machine(fleet, user, workspace)
        # In turn, so that each of the three is also killed once in a while.
        async with fleet.rolling(Process.stop, Process.stop, Process.stop, Process.kill):
            page = await sign_in(browser, user)

            await say(page, "read package.json")
            await expect(answer(page)).to_contain_text("3.2.1")

            # A write is seen as a difference, and undone.
            (workspace / "notes.md").write_text("buy bread\n")
            await say(page, "write notes.md: buy oat milk")
            await expect(question(page).get_by_text("buy oat milk").first).to_be_visible()
            await fleet.until_turned()
            await question(page).get_by_role("button", name="Allow once").click()
            await expect(answer(page, 1)).to_contain_text("notes.md")
            assert (workspace / "notes.md").read_text() == "buy oat milk"
            await page.get_by_role("link", name="Undo…").click()
            await page.get_by_role("button", name="Undo…").click()
            await expect(beside(page).get_by_text("buy bread").first).to_be_visible()
            await beside(page).get_by_role("button", name=re.compile("^Undo (this|these)|^Undo 1")).click()
            await expect(beside(page)).to_contain_text("byleave undo")
            assert (workspace / "notes.md").read_text() == "buy bread\n"
            await page.get_by_role("link", name="Chat").click()

            await say(page, "write secret.md: no")
            await deny(page, "not here")
            await expect(answer_with(page, "not here")).to_be_visible()
            await expect(card(page)).to_contain_text("by you, in a browser")

            # A grant, used and taken back.
            await say(page, "write src/a.md: one")
            await more(page, "Allow similar…")
            await page.get_by_role("dialog").get_by_text("Write text files below 'src'.").click()
            await page.get_by_role("button", name="Allow this and similar").click()
            await expect(answer_with(page, "src/a.md")).to_be_visible()
            await say(page, "write src/b.md: two")
            await expect(answer_with(page, "src/b.md")).to_be_visible()
            await page.get_by_role("link", name="Grants").click()
            await page.get_by_role("button", name="Revoke").first.click()
            await page.get_by_role("button", name="Revoke").last.click()
            await expect(beside(page)).to_contain_text("taken back by you")

            await page.get_by_role("link", name="History").click()
            await expect(beside(page)).to_contain_text("package.json")
            await beside(page).get_by_role("link", name=re.compile("package.json")).first.click()
            await expect(beside(page)).to_contain_text("Digest")

            await page.get_by_role("link", name="Policy").click()
            await choose(page, "Tool", "execute_command")
            await beside(page).get_by_label(re.compile("line", re.IGNORECASE)).first.fill("rm -rf build")
            await beside(page).get_by_role("button", name="Check").click()
            await expect(beside(page)).to_contain_text("Refused")

            await page.get_by_role("link", name="Audit").click()
            await beside(page).get_by_role("button", name=re.compile("Verify")).click()
            await expect(beside(page)).to_contain_text("Record intact")
            await shot(page, "rolling")
            await expect(page.locator(TROUBLE)).to_have_count(0)

        assert await page.evaluate("window.loadedOnce"), "it was not loaded anew"
        rows = (await user.get(f"/my/tools/history?project_id={project}")).body["executions"]
        assert [(row["tool_name"], row["status"]) for row in reversed(rows)] == [
            ("read_file", "completed"),
            ("write_file", "completed"),
            ("write_file", "rejected"),
            ("write_file", "completed"),
            ("write_file", "completed"),
        ]
        await page.context.close()


async def test_an_answer_whose_server_is_killed_holds_once(fleet: Fleet, browser: Browser, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    async with fleet.user("bob") as user:
        project = await machine(fleet, user, workspace)
        page = await sign_in(browser, user)
        # What it sends is on its way to a server that dies under it, again and again.
        async with fleet.rolling(Process.kill):
            for number in range(3):
                await say(page, f"append to log.txt: {number}")
                await question(page).get_by_role("button", name="Allow once").click()
                await expect(answer(page, number)).to_be_visible()
                await expect(page.locator(TROUBLE)).to_have_count(0)
        assert (workspace / "log.txt").read_text().split() == ["0", "1", "2"]
        rows = (await user.get(f"/my/tools/history?project_id={project}")).body["executions"]
        assert [row["status"] for row in rows] == ["completed"] * 3
        assert await page.evaluate("window.loadedOnce"), "it was not loaded anew"
        await page.context.close()


async def press_until_it_counts(button: Locator) -> None:
    """Press as a person would: a press while the page still moves, as when it has just come back, does not count."""
    async with asyncio.timeout(30):
        while await button.count() > 0:
            with suppress(PlaywrightError):  # it is disabled, or gone by now
                await button.click(timeout=1000)


async def test_a_page_goes_on_when_the_database_is_back(
    database: PostgresServer, fleet: Fleet, browser: Browser, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    async with fleet.user("carol") as user:
        project = await machine(fleet, user, workspace)
        page = await sign_in(browser, user)
        await say(page, "append to log.txt: once")
        await expect(question(page)).to_be_visible()
        await page.get_by_label("Message", exact=True).fill("a draft")
        await asyncio.to_thread(database.stop)
        try:
            await question(page).get_by_role("button", name="Allow once").click()
            await expect(question(page).get_by_role("alert")).not_to_be_empty()
            await page.get_by_role("link", name="History").click()
            await expect(page.locator(".page-trouble")).to_be_visible()
            await shot(page, "database-gone")
        finally:
            await asyncio.to_thread(database.start)
        await expect(beside(page)).to_contain_text("log.txt")
        await expect(page.locator(".page-trouble")).to_have_count(0)
        await page.get_by_role("link", name="Chat").click()
        await expect(page.locator(".app-link-state")).to_contain_text("Connected")
        await expect(page.get_by_label("Message", exact=True)).to_have_value("a draft")
        await press_until_it_counts(question(page).get_by_role("button", name="Allow once"))
        await expect(answer(page)).to_be_visible()
        await expect(page.locator(TROUBLE)).to_have_count(0)
        assert (workspace / "log.txt").read_text().strip() == "once"
        assert (await user.get(f"/my/tools/history?project_id={project}")).body["total_count"] == 1
        assert await page.evaluate("window.loadedOnce"), "it was not loaded anew"
        await page.context.close()
