"""Looking back and deciding from the shell: history, approvals, and the proof that the record is whole.

History and approvals ask the server. `audit verify` opens the database itself, for reading only, because a proof that
the server gives of itself proves little. Deciding shows what is decided first, and is bound to exactly that.
"""

from collections.abc import Mapping

from rich.text import Text

from byleave.client import ServerApi
from byleave.client.showing import everything_of, let_by, quoted
from byleave.protocol.approvals import ApprovalRequest, ConfirmBody
from byleave.protocol.errors import NotFound
from byleave.protocol.executions import Execution
from byleave.protocol.wire import moment, now

from .moments import wall_time
from .places import find_place, unknown_project
from .screen import RISK_STYLES, put, put_json, say, shortened, shown
from .transcript import call_summary, changed_files, warnings_of


async def list_history(filters: Mapping[str, str | int | None], *, server_url: str | None, as_json: bool) -> None:
    """Executions, newest first."""
    project_id = filters.get("project_id")
    async with find_place(server_url).api() as api:
        try:
            page = await api.history({name: value for name, value in filters.items() if value is not None})
        except NotFound as error:
            if not isinstance(project_id, str):
                raise
            raise await unknown_project(api, project_id) from error
        grants = {} if as_json else await _grant_texts(api, page.executions)
    if as_json:
        put_json(page.model_dump(mode="json"))
        return
    for execution in page.executions:
        put(execution_line(execution, grants))
    if not page.executions:
        say("Nothing yet.")
    elif page.next_cursor is not None:
        say(f"{len(page.executions)} of {page.total_count}; go on with --cursor '{shown(page.next_cursor)}'")


async def _grant_texts(api: ServerApi, executions: list[Execution]) -> dict[str, str]:
    """What the grants say that let these run."""
    if not any((execution.approved_by or "").startswith("grant:") for execution in executions):
        return {}
    return {grant.id: grant.text for grant in (await api.grants({"all": "true"})).grants}


def execution_line(execution: Execution, grants: Mapping[str, str]) -> Text:
    """One execution: what and when, how it ended, what it changed, and what a person should know of that."""
    risk = execution.risk_level.value
    line = Text(f"{wall_time(execution.created_at)}  {execution.status.value:<17} ")
    line.append(f"{risk:<6}", RISK_STYLES[risk])
    line.append(f"  {shortened(call_summary(execution.tool_name, execution.tool_params))}")
    by = let_by(execution.approved_by, user_id=execution.user_id, grants=grants)
    if by is not None:
        line.append(f"  {by}")
    line.append(f"  {execution.tool_id}", "dim")
    if execution.error:
        line.append(f"\n  {execution.error_type or 'error'}: {shortened(execution.error, 200)}")
    changed = changed_files(execution.result or {})
    if changed:
        line.append(f"\n  {changed}")
    for warning in warnings_of(execution.result or {}):
        line.append("\n  warning: ", "bold red").append(warning)
    return line


async def list_approvals(*, server_url: str | None, as_json: bool) -> None:
    """What waits for a decision."""
    async with find_place(server_url).api() as api:
        waiting = await api.approvals()
    if as_json:
        put_json(waiting.model_dump(mode="json"))
        return
    for request in waiting.approvals:
        for line in _approval_lines(request):
            put(line)
    if not waiting.approvals:
        say("Nothing waits for you.")
    else:
        say("See all of one with `byleave approvals show ID`.")
        say("Decide with `byleave approvals approve ID` or `byleave approvals reject ID --reason WHY`.")


def _approval_lines(request: ApprovalRequest) -> list[Text]:
    risk = request.risk_level.value
    left = max(0, round((moment(request.deadline) - moment(now())).total_seconds()))
    head = Text.assemble((f"{risk} ", RISK_STYLES[risk]), f"{shown(request.id)}  {left // 60}:{left % 60:02d} left")
    lines = [head, *(Text(f"  {shown(line)}") for line in request.description.split("\n"))]
    lines += [Text(f"  why: {shown(finding.reason)}") for finding in request.findings]
    lines.append(Text(f"  network: {'it may use the network' if request.network else 'none'}"))
    return lines


async def show_approval(approval_id: str, *, server_url: str | None, as_json: bool) -> None:
    """All of what waits: the whole call, and what is known of what it would run."""
    async with find_place(server_url).api() as api:
        request = await _waiting(api, approval_id)
        whole = await api.whole_call(approval_id)
    if as_json:
        put_json({**request.model_dump(mode="json"), "whole": whole.text})
        return
    for line in _approval_lines(request):
        put(line)
    put(quoted(everything_of(request.inspection, whole.text)))


async def decide(approval_id: str, *, approve: bool, reason: str | None, server_url: str | None, as_json: bool) -> None:
    """Answer one question, bound to what was shown."""
    async with find_place(server_url).api() as api:
        request = await _waiting(api, approval_id)
        if not as_json:
            for line in _approval_lines(request):
                say(line)
        body = ConfirmBody(
            decision="approved" if approve else "rejected",
            reason=None if approve else reason,
            digest=request.digest if approve else None,
        )
        answer = await api.confirm(approval_id, body)
    if as_json:
        put_json(answer.model_dump(mode="json"))
    else:
        put(shown(answer.message))


async def _waiting(api: ServerApi, approval_id: str) -> ApprovalRequest:
    for request in (await api.approvals()).approvals:
        if request.id == approval_id:
            return request
    raise NotFound(f"No approval {approval_id!r} waits for you.", hint="`byleave approvals` lists what waits")
