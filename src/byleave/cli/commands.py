r"""Every command of `byleave`: its options, its help, and which module does the work.

Bodies import what they need when they run, and only there: `byleave --help` and `byleave version` must not wait for a
web framework, and `byleave check` must work in an installation that has none. Nothing is decided here.
"""

import logging
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from byleave.protocol.states import AgentMode, ExecutionStatus, RiskLevel, Scope

from .answer_commands import approvals_app, grants_app
from .bridge_commands import acp, mcp
from .doctor_command import doctor
from .exits import ExitCode
from .extras import needs_server
from .policy_commands import policy_app, trust
from .undo_commands import undo

HELP = """Let AI agents act on your machine, with your byleave.

\b
Start everything for the current directory:    byleave up
Talk to the agent:                             byleave chat "read package.json and tell me the version"
See what the gate would say of a call:         byleave check execute_command '{"command": "git", "args": ["status"]}'

Settings come from BYLEAVE_* variables or the TOML file named by BYLEAVE_CONFIG. Data goes to stdout,
messages to stderr. BYLEAVE_LOG=json logs as JSON lines; BYLEAVE_DEBUG=1 shows tracebacks.

\b
Exit codes: 0 done or stopped as asked, 1 refused or failed, 2 wrong usage, 3 server unreachable, 130 interrupted.
"""

app = typer.Typer(
    name="byleave",
    help=HELP,
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
audit_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON on stdout.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every step to stderr.")]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The server; else BYLEAVE_SERVER_URL, else `byleave up` here."),
]
ProjectId = Annotated[
    str | None, typer.Option("--project", metavar="ID", help="The project; needed when you have several.")
]


def _run(work: Coroutine[Any, Any, ExitCode | None]) -> None:
    """Run to the end and leave with its exit code."""
    from .looping import run_short

    raise typer.Exit(run_short(work) or ExitCode.OK)


def _log(level: int, *, verbose: bool) -> None:
    from .logs import set_up_logging

    set_up_logging(level, verbose=verbose)


@app.callback(invoke_without_command=True)
def everything(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def up(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="The directory agents may work in.")] = Path(),
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port on 127.0.0.1; left out: 8477 or a free one.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat/--no-chat", help="Chat in this terminal.")] = True,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Start everything for one directory.

    Server, client, agent and chat page, on this machine alone. Prints a link to the chat page that signs you in once.
    On a terminal the chat goes on right there, and what needs your approval is asked there. Ctrl-C stops all of it.
    The next start finds the directory's project again.

    \b
    Example:
      byleave up ~/code/app
      byleave up --no-chat --port 9000
    """
    _log(logging.WARNING, verbose=verbose)
    if not as_json and sys.stderr.isatty():
        typer.echo("Starting …", err=True)  # at once: what is imported below takes seconds on a small machine
    with needs_server():
        from .looping import run_long
        from .up import up as work

    raise typer.Exit(run_long(work(directory, port=port, with_chat=chat, as_json=as_json)))


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8477,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run the server.

    One line on stdout says when it is ready; logs go to stderr. SIGTERM, SIGHUP and Ctrl-C stop it in order. An
    address that others can reach needs BYLEAVE_ALLOWED_HOSTS: the names this server answers to.

    \b
    Example:
      BYLEAVE_HOME=/srv/byleave byleave serve --port 8477
      BYLEAVE_ALLOWED_HOSTS=byleave.example.com byleave serve --host 0.0.0.0
    """
    _log(logging.INFO, verbose=verbose)
    with needs_server():
        from .serve import serve_here

    serve_here(host, port, as_json=as_json)


@app.command()
def token(
    user: Annotated[str, typer.Option(metavar="NAME", help="Whose token it is.")],
    scope: Annotated[list[Scope] | None, typer.Option(help="What it may do; give it again for more.")] = None,
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="How long it lasts; left out: 30 days.")] = None,
    seconds: Annotated[
        int | None,
        typer.Option(min=1, help="How long it lasts, in seconds; accepted 5 seconds longer, for clocks that differ."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="An agent's token: what people see and the record keeps of it.")
    ] = None,
    mode: Annotated[
        AgentMode | None, typer.Option(help="The most this agent may do without asking; left out: sandbox.")
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Also keep it for the other commands of this machine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a signed token.

    Signed with the server's secret: the one in BYLEAVE_SECRET, or the one kept in BYLEAVE_HOME. Without --scope: chat,
    approve and execute, all that a person needs. A token with `agent` never approves and never executes; each one is an
    agent of its own, with its own conversation and grants.

    \b
    Example:
      byleave token --user alice
      byleave token --user alice --agent nightly --days 7
    """
    with needs_server():
        from .token import print_token

    print_token(user, scope or [], days=days, seconds=seconds, agent=agent, mode=mode, save=save, as_json=as_json)


@app.command()
def link(
    server: Server = None,
    editor: Annotated[bool, typer.Option("--editor", help="As a link that opens in VS Code.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a link to the chat page that signs a browser in, or VS Code.

    For the server that `byleave up` runs here, or the one that is named. It works once and for ten minutes: open it, or
    paste it into a browser's address bar. Needs a token that may chat and approve, as `byleave token` makes them.

    \b
    Example:
      byleave link
      byleave link --server http://127.0.0.1:8477
    """
    _log(logging.WARNING, verbose=False)
    from .link import print_link

    _run(print_link(server_url=server, editor=editor, as_json=as_json))


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
    _log(logging.INFO if stdio else logging.WARNING, verbose=verbose)
    from .looping import run_long

    if stdio:
        if server or project or wait or as_json or workspace != Path():
            raise typer.BadParameter("the editor says all else over stdin", param_hint="--stdio")
        from .connect import serve_editor

        raise typer.Exit(run_long(serve_editor()))
    from .connect import connect as work

    raise typer.Exit(
        run_long(work(server_url=server, project_id=project, directory=workspace, wait=wait, as_json=as_json))
    )


@app.command()
def chat(
    message: Annotated[
        str | None, typer.Argument(metavar="[MESSAGE]", help="One message; left out: a conversation.")
    ] = None,
    server: Server = None,
    project: ProjectId = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this session.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Which agent works on it; left out: chat.")] = None,
    mode: Annotated[AgentMode | None, typer.Option(help="How much the agent must ask; left out: its own mode.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write every event of the run as a line of JSON.")] = False,
    verbose: Verbose = False,
) -> None:
    """Chat with the agent in the terminal.

    What needs your approval is asked in between. With MESSAGE: one turn, then exit 0 when the agent is done and 1 when
    it failed. Without a terminal it says what waits for approval, and waits until it was decided elsewhere. Ctrl-C
    cancels the run first, then leaves.

    \b
    Example:
      byleave chat "read package.json and tell me the version"
      byleave chat --agent reviewer "look at src/app.py"
      byleave chat
    """
    _log(logging.ERROR, verbose=verbose)
    from .chat import chat as work

    place = {"server_url": server, "project_id": project, "session_id": session}
    _run(work(message, **place, agent=agent, mode=mode, as_json=as_json))


@app.command()
def check(
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="Name of the tool.")] = None,
    params: Annotated[str | None, typer.Argument(metavar="[JSON]", help="Its parameters.")] = None,
    workspace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The workspace to judge for; left out: the current directory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON; without TOOL: answer the lines of stdin.")] = False,
) -> None:
    """Say what the gate would say, and why.

    Runs nothing. With --json and no TOOL it reads lines {"tool_name": …, "tool_params": …} from stdin and answers each
    with one line {"verdict": "LOW"|"MEDIUM"|"HIGH"|"REFUSE", "reasons": […]}, in order.

    \b
    Example:
      byleave check execute_command '{"command": "rm", "args": ["-rf", "/"]}'
      byleave check --json --workspace ~/code/app < calls.jsonl
    """
    from .check import check_one, check_stream

    if tool is not None and params is not None:
        check_one(tool, params, workspace, as_json=as_json)
    elif tool is None and as_json:
        check_stream(workspace)
    else:
        raise typer.BadParameter("give TOOL and JSON, or --json alone to read lines from stdin", param_hint="TOOL JSON")


@app.command()
def tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the tool.")],
    params: Annotated[str, typer.Argument(metavar="JSON", help="Its parameters.")],
    workspace: Annotated[Path, typer.Option(metavar="DIR", help="The directory it may work in.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="The result is always JSON.", hidden=True)] = True,
) -> None:
    """Run one tool here, print its result as JSON.

    As the client would run it. Nobody is asked, because you typed it; the gate's refusals, the workspace's bounds and
    the sandbox hold all the same. Exit 0 on success, 1 when it was refused or failed.

    \b
    Example:
      byleave tool read_file '{"path": "package.json"}' --workspace ~/code/app
    """
    from .tool import run_tool

    raise typer.Exit(run_tool(name, params, workspace))


@app.command()
def history(
    project: Annotated[str | None, typer.Option(metavar="ID", help="Only this project.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only this session.")] = None,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="Only this tool.")] = None,
    status: Annotated[ExecutionStatus | None, typer.Option(help="Only this status.", case_sensitive=False)] = None,
    risk: Annotated[RiskLevel | None, typer.Option(help="Only this risk level.", case_sensitive=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on after the last page.")] = None,
    files: Annotated[bool, typer.Option("--files", help="The files calls changed in this directory.")] = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List what was called, also what was refused.

    Newest first, as the server has it. With --files: as this machine has it, for the current directory.

    \b
    Example:
      byleave history --status rejected --limit 10
      byleave history --tool write_file --json
      byleave history --files
    """
    _log(logging.WARNING, verbose=False)
    if files:
        from .undo import list_changes

        list_changes(Path(), limit=limit, as_json=as_json)
        return
    from .records import list_history

    filters: dict[str, str | int | None] = {
        "project_id": project,
        "session_id": session,
        "tool_name": tool,
        "status": status.value if status is not None else None,
        "risk_level": risk.value if risk is not None else None,
        "limit": limit,
        "cursor": cursor,
    }
    _run(list_history(filters, server_url=server, as_json=as_json))


@audit_app.callback(invoke_without_command=True)
def audit(context: typer.Context) -> None:
    """Prove that the record is whole."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@audit_app.command()
def verify(as_json: AsJson = False) -> None:
    """Check the audit chain of every project.

    Recomputes it from the local database, which is only read. Prints each project's number of records and head; keep
    the heads elsewhere to notice a chain that was rewritten whole. Exit 1 when a record was changed, removed, inserted
    or moved, and says which.

    \b
    Example:
      BYLEAVE_HOME=/srv/byleave byleave audit verify
    """
    from .audit import verify as work

    _run(work(as_json=as_json))


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version.

    \b
    Example:
      byleave version
    """
    from importlib.metadata import version as installed

    number = installed("byleave")
    # The number of `protocol.engine`, by which an editor knows whether it fits; loading that would take a while.
    typer.echo(f'{{"version": "{number}", "engine": 1}}' if as_json else f"byleave {number}")


app.add_typer(approvals_app, name="approvals")
app.add_typer(grants_app, name="grants")
app.add_typer(audit_app, name="audit")
app.add_typer(policy_app, name="policy")
app.command()(mcp)
app.command()(acp)
app.command()(trust)
app.command()(doctor)
app.command()(undo)
