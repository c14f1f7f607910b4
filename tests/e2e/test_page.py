"""The chat page in a real browser: what a person sees, clicks and types, and what must never answer for them.

Chromium is driven over its own debugging protocol, so that nothing needs to be installed for it. Clicks and keys go in
as a person's would. Waits are for a change of the page, never for a time.
"""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.processes import Site

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
]
LIMIT_SECONDS = 30

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium"),
]


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._session: str | None = None

    async def _call(self, method: str, until: str | None = None, **params: Any) -> dict[str, Any]:
        """One command; with `until`, its answer and then that event."""
        number = next(self._numbers)
        call: dict[str, Any] = {"id": number, "method": method, "params": params}
        await self._socket.send_json(call | ({"sessionId": self._session} if self._session else {}))
        answer: dict[str, Any] | None = None
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                heard = await self._socket.receive_json()
                if heard.get("id") == number:
                    assert "error" not in heard, heard
                    answer = heard["result"]
                if answer is not None and (until is None or heard.get("method") == until):
                    return answer

    async def attach(self) -> None:
        target = (await self._call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self._call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        await self._call("Page.enable")

    async def goto(self, url: str) -> None:
        await self._call("Page.navigate", until="Page.loadEventFired", url=url)

    async def reload(self) -> None:
        await self._call("Page.reload", until="Page.loadEventFired")

    async def js(self, expression: str) -> Any:
        answer = await self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, condition: str) -> Any:
        """Wait for a change of the page after which this is true."""
        return await self.js(
            "new Promise((done) => { const look = () => { const found = (" + condition + "); "
            "if (found) { watching.disconnect(); done(found); } }; const watching = new MutationObserver(look); "
            "watching.observe(document, {subtree: true, childList: true, attributes: true, characterData: true}); "
            "look(); })"
        )

    async def click(self, selector: str) -> None:
        where = f"document.querySelector({json.dumps(selector)})"
        await self.until(f"{where} && !{where}.disabled")
        box = await self.js(
            f"{where}.scrollIntoView({{block: 'nearest'}}), "
            f"(({{x, y, width, height}}) => ({{x: x + width / 2, y: y + height / 2}}))({where}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self._call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **box)

    async def type(self, text: str) -> None:
        await self._call("Input.insertText", text=text)

    async def press_enter(self) -> None:
        for kind in ("keyDown", "keyUp"):
            await self._call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
            )

    async def resize(self, width: int, height: int) -> None:
        await self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    async def screenshot(self, path: Path) -> None:
        answer = await self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    async def say(self, message: str) -> None:
        await self.until("document.querySelector('#link').textContent === 'connected'")
        await self.click("#message")
        await self.type(message)
        await self.press_enter()


@asynccontextmanager
async def browser(profile: Path) -> AsyncGenerator[Page]:
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={profile}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        address = ""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not address:
                line = (await process.stderr.readline()).decode(errors="replace")
                assert line, "Chromium ended at once"
                address = line.partition("DevTools listening on ")[2].strip()
        async with aiohttp.ClientSession() as http, http.ws_connect(address, max_msg_size=0) as socket:
            page = Page(socket)
            await page.attach()
            yield page
    finally:
        process.terminate()
        # Its pipe is read to the end: what still writes to it could otherwise wait for ever.
        await process.communicate()


async def sign_in_link(site: Site) -> str:
    """Start everything as `assent up` does; the link it prints."""
    up = await site.start("up", "up", str(site.workspace), "--no-chat", "--json", "--port", str(site.port))
    async with asyncio.timeout(LIMIT_SECONDS):
        while "\n" not in up.output():
            assert up.process.returncode is None, up.output()
            await asyncio.sleep(0.05)
    return json.loads(up.output().splitlines()[0])["sign_in_url"]


@pytest.fixture
async def page(site: Site, tmp_path: Path) -> AsyncIterator[Page]:
    async with browser(tmp_path / "profile") as page:
        yield page


@pytest.mark.promise("U", "U-version", "W13")
async def test_a_stranger_reads_the_version_and_a_reload_keeps_the_conversation(site: Site, page: Page) -> None:
    link = await sign_in_link(site)
    await page.goto(site.url)
    assert "You are not signed in" in await page.until("document.querySelector('.error')?.textContent")
    await page.goto(link)
    await page.until("document.querySelector('#link').textContent === 'connected'")
    await page.say("Read the package.json and tell me the version")
    for _ in range(2):
        await page.until("document.querySelector('.entry.agent .who')?.parentNode.textContent.includes('3.2.1')")
        card = await page.js("document.querySelector('.tool summary').textContent")
        assert "read_file" in card
        assert "package.json" in card
        assert "done" in card
        assert await page.js("document.querySelectorAll('.entry').length") == 3, "you, the call, the agent: once each"
        await page.reload()


@pytest.mark.promise("U", "A3", "R5")
async def test_a_question_takes_no_focus_survives_a_reload_and_a_no_reaches_the_agent(site: Site, page: Page) -> None:
    await page.goto(await sign_in_link(site))
    await page.say('write notes.md: <img src="x" id="evil"><b>bold</b>')
    await page.until("document.querySelector('.question')")
    assert await page.js("document.activeElement.id") == "message"
    assert await page.js("document.querySelector('.question .allow').disabled"), "locked while it appears"
    await page.press_enter()
    await page.reload()
    asked = await page.until("document.querySelector('.question')?.textContent")
    for told in ("MEDIUM", "notes.md", '<img src="x" id="evil">', "Writes a text file.", "left", "no network"):
        assert told in asked
    assert await page.js("document.querySelector('#evil, .question b')") is None, "what an agent wrote is text"
    assert not (site.workspace / "notes.md").exists()
    await page.click(".question .row input")
    await page.type("not in this directory")
    await page.click(".question .deny")
    await page.until(
        "document.querySelector('.entry.agent .who')?.parentNode.textContent.includes('not in this directory')"
    )
    assert "you said no" in await page.js("document.querySelector('.tool summary').textContent")
    assert await page.js("document.querySelector('.question')") is None
    assert not (site.workspace / "notes.md").exists()


@pytest.mark.promise("U", "R4")
async def test_high_takes_a_second_step_before_it_can_be_allowed(site: Site, page: Page) -> None:
    await page.goto(await sign_in_link(site))
    await page.say("write deploy.sh: echo hi")
    await page.until("document.querySelector('.question.HIGH')")
    assert await page.js("document.querySelector('.question .open.similar')") is None, "no class is offered from HIGH"
    await page.click(".question .allow")
    await page.until("document.querySelector('.question .allow.really')?.textContent === 'Really run it'")
    assert await page.js("document.querySelector('.question .allow').disabled"), "a double click is one step"
    assert not (site.workspace / "deploy.sh").exists()
    await page.click(".question .allow.really")
    await page.until("document.querySelector('.entry.agent .who')?.parentNode.textContent.includes('deploy.sh')")
    assert (site.workspace / "deploy.sh").read_text().strip() == "echo hi"
    assert await page.js("document.title") == "Assent"


@pytest.mark.promise("G8", "U")
async def test_similar_writes_run_unasked_by_the_grant_until_it_is_revoked(site: Site, page: Page) -> None:
    await page.goto(await sign_in_link(site))
    await page.say("write src/a.md: one")
    await page.click(".question .open.similar")
    panel = "document.querySelector('.question .panel:not([hidden])')"
    assert await page.js(f"{panel}.querySelector('input:checked')") is None, "nothing is chosen for the person"
    assert await page.js(f"{panel}.querySelector('.allow').disabled")
    choices = await page.js(f"[...{panel}.querySelectorAll('.choice strong')].map((each) => each.textContent)")
    below = choices.index("Write text files below 'src'.")
    await page.click(f".question .panel:not([hidden]) .choice:nth-of-type({below + 1}) input")
    await page.until(f"{panel}.querySelector('.told').textContent.includes('It would have covered')")
    assert await page.js(f"{panel}.querySelector('.rule').value") == "src/**"
    await page.click(".question .panel:not([hidden]) .allow")
    await page.until("document.querySelector('.remark')?.textContent.includes(\"Write text files below 'src'.\")")
    await page.until("document.querySelectorAll('.entry.agent .who').length === 1")

    await page.say("write src/b.md: two")
    await page.until("document.querySelectorAll('.entry.agent .who').length === 2")
    by = "document.querySelectorAll('.tool .by')[1].textContent"
    assert "by your grant: Write text files below 'src'." in await page.until(by)
    assert (site.workspace / "src" / "b.md").read_text() == "two"
    assert await page.js("document.querySelector('#show-grants').textContent") == "Grants (1)"
    await page.reload()
    assert "by your grant" in await page.until(f"document.querySelectorAll('.tool .by').length === 2 && {by}")

    await page.click("#show-grants")
    assert "used once" in await page.js("document.querySelector('#grant-list').textContent")
    await page.click("#grant-list .revoke")
    await page.until("document.querySelector('#show-grants').textContent === 'Grants (0)'")
    await page.say("write src/c.md: three")
    await page.until("document.querySelector('.question')")
    assert not (site.workspace / "src" / "c.md").exists()


@pytest.mark.promise("G8")
async def test_a_rule_can_be_narrowed_and_one_that_reaches_too_far_cannot_be_allowed(site: Site, page: Page) -> None:
    await page.goto(await sign_in_link(site))
    await page.say("write src/a.md: one")
    await page.click(".question .open.similar")
    panel = "document.querySelector('.question .panel:not([hidden])')"
    await page.click(".question .panel:not([hidden]) .choice input")
    await page.until(f"!{panel}.querySelector('.allow').disabled")

    async def edit(line: str) -> None:
        await page.click(".question .rule")
        await page.js("document.querySelector('.question .rule').select()")
        await page.type(line)
        assert await page.js(f"{panel}.querySelector('.allow').disabled"), "not before its words were shown"

    await edit("**")
    await page.until(f"{panel}.querySelector('.note')?.textContent.includes('covers the whole workspace')")
    assert await page.js(f"{panel}.querySelector('.allow').disabled")
    await edit("'src/*.md")
    await page.until(f"{panel}.querySelector('.note')?.textContent.includes('quotation mark')")
    await edit("src/*.md")
    await page.until(f"{panel}.querySelector('.told').textContent.includes(\"'*.md' files directly in 'src'\")")
    await page.click(".question .panel .limits input")
    await page.type("1")
    await page.click(".question .panel:not([hidden]) .allow")
    await page.until("document.querySelectorAll('.entry.agent .who').length === 1")
    await page.click("#show-grants")
    assert "1 left" in await page.js("document.querySelector('#grant-list').textContent")


@pytest.mark.promise("G8")
async def test_everything_in_a_session_takes_its_warning_to_be_read(site: Site, page: Page) -> None:
    await page.goto(await sign_in_link(site))
    await page.say("write a.md: one")
    await page.click(".question .open.everything")
    panel = "document.querySelector('.question .panel:not([hidden])')"
    assert "without asking" in await page.js(f"{panel}.querySelector('.alarm').textContent")
    assert await page.js(f"{panel}.querySelector('.allow').disabled")
    await page.click(".question .panel:not([hidden]) .sure input")
    await page.click(".question .panel:not([hidden]) .allow")
    await page.until("document.querySelectorAll('.entry.agent .who').length === 1")
    assert await page.js("document.querySelector('#show-grants').classList.contains('alarm')")
    await page.say("write deploy.sh: echo hi")
    await page.until("document.querySelectorAll('.entry.agent .who').length === 2")
    assert (site.workspace / "deploy.sh").exists()
    await page.until("document.querySelectorAll('.tool .by')[1].textContent.includes('by your grant')")


@pytest.mark.promise("G8", "U", "T3")
async def test_what_a_script_holds_is_shown_before_it_runs_and_what_it_changed_after(site: Site, page: Page) -> None:
    (site.workspace / "src" / "app.py").write_text(
        "print('<b>hello</b>')\nprint(6 * 7)\n"
        "for name in ('Makefile', 'b, c <img id=evil>\\x1b'):\n    open(name, 'w').close()\n"
        "print('x' * 70_000)\n"  # so long that a page of the history leaves the result out
    )
    await page.goto(await sign_in_link(site))
    await page.say("run python src/app.py")
    seen = await page.until("document.querySelector('.question .seen')?.textContent")
    for told in ("src/app.py", "print('<b>hello</b>')", "print(6 * 7)", "sha256"):
        assert told in seen
    assert await page.js("document.querySelector('.question b')") is None
    words = await page.js("[...document.querySelectorAll('.question .argv code')].map((each) => each.textContent)")
    assert words == ["python", "src/app.py"], "each argument has its own box"
    await page.click(".question .allow")
    await page.until("document.querySelector('.tool')?.textContent.includes('42')")
    for _ in range(2):
        left = await page.until(
            "document.querySelector('.tool .effects .caution') && document.querySelector('.tool .effects').textContent"
        )
        assert r"changed 2 files: Makefile (created), 'b, c <img id=evil>\x1b' (created)" in left
        assert "The command created 'Makefile'. make runs the commands in it" in left
        assert await page.js("document.querySelector('#evil')") is None
        await page.until("document.querySelector('.entry.agent .who')")
        await page.reload()


@pytest.mark.promise("U", "A")
async def test_long_content_can_be_seen_whole_and_a_decision_elsewhere_closes_the_card(site: Site, page: Page) -> None:
    await page.goto(await sign_in_link(site))
    await page.say(f"write long.md: {'a' * 9000} the middle {'b' * 9000}")
    await page.until("document.querySelector('.question')")
    assert "the middle" not in await page.js("document.querySelector('.question').textContent")
    await page.click(".question .show-all")
    await page.until("document.querySelector('.question .whole')?.textContent.includes('the middle')")
    await page.js(
        "fetch('/my/approvals').then((found) => found.json()).then(({approvals}) => "
        "fetch(`/my/approvals/${approvals[0].id}/confirm`, {method: 'POST', "
        "headers: {'Content-Type': 'application/json'}, body: JSON.stringify({decision: 'rejected'})}))"
    )
    said = await page.until("document.querySelector('.remark')?.textContent")
    assert said.startswith("Denied by ")
    assert "person:" not in said
    assert "long.md" in said
    assert await page.js("document.querySelector('.question')") is None


@pytest.mark.promise("U")
async def test_nothing_overflows_at_phone_width(site: Site, page: Page) -> None:
    await page.resize(390, 844)
    await page.goto(await sign_in_link(site))
    await page.say("run python src/app.py")
    await page.click(".question .open.similar")
    await page.click(".question .choice input")
    await page.until("!document.querySelector('.question .panel .allow').disabled")
    assert await page.js("document.documentElement.scrollWidth") <= 390
    assert await page.js("document.querySelector('#waiting').scrollWidth") <= 390
