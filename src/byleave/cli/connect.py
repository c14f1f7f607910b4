"""`byleave connect`: this machine, connected to a project of a server.

It asks on a terminal; without one it quietly executes what others approved, and logs to stderr. A server that stays
unreachable at the start is an error (exit code 3), unless `--wait` is given; later it reconnects by itself. With
`--stdio` an editor drives it (`client.engine`).
"""

import asyncio
import logging
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byleave.client.api import ServerApi
from byleave.client.connection import ClientConnection, connect_client
from byleave.client.engine import Engine, own_channel
from byleave.client.tasks import pause
from byleave.protocol.errors import NotFound, RefusedError, UnreachableError
from byleave.settings import ClientSettings
from byleave.telemetry import configured

from .options import AsJson, ProjectId, Server, Verbose, WorkspaceDir, new_app
from .places import KnownServer, find_server, project_to_serve, remember_project, unknown_project
from .process import (
    LOG_FILE,
    existing_directory,
    in_loop,
    on_stop,
    on_terminal,
    read_settings,
    run_long,
    set_up_logging,
    until_stopped,
)
from .screen import put_json, say

FIRST_CONTACT_SECONDS = 10.0
"""How long a server may be away at the start: one that restarts, or whose proxy has none to turn to for a moment."""

if TYPE_CHECKING:
    from byleave.client.terminal.prompt import TerminalPrompt

app = new_app()


def _terminal() -> "TerminalPrompt | None":
    """Return a prompt on this process's terminal; None if it has none: then nothing that draws is loaded."""
    if not on_terminal():
        return None
    from byleave.client.terminal.prompt import TerminalPrompt

    return TerminalPrompt.here()


async def _serve_editor() -> None:
    """Be the engine of the editor that started this process, until it disconnects."""
    async with own_channel() as channel:
        engine = Engine(channel, partial(read_settings, ClientSettings))
        with on_stop(engine.stop):
            await engine.run()


async def _serve(
    server: KnownServer,
    project_id: str | None,
    workspace: Path,
    prompt: "TerminalPrompt | None",
    *,
    wait: bool,
    as_json: bool,
) -> None:
    async with server.api() as api:
        project_id = await _first_contact(api, server, project_id, workspace, wait=wait)
    settings = read_settings(ClientSettings, server_url=server.server_url, token=server.token)
    with configured(settings.telemetry, "byleave-client"):
        told = None if prompt is None else _Link(prompt)
        async with connect_client(settings, project_id, workspace, prompt, on_connection=told) as connection:
            announcing = asyncio.create_task(_announce(connection, as_json=as_json))
            try:
                await connection.run()
            finally:
                announcing.cancel()


class _Link:
    """Says once on a terminal that the server has gone, and once that it is back."""

    def __init__(self, prompt: "TerminalPrompt") -> None:
        self._prompt = prompt
        self._gone = False

    def __call__(self, problem: UnreachableError | None) -> None:
        if problem is not None and not self._gone:
            self._prompt.say(f"{problem.message} Trying again.")
        elif problem is None and self._gone:
            self._prompt.say("Connected again.")
        self._gone = problem is not None


async def _first_contact(
    api: ServerApi, server: KnownServer, project_id: str | None, workspace: Path, *, wait: bool
) -> str:
    """Find the project, and so check that the server is there and accepts the token.

    A server that is away is tried again for a while, or with `wait` until it answers; a wrong address is told at once.
    """
    loop = asyncio.get_running_loop()
    give_up = math.inf if wait else loop.time() + FIRST_CONTACT_SECONDS
    failures = 0
    while True:
        try:
            if project_id is None:
                return (await project_to_serve(api, server, workspace)).project_id
            await api.available_tools(project_id)
            remember_project(server, workspace, project_id)
            return project_id
        except NotFound as error:
            if project_id is None:
                raise
            raise await unknown_project(api, project_id) from error
        except RefusedError:
            if project_id is None:
                raise
            return project_id  # a token that may only execute cannot list projects
        except UnreachableError as error:
            if loop.time() >= give_up or not (wait or error.passing):
                raise
            if failures == 0:
                say(f"{error.message} Trying again {'until it answers' if wait else 'for a moment'}.")
            failures += 1
            await asyncio.sleep(min(pause(failures, 0.2, 5.0), give_up - loop.time()))


async def _announce(connection: ClientConnection, *, as_json: bool) -> None:
    await connection.connected.wait()
    isolation = await asyncio.to_thread(lambda: connection.workspace.isolation)
    if as_json:
        put_json(
            {
                "connected": True,
                "server_url": connection.api.server_url,
                "project_id": connection.project_id,
                "client_id": connection.client_id,
                "workspace": str(connection.workspace.root),
                "isolation": isolation.backend,
            }
        )
        return
    say(f"Connected {connection.workspace.root} to project {connection.project_id} at {connection.api.server_url}.")
    if connection.rules.summary is not None:
        say(connection.rules.summary)
    if not isolation.isolated:
        say("warning: there is no sandbox on this machine, so every command asks. " + " ".join(isolation.degraded))
    elif isolation.degraded:
        from .transcript import weaker_isolation  # loaded only when there is something to say

        say(f"warning: {weaker_isolation(isolation.model_dump(mode='json'))}; `byleave doctor` tells more")


@in_loop(app, run_long)
async def connect(
    server: Server = None,
    project: ProjectId = None,
    workspace: WorkspaceDir = Path(),
    wait: Annotated[bool, typer.Option("--wait", help="Keep trying when the server is not there yet.")] = False,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Be an editor's engine: JSON-RPC on stdin and stdout.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Connect this machine to a project.

    Executes what was approved, inside one directory, until Ctrl-C. The token comes from BYLEAVE_TOKEN or from `byleave
    token --save`. On a terminal it asks you; without one it executes quietly what was approved elsewhere and logs to
    stderr. Without --project it takes the directory's own project, or your only one, or makes one. A server that
    stays unreachable for ten seconds at the start ends it with exit code 3. With --stdio an editor starts it and says
    all of this over stdin (docs/engine.md).

    \b
    Example:
      byleave connect --server http://127.0.0.1:8477 --project proj_1 --workspace ~/code/app
    """
    prompt = None if stdio else _terminal()
    # On a terminal the log has a file, as that of a chat; what is asked for goes above the question.
    file = None if prompt is None or verbose else read_settings(ClientSettings).home / LOG_FILE
    stream = None if prompt is None else prompt.screen
    set_up_logging(logging.INFO if stdio else logging.WARNING, verbose=verbose, file=file, stream=stream)
    if stdio:
        if server or project or wait or as_json or workspace != Path():
            raise typer.BadParameter("the editor says all else over stdin", param_hint="--stdio")
        await _serve_editor()
        return
    directory = existing_directory(workspace)
    known = find_server(server)
    await until_stopped(_serve(known, project, directory, prompt, wait=wait, as_json=as_json))
    say("Stopped.")
