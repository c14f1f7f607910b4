"""`byleave history`: past calls, refused ones included, newest first."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from byleave.client.api import ServerApi
from byleave.client.approvals import approved_by_text
from byleave.client.terminal.words import call_words
from byleave.protocol.errors import NotFound
from byleave.protocol.executions import Execution
from byleave.protocol.states import ErrorType, ExecutionStatus, RiskLevel
from byleave.protocol.wire import JsonObject

from .options import AsJson, Server, new_app
from .places import find_server, unknown_project
from .process import in_loop, set_up_logging
from .screen import (
    RISK_STYLES,
    changed_files,
    put,
    put_json,
    say,
    short_time,
    shortened,
    shown,
    warnings_of,
)
from .undo import list_changes

app = new_app()


async def _grant_texts(api: ServerApi, executions: list[Execution]) -> dict[str, str]:
    """Return the texts of the grants that let these run."""
    if not any((execution.approved_by or "").startswith("grant:") for execution in executions):
        return {}
    return {grant.id: grant.text for grant in (await api.grants({"all": "true"})).grants}


def execution_line(execution: Execution, grants: Mapping[str, str]) -> Text:
    """Format one execution: time, outcome, call, who let it run, changed files, warnings; its id at the end."""
    line = Text(f"{short_time(execution.created_at)}  ")
    line.append(*_outcome(execution))
    line.append(f"  {shortened(call_words(execution.tool_name, execution.tool_params))}")
    if execution.risk_level is not RiskLevel.LOW:
        risk = execution.risk_level.value
        line.append(" · ", "dim").append(f"{risk.lower()} risk", RISK_STYLES[risk])
    if execution.edit is not None:
        editor = execution.edit.edited_by.removeprefix("person:")
        line.append(f" · changed by {'you' if editor == execution.user_id else shown(editor)}")
    by = approved_by_text(execution.approved_by, user_id=execution.user_id, grants=grants)
    if by is not None:
        line.append(f" · {by}")
    line.append(f"  {shown(execution.tool_id)}", "dim")
    denied = execution.decision if execution.status is ExecutionStatus.REJECTED else None
    if denied is not None:
        line.append(f"\n  reason: {shortened(denied.reason, 200)}" if denied.reason else "")
    elif execution.error:
        line.append(f"\n  {shortened(execution.error, 200)}")
    changed = changed_files(execution.result or {})
    if changed:
        line.append(f"\n  {changed}")
    for warning in warnings_of(execution.result or {}):
        line.append("\n  warning: ", "bold red").append(warning)
    return line


def _outcome(execution: Execution) -> tuple[str, str]:
    """How it ended, in words of one width, and their style."""
    words, style = _OUTCOMES.get(execution.status, (execution.status.value, ""))
    if execution.error_type is ErrorType.REFUSED:
        words = "refused"
    elif execution.error_type is ErrorType.CANCELLED:
        words = "stopped"
    elif (code := (execution.result or {}).get("exit_code")) not in (None, 0):
        words, style = shortened(f"exit {code}", 8), "red"
    return f"{words:<8}", style


_OUTCOMES = {
    ExecutionStatus.AWAITING_APPROVAL: ("waiting", "yellow"),
    ExecutionStatus.APPROVED: ("allowed", ""),
    ExecutionStatus.EXECUTING: ("runs", ""),
    ExecutionStatus.COMPLETED: ("done", "green"),
    ExecutionStatus.REJECTED: ("denied", "red"),
    ExecutionStatus.TIMEOUT: ("expired", "red"),
    ExecutionStatus.FAILED: ("failed", "red"),
}


def _put_output(result: JsonObject) -> None:
    """Print all that a command printed, which a list and a chat shorten."""
    for stream in ("stdout", "stderr"):
        for text in str(result.get(stream) or "").splitlines():
            put(Text(f"  | {shown(text)}"))
    if result.get("exit_code") is not None:
        put(f"exit code {shown(str(result['exit_code']))}")


@in_loop(app)
async def history(
    tool_id: Annotated[
        str | None, typer.Argument(metavar="TOOL_ID", help="Only this call, with all that it printed.")
    ] = None,
    project: Annotated[str | None, typer.Option(metavar="ID", help="Only this project.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only this conversation.")] = None,
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
      byleave history exec_1
      byleave history --files
    """
    set_up_logging(logging.WARNING)
    if files:
        list_changes(Path(), limit=limit, as_json=as_json)
        return
    filters: dict[str, str | int | None] = {
        "project_id": project,
        "session_id": session,
        "tool_name": tool,
        "status": status.value if status is not None else None,
        "risk_level": risk.value if risk is not None else None,
        "limit": limit,
        "cursor": cursor,
    }
    async with find_server(server).api() as api:
        if tool_id is not None:
            execution = await api.get_tool(tool_id)
            if as_json:
                put_json(execution.model_dump(mode="json"))
            else:
                put(execution_line(execution, await _grant_texts(api, [execution])))
                _put_output(execution.result or {})
            return
        try:
            page = await api.history({name: value for name, value in filters.items() if value is not None})
        except NotFound as error:
            if project is None:
                raise
            raise await unknown_project(api, project) from error
        grants = {} if as_json else await _grant_texts(api, page.executions)
    if as_json:
        put_json(page.model_dump(mode="json"))
        return
    for execution in page.executions:
        put(execution_line(execution, grants))
    if not page.executions:
        say("Nothing yet.")
    elif page.next_cursor is not None:
        least = "" if page.total_is_exact else "at least "
        say(f"{len(page.executions)} of {least}{page.total_count}; go on with --cursor '{shown(page.next_cursor)}'")
