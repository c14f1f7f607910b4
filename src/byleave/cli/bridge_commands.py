r"""The commands `byleave mcp` and `byleave acp`: their options and their help.

Registered by `commands`. Both speak a protocol on stdin and stdout, so everything else they say goes to stderr. The
bodies import what they need when they run. Nothing is decided here.
"""

import logging
from typing import Annotated

import typer

from .extras import needs_extra

Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The server; else BYLEAVE_SERVER_URL, else `byleave up` here."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every step to stderr.")]


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
    from .logs import set_up_logging

    set_up_logging(logging.WARNING, verbose=verbose)
    with needs_extra("mcp", "the MCP library"):
        from .mcp import serve_mcp
    from .looping import run_long

    raise typer.Exit(run_long(serve_mcp(server_url=server, project_id=project, tools=tool)))


def acp(
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
    from .logs import set_up_logging

    set_up_logging(logging.WARNING, verbose=verbose)
    with needs_extra("acp", "the ACP library"):
        from .acp import serve_acp
    from .looping import run_long

    raise typer.Exit(run_long(serve_acp(server_url=server, project_id=project, agent=agent)))
