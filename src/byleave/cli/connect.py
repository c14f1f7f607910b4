"""`byleave connect`: this machine, connected to a project of a server.

It asks on a terminal; without one it quietly executes what others approved, and logs to stderr. A server that is
unreachable at the start is an error (exit code 3), unless `--wait` is given; later it reconnects by itself. With
`--stdio` an editor drives it (`client.engine`).
"""

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from byleave.client import ClientConnection, ServerApi, TerminalPrompt, connect_client
from byleave.client.engine import Engine, own_channel
from byleave.client.outbox import pause
from byleave.protocol.errors import NotFound, RefusedError, UnreachableError
from byleave.settings import ClientSettings
from byleave.telemetry import configured

from .options import AsJson, ExitCode, ProjectId, Server, Verbose, log_from, new_app
from .places import KnownServer, find_server, project_to_serve, remember_project, unknown_project
from .process import existing_directory, on_stop, read_settings, run_long
from .screen import put_json, say

app = new_app()


async def stay_connected(
    *, server_url: str | None, project_id: str | None, directory: Path, wait: bool, as_json: bool
) -> ExitCode:
    """Serve a directory until stopped."""
    workspace = existing_directory(directory)
    server = find_server(server_url)
    stop = asyncio.Event()
    with on_stop(stop.set):
        serving = asyncio.create_task(_serve(server, project_id, workspace, wait=wait, as_json=as_json))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        failed = serving.done()
        for task in (serving, stopping):
            task.cancel()
        await asyncio.gather(serving, stopping, return_exceptions=True)
    if failed:
        serving.result()  # raises the error that ended it
    say("Stopped.")
    return ExitCode.OK


async def serve_editor() -> ExitCode:
    """Be the engine of the editor that started this process, until it disconnects."""
    async with own_channel() as channel:
        engine = Engine(channel, partial(read_settings, ClientSettings))
        with on_stop(engine.stop):
            await engine.run()
    return ExitCode.OK


async def _serve(server: KnownServer, project_id: str | None, workspace: Path, *, wait: bool, as_json: bool) -> None:
    async with server.api() as api:
        project_id = await _first_contact(api, server, project_id, workspace, wait=wait)
    settings = read_settings(ClientSettings, server_url=server.server_url, token=server.token)
    with configured(settings.telemetry, "byleave-client"):
        await _stay(settings, project_id, workspace, as_json=as_json)


async def _stay(settings: ClientSettings, project_id: str, workspace: Path, *, as_json: bool) -> None:
    async with connect_client(settings, project_id, workspace, TerminalPrompt.here()) as connection:
        announcing = asyncio.create_task(_announce(connection, as_json=as_json))
        try:
            await connection.run()
        finally:
            announcing.cancel()


async def _first_contact(
    api: ServerApi, server: KnownServer, project_id: str | None, workspace: Path, *, wait: bool
) -> str:
    """Find the project, and so check that the server is there and accepts the token."""
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
            if not wait:
                raise
            if failures == 0:
                say(f"{error.message} Trying again until it answers.")
            failures += 1
            await asyncio.sleep(pause(failures, 0.2, 5.0))


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


@app.command()
def connect(
    server: Server = None,
    project: ProjectId = None,
    workspace: Annotated[Path, typer.Option(metavar="DIR", help="The directory agents may work in.")] = Path(),
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
    cannot be reached at the start ends it with exit code 3. With --stdio an editor starts it and says all of this over
    stdin (docs/engine.md).

    \b
    Example:
      byleave connect --server http://127.0.0.1:8477 --project proj_1 --workspace ~/code/app
    """
    log_from(logging.INFO if stdio else logging.WARNING, verbose=verbose)
    if stdio:
        if server or project or wait or as_json or workspace != Path():
            raise typer.BadParameter("the editor says all else over stdin", param_hint="--stdio")
        raise typer.Exit(run_long(serve_editor()))
    raise typer.Exit(
        run_long(stay_connected(server_url=server, project_id=project, directory=workspace, wait=wait, as_json=as_json))
    )
