"""`byleave demo`: a scripted agent on a throw-away project, so that a stranger sees in a minute what Byleave does.

Server, client and chat run in this process as with `byleave up`; only the agent's words are written in advance. The
project, its remote and all state are in a temporary directory, which is removed at the end, however it ends. Nothing of
the person's own state, settings or rules is read or written, except the named sandbox and the machine's rules, which
hold here too. It must never answer for a person without `--yes`, and never run anything outside the product's own
sandbox but the git that makes the project.
"""

import asyncio
import difflib
import logging
import os
import shlex
import shutil
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable, Collection, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TextIO

import typer
from pydantic import SecretStr
from rich.console import Console
from rich.text import Text

from byleave.agents.demo import ADDED, ANNOUNCED, BEGIN, CHANGED, GREETING, demo_model, project_files
from byleave.client.api import ServerApi
from byleave.client.approvals import Answer, Question
from byleave.client.connection import connect_client
from byleave.client.tasks import cancel
from byleave.client.terminal.prompt import TerminalPrompt
from byleave.protocol.changes import UndoBody, UndoPlan
from byleave.protocol.errors import CallerError
from byleave.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    ChatMessage,
    ExecutionSignal,
    FeedEvent,
    ToolFinished,
    ToolStarted,
)
from byleave.protocol.states import ApprovalStatus, ErrorType, ExecutionStatus, RiskLevel, RunState
from byleave.server import Listening, issue_token
from byleave.settings import ClientSettings, ServerSettings

from .audit import verify_record
from .chat_terminal import ChatTerminal
from .conversation import Conversation
from .options import ExitCode, Verbose, new_app
from .places import UP, KnownServer, own_project
from .process import first_of, in_loop, read_settings, run_long, set_up_logging, until_stopped
from .screen import complain, counted, put, say, shown
from .token import DEFAULT_SCOPES, user_name
from .transcript import PlainTranscript
from .up import LocalServer, sign_in_link

app = new_app()

PROJECT = "bookshop"
TOKEN_SECONDS = 24 * 3600
PAUSE_SECONDS = 1.5
"""For a person to read an announcement before its calls begin."""
READING_SECONDS = 2.8
"""With --yes, for a person to read a question before its answer appears."""
HERE = "That was my part."
ON_PAGE = "That was my part. On the page, History takes the changes back."
LOOK_AGAIN_SECONDS = 0.2
OWN_STREAMS = 2
"""Open feeds without a page: the client's and the conversation's."""
BECAUSE = "pushing is for people"
"""Told to the agent with the denial of --yes."""


@dataclass(frozen=True)
class Place:
    """The throw-away directory, and the project in it."""

    root: Path
    project: Path
    home: Path
    files: dict[str, str]

    @classmethod
    def made(cls, directory: str) -> "Place":
        """Make the project with its history, and a remote beside it."""
        root = Path(os.path.realpath(directory))
        place = cls(root, root / PROJECT, root / "state", project_files())
        for path, text in place.files.items():
            file = place.project / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        remote = f"{PROJECT}.git"
        place._git("init", "-q", "--bare", "-b", "main", remote, cwd=root)
        for arguments in (
            ("init", "-q", "-b", "main"),
            ("add", "-A"),
            ("commit", "-q", "-m", "Open the bookshop"),
            ("remote", "add", "origin", str(root / remote)),
            ("push", "-q", "origin", "main"),
        ):
            place._git(*arguments, cwd=place.project)
        return place

    def _git(self, *arguments: str, cwd: Path) -> None:
        """Run git without the person's configuration, and out of reach of their Ctrl-C."""
        names = ("AUTHOR", "COMMITTER")
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.root),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{name}_NAME": "Ada" for name in names},
            **{f"GIT_{name}_EMAIL": "ada@bookshop.example" for name in names},
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, process_group=0, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise CallerError(f"git could not make the project of the demo: {done.stderr.strip()}")

    def change_script(self) -> None:
        """Play the attacker: change the script that was just approved."""
        with (self.project / CHANGED).open("a", encoding="utf-8") as script:
            script.write(ADDED)

    def differing(self) -> list[str]:
        """Return the files that are not as they were at the start."""
        return [path for path, text in self.files.items() if (self.project / path).read_text(encoding="utf-8") != text]


class _Transcript(PlainTranscript):
    """Shows the story, with its announcements in colour, and counts what happened."""

    def __init__(self, *, brief: bool) -> None:
        """With `brief`, show the announcements alone: the rest is on the page."""
        super().__init__()
        self._brief = brief
        self.seen = Seen()
        self.attacked = ""
        """The call whose script the demo has changed."""

    def show(self, event: FeedEvent) -> None:
        self.seen.note(event)
        if isinstance(event, ToolFinished) and event.tool_id == self.attacked:
            say(Text(f"  (after your yes, the demo added a line to {CHANGED})", style="magenta"))
        if isinstance(event, ApprovalRequested):
            return  # asked here, or on the page
        if not self._brief:
            super().show(event)
        elif isinstance(event, ChatMessage):
            for line in event.content.split("\n"):
                if line.startswith(ANNOUNCED):
                    say(shown(line))

    def _stream(self, text: str) -> None:
        if self._streamed.endswith("\n") and text.startswith("\n\n"):
            text = text[1:]
        self._streamed += text
        styled = Text(shown(text))
        styled.highlight_regex(rf"(?m)^{ANNOUNCED}.*$", "bold cyan")
        put(styled, end="")


@dataclass
class Seen:
    """What happened, by the feed."""

    levels: dict[str, RiskLevel] = field(default_factory=dict[str, RiskLevel])
    ended: list[ToolFinished] = field(default_factory=list[ToolFinished])
    answers: list[ApprovalStatus] = field(default_factory=list[ApprovalStatus])
    corrected: list[str] = field(default_factory=list[str])
    """Ids of the writes that were carried out."""
    undone: int = 0

    def note(self, event: FeedEvent) -> None:
        match event:
            case ToolStarted():
                self.levels[event.tool_id] = event.risk_level
            case ToolFinished():
                self.ended.append(event)
                if event.tool_name == "write_file" and event.status is ExecutionStatus.COMPLETED:
                    self.corrected.append(event.tool_id)
            case ApprovalDecided():
                self.answers.append(event.status)
            case _:
                pass

    def lines(self, *, intact: bool) -> list[str]:
        """Say what was seen, in five lines."""
        at_once = sum(
            self.levels.get(end.tool_id) is RiskLevel.LOW and end.status is ExecutionStatus.COMPLETED
            for end in self.ended
        )
        allowed, denied = (self.answers.count(one) for one in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED))
        refused, drifted = (
            sum(end.error_type is kind for end in self.ended) for kind in (ErrorType.REFUSED, ErrorType.DRIFTED)
        )
        stopped = "a script that changed after your yes did not run" if drifted else "no script changed after a yes"
        back = f"{counted(self.undone, 'change', 'changes')} taken back" if self.undone else "nothing taken back"
        return [
            f"free      {counted(at_once, 'call', 'calls')} that only read ran at once",
            f"asked     {counted(len(self.answers), 'question', 'questions')}: {allowed} allowed, {denied} denied",
            f"refused   {counted(refused, 'call', 'calls')}, before anything ran",
            f"bound     {stopped}",
            f"recorded  {counted(len(self.ended), 'call', 'calls')}, {back}; the record is "
            f"{'intact' if intact else 'BROKEN'}",
        ]


class _Asking(TerminalPrompt):
    """Asks the person, and notices if they have left."""

    def __init__(self, stdin: TextIO, console: Console, left: asyncio.Event) -> None:
        super().__init__(stdin, console)
        self._left = left

    async def ask(self, question: Question) -> Answer | None:
        answer = await super().ask(question)
        if answer is None and not question.closed.done():
            self._left.set()
        return answer


class _Careful(TerminalPrompt):
    """Answers in place of a person (--yes): allows what is shown and MEDIUM, denies HIGH."""

    def __init__(self, stdin: TextIO, console: Console, reading_seconds: float) -> None:
        super().__init__(stdin, console)
        self._reading_seconds = reading_seconds

    async def choose(self, question: Question, menu: Callable[[], Text], keys: Collection[str]) -> str:
        answer = "n" if question.event.risk_level is RiskLevel.HIGH else "y"
        self.screen.show([menu()])
        await self.unless_closed(question, asyncio.sleep(self._reading_seconds))
        self.say(answer)
        return answer

    async def line(self, question: Question, label: str, default: str = "") -> str:
        self.say(f"{label}{BECAUSE}")
        return BECAUSE


class _Demo:
    """One showing."""

    def __init__(self, *, page: bool, yes: bool, quick: bool) -> None:
        self._page, self._yes = page, yes
        self._pause = 0.0 if quick else PAUSE_SECONDS
        self._reading = 0.0 if quick else READING_SECONDS
        self._left = asyncio.Event()
        self._transcript = _Transcript(brief=page)
        self.code = ExitCode.INTERRUPTED
        """The exit code, until it was seen to its end."""

    async def run(self) -> None:
        async with AsyncExitStack() as ends:
            terminal = self._terminal(ends)
            # What a killed process still writes there must not keep the rest from being removed.
            root = ends.enter_context(TemporaryDirectory(prefix="byleave-demo-", ignore_cleanup_errors=True))
            place = Place.made(root)
            # Not from variables: the person's own database, secret and model are not for this.
            settings = ServerSettings.model_construct(home=place.home, telemetry="off")
            server = LocalServer(settings, 0, model=demo_model(self._pause, end=ON_PAGE if self._page else HERE))
            listening = await ends.enter_async_context(server)
            token = issue_token(settings, user_name(), DEFAULT_SCOPES, TOKEN_SECONDS)
            known = KnownServer(listening.url, token, place.home, UP)
            api = await ends.enter_async_context(known.api())
            project_id = (await own_project(api, known, place.project)).project_id
            client_settings = _client_settings(known)
            connection = await ends.enter_async_context(
                connect_client(client_settings, project_id, place.project, on_event=self._attack(place))
            )
            client = asyncio.create_task(connection.run(), name="byleave-client")
            ends.push_async_callback(cancel, client)
            await first_of(asyncio.create_task(connection.connected.wait()), client)
            if not connection.workspace.isolation.isolated:
                say("There is no sandbox on this machine, so every call asks: see `byleave doctor`.")
            conversation = await ends.enter_async_context(
                Conversation(api, project_id, self._transcript, settings=client_settings, terminal=terminal)
            )
            story = asyncio.create_task(self._story(listening, api, conversation, place, terminal))
            leaving = asyncio.create_task(self._left.wait())
            ends.push_async_callback(cancel, story, leaving)
            await first_of(story, leaving, client, server.task)

    def _terminal(self, ends: AsyncExitStack) -> ChatTerminal | None:
        """Return who answers the questions here; None if the page does."""
        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        if self._yes:
            nobody = ends.enter_context(Path(os.devnull).open(encoding="utf-8"))  # noqa: SIM115 - closed with the rest
            return ChatTerminal(_Careful(nobody, console, self._reading))
        if self._page:
            return None
        terminal = ChatTerminal(_Asking(sys.stdin, console, self._left))
        ends.enter_context(terminal.open())
        return terminal

    def _attack(self, place: Place) -> Callable[[int, FeedEvent], None]:
        """Change the script between the person's yes and its start: its signal is here, and nothing has begun."""

        def on_event(_: int, event: FeedEvent) -> None:
            if isinstance(event, ExecutionSignal) and CHANGED in event.tool_params.get("args", ()):
                place.change_script()
                self._transcript.attacked = event.tool_id

        return on_event

    async def _story(
        self,
        listening: Listening,
        api: ServerApi,
        conversation: Conversation,
        place: Place,
        terminal: ChatTerminal | None,
    ) -> None:
        say(f"This is a throw-away project: {place.project}")
        say("The agent plays fixed steps; all else is real. It is removed at the end. Ctrl-C leaves.")
        if self._page:
            await self._until_watched(listening, conversation)
        put(Text(f"\n{shown(BEGIN)}", style="bold"))
        state = await conversation.turn(BEGIN)
        if terminal is not None:
            await self._offer_undo(api, place, terminal)
        put(Text("\n$ byleave audit verify", style="bold"))
        intact = await verify_record(listening.parts.settings) is ExitCode.OK
        self.code = ExitCode.OK if intact and state is RunState.DONE else ExitCode.FAILED
        say(Text("\nWhat you saw", style="bold"))
        for line in self._transcript.seen.lines(intact=intact):
            say(f"  {line}")
        say(Text.assemble("Now on a project of yours:  ", (_next_command(), "bold")))
        if self._page and not self._yes:
            say("Look around on the page. Ctrl-C ends the demo and removes it.")
            await asyncio.Event().wait()

    async def _until_watched(self, listening: Listening, conversation: Conversation) -> None:
        """Open the page, and wait until it shows the conversation."""
        await conversation.turn(GREETING)  # the page opens the newest conversation, so there must be one
        link = await sign_in_link(listening, user_name())
        say(f"\n  chat page  {link}\n")
        if sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
            # In a thread: some browsers stay in the foreground.
            threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
        if self._yes:
            return
        say("The demo begins when the page is open.")
        streams = listening.parts.streams
        while streams.count() <= OWN_STREAMS:  # noqa: ASYNC110 - nothing tells of a page that opens its feed
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _offer_undo(self, api: ServerApi, place: Place, terminal: ChatTerminal) -> None:
        """Show what taking the corrections back would do; do it if the person agrees."""
        calls = self._transcript.seen.corrected
        if not calls:
            return
        say(Text(f"\n{ANNOUNCED}what it changed can be taken back.", style="bold cyan"))
        plans = [await api.undo_plan(tool_id) for tool_id in calls]
        for plan in plans:
            for line in _undo_lines(plan):
                say(line)
        question = f"Take {counted(len(plans), 'change', 'changes')} back? y or n"
        if self._yes:
            await asyncio.sleep(self._reading)
            say(f"{question}\n> y")
        elif (await _typed(terminal, question, self._left)) != "y":
            say("They stay.")
            return
        for plan in reversed(plans):
            await api.undo(plan.tool_id, UndoBody(plan=plan.plan))
            self._transcript.seen.undone += 1
        left = [path for path in place.differing() if path != CHANGED]
        say("All files are as the agent found them." if not left else f"Not as they were: {', '.join(left)}")


def _client_settings(known: KnownServer) -> ClientSettings:
    """Return the client's settings: the person's choice of sandbox and the machine's rules hold, their own do not."""
    named = read_settings(ClientSettings)
    rules = known.home / "policy.toml"
    rules.touch(mode=0o600)
    return ClientSettings.model_construct(
        home=known.home,
        server_url=known.server_url,
        token=SecretStr(known.token),
        sandbox=named.sandbox,
        device_policy=named.device_policy,
        user_policy=rules,
        telemetry="off",
    )


def _undo_lines(plan: UndoPlan) -> Iterator[Text]:
    for file in plan.files:
        yield Text(f"  {shown(file.path)}")
        before, after = ((text or "").split("\n") for text in (file.before, file.after))
        for line in islice(difflib.unified_diff(before, after, n=0, lineterm=""), 3, None):
            yield Text(f"    {shown(line)}", style={"+": "green", "-": "red"}.get(line[:1], ""))


async def _typed(terminal: ChatTerminal, question: str, left: asyncio.Event) -> str:
    """Return a line in small letters; at the end of input the person has left."""
    say(question)
    line = await terminal.line()
    if line is None:
        left.set()
    return (line or "").strip().lower()


def _next_command() -> str:
    """Return the command to type next, as this one was called."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "byleave" else "byleave"
    if shutil.which("byleave") == os.path.realpath(program):
        program = "byleave"
    return f"{shlex.quote(program)} up {'.' if Path('.git').exists() else '~/path/to/it'}"


@in_loop(app, run_long)
async def demo(
    page: Annotated[bool, typer.Option("--page", help="Ask on the chat page instead of here.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Answer as a careful person would, to watch or to record it.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the pauses for reading.")] = False,
    verbose: Verbose = False,
) -> ExitCode:
    """See in a minute what it does, on a throw-away project.

    A scripted agent corrects three files, runs a test, reads secrets, and tries what an agent must not do. You are
    asked as on a project of your own, and the story goes on after a no. All of it is in a temporary directory, and
    nothing is left behind. Exit code 0: seen to its end. 130: left before.

    \b
    Example:
      byleave demo
      byleave demo --page
      byleave demo --yes
    """
    # A call that is stopped is an error in the log, and here a scene.
    set_up_logging(logging.CRITICAL, verbose=verbose)
    if not (page or yes or (sys.stdin.isatty() and sys.stderr.isatty())):
        complain("There is no terminal to ask on.", "watch it with `byleave demo --yes`, or answer with --page")
        return ExitCode.USAGE
    for program in ("git", "python3"):
        if shutil.which(program) is None:
            raise CallerError(f"The demo needs {program}, which is not installed.", hint="install it, and start again")
    showing = _Demo(page=page, yes=yes, quick=quick)
    await until_stopped(showing.run())
    if showing.code is ExitCode.INTERRUPTED:
        say("\nLeft; everything of the demo is removed.")
    return showing.code
