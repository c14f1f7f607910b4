"""`python -m bench.page`: the chat page in Chromium: frames of a long conversation, and how soon a question is seen.

A server in this process, without a client: a question is asked at once. Frames are counted while the page's own script
scrolls; a question's time runs from its event to the first frame that shows it. There is no graphics card in it.
"""

import argparse
import asyncio
import logging
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import structlog
from playwright.async_api import Page, async_playwright

from byleave.protocol.states import AgentMode
from byleave.server.serving import Listening, serve
from byleave.settings import ServerSettings
from byleave.store import SessionRow
from byleave.store.database import Transaction

USER = "bench"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FRAME_MS, QUESTION_MS = 1000 / 60, 100
SCROLL = """seconds => new Promise(done => {
  const scroller = document.querySelector('section.app-scroll'), frames = [], began = performance.now();
  let last = began;
  const step = now => {
    frames.push(now - last); last = now;
    scroller.scrollBy(0, -60);
    now - began < seconds * 1000 ? requestAnimationFrame(step) : done(frames.slice(1));
  };
  requestAnimationFrame(step);
})"""
WATCH = """() => { window.shown = new Promise(done => {
  const look = () => document.querySelector('.card-question:not([data-settled])')
    ? requestAnimationFrame(() => done(Date.now())) : requestAnimationFrame(look);
  look();
}) }"""


def fill(transaction: Transaction, session: str, count: int) -> None:
    """Put messages into a conversation's record, as many as a year of talking."""
    for number in range(count):
        transaction.execute(
            "INSERT INTO messages (id, session_id, project_id, run_id, role, content, position, created_at) "
            "SELECT :id, session_id, project_id, NULL, 'user', :content, position + 1, created_at FROM messages "
            "WHERE session_id = :session ORDER BY position DESC LIMIT 1",
            {"id": f"msg_many{number:06}", "content": f"message number {number}", "session": session},
        )


async def ask(page: Page, server: Listening, session: SessionRow, number: int) -> float:
    """Milliseconds from a question's event to the frame that shows it."""
    await page.evaluate(WATCH)
    call = server.parts.executor.call("write_file", {"path": f"{number}.md", "content": "x"}, session, until_asked=True)
    row = await call
    asked = time.time() * 1000
    shown: float = await page.evaluate("window.shown")
    await server.parts.approvals.reject_tool(row.approval_id or "", USER)
    await page.locator(".card-question:not([data-settled])").wait_for(state="detached")
    return shown - asked


async def measure(home: Path, messages: int, questions: int, seconds: float) -> tuple[list[float], list[float]]:
    """The frames while scrolling, and the questions, in milliseconds."""
    settings = ServerSettings(home=home, model="offline", durability="normal")
    listening: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(settings, "127.0.0.1", 0, ready=listening.set_result))
    server = await listening
    async with AsyncExitStack() as stack:
        store = server.parts.store
        project = await store.chat.create_project(USER, "bench")
        posted = await store.chat.post(USER, project.id, "hello", session_id=None, mode=AgentMode.SANDBOX)
        session = posted.session_id
        await store.database.write(lambda transaction: fill(transaction, session, messages))
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        stack.push_async_callback(browser.close)
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        await page.goto(f"{server.url}/signin?code={await server.parts.sign_in.new_code(USER)}")
        await page.get_by_text(f"message number {messages - 1}", exact=True).wait_for()
        frames: list[float] = await page.evaluate(SCROLL, seconds)
        await page.reload()
        await page.get_by_text(f"message number {messages - 1}", exact=True).wait_for()
        calls = await server.parts.executor.agent_session(USER, project.id, None)
        taken = [await ask(page, server, calls, number) for number in range(questions)]
    server.stop()
    await serving
    return frames, taken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--questions", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long it is scrolled")
    options = parser.parse_args()
    if CHROMIUM is None:
        sys.stderr.write("There is no Chromium here.\nhint: apt-get install chromium\n")
        return 1
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="byleave-page-") as home:
        frames, taken = asyncio.run(measure(Path(home), options.messages, options.questions, options.seconds))
    late = sum(frame > 1.5 * FRAME_MS for frame in frames)
    sys.stdout.write(
        f"scrolling {options.messages:,} messages: {1000 / statistics.mean(frames):.0f} frames a second, median "
        f"{statistics.median(frames):.1f} ms, longest {max(frames):.0f} ms, {late} of {len(frames)} late; wanted: 60\n"
        f"a question is on the screen after {statistics.median(taken):.0f} ms (longest {max(taken):.0f}); "
        f"wanted: within {QUESTION_MS}\n"
    )
    return int(statistics.median(taken) > QUESTION_MS or statistics.median(frames) > 1.1 * FRAME_MS)


if __name__ == "__main__":
    sys.exit(main())
