"""What the page must bear: reloads, lost connections, slow lines, small screens, long sessions, everybody's eyes."""

import asyncio
import gzip
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from byleave.protocol.states import Scope
from byleave.store.database import Transaction
from harness.browser import WIDTH
from harness.household import Household, open_household
from harness.json_values import JsonObject

from .conftest import PAGE, Faults, OpenPage, answer, beside, more, question, say, shot

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
MAX_BUNDLE = 300_000
MESSAGES = 5000


@pytest.mark.promise("U")
async def test_the_bundle_is_small() -> None:
    files = [path for path in PAGE.parent.iterdir() if path.suffix in (".js", ".css", ".html")]
    assert len(files) >= 3
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) < MAX_BUNDLE


@pytest.mark.promise("U")
async def test_the_first_paint_comes_within_a_second(page: Page) -> None:
    await page.reload()
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()
    paints: list[JsonObject] = await page.evaluate("performance.getEntriesByType('paint').map((p) => p.toJSON())")
    first = next(paint["startTime"] for paint in paints if paint["name"] == "first-contentful-paint")
    assert first < 1000


async def violations(page: Page) -> list[str]:
    """All that axe finds, but that a list which opens over the page lies in no landmark."""
    found = [each for each in await _found_by_axe(page) if each["id"] != "region"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


async def serious(page: Page) -> list[str]:
    """What axe finds that keeps people out."""
    bad = [each for each in await _found_by_axe(page) if each["impact"] in ("serious", "critical")]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in bad]


async def _found_by_axe(page: Page) -> list[JsonObject]:
    # Through the debugging protocol: the page's own policy would not let a script in.
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate(AXE.read_text(encoding="utf-8"))
    return (await page.evaluate("axe.run(document, {resultTypes: ['violations']})"))["violations"]


@pytest.mark.promise("U")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious_in_any_state(
    page: Page, scheme: Literal["light", "dark"], open_page: OpenPage, home: Household
) -> None:
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    assert await serious(page) == []
    await say(page, "read package.json")
    await expect(answer(page)).to_be_visible()
    await say(page, "write notes.md: milk")
    await expect(question(page)).to_contain_text("Create notes.md")
    assert await serious(page) == []
    await shot(page, f"question-{scheme}")
    await question(page).get_by_text("Details", exact=True).click()
    assert await serious(page) == []
    await page.get_by_role("button", name="More ways to answer").click()
    await expect(page.get_by_role("menu")).to_be_visible()
    assert await serious(page) == []
    await page.get_by_role("menuitem", name="Allow similar…").click()
    await page.locator(".card-choice input").first.check()
    assert await serious(page) == []
    await page.keyboard.press("Escape")
    await question(page).get_by_role("button", name="Edit before allowing").click()
    await page.get_by_label("Content").fill("oat milk")
    assert await serious(page) == []
    await page.get_by_role("button", name="Review the change").click()
    await expect(question(page)).to_contain_text("changed by you")
    assert await serious(page) == []
    await home.person.reject(await waiting(home), "no")
    await expect(page.locator(".app-review")).to_have_count(0)
    async with home.agent() as agent:
        calls = [
            asyncio.create_task(agent.execute("write_file", {"path": path, "content": "x"}))
            for path in ("a.md", "b.sh")
        ]
        await expect(question(page)).to_contain_text("Change 2 files")
        await question(page).get_by_role("button", name="Allow all 2…").click()
        assert await serious(page) == []
        await shot(page, f"change-set-{scheme}")
        await question(page).get_by_role("button", name="Deny all").click()
        assert {(await call).status for call in calls} == {"rejected"}
    await page.get_by_role("button", name="Settings").click()
    assert await serious(page) == []
    await shot(page, f"settings-{scheme}")
    await page.get_by_role("button", name="Close").click()
    for name in ("Conversations", "History", "Grants", "Policy", "Audit", "Agents"):
        await page.get_by_role("link", name=name).click()
        await expect(beside(page).get_by_role("heading", level=1)).to_be_visible()
        assert await serious(page) == [], name


async def waiting(home: Household) -> str:
    (asked,) = (await home.person.api.approvals()).approvals
    return asked.id


@pytest.mark.promise("U")
async def test_a_phone_shows_everything_without_going_sideways(page: Page) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    await say(page, "run python src/app.py")
    await expect(question(page)).to_be_visible()
    await shot(page, "phone-question")
    await more(page, "Allow similar…")
    rules = page.get_by_role("dialog")
    await rules.locator(".card-choice input").first.check()
    await expect(rules).to_contain_text("would have covered")
    await shot(page, "phone-similar")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    await page.keyboard.press("Escape")
    await expect(rules).to_have_count(0)
    await question(page).get_by_role("button", name="Edit before allowing").click()
    await expect(rules.get_by_label("Command line")).to_have_value("python src/app.py")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    await page.keyboard.press("Escape")
    await expect(rules).to_have_count(0)
    await page.get_by_role("button", name="Open the menu").click()
    await shot(page, "phone-menu")
    # Wherever the focus is.
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("link", name="History")).not_to_be_visible()
    for name in ("History", "Policy", "Audit"):
        if not await page.get_by_role("link", name=name).is_visible():
            await page.get_by_role("button", name="Open the menu").click()
        await page.get_by_role("link", name=name).click()
        await expect(beside(page).get_by_role("heading", level=1)).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360, name
    await shot(page, "phone-audit")


@pytest.mark.promise("U", "R2")
async def test_a_lost_connection_is_said_and_nothing_that_happened_meanwhile_is_lost(
    page: Page, context: BrowserContext, home: Household, faults: Faults
) -> None:
    faults.expected += ["ERR_INTERNET_DISCONNECTED", "Failed to load resource", "net::ERR"]
    await say(page, "read package.json")
    await expect(answer(page)).to_be_visible()
    field = page.get_by_label("Message", exact=True)
    await field.fill("a draft that must not get lost")
    await context.set_offline(True)
    for stream in list(home.listening.parts.streams._streams["alice"]):  # cut the line: both sides notice at once
        if stream._client_id is None:
            stream.close()
    await expect(page.locator(".app-link-state")).to_contain_text("Connection lost")
    # What is not known any more is not said.
    for name in ("All clear", "isolated"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
    await shot(page, "connection-lost")
    async with home.agent() as agent:
        call = asyncio.create_task(agent.execute("write_file", {"path": "late.md", "content": "x"}))
        async with asyncio.timeout(20):
            while not (await home.person.api.approvals()).approvals:
                await asyncio.sleep(0.01)
        await context.set_offline(False)
        await expect(page.locator(".app-link-state")).to_contain_text("Connected")
        await expect(question(page)).to_contain_text("late.md")
        await expect(field).to_have_value("a draft that must not get lost")
        await question(page).get_by_role("button", name="Deny", exact=True).click()
        assert (await call).status == "rejected"


@pytest.mark.promise("U")
async def test_on_a_slow_line_it_says_that_it_loads(page: Page) -> None:
    gate = asyncio.Event()

    async def slowly(route: Route) -> None:
        await gate.wait()
        await route.continue_()

    await say(page, "read package.json")
    await expect(answer(page)).to_be_visible()
    await page.route("**/chat/messages*", slowly)
    await page.reload()
    await expect(page.get_by_text("Loading the conversation…")).to_be_attached()
    gate.set()
    await expect(answer(page)).to_be_visible()


@pytest.mark.promise("U")
async def test_a_session_of_five_thousand_messages_keeps_its_place(
    page: Page, open_page: OpenPage, home: Household
) -> None:
    await say(page, "read package.json")
    await expect(answer(page)).to_be_visible()
    await fill(home, MESSAGES)
    await page.reload()
    last = page.get_by_text(f"message number {MESSAGES - 1}", exact=True)
    await expect(last).to_be_visible()
    assert await page.evaluate("document.querySelectorAll('.app-row').length") < 200, "only what is near is drawn"
    scroller = page.get_by_label("Conversation", exact=True)
    await scroller.hover()
    for _ in range(30):
        await page.mouse.wheel(0, -3000)
    await expect(last).not_to_be_visible()
    seen = page.locator(".app-row:visible").nth(3)
    words, before = await seen.inner_text(), await seen.bounding_box()
    other = await open_page()
    await say(other, "list src")
    await expect(page.get_by_role("button", name="New messages")).to_be_visible()
    again = await page.locator(".app-row", has_text=words.splitlines()[-1]).first.bounding_box()
    assert before is not None
    assert again is not None
    assert abs(again["y"] - before["y"]) < 40, "what happens below moves nothing under the reader's eyes"
    await shot(page, "long-session")
    # What the person says is what they want to see.
    await say(page, "list src", first=False)
    await expect(page.locator(".app-said-mine").last).to_be_in_viewport()
    assert await page.evaluate("document.documentElement.scrollWidth") <= WIDTH


async def fill(home: Household, count: int) -> None:
    """Put messages into the session's record, as many as a year of talking."""
    store = home.listening.parts.store
    (session,) = (await home.person.api.list_sessions(home.project_id)).sessions

    def work(transaction: Transaction) -> None:
        for number in range(count):
            transaction.execute(
                "INSERT INTO messages (id, session_id, project_id, run_id, role, content, position, created_at) "
                "SELECT :id, session_id, project_id, NULL, 'user', :content, position + 1, created_at FROM messages "
                "WHERE session_id = :session ORDER BY position DESC LIMIT 1",
                {"id": f"msg_many{number:06}", "content": f"message number {number}", "session": session.session_id},
            )

    await store.database.write(work)


EMBEDDING = """<!doctype html><html lang="en"><head><title>Team</title></head><body><h1>Our own page</h1>
<div id="chat"></div><script type="module" src="start.js"></script></body></html>"""


@asynccontextmanager
async def team_page(start: Callable[[], str]) -> AsyncGenerator[str]:
    """Another team's server, with a page that starts the chat."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=EMBEDDING, content_type="text/html")

    async def script(request: web.Request) -> web.Response:
        return web.Response(text=start(), content_type="text/javascript")

    async def icon(request: web.Request) -> web.Response:
        return web.Response(status=204)

    app = web.Application()
    app.add_routes([web.get("/", page), web.get("/start.js", script), web.get("/favicon.ico", icon)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.promise("U")
async def test_the_chat_lives_in_another_teams_page_by_bearer_token(browser: Browser, tmp_path: Path) -> None:
    script = ""
    async with team_page(lambda: script) as team, open_household(tmp_path, page_origins=(team,)) as home:
        (home.workspace / "package.json").write_text('{"version": "3.2.1"}')
        token = home.token(Scope.CHAT, Scope.APPROVE)
        script = (
            f"import {{ mountByleave }} from '{home.url}/page/embed.js';\n"
            f"mountByleave(document.getElementById('chat'), {{server: '{home.url}', token: () => '{token}'}});"
        )
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(team)
        await say(page, "Read the package.json and tell me the version")
        await expect(answer(page)).to_contain_text("3.2.1")
        stored = await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        assert token not in stored
        assert await page.title() == "Team", "a guest leaves the title alone"
        await context.close()


@pytest.mark.promise("M")
async def test_the_page_is_measured_in_small() -> None:
    line = [sys.executable, "-m", "bench.page", "--messages", "50", "--questions", "2", "--seconds", "0.2"]
    process = await asyncio.create_subprocess_exec(*line, cwd=ROOT, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(90):
        said, wrong = await process.communicate()
    assert b"frames a second" in said, wrong
    assert b"a question is on the screen after" in said
