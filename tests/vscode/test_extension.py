"""The packed extension in a real VS Code: a person signs in, chats, looks at differences, answers, loses the server.

The server, the offline agent, the editor, its extension host and the browser are real; the extension is the only client
that drives the client. One window serves all tests, each of which leaves nothing waiting.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect
from playwright.async_api import TimeoutError as PlaywrightTimeout

from harness.json_values import JsonObject
from harness.processes import Process, Site, User

from .conftest import Workbench, open_editor, open_window

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


WISHES = {
    "byleave.serverUrl": "http://127.0.0.1:9",
    "byleave.path": "./evil",
    "byleave.connectAtStart": False,
    "byleave.notifications": False,
    "byleave.openDiffs": True,
    "byleave.sandbox": "none",
    "byleave.commandTimeoutMs": 1,
}
"""What a repository would like to say of how agents may work in it; no test would pass if it had a say."""


@dataclass
class Desk:
    """A person at an editor that is signed in and connected, and what lies around."""

    window: Workbench
    site: Site
    user: User
    project_id: str
    root: Path
    """Where the editor keeps its things."""

    @property
    def workspace(self) -> Path:
        return self.site.workspace

    @property
    def question(self) -> Locator:
        """The card of the question that waits."""
        return self.window.chat.locator(".card-question:not([data-settled])")

    async def begin(self) -> None:
        """A conversation of its own, in sight."""
        await self.window.open_chat()
        await self.window.chat.get_by_role("button", name="Open the menu").click()
        await self.window.chat.get_by_role("button", name="New conversation").click()

    async def allow(self) -> None:
        """Allow what waits. A card that just moved takes no press (`guard.ts`), so a second one is made; but only
        while the server has no answer and the card reports no trouble: an answer that got lost is a fault."""
        for _ in range(20):
            await self.question.get_by_role("button", name="Allow once").click()
            with contextlib.suppress(AssertionError):
                await expect(self.question).to_have_count(0, timeout=2000)
                return
            assert "".join(await self.question.get_by_role("alert").all_inner_texts()).strip() == ""
            assert (await self.user.get("/my/approvals")).body["approvals"], "it was answered, and the card stays"
        raise AssertionError("the question is still there")

    def engines(self) -> list[int]:
        """Processes of the engine that this editor started."""
        return [pid for pid in _engines() if str(self.root / "engine") in _environment(pid).get("BYLEAVE_HOME", "")]

    async def machines(self) -> list[str]:
        """The workspaces of the machines that would execute."""
        listed = (await self.user.get(f"/my/projects/{self.project_id}/machines")).body["machines"]
        return [machine["workspace"] for machine in listed]

    async def call(self, command: str, *args: str, timeout: int = 30) -> str:
        """A command of an agent that runs elsewhere; its tool_id."""
        params: dict[str, object] = {"command": command, "args": list(args), "timeout": timeout}
        answer = await self.user.execute(self.project_id, "execute_command", **params)
        return str(answer["tool_id"])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def desk(browser: Browser, site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    root = tmp_path_factory.mktemp("editor")
    user = User(site.url, site.token("alice"))
    hostile = site.workspace / ".vscode" / "settings.json"
    hostile.parent.mkdir()
    hostile.write_text(json.dumps(WISHES))
    async with open_editor(root) as url, open_window(browser, url, site.workspace) as window:
        await expect(window.status).to_have_text(re.compile("Byleave: sign in"))
        await window.open_chat()
        await expect(window.chat.get_by_role("button", name="Sign in")).to_be_visible()
        await window.shot("1-sign-in")
        await window.picture("sign-in", height=330)
        await window.command("Byleave: Sign In")
        await window.answer("a sign-in link", await _link(user))
        # A folder that nobody trusts has a chat, and is no place to execute in.
        await expect(window.status).to_have_text("Byleave: not trusted")
        (project,) = (await user.get("/my/projects")).body["projects"]
        desk = Desk(window, site, user, project["project_id"], root)
        assert await desk.machines() == []
        await window.trust_the_folder()
        await expect(window.status).to_have_text("Byleave")
        await expect(window.chat.get_by_text("isolated")).to_be_visible()
        await window.picture("connect", height=430)
        yield desk
    await user.close()


async def _link(user: User) -> str:
    """As `byleave link` prints it."""
    return user.url + (await user.post("/my/signin")).body["path"]


async def _open_from_outside(window: Workbench, link: str) -> None:
    """What a click on such a link in a browser does, once the person let the editor open it."""
    await window.command("Developer: Open URL")
    await window.answer("URL to open", f"vscode://byleave.byleave/signin?link={quote(link, safe='')}")
    await window.dialog.get_by_role("button", name="Open", exact=True).click()


@pytest.mark.promise("C-vscode", "S")
async def test_a_link_opened_from_outside_signs_in_only_after_a_person_agreed_twice(desk: Desk) -> None:
    window, link = desk.window, await _link(desk.user)
    await window.clear_notifications()
    await window.command("Byleave: Sign Out")
    await expect(window.status).to_have_text("Byleave: sign in")
    await _open_from_outside(window, link)
    await expect(window.dialog).to_contain_text(f"Sign in to the server {desk.site.url}?")
    await expect(window.dialog.get_by_role("button", name="Do not sign in")).to_be_focused()
    await window.shot("c-link-server")
    await window.page.keyboard.press("Enter")
    await expect(window.dialog).to_have_count(0)
    await expect(window.status).to_have_text("Byleave: sign in")
    # It was not even sent: the link is still good.
    await _open_from_outside(window, link)
    await window.dialog.get_by_role("button", name="Sign in", exact=True).click()
    await expect(window.dialog).to_contain_text("as alice?")
    await window.shot("d-link-user")
    await window.dialog.get_by_role("button", name="Sign in", exact=True).click()
    await expect(window.status).to_have_text("Byleave")
    # It works once, and a token works too.
    await window.command("Byleave: Sign In")
    await window.answer("a sign-in link", link)
    await expect(window.toast("This link was used already or is too old")).to_be_visible()
    await window.shot("e-link-used")
    await window.clear_notifications()
    await window.sign_in(desk.site.url, desk.site.token("alice"))
    await expect(window.status).to_have_text("Byleave")
    await window.open_chat()


@pytest.mark.promise("C-vscode", "A3")
async def test_many_questions_are_told_in_one_notification_at_a_time(desk: Desk) -> None:
    window = desk.window
    await window.command("View: Show Explorer")
    calls = [await desk.call("python3", "-c", f"print({number})") for number in range(4)]
    await expect(window.status).to_have_text("Byleave: 4 to review")
    asks = window.page.locator(".notification-toast", has_text="Byleave")
    await expect(asks).to_have_count(1)
    await expect(asks).to_contain_text("the agent wants to run")
    await asks.hover()
    await asks.locator(".codicon-notifications-clear").click()
    await expect(asks).to_contain_text("4 to review, 4 of them high risk.")
    await expect(asks).to_have_count(1)
    await window.shot("f-many")
    for tool_id in calls:
        await desk.user.post(f"/my/projects/{desk.project_id}/tools/{tool_id}/cancel")
    await expect(window.status).to_have_text("Byleave")
    await window.clear_notifications()


@pytest.mark.promise("C-vscode", "C1")
async def test_the_agent_reads_a_file_of_the_open_folder(desk: Desk) -> None:
    await desk.begin()
    await desk.window.say("read package.json and tell me the version")
    await expect(desk.window.chat.get_by_text("3.2.1", exact=True)).to_be_visible()
    assert await desk.machines() == [str(desk.workspace)]
    await desk.window.shot("2-read")
    await desk.window.picture("chat", height=380)


@pytest.mark.promise("C-vscode", "A3")
async def test_a_write_is_seen_as_a_difference_and_happens_when_it_is_allowed(desk: Desk) -> None:
    notes = desk.workspace / "notes.md"
    notes.write_text("# Notes\n\nbuy bread\n")
    await desk.begin()
    await desk.window.say("write notes.md: buy milk")
    await expect(desk.window.status).to_have_text("Byleave: 1 to review")
    await desk.question.get_by_role("button", name="Open diff").click()
    viewer = desk.window.page.locator(".monaco-diff-editor")
    await expect(viewer.locator(".editor.original")).to_contain_text("bread")
    await expect(viewer.locator(".editor.modified")).to_contain_text("milk")
    # One difference, not two: the chat leaves it to the editor while it is open there.
    told = desk.question.get_by_text("The difference is open in the editor.")
    await expect(told).to_be_visible()
    await expect(desk.question.locator("table")).to_have_count(0)
    await desk.window.shot("3-difference")
    # The file itself opens from its name.
    await desk.question.get_by_role("button", name="notes.md", exact=True).click()
    await expect(desk.window.page.locator(".monaco-breadcrumbs")).to_contain_text("notes.md")
    assert "bread" in notes.read_text()
    # The file took the place of the difference's tab.
    await expect(desk.question.locator("table")).to_be_visible()
    await desk.allow()
    await expect(desk.window.chat.get_by_text("Wrote notes.md")).to_be_visible()
    assert notes.read_text().strip() == "buy milk"
    await expect(desk.window.status).to_have_text("Byleave")
    await desk.window.shot("4-written")


@pytest.mark.promise("C-vscode", "A3")
async def test_a_write_is_allowed_or_denied_in_the_title_bar_of_its_difference(desk: Desk) -> None:
    window, notes = desk.window, desk.workspace / "titled.md"
    diff = window.page.get_by_role("tab", name=re.compile("titled.md: current ↔ proposed"))
    await desk.begin()
    await window.say("write titled.md: from the title bar")
    await desk.question.get_by_role("button", name="Open diff").click()
    await expect(diff).to_be_visible()
    await window.shot("4c-title-bar")
    await _press_in_title_bar(window, "Allow This Change", window.chat.get_by_text("Wrote titled.md"))
    assert notes.read_text().strip() == "from the title bar"
    # The difference of what is answered is of no more use.
    await expect(diff).to_have_count(0)
    await window.say("write titled.md: never")
    await desk.question.get_by_role("button", name="Open diff").click()
    why = window.page.locator(".quick-input-widget", has_text="Why? The agent is told.")
    await _press_in_title_bar(window, "Deny This Change", why)
    await window.answer("Why? The agent is told.", "not that")
    await expect(desk.question).to_have_count(0)
    await expect(diff).to_have_count(0)
    assert notes.read_text().strip() == "from the title bar"


async def _press_in_title_bar(window: Workbench, name: str, until: Locator) -> None:
    """A press counts once the difference is old enough to have been read; a person needs no second one."""
    button = window.page.locator(".editor-actions").get_by_role("button", name=re.compile(f"^{name}"))
    for _ in range(40):
        with contextlib.suppress(PlaywrightTimeout):
            await button.click(timeout=500)
        with contextlib.suppress(AssertionError):
            await expect(until).to_be_visible(timeout=500)
            return
    raise AssertionError(f"{name} did nothing")


@pytest.mark.promise("C-vscode", "L8-undo")
async def test_what_agents_changed_is_listed_and_undone_from_the_list_and_from_the_page(
    desk: Desk, browser: Browser
) -> None:
    window, made, kept = desk.window, desk.workspace / "listed.md", desk.workspace / "kept.md"
    kept.write_text("as it was\n")
    await desk.begin()
    for words in ("write listed.md: one too many", "write kept.md: another"):
        await window.say(words)
        await desk.allow()
        await expect(window.chat.get_by_text(f"Wrote {words.split()[1][:-1]}")).to_be_visible()
    changes = window.page.locator(".pane", has_text="Changed by Agents")
    await changes.locator(".pane-header").click()  # it leaves the room to the chat until somebody wants to see it
    listed = changes.locator(".monaco-list-row", has_text="listed.md")
    # The difference is of the very file: before the agent, and now.
    await changes.locator(".monaco-list-row", has_text="kept.md").click()
    viewer = window.page.locator(".monaco-diff-editor")
    await expect(viewer.locator(".editor.original")).to_contain_text("as it was")
    await expect(viewer.locator(".editor.modified")).to_contain_text("another")
    await listed.hover()
    await window.picture("undo", top=560, height=208)
    await listed.get_by_role("button", name="Undo This Change").click()
    await expect(window.dialog).to_contain_text("listed.md will be deleted: the agent created it.")
    # Enter only shows what would be undone.
    await expect(window.dialog.get_by_role("button", name="Show the Difference")).to_be_focused()
    await window.shot("4a-undo")
    await window.dialog.get_by_role("button", name="Undo", exact=True).click()
    await expect(window.toast("Undone: 1 path is as before the call.")).to_be_visible()
    await expect(listed).to_have_count(0)
    assert not made.exists()
    async with contextlib.AsyncExitStack() as ends:
        context = await browser.new_context(viewport={"width": 1100, "height": 800})
        ends.push_async_callback(context.close)
        page = await context.new_page()
        await page.goto(desk.site.url + (await desk.user.post("/my/signin")).body["path"])
        await page.get_by_role("link", name="Undo…").last.click()
        await page.get_by_role("button", name="Undo…").click()
        await page.get_by_role("button", name=re.compile("^Undo this")).click()
        await expect(changes.locator(".monaco-list-row", has_text="kept.md")).to_have_count(0)
    # Who sits here did not ask for it, and can have it back.
    told = window.toast("Undone, as asked in the chat or on the page: kept.md.")
    await expect(told.get_by_role("button", name="Bring It Back")).to_be_visible()
    assert kept.read_text() == "as it was\n"
    await window.shot("4b-undone")
    await window.clear_notifications()


@pytest.mark.promise("C-vscode", "A3")
async def test_a_command_that_is_denied_does_not_run_and_the_agent_hears_why(desk: Desk) -> None:
    (desk.workspace / "package.json").write_text(
        '{"name": "demo", "version": "3.2.1", "scripts": {"test": "touch ran"}}\n'
    )
    await desk.begin()
    await desk.window.say("run npm test")
    # Also with the list of changes open below it: what is asked and the answers, without scrolling.
    await expect(desk.question.get_by_role("heading")).to_be_in_viewport(ratio=0.9)
    for answer in ("Allow once", "Deny"):
        await expect(desk.question.get_by_role("button", name=answer, exact=True)).to_be_in_viewport(ratio=0.9)
    await desk.question.get_by_role("button", name="More ways to answer").click()
    await desk.window.chat.get_by_role("menuitem", name="Deny with a reason…").click()
    await desk.question.get_by_role("textbox", name="Reason to deny").fill("not before lunch")
    await desk.window.shot("5-command")
    await desk.window.picture("review", height=480)
    await desk.question.get_by_role("button", name="Deny", exact=True).click()
    await expect(desk.window.chat.get_by_text("not before lunch").last).to_be_visible()
    assert not (desk.workspace / "ran").exists()


@pytest.mark.promise("C-vscode", "C2")
async def test_a_question_is_told_while_the_chat_is_hidden_and_a_late_command_is_ended(desk: Desk) -> None:
    window = desk.window
    await window.command("View: Show Explorer")
    tool_id = await desk.call("python3", "-c", "import time; time.sleep(60)", timeout=1)
    toast = window.toast("the agent wants to run python3")
    await expect(toast).to_be_visible()
    await window.shot("6-notification")
    await toast.get_by_role("button", name="Allow once…").click()
    await expect(window.dialog).to_contain_text("time.sleep(60)")
    # Enter must never allow: the button that has the focus is another.
    await expect(window.dialog.get_by_role("button", name="Deny")).to_be_focused()
    await window.shot("7-dialog")
    await window.dialog.get_by_role("button", name="Allow once").click()
    await expect(window.dialog).to_contain_text("High risk.")
    await window.dialog.get_by_role("button", name="Run it", exact=True).click()
    await expect(window.toast("python3 ran longer than 1 s and was ended.")).to_be_visible()
    await window.shot("8-timeout")
    ended = await desk.user.end_of(tool_id)
    assert (ended["status"], ended["error_type"]) == ("failed", "execution_timeout")
    await window.clear_notifications()


@pytest.mark.promise("C-vscode", "G8")
async def test_full_mode_writes_without_a_question_and_sandbox_mode_asks(desk: Desk) -> None:
    await desk.begin()
    chat = desk.window.chat
    await chat.get_by_role("button", name="Mode: sandbox").click()
    await chat.get_by_role("button", name="Switch to full…").click()
    await chat.get_by_role("button", name="Yes, work in full mode").click()
    await desk.window.say("write full.md: unasked")
    await expect(chat.get_by_text("Wrote full.md")).to_be_visible()
    assert (desk.workspace / "full.md").read_text().strip() == "unasked"
    await desk.window.shot("9-full")
    await chat.get_by_role("button", name="Mode: full").click()
    await chat.get_by_role("button", name="Back to sandbox").click()
    await desk.window.say("write asked.md: asked")
    await desk.question.get_by_role("button", name="Deny", exact=True).click()
    await expect(desk.window.status).to_have_text("Byleave")
    assert not (desk.workspace / "asked.md").exists()


@pytest.mark.promise("C-vscode", "A3")
async def test_an_answer_in_the_browser_runs_it_in_the_editor(desk: Desk, browser: Browser) -> None:
    await desk.begin()
    await desk.window.say("write browser.md: from the page")
    await expect(desk.question).to_be_visible()
    link = (await desk.user.post("/my/signin")).body["path"]
    async with contextlib.AsyncExitStack() as ends:
        context = await browser.new_context(viewport={"width": 1100, "height": 800})
        ends.push_async_callback(context.close)
        page = await context.new_page()
        await page.goto(desk.site.url + link)
        await desk.question.get_by_role("button", name="Open diff").click()
        diff = desk.window.page.get_by_role("tab", name=re.compile("browser.md: current ↔ proposed"))
        await expect(diff).to_be_visible()
        await page.locator(".card-question").get_by_role("button", name="Allow once").click()
        await expect(desk.window.chat.get_by_text("Wrote browser.md")).to_be_visible()
        # It was answered elsewhere: nobody closes its difference by hand.
        await expect(diff).to_have_count(0)
    assert (desk.workspace / "browser.md").read_text().strip() == "from the page"
    await expect(desk.window.status).to_have_text("Byleave")


@pytest.mark.promise("C-vscode", "L4")
async def test_a_command_outlives_a_restart_of_the_server(desk: Desk) -> None:
    code = "import time, pathlib; pathlib.Path('began').touch(); time.sleep(2); print('survived')"
    await desk.window.open_chat()
    tool_id = await desk.call("python3", "-c", code)
    await desk.question.get_by_role("button", name="Allow once…").click()
    await desk.question.get_by_role("button", name="Yes, allow once").click()
    await _exists(desk, desk.workspace / "began")
    await _server(desk).kill()
    await expect(desk.window.status).to_have_text("Byleave: reconnecting")
    await desk.window.shot("a-server-gone")
    await desk.site.serve()
    await expect(desk.window.status).to_have_text("Byleave")
    ended = await desk.user.end_of(tool_id)
    assert ended["status"] == "completed", ended
    result: JsonObject = ended["result"]
    assert result["stdout"] == "survived\n"
    await desk.begin()
    await desk.window.say("read package.json and tell me the version")
    await expect(desk.window.chat.get_by_text("3.2.1", exact=True)).to_be_visible()
    await desk.window.shot("b-server-back")


@pytest.mark.promise("C-vscode", "S")
async def test_whoever_takes_the_servers_port_gets_no_token_and_the_person_is_told(desk: Desk) -> None:
    window, port = desk.window, int(desk.site.url.rpartition(":")[2])
    seen: list[tuple[str, str]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            token = re.search(r"^authorization: *(.*?)\r$", head, re.IGNORECASE | re.MULTILINE)
            seen.append((head.split(" ")[1], token[1] if token else ""))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n")
            writer.write(b"Connection: close\r\n\r\n{}")
            await writer.drain()

    await _server(desk).kill()
    squatter = await asyncio.start_server(answer, "127.0.0.1", port)
    try:
        told = window.toast("did not prove that it is the server")
        await expect(told).to_be_visible()
        await window.shot("g-squatter")
    finally:
        squatter.close()
    assert seen
    assert {*seen} == {("/proof", "")}
    await desk.site.serve()
    await told.get_by_role("button", name="Connect again").click()
    await expect(window.status).to_have_text("Byleave")
    await window.clear_notifications()


@pytest.mark.promise("C-vscode", "C-engine")
async def test_a_killed_engine_is_started_again_and_its_command_is_interrupted_and_never_run_twice(desk: Desk) -> None:
    window, runs, began = desk.window, desk.workspace / "runs.txt", desk.workspace / "began.txt"
    # The second file says that the first is written, and not only there.
    code = "import time; open('runs.txt', 'a').write('run\\n'); open('began.txt', 'w'); time.sleep(120)"
    await window.open_chat()
    tool_id = await desk.call("python3", "-c", code, timeout=200)
    await desk.question.get_by_role("button", name="Allow once…").click()
    await desk.question.get_by_role("button", name="Yes, allow once").click()
    await _exists(desk, began)
    (engine,) = desk.engines()
    os.kill(engine, signal.SIGKILL)
    ended = await desk.user.end_of(tool_id)
    assert (ended["status"], ended["error_type"]) == ("failed", "interrupted")
    await expect(window.status).to_have_text("Byleave")
    assert desk.engines() != [engine]
    await desk.begin()
    await window.say("read package.json and tell me the version")
    await expect(window.chat.get_by_text("3.2.1", exact=True)).to_be_visible()
    assert runs.read_text() == "run\n"


def _server(desk: Desk) -> Process:
    return desk.site.processes[-1]


def _engines() -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().endswith(b"\0connect\0--stdio\0"):
                found.append(int(entry.name))
    return found


def _environment(pid: int) -> dict[str, str]:
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


async def _exists(desk: Desk, path: Path) -> None:
    """Wait until a command has made a file; the page's clock paces the looking."""
    for _ in range(200):
        if path.exists():
            return
        await desk.window.page.wait_for_timeout(50)
    raise AssertionError(f"{path.name} was not made")
