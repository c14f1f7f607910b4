"""`byleave chat`: a conversation in the terminal, over the same REST and SSE as every other chat.

Without a terminal it says what waits for approval and how to answer elsewhere, and keeps waiting: it never decides.
Ctrl-C cancels the run first and leaves the second time; SIGTERM leaves at once.
"""

import asyncio
import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

from byleave.protocol.errors import ByleaveError, NotFound
from byleave.protocol.states import AgentMode, RunState
from byleave.settings import ClientSettings

from .conversation import Conversation
from .exits import ExitCode
from .places import find_place, project_to_watch, unknown_project
from .preferences import read_settings
from .screen import complain, say
from .stopping import on_stop
from .terminal import Terminal
from .transcript import JsonTranscript, TerminalTranscript

Result = TypeVar("Result")


async def chat(
    message: str | None,
    *,
    server_url: str | None,
    project_id: str | None,
    session_id: str | None,
    agent: str | None,
    mode: AgentMode | None,
    as_json: bool,
) -> ExitCode:
    """Talk to the agent of a running server."""
    terminal = Terminal.here()
    if message is None and terminal is None:
        complain("There is no terminal to chat on.", "give the message: byleave chat 'list src'")
        return ExitCode.USAGE
    place = find_place(server_url)
    async with place.api() as api:
        if project_id is None:
            project_id = (await project_to_watch(api, place, Path.cwd())).project_id
        conversation = Conversation(
            api,
            project_id,
            JsonTranscript() if as_json else TerminalTranscript(can_ask=terminal is not None),
            settings=read_settings(ClientSettings),
            terminal=terminal,
            session_id=session_id,
            agent=agent,
            mode=mode,
            one_session=message is not None,
        )
        try:
            async with conversation:
                if message is not None:
                    return await one_message(conversation, message)
                assert terminal is not None  # noqa: S101 - looked at above
                await converse(conversation, terminal)
                return ExitCode.OK
        except NotFound as error:
            # The project is the first thing the feed asks for; a session that is not there says so itself.
            if any(project.project_id == project_id for project in (await api.list_projects()).projects):
                raise
            raise await unknown_project(api, project_id) from error


async def one_message(conversation: Conversation, message: str) -> ExitCode:
    """One turn, then the end."""
    with _leaving(conversation) as leave:
        state = await _unless_left(asyncio.create_task(conversation.turn(message)), leave)
    if state is None:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if state is RunState.DONE else ExitCode.FAILED


async def converse(conversation: Conversation, terminal: Terminal) -> None:
    """Turn after turn, until the person leaves."""
    say("Type a message and Enter. Ctrl-C cancels what runs, Ctrl-D leaves.")
    with _leaving(conversation) as leave:
        while (line := await _unless_left(asyncio.create_task(terminal.line()), leave)) is not None:
            try:
                state = await _unless_left(asyncio.create_task(conversation.turn(line)), leave)
            except ByleaveError as error:
                complain(error.message, error.hint)
                continue
            if state is RunState.FAILED and conversation.cancelled:
                say("Cancelled.")
            say("")
    say("")


@contextlib.contextmanager
def _leaving(conversation: Conversation) -> Generator[asyncio.Event]:
    """Ctrl-C: the first calls off the run, the next leaves."""
    leave = asyncio.Event()
    cancelling: set[asyncio.Task[None]] = set()

    def interrupted() -> None:
        if conversation.can_cancel:
            say("\nCancelling. Ctrl-C again leaves.")
            cancelling.add(asyncio.create_task(conversation.cancel()))
        else:
            leave.set()

    with on_stop(interrupted, leave.set):
        try:
            yield leave
        finally:
            for task in cancelling:
                task.cancel()


async def _unless_left(task: "asyncio.Task[Result]", leave: asyncio.Event) -> Result | None:
    """What the task gives; None when the person left first."""
    leaving = asyncio.create_task(leave.wait())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return None if leave.is_set() or not task.done() else task.result()
    finally:
        for each in (task, leaving):
            each.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)
