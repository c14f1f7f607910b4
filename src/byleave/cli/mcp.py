"""`byleave mcp`: the tools of a project for an MCP host, on stdin and stdout.

Nothing but the protocol goes to stdout. The server is asked once before serving, so that a wrong address, token or
project fails at once. It holds no approval: people approve elsewhere.
"""

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from byleave.adapters.mcp import serve_stdio
from byleave.protocol.errors import NotFound
from byleave.sdk import Client

from .options import ExitCode, Server, Verbose, log_from, new_app
from .places import KnownServer, find_server, project_to_watch, unknown_project
from .process import on_stop, run_long

app = new_app()


async def serve_mcp(*, server_url: str | None, project_id: str | None, tools: list[str] | None) -> ExitCode:
    """Serve until the host closes stdin, or until stopped."""
    server = find_server(server_url)
    async with Client(server.server_url, server.token) as client:
        project_id = await _check(client, server, project_id)
        serving = asyncio.create_task(serve_stdio(client.agent(project_id), tools=tools or None))
        with on_stop(lambda: _stop(serving)):
            await asyncio.wait({serving})
    if not serving.cancelled():
        serving.result()
    return ExitCode.OK


async def _check(client: Client, server: KnownServer, project_id: str | None) -> str:
    """Return the project id, after checking that it exists."""
    if project_id is None:
        return (await project_to_watch(client.api, server, Path.cwd())).project_id
    try:
        await client.api.available_tools(project_id)
    except NotFound as error:
        raise await unknown_project(client.api, project_id) from error
    return project_id


def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()


@app.command()
def mcp(
    server: Server = None,
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            metavar="ID",
            envvar="BYLEAVE_PROJECT",
            help="The project; else the directory's, or your only one.",
        ),
    ] = None,
    tool: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Offer this tool; left out: all six.")] = None,
    verbose: Verbose = False,
) -> None:
    """Offer the tools to an MCP host, on stdin and stdout.

    For Claude Code, Cursor and any other host. What the host's agent calls goes through the gate and waits for your
    approval like every other call: in the chat page, VS Code or `byleave connect`. The token comes from BYLEAVE_TOKEN,
    from `byleave token --save`, or from the `byleave up` that runs here; one with the scope `agent` is enough.

    \b
    Example, as an entry of mcp.json:
      {
        "mcpServers": {
          "byleave": {"command": "byleave", "args": ["mcp", "--project", "proj_1"]}
        }
      }
    """
    log_from(logging.WARNING, verbose=verbose)
    raise typer.Exit(run_long(serve_mcp(server_url=server, project_id=project, tools=tool)))
