"""`byleave up`: server, client, agent and chat page for one directory, in one process, on this machine alone.

The server listens on 127.0.0.1. If a server of this state directory is already up, the directory joins it. It combines
`serve`, `connect` and `chat`; nothing is approved here that they would ask about.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from byleave.agents.providers import proposals
from byleave.agents.roles import OFFLINE
from byleave.client.api import ServerApi
from byleave.client.connection import ClientConnection, connect_client
from byleave.client.tasks import cancel
from byleave.server import Listening, issue_token, serve
from byleave.settings import DEFAULT_PORT, ClientSettings, ServerSettings
from byleave.telemetry import configured

from .chat import converse, open_terminal
from .conversation import Conversation
from .link import show_phone_link
from .options import AgentsDir, AsJson, Verbose, new_app
from .places import UP, KnownServer, Note, leave_note, own_project, running_note
from .process import (
    LOG_FILE,
    existing_directory,
    first_of,
    in_loop,
    on_terminal,
    read_settings,
    run_long,
    set_up_logging,
    until_stopped,
)
from .screen import put_json, say
from .token import DAY, DEFAULT_SCOPES, user_name

if TYPE_CHECKING:
    from pydantic_ai.models import Model

app = new_app()


HOST = "127.0.0.1"
TOKEN_SECONDS = 365 * DAY
"""Longer than anybody leaves it running; it is kept only in the note, which ends with the process."""


class LocalServer:
    """A server on this machine alone, as a task."""

    def __init__(self, settings: ServerSettings, port: int, *, model: "Model | None" = None) -> None:
        ready: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
        self._ready = ready
        self.task = asyncio.create_task(
            serve(settings, HOST, port, ready=ready.set_result, model=model), name="byleave-server"
        )

    async def __aenter__(self) -> Listening:
        try:
            await first_of(self._ready, self.task)
        except BaseException:
            await cancel(self.task)  # also if we are stopped before it was ready
            raise
        return self._ready.result()

    async def __aexit__(self, *_: object) -> None:
        self._ready.result().stop()
        await asyncio.gather(self.task, return_exceptions=True)


async def sign_in_link(server: Listening, user: str) -> str:
    """Return a link to the chat page that signs a browser in once."""
    return f"{server.url}/signin?code={quote(await server.parts.sign_in.new_code(user))}"


async def _up(workspace: Path, *, port: int | None, with_chat: bool, qr: bool, as_json: bool) -> None:
    settings = read_settings(ServerSettings)
    async with AsyncExitStack() as ends:
        ends.enter_context(configured(settings.telemetry, "byleave"))
        note, running = running_note(settings.home), None
        link: str | None = None
        if note is None:
            server = LocalServer(settings, _port(port))
            listening, running = await ends.enter_async_context(server), server.task
            user = user_name()
            token = issue_token(settings, user, DEFAULT_SCOPES, TOKEN_SECONDS)
            note = Note(server_url=listening.url, token=token)
            ends.enter_context(leave_note(settings.home, note))
            link = await sign_in_link(listening, user)
        known_server = KnownServer(note.server_url, note.token, settings.home, UP)
        api = await ends.enter_async_context(known_server.api())
        project = await own_project(api, known_server, workspace)
        client_settings = read_settings(ClientSettings, server_url=known_server.server_url, token=known_server.token)
        connection = await ends.enter_async_context(connect_client(client_settings, project.project_id, workspace))
        client = asyncio.create_task(connection.run(), name="byleave-client")
        ends.push_async_callback(cancel, client)
        await first_of(asyncio.create_task(connection.connected.wait()), client)
        _announce(connection, link, settings, as_json=as_json)
        if qr:
            show_phone_link(await api.phone_link(), as_json=as_json)
        talking = asyncio.create_task(_talk(api, project.project_id, settings.home, with_chat=with_chat))
        ends.push_async_callback(cancel, talking)
        await first_of(talking, client, *([running] if running is not None else []))


async def _talk(api: ServerApi, project_id: str, home: Path, *, with_chat: bool) -> None:
    """Chat until the person leaves; without a chat, forever."""
    if not with_chat:
        await asyncio.Event().wait()
        return
    terminal, transcript = open_terminal(home)
    assert terminal is not None  # noqa: S101 - there is a chat on a terminal only
    settings = read_settings(ClientSettings)
    async with Conversation(api, project_id, transcript, settings=settings, terminal=terminal) as conversation:
        await converse(conversation, terminal)


def _announce(connection: ClientConnection, link: str | None, settings: ServerSettings, *, as_json: bool) -> None:
    isolation = connection.workspace.isolation
    if as_json:
        put_json(
            {
                "server_url": connection.api.server_url,
                "sign_in_url": link,
                "project_id": connection.project_id,
                "client_id": connection.client_id,
                "workspace": str(connection.workspace.root),
                "isolation": isolation.backend,
                "model": settings.model,
            }
        )
        return
    say(f"Byleave is up for {connection.workspace.root}")
    if link is not None:
        say(f"  chat page  {link}")
        say("             signs you in once, within 10 minutes; `byleave link` prints another")
    else:
        say(f"  joined the server that is already up at {connection.api.server_url}")
        say("  chat page  `byleave link` prints a link to it")
    say("  phone      `byleave link --qr` shows a code to scan, to approve from there")
    if link is not None:  # else the model is that of the server that was up
        for line in _agent_lines(settings, connection.workspace.root):
            say(f"  {line}")
    say(f"  project    {connection.project_id}")
    if connection.rules.summary is not None:
        say(f"  {connection.rules.summary.replace('rules: ', 'rules      ', 1)}")
    if not isolation.isolated:
        say("  warning    there is no sandbox on this machine, so every command asks")


def _agent_lines(settings: ServerSettings, workspace: Path) -> Iterator[str]:
    """Say which model works; with a key in the environment and no model set, how to use that key."""
    if settings.model != OFFLINE:
        yield f"agent      {settings.model}"
        return
    yield f"agent      offline: understands a few phrases such as `{_sample(workspace)}`"
    found = [] if "model" in settings.model_fields_set else proposals(os.environ)
    for key, lines in found:
        yield f"           {key} is set, but is not used unasked. To use it, stop this, type"
        yield from (f"             {line}" for line in lines)
        yield "           and start it again."
    if not found:
        yield "           BYLEAVE_MODEL names a model, such as anthropic:…, openai:… or ollama:…"


def _sample(workspace: Path) -> str:
    """Return a phrase that the offline agent understands and that works in this directory."""
    for name, asked in (("package.json", "version"), ("pyproject.toml", "name")):
        if (workspace / name).is_file():
            return f"read {name} and tell me the {asked}"
    return "read README.md" if (workspace / "README.md").is_file() else "list the files"


def _port(wanted: int | None) -> int:
    """Return the named port; else the default if it is free; else any."""
    if wanted is not None:
        return wanted
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, DEFAULT_PORT))
        except OSError:
            return 0
    return DEFAULT_PORT


@in_loop(app, run_long)
async def up(
    directory: AgentsDir = Path(),
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port on 127.0.0.1; left out: 8477 or a free one.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat/--no-chat", help="Chat in this terminal.")] = True,
    qr: Annotated[bool, typer.Option("--qr", help="Show a code that signs your phone in.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Start everything for one directory.

    Server, client, agent and chat page, on this machine alone. Prints a link to the chat page that signs you in once.
    On a terminal the chat goes on right there, and what needs your approval is asked there. Ctrl-D, or Ctrl-C twice,
    stops all of it.
    The next start finds the directory's project again.

    \b
    Example:
      byleave up ~/code/app
      byleave up --no-chat --port 9000
      BYLEAVE_PUBLIC_URL=https://byleave.example.com byleave up --qr
    """
    chat = chat and not as_json and on_terminal()
    home = read_settings(ServerSettings).home
    set_up_logging(logging.WARNING, verbose=verbose, file=home / LOG_FILE if chat else None)
    workspace = existing_directory(directory)
    await until_stopped(_up(workspace, port=port, with_chat=chat, qr=qr, as_json=as_json))
    say("Stopped.")
