"""`byleave mcp`: the tools of a project for an MCP host, on stdin and stdout.

Nothing but the protocol goes to stdout. The server is asked once before serving, so that a wrong address, token or
project fails at once. It holds no approval: people approve elsewhere.
"""

import logging
from pathlib import Path
from typing import Annotated

import typer

from byleave.adapters.mcp import serve_stdio
from byleave.sdk import Client, Machine

from .options import Server, Verbose, new_app
from .places import check_project, find_server, project_to_watch
from .process import in_loop, run_long, set_up_logging, until_stopped

app = new_app()


@in_loop(app, run_long)
async def mcp(
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
    set_up_logging(logging.WARNING, verbose=verbose)
    known = find_server(server)
    async with Client(known.server_url, known.token) as client:
        if project is None:
            project = (await project_to_watch(client.api, known, Path.cwd())).project_id
        else:
            await check_project(client.api, project)
        machine = Machine(project_id=project, client=client)
        await until_stopped(serve_stdio(machine, tools=tool or None, page=f"{known.server_url}/"))
