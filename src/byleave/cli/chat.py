"""`byleave chat`: a conversation in the terminal.

Without a terminal it prints what waits for approval and waits for an answer elsewhere: it never decides. The first
Ctrl-C cancels the run; with nothing running it takes two to leave; SIGTERM leaves at once. On a terminal the log goes
to a file, never into the chat.
"""

import asyncio
import contextlib
import logging
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from byleave.client.tasks import cancel
from byleave.protocol.errors import ByleaveError, NotFound
from byleave.protocol.states import AgentMode, RunState
from byleave.settings import ClientSettings

from .conversation import Conversation
from .options import ExitCode, ProjectId, Server, Verbose, new_app
from .places import find_server, project_to_watch, unknown_project
from .process import LOG_FILE, in_loop, on_stop, on_terminal, read_settings, set_up_logging
from .screen import complain, say
from .transcript import JsonTranscript, PlainTranscript, Transcript

if TYPE_CHECKING:  # imported when there is a terminal: pipes start without what edits lines and renders Markdown
    from .chat_terminal import ChatTerminal

app = new_app()

Result = TypeVar("Result")

AGAIN_SECONDS = 5.0
"""Time in which a second Ctrl-C leaves."""


async def one_message(conversation: Conversation, message: str) -> ExitCode:
    """Take one turn."""
    with _leaving(conversation) as leave:
        state = await _until_left(asyncio.create_task(conversation.turn(message)), leave)
    if state is None:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if state is RunState.DONE else ExitCode.FAILED


async def converse(conversation: Conversation, terminal: "ChatTerminal") -> None:
    """Take turns until the person leaves."""
    say("Type a message and Enter; Alt-Enter for a new line. Ctrl-C stops what runs, Ctrl-D leaves.")
    with terminal.open(), _leaving(conversation, terminal) as leave:
        while (line := await _until_left(asyncio.create_task(terminal.line()), leave)) is not None:
            try:
                state = await _until_left(asyncio.create_task(conversation.turn(line)), leave)
            except ByleaveError as error:
                complain(error.message, error.hint)
                continue
            if state is RunState.FAILED and conversation.cancelled:
                say("Stopped by you.")
            say("")
    say("")


@contextlib.contextmanager
def _leaving(conversation: Conversation, idle: "ChatTerminal | None" = None) -> Generator[asyncio.Event]:
    """Handle Ctrl-C: the first cancels the run, the next leaves. With `idle`, two are needed to leave its prompt."""
    leave = asyncio.Event()
    cancelling: set[asyncio.Task[None]] = set()
    asked = (-AGAIN_SECONDS, 0)

    def interrupted() -> None:
        nonlocal asked
        now = asyncio.get_running_loop().time()
        is_again = idle is not None and now - asked[0] < AGAIN_SECONDS and asked[1] == idle.steps
        if conversation.can_cancel:
            conversation.say("Cancelling. Ctrl-C again leaves.")
            cancelling.add(asyncio.create_task(conversation.cancel()))
        elif idle is not None and not conversation.is_running and not is_again:
            asked = (now, idle.steps)
            idle.say("Ctrl-C again leaves and stops what was started here.")
        else:
            leave.set()

    with on_stop(interrupted, leave.set):
        try:
            yield leave
        finally:
            for task in cancelling:
                task.cancel()


async def _until_left(task: "asyncio.Task[Result]", leave: asyncio.Event) -> Result | None:
    """Return the task's result; None if the person left first."""
    leaving = asyncio.create_task(leave.wait())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return None if leave.is_set() or not task.done() else task.result()
    finally:
        await cancel(task, leaving)


def open_terminal(home: Path) -> "tuple[ChatTerminal | None, Transcript]":
    """Return this process's terminal, if it has one, and what shows the conversation."""
    if not on_terminal():
        return None, PlainTranscript()
    from .chat_terminal import ChatTerminal
    from .live import LiveTranscript

    terminal = ChatTerminal.here(home)
    return terminal, LiveTranscript(terminal.screen)


@in_loop(app)
async def chat(
    message: Annotated[
        str | None, typer.Argument(metavar="[MESSAGE]", help="One message; left out: a conversation.")
    ] = None,
    server: Server = None,
    project: ProjectId = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this conversation.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Which agent works on it; left out: chat.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model, of those the server offers; left out: as before.")
    ] = None,
    mode: Annotated[AgentMode | None, typer.Option(help="Approval mode; left out: the agent's own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write every event of the run as a line of JSON.")] = False,
    verbose: Verbose = False,
) -> ExitCode:
    """Chat with the agent in the terminal.

    What needs your approval is asked in between. With MESSAGE: one turn, then exit 0 when the agent is done and 1 when
    it failed. Without a terminal it says what waits for approval, and waits until it was decided elsewhere. Ctrl-C
    stops the run; with nothing running it takes two to leave, or Ctrl-D.

    \b
    Example:
      byleave chat "read package.json and tell me the version"
      byleave chat --agent reviewer "look at src/app.py"
      byleave chat
    """
    settings = read_settings(ClientSettings)
    terminal, transcript = open_terminal(settings.home)
    set_up_logging(logging.ERROR, verbose=verbose, file=None if terminal is None else settings.home / LOG_FILE)
    if message is None and terminal is None:
        complain("There is no terminal to chat on.", "give the message: byleave chat 'list src'")
        return ExitCode.USAGE
    known = find_server(server)
    async with known.api() as api:
        if project is None:
            project = (await project_to_watch(api, known, Path.cwd())).project_id
        conversation = Conversation(
            api,
            project,
            JsonTranscript() if as_json else transcript,
            settings=settings,
            terminal=terminal,
            session_id=session,
            agent=agent,
            model=model,
            mode=mode,
            one_session=message is not None,
        )
        try:
            async with conversation:
                if message is not None:
                    with contextlib.nullcontext() if terminal is None else terminal.open():
                        return await one_message(conversation, message)
                assert terminal is not None  # noqa: S101 - checked above
                await converse(conversation, terminal)
                return ExitCode.OK
        except NotFound as error:
            # The feed fails first for an unknown project; an unknown session has its own message.
            if any(one.project_id == project for one in (await api.list_projects()).projects):
                raise
            raise await unknown_project(api, project) from error
