"""`byleave acp`: the agent of an editor that speaks ACP, on stdin and stdout.

Each directory the editor opens gets its own project and, unless one already serves it, a client in this process. The
editor's user decides, so the token must be a person's. The state directory maps editor sessions to chat sessions.
Nothing but the protocol goes to stdout.
"""

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, cast

import structlog
import typer

from byleave.adapters.acp import EditorAgent, serve_stdio
from byleave.client.api import ServerApi
from byleave.client.connection import connect_client
from byleave.client.identity import private_directory, write_private
from byleave.client.journal import AlreadyServed
from byleave.client.tasks import cancel
from byleave.protocol.errors import CallerError
from byleave.settings import ClientSettings

from .options import Server, Verbose, new_app
from .places import KnownServer, check_project, find_server, known_directory, own_project, remember_project
from .process import (
    existing_directory,
    first_of,
    in_loop,
    read_settings,
    run_long,
    set_up_logging,
    until_stopped,
)

app = new_app()


log = structlog.stdlib.get_logger(__name__)

MOST_REMEMBERED = 1000


class Directories:
    """Directories opened by the editor, each with its project and client."""

    def __init__(self, api: ServerApi, server: KnownServer, project_id: str | None) -> None:
        self._api = api
        self._server = server
        self._project_id = project_id
        self._opened: dict[Path, str] = {}
        self._opening = asyncio.Lock()
        self._ends = AsyncExitStack()

    async def __aenter__(self) -> "Directories":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ends.aclose()

    async def open(self, directory: Path) -> str:
        """Return the project of a directory, once a client executes there."""
        async with self._opening:
            workspace = existing_directory(directory)
            if workspace not in self._opened:
                project_id = await self._project(workspace)
                await self._serve(project_id, workspace)
                self._opened[workspace] = project_id
            return self._opened[workspace]

    async def _project(self, workspace: Path) -> str:
        if self._project_id is None:
            return (await own_project(self._api, self._server, workspace)).project_id
        known = known_directory(self._server, self._project_id)
        if known is not None and known != workspace:
            raise CallerError(
                f"The project {self._project_id!r} works in {str(known)!r}, and the editor opened {str(workspace)!r}.",
                hint="open that directory, or leave --project out: each directory then has its own project",
            )
        await check_project(self._api, self._project_id)
        remember_project(self._server, workspace, self._project_id)
        return self._project_id

    async def _serve(self, project_id: str, workspace: Path) -> None:
        settings = read_settings(ClientSettings, server_url=self._server.server_url, token=self._server.token)
        try:
            connection = connect_client(settings, project_id, workspace)
        except AlreadyServed:
            log.info("a client already serves this directory", workspace=str(workspace))
            return
        await self._ends.enter_async_context(connection)
        running = asyncio.create_task(connection.run(), name="byleave-client")
        self._ends.push_async_callback(cancel, running)
        waiting = asyncio.create_task(connection.connected.wait())
        self._ends.push_async_callback(cancel, waiting)
        await first_of(waiting, running)


class SessionMemory(dict[str, str]):
    """Maps editor sessions to chat sessions; kept in a file, for convenience only."""

    def __init__(self, home: Path) -> None:
        self._path = home / "acp.json"
        super().__init__(self._read())

    def __setitem__(self, name: str, session_id: str) -> None:
        if self.get(name) == session_id:
            return
        # Read again: another editor may have written meanwhile.
        known = {**self._read(), name: session_id}
        self.clear()
        self.update(list(known.items())[-MOST_REMEMBERED:])
        private_directory(self._path.parent)
        write_private(self._path, json.dumps(self, indent=1))

    def _read(self) -> dict[str, str]:
        try:
            value: Any = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        items = cast("dict[Any, Any]", value).items() if isinstance(value, dict) else ()
        return {str(name): str(session_id) for name, session_id in items}


@in_loop(app, run_long)
async def acp(
    server: Server = None,
    project: Annotated[
        str | None,
        typer.Option("--project", metavar="ID", help="The project; left out: the one of the editor's directory."),
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Which agent works; left out: chat.")] = None,
    verbose: Verbose = False,
) -> None:
    """Be the agent of an editor that speaks ACP, on stdin and stdout.

    For Zed, JetBrains, Neovim. The conversation is one of the directory that the editor opens; what needs your approval
    is asked in the editor's own dialog. Tools run in that directory, by this process unless a client serves it already.
    The token must have the scopes chat, approve and execute: that of the `byleave up` that runs here has them.

    \b
    Example, as an entry of Zed's settings.json:
      {
        "agent_servers": {"Byleave": {"command": "byleave", "args": ["acp"]}}
      }
    """
    set_up_logging(logging.WARNING, verbose=verbose)
    known = find_server(server)
    async with known.api() as api, Directories(api, known, project) as directories:
        await api.list_projects()  # fail at once on a wrong address or token
        await until_stopped(serve_stdio(EditorAgent(api, directories.open, SessionMemory(known.home), agent=agent)))
