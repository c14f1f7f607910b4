"""Every command of README and docs/ does what its page says: a page is typed into a shell, from first to last.

What its reader is taken to have is there: a project, `byleave up` or `byleave serve`, a person who approves, a model.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from byleave.client.api import ServerApi
from byleave.protocol.approvals import ApproveBody
from byleave.protocol.events import ApprovalRequested
from harness.forks import Forked, untraced_forks
from harness.model_server import MODEL, Asked, Turn, call, open_model_server, say
from harness.pages import PAGES, ROOT, Block, blocks, runs, script
from harness.ports import free_port

LIMIT_SECONDS = 300
"""A page is some twenty programs, one after the other, perhaps on a busy machine."""
BLOCKS = {str(path.relative_to(ROOT)): list(blocks(path)) for path in PAGES}
RUN = sorted(page for page, found in BLOCKS.items() if any(runs(block) for block in found))
SERVED = ("docs/protocol.md", "docs/record.md")
"""Pages whose reader has a server and nothing else; those of the others have `byleave up`."""
ALONE = ("docs/operations.md",)
"""Pages that start their own server."""
NOBODY = ("docs/approve.md", "docs/protocol.md")
"""Pages that answer questions themselves; on the others a person approves each one."""
AGENTS_NEED = "[what all of them need](adapters.md#what-all-of-them-need) set"
"""Pages that say so begin with an agent's token and the rest, as docs/adapters.md makes them."""
FILES = {
    "package.json": '{"name": "shop", "version": "1.2.3", "scripts": {"test": "node --test"}}\n',
    "README.md": "# Shop\n\nSells books.\n",
    "src/app.py": "print('hello')  # TODO: sell something\n",
    "x.py": "print('x')\n",
}
OF_HELP = "an example of --help; tests/cli run every command"
NOT_RUN = {
    "installs on your machine; tests/deploy/test_wheel.py starts the wheel": 10,
    "what a client sends for a signal it got; tests/server/routes send all of these": 4,
    "needs a PostgreSQL of yours; tests/cli/test_db_on_postgres.py and tests/store use one": 2,
    "needs the server stopped; tests/cli/test_db_command.py prunes": 1,
    "asks on your terminal; tests/cli/test_demo_command.py plays it": 1,
    "stays on your terminal; every other block of these pages runs beside it": 1,
    "a machine of yours, with its own token; README.md runs one on this machine": 1,
    "addresses of yours; tests/deploy/test_proxies.py run both proxies": 3,
    "sends to a service of yours; tests/cli/test_notify_command.py sends to one": 1,
    "a program in Node; sdk-js/test runs what it shows": 1,
    "needs a command that waits; tests/ui/test_editing.py changes some": 1,
    "a provider of yours; tests/ui/test_sign_in_by_provider.py signs in with one": 1,
    "sends to a collector of yours; tests/telemetry send to one": 1,
    "for a page of yours; tests/ui/test_other_pages.py shows one": 1,
    "values of yours, in the environment of a service": 1,
    "a part of Prometheus's own configuration": 1,
    "`make` itself; CI types these": 1,
}
"""How many blocks are the reader's to run, by reason. A new one is a decision: write it down here."""


def test_every_block_is_run_or_says_why_not() -> None:
    everything = [block for found in BLOCKS.values() for block in found]
    assert [problem for block in everything if (problem := block.problem())] == []
    assert {block.page for block in everything if block.reason == OF_HELP} == {"docs/cli.md"}
    skipped = Counter(block.reason for block in everything if block.reason not in (None, OF_HELP))
    assert dict(skipped) == NOT_RUN
    files = re.findall(r"tests/[\w/.]+", " ".join(NOT_RUN))
    assert [name for name in files if not (ROOT / name).exists()] == [], "a reason names a test that is gone"


def model(asked: Asked) -> Turn:
    """Reads, writes, and says that it is done; deepagents' tools call the path `file_path` and start at `/`."""
    deep = "edit_file" in asked.tools
    name, root = ("file_path", "/") if deep else ("path", "")
    turns = (
        call("read_file", {name: f"{root}README.md"}),
        call("write_file", {name: f"{root}summary.md", "content": "A short summary.\n"}),
        say("All done."),
    )
    return turns[min(asked.steps, 2)]


@contextlib.contextmanager
def _person(url: str, token: str, project_id: str) -> Generator[None]:
    """Approves every question of the project, in a thread of its own."""
    watching, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def watch() -> None:
        async with ServerApi(url, token) as api, api.stream(project_id) as stream:
            watching.set()
            async for _, event in stream:
                if isinstance(event, ApprovalRequested):
                    with contextlib.suppress(Exception):  # it may be answered, or gone
                        await api.approve(project_id, event.approval_id, ApproveBody(decision="approved"))

    async def until_over() -> None:
        task = asyncio.create_task(watch())
        await asyncio.wait({task, asyncio.create_task(over.wait())}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task

    thread = threading.Thread(target=lambda: loop.run_until_complete(until_over()))
    thread.start()
    try:
        assert watching.wait(30)
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)
        loop.close()


class Reader:
    """Somebody with a project, a shell, and nothing else."""

    def __init__(self, place: Path, more: Mapping[str, str]) -> None:
        self.place, self.port = place, free_port()
        self.home, self.project = place / "home", place / "home" / "code" / "app"
        for name, text in FILES.items():
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            (self.project / name).write_text(text, encoding="utf-8")
        unwanted = ("BYLEAVE_", "XDG_", "COVERAGE_")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{plain['PATH']}"
        self.environment = {**plain, "HOME": str(self.home), "PATH": path, "NO_COLOR": "1", **more}
        as_somebody = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        for command in (["init", "-q"], ["add", "."], [*as_somebody, "commit", "-qm", "Begin"]):
            subprocess.run(["git", *command], cwd=self.project, env=self.environment, check=True)

    def start(self, *words: str) -> "Running":
        arguments = (*words, "--port", str(self.port), "--json")
        return Running(untraced_forks().start(arguments, self.environment, self.project))

    def output(self, *words: str) -> str:
        made = untraced_forks().start(words, self.environment, self.project)
        return made.communicate()[0].strip()

    def type(self, page: list[Block]) -> None:
        """Type a page's blocks, one after the other."""
        own = self.place / "own"
        own.mkdir()
        replacing = {
            "127.0.0.1:8477": f"127.0.0.1:{self.port}",
            "--port 8477": f"--port {self.port}",
            "127.0.0.1:8480": f"127.0.0.1:{(other := free_port())}",
            "--port 8480": f"--port {other}",
            "/srv/byleave": str(self.place / "srv"),
            "/backups/": f"{self.place}/backups/",
        }
        (self.place / "backups").mkdir()
        typed = own / "page.sh"
        typed.write_text(script(page, replacing, own), encoding="utf-8")
        said = own / "said"
        with said.open("wb") as out:
            shell = subprocess.Popen(
                ["bash", str(typed)],
                cwd=self.project,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = shell.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                code = "too late"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGTERM)  # what the page left running
        text = said.read_text(encoding="utf-8", errors="replace")
        assert code == 0, text[-3000:]


class Running:
    """A process of the product that says in JSON when it is ready."""

    def __init__(self, process: Forked) -> None:
        self.process = process

    def __enter__(self) -> dict[str, str]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(30)


@pytest.mark.timeout(LIMIT_SECONDS + 60)
@pytest.mark.parametrize("page", RUN)
def test_page_runs_as_it_stands(page: str, tmp_path: Path) -> None:
    missing = [name for name in ("jq", "curl", "sqlite3", "openssl") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"there is no {missing[0]} here (scripts/setup-tests)")
    with contextlib.ExitStack() as ends:
        server = ends.enter_context(open_model_server(model))
        keys = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "test", "MODEL": MODEL}
        reader = Reader(tmp_path, {**keys, "OPENAI_AGENTS_DISABLE_TRACING": "1"})
        if page in SERVED:
            reader.environment["BYLEAVE_HOME"] = str(tmp_path / "srv")
            ends.enter_context(reader.start("serve"))
        elif page not in ALONE:
            told = ends.enter_context(reader.start("up", str(reader.project)))
            if AGENTS_NEED in (ROOT / page).read_text(encoding="utf-8"):
                reader.environment |= {
                    "BYLEAVE_SERVER_URL": told["server_url"],
                    "BYLEAVE_TOKEN": reader.output("token", "--agent", "nightly"),
                    "BYLEAVE_PROJECT": told["project_id"],
                }
            if page not in NOBODY:
                token = reader.output("token", "--scope", "chat", "--scope", "approve")
                ends.enter_context(_person(told["server_url"], token, told["project_id"]))
        reader.type(BLOCKS[page])
        kept = [path.stat().st_mode & 0o777 for path in (tmp_path / "backups").iterdir()]
        assert set(kept) <= {0o600}, "a backup is its owner's alone"
        assert bool(kept) is (page == "docs/record.md")
