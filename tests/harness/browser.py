"""A real Chromium for tests that look at a page, and what they share: its flags, its size, a small project to work on.

One that is not installed skips the tests that need it. It asks nothing of the network, and as in a person's browser no
page sounds before somebody pressed something on it.
"""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=document-user-activation-required",
]
WIDTH, HEIGHT = 1280, 800
USUAL_MS = 20_000
"""How long a change of the page may take on a busy machine."""


def need_chromium() -> None:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")


@asynccontextmanager
async def open_browser(*, without: tuple[str, ...] = (), names: str | None = None) -> AsyncGenerator[Browser]:
    """`without`: flags that Playwright would give it. `names`: a name of other machines that leads to this one."""
    flags = FLAGS if names is None else [*FLAGS, f"--host-resolver-rules=MAP {names} 127.0.0.1"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=flags, ignore_default_args=list(without)
        )
        yield browser
        await browser.close()


async def new_context(browser: Browser) -> BrowserContext:
    """Cookies and storage of its own, at the size the screenshots have."""
    return await browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")


async def phone_context(browser: Browser) -> BrowserContext:
    """A phone's screen and touch."""
    return await browser.new_context(
        viewport={"width": 390, "height": 844},
        device_scale_factor=2,
        is_mobile=True,
        has_touch=True,
        reduced_motion="reduce",
        user_agent="Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 "
        "Mobile Safari/537.36",
    )


def fill_project(workspace: Path) -> None:
    """A small project."""
    (workspace / "src").mkdir(parents=True)
    (workspace / "package.json").write_text('{"name": "demo", "version": "3.2.1"}\n')
    (workspace / "src" / "app.py").write_text("print('hello')  # TODO: greet\n")
