"""The real program in processes of its own: run to its end, kept running, or driven on a terminal."""

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from unittest import mock

import pytest

from byleave.cli.main import run
from harness import ports
from harness.forks import Forked, Forks, shared_forks
from harness.json_values import Json

PATIENCE = 90.0
"""The first start loads everything, perhaps on a busy machine."""
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ERASED = re.compile(r"\r\x1b\[J")
PROMPT = "\n>"


def environment(home: Path, **more: str) -> dict[str, str]:
    """The tests' own environment with this state directory and nothing else of Byleave's settings."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("BYLEAVE_")}
    return {**plain, "BYLEAVE_HOME": str(home), "TERM": "xterm", "COLUMNS": "100", **more}


class Background:
    """A process that stays; its output is read line by line."""

    def __init__(self, process: Forked) -> None:
        self.process = process

    def line(self, *, of: str = "stdout") -> str:
        """The next line; empty when the process has ended."""
        stream = self.process.stdout if of == "stdout" else self.process.stderr
        assert stream is not None
        return stream.readline()

    def line_with(self, words: str, *, of: str = "stdout") -> str:
        """The next line that holds these words."""
        seen: list[str] = []
        while line := self.line(of=of):
            seen.append(line)
            if words in line:
                return line
        raise AssertionError(f"{words!r} was never said: {seen} {self.process.communicate()[1]}")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Ask it to stop: its exit code and what it said."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            out, err = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.wait(), out, err


class OnTerminal:
    """A process on a terminal of its own, driven like a person would."""

    def __init__(
        self,
        forks: Forks,
        arguments: tuple[str, ...],
        env: dict[str, str],
        cwd: Path | str | None,
        output: int | None = None,
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.process = forks.start(arguments, env, cwd, terminal=theirs, output=output)
        os.close(theirs)
        self.raw = ""
        self.seen = ""
        """The same without colours and movements of the cursor; what was erased stays, in a line of its own."""
        self._read_to = 0

    def expect(self, words: str) -> str:
        """Wait until these words appear after all that was expected before; gives what was said up to them."""
        assert self._appears(words, PATIENCE), f"{words!r} never appeared in: {self.seen[self._read_to :]!r}"
        found = self.seen.find(words, self._read_to)
        said = self.seen[self._read_to : found + len(words)]
        self._read_to = found + len(words)
        return said

    def expect_question(self) -> str:
        """Wait for a question, until it can be answered; gives what was said up to its choice."""
        return self.expect("expires in ")

    def deny(self, reason: str) -> None:
        self.expect_question()
        self.type("n")
        self.expect("Enter for no reason:")
        self.type(f"{reason}\n")

    def _appears(self, words: str, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while words not in self.seen[self._read_to :]:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            try:
                self._hear(os.read(self._ours, 65536))
            except OSError:  # the other end is gone
                return False
        return True

    def _hear(self, data: bytes) -> None:
        self.raw += data.decode("utf-8", "replace").replace("\r\n", "\n")
        self.seen = CODES.sub("", ERASED.sub("\n", self.raw))

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait(self) -> int:
        """Until it ends; what it still says is kept in `seen`."""
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:
                break
            if not data:
                break
            self._hear(data)
        return self.process.wait(PATIENCE)

    def hang_up(self) -> None:
        """Close the window, and wait until it has left."""
        self._close_window()
        self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._close_window()

    def _close_window(self) -> None:
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1


class Program:
    """`byleave`, with one state directory."""

    def __init__(self, home: Path, forks: Forks) -> None:
        self.home = home
        self._forks = forks
        self._kept: list[Background] = []
        self._terminals: list[OnTerminal] = []

    def run(
        self, *arguments: str, stdin: str | bytes | None = None, cwd: Path | str | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        given = stdin.encode() if isinstance(stdin, str) else (stdin or b"")
        process = self._forks.run(arguments, environment(self.home, **env), cwd, given)
        out, err = process.communicate(PATIENCE)
        return subprocess.CompletedProcess(arguments, process.wait(), out, err)

    def here(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """The same in this process: quicker, for commands that neither stay nor read their input."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, environment(self.home, **env), clear=True),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run(list(arguments))
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def json(self, *arguments: str, **env: str) -> Json:
        done = self.here(*arguments, **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *arguments: str, cwd: Path | str | None = None, **env: str) -> Background:
        kept = Background(self._forks.start(arguments, environment(self.home, **env), cwd))
        self._kept.append(kept)
        return kept

    def on_terminal(self, *arguments: str, cwd: Path | str | None = None, **env: str) -> OnTerminal:
        terminal = OnTerminal(self._forks, arguments, environment(self.home, **env), cwd)
        self._terminals.append(terminal)
        return terminal

    def with_output_to(self, output: int, arguments: list[str], env: dict[str, str]) -> OnTerminal:
        """On a terminal, but for stdout."""
        terminal = OnTerminal(self._forks, tuple(arguments), environment(self.home, **env), None, output)
        self._terminals.append(terminal)
        return terminal

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()
        # The last started first: a client before its server.
        for kept in reversed(self._kept):
            kept.stop()


@pytest.fixture(scope="session")
def forks() -> Forks:
    """What all processes are forked from."""
    return shared_forks()


@pytest.fixture
def byleave(tmp_path: Path, forks: Forks) -> Generator[Program]:
    """The program with a fresh state directory; what it started is ended."""
    program = Program(tmp_path / "home", forks)
    yield program
    program.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A small project."""
    directory = tmp_path / "app"
    directory.mkdir()
    (directory / "package.json").write_text('{"name": "app", "version": "1.2.3"}\n', encoding="utf-8")
    return directory


FreePort = Callable[[], int]


@pytest.fixture
def free_port() -> FreePort:
    return ports.free_port


class Site:
    """A server, and a client that executes for one project, both in processes of their own."""

    def __init__(self, base: Path, forks: Forks) -> None:
        self.program = Program(base / "home", forks)
        self.workspace = base / "site"
        self.workspace.mkdir()
        (self.workspace / "package.json").write_text('{"name": "site", "version": "1.2.3"}\n', encoding="utf-8")
        serving = self.program.start("serve", "--port", "0", "--json")
        self.url: str = json.loads(serving.line())["url"]
        self.token: str = self.program.here("token", "--user", "alice").stdout.strip()
        client = self.program.start(
            "connect", "--server", self.url, "--workspace", str(self.workspace), "--json", BYLEAVE_TOKEN=self.token
        )
        self.connected: dict[str, str] = json.loads(client.line())
        self.project_id = self.connected["project_id"]

    @property
    def env(self) -> dict[str, str]:
        return {"BYLEAVE_SERVER_URL": self.url, "BYLEAVE_TOKEN": self.token}

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.program.run(*arguments, stdin=None, cwd=None, **{**self.env, **more})

    def here(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.program.here(*arguments, **{**self.env, **more})

    def json(self, *arguments: str) -> Json:
        return self.program.json(*arguments, **self.env)

    def start(self, *arguments: str) -> Background:
        return self.program.start(*arguments, cwd=None, **self.env)

    def on_terminal(self, *arguments: str) -> OnTerminal:
        return self.program.on_terminal(*arguments, cwd=None, **self.env)

    def waiting(self, name: str) -> tuple[Background, str]:
        """A chat that waits for the approval of a write to this file, and the approval's id."""
        return self.asking(f"write {name}: hello")

    def asking(self, message: str) -> tuple[Background, str]:
        """A chat that waits for an approval after this message, and the approval's id."""
        kept = self.start("chat", message)
        kept.line_with("Waits for approval", of="stderr")
        hint = kept.line_with("byleave approvals approve", of="stderr")
        return kept, hint.split("approve ")[1].split("`")[0]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Generator[Site]:
    made = Site(tmp_path_factory.mktemp("site"), forks)
    yield made
    made.program.close()
