"""`byleave tool`: one tool, run now as the client would run it.

The owner's gate judges first and its REFUSE holds; nobody is asked, because the person typed it. The workspace's
limits and its sandbox apply. Whatever happens, stdout gets one JSON object with `success`.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from byleave.client.local_calls import failure_result, run_here
from byleave.protocol.errors import ByleaveError
from byleave.settings import ClientSettings
from byleave.workspace.stopping import CommandStopped, unfinished
from byleave.workspace.workspace import Workspace

from .check import client_gate, read_object
from .options import ExitCode, new_app
from .process import existing_directory, read_settings, run_short
from .screen import put_json

app = new_app()


def run_tool(tool_name: str, text: str, directory: Path) -> ExitCode:
    """Run the tool and print the result."""
    settings = read_settings(ClientSettings)
    try:
        work = _run(tool_name, read_object(text), existing_directory(directory), settings)
        result = run_short(_run_until_signal(work))
    except ByleaveError as error:
        result = failure_result(error)
    put_json(result)
    return ExitCode.OK if result["success"] else ExitCode.FAILED


async def _run_until_signal(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Let SIGTERM or a closed terminal stop it in order: no process or file it made may be left behind."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        if task is not None:
            task.cancel()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup: keep running
                loop.add_signal_handler(number, stop)
    try:
        return await work
    except asyncio.CancelledError as cancelled:
        if not stopped:
            raise
        command = unfinished(cancelled)
        partial = None if command is None else command.partial
        raise CommandStopped("It was stopped; part of its effect may remain.", partial=partial) from None


async def _run(tool_name: str, params: dict[str, Any], directory: Path, settings: ClientSettings) -> dict[str, Any]:
    workspace = Workspace(directory, settings)
    try:
        gate = client_gate(settings, workspace.root)
        workspace.obey(gate.rules.policy)
        return await run_here(gate, workspace, tool_name, params)
    finally:
        await workspace.close()


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
    raise typer.Exit(run_tool(name, params, workspace))
