"""`byleave history`: past calls, refused ones included, newest first."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from byleave.client.api import ServerApi
from byleave.client.approvals import approved_by_text
from byleave.protocol.errors import NotFound
from byleave.protocol.executions import Execution
from byleave.protocol.states import ExecutionStatus, RiskLevel

from .options import AsJson, Server, new_app
from .places import find_server, unknown_project
from .process import in_loop, set_up_logging
from .screen import (
    RISK_STYLES,
    call_summary,
    changed_files,
    put,
    put_json,
    say,
    shortened,
    shown,
    wall_time,
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
    """Format one execution: call, time, outcome, changed files, warnings."""
    risk = execution.risk_level.value
    line = Text(f"{wall_time(execution.created_at)}  {execution.status.value:<17} ")
    line.append(f"{risk:<6}", RISK_STYLES[risk])
    line.append(f"  {shortened(call_summary(execution.tool_name, execution.tool_params))}")
    if execution.edit is not None:
        editor = execution.edit.edited_by.removeprefix("person:")
        line.append(f"  changed by {'you' if editor == execution.user_id else shown(editor)}")
    by = approved_by_text(execution.approved_by, user_id=execution.user_id, grants=grants)
    if by is not None:
        line.append(f"  {by}")
    line.append(f"  {execution.tool_id}", "dim")
    denied = execution.decision if execution.status is ExecutionStatus.REJECTED else None
    if denied is not None:
        line.append(f"\n  reason: {shortened(denied.reason, 200)}" if denied.reason else "")
    elif execution.error:
        line.append(f"\n  {execution.error_type or 'error'}: {shortened(execution.error, 200)}")
    changed = changed_files(execution.result or {})
    if changed:
        line.append(f"\n  {changed}")
    for warning in warnings_of(execution.result or {}):
        line.append("\n  warning: ", "bold red").append(warning)
    return line


@in_loop(app)
async def history(
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
