"""`byleave approvals`: list, show and decide approvals from the shell.

A decision is bound to what was shown: the digest of the question is sent with the answer.
"""

import logging
from typing import Annotated

import typer
from rich.text import Text

from byleave.client.api import ServerApi
from byleave.client.approvals import as_event
from byleave.client.terminal.question import head_lines, quoted
from byleave.client.terminal.words import clock
from byleave.gate import MASK_PREFIX
from byleave.protocol.approvals import ApprovalRequest, ConfirmBody
from byleave.protocol.errors import NotFound
from byleave.protocol.wire import moment, now

from .options import AsJson, Server, called_alone, new_app
from .places import find_server
from .process import in_loop, run_short, set_up_logging
from .screen import RISK_STYLES, put, put_json, say, shown

app = new_app()
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The approval.")]


async def _list(server: str | None, *, as_json: bool) -> None:
    set_up_logging(logging.WARNING)
    async with find_server(server).api() as api:
        waiting = await api.approvals()
    if as_json:
        put_json(waiting.model_dump(mode="json"))
        return
    for request in waiting.approvals:
        for line in _approval_lines(request):
            put(line)
    if not waiting.approvals:
        say("All clear: nothing waits for your approval.")
    else:
        say("See all of one with `byleave approvals show ID`.")
        say("Decide with `byleave approvals approve ID` or `byleave approvals reject ID --reason WHY`.")


def _approval_lines(request: ApprovalRequest) -> list[Text]:
    risk = request.risk_level.value
    left = max(0, round((moment(request.deadline) - moment(now())).total_seconds()))
    head = Text.assemble((f"{risk} ", RISK_STYLES[risk]), f"{shown(request.id)}  expires in {clock(left)}")
    return [head, *head_lines(as_event(request))]


async def _decide(
    approval_id: str, *, approve: bool, reason: str | None = None, server: str | None, as_json: bool
) -> None:
    """Answer one question, bound to what was shown."""
    set_up_logging(logging.WARNING)
    async with find_server(server).api() as api:
        request = await _waiting(api, approval_id)
        if not as_json:
            for line in _approval_lines(request):
                say(line)
        body = ConfirmBody(decision="rejected", reason=reason)
        if approve:
            body = ConfirmBody(decision="approved", digest=request.digest, calls=max(1, len(request.tool_ids)))
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


@app.callback(invoke_without_command=True)
def approvals(context: typer.Context, server: Server = None, as_json: AsJson = False) -> None:
    """List what waits for your decision, or decide it.

    \b
    Example:
      byleave approvals
      byleave approvals approve appr_1
      byleave approvals reject appr_1 --reason "not in this directory"
    """
    if called_alone(context, given=server is not None or as_json, names="--server / --json"):
        run_short(_list(server, as_json=as_json))


@in_loop(app)
async def show(
    approval_id: ApprovalId,
    reveal: Annotated[bool, typer.Option("--reveal", help="Also what is masked.")] = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show all of what waits, also what it would run.

    \b
    Example:
      byleave approvals show appr_1
      byleave approvals show appr_1 --reveal
    """
    set_up_logging(logging.WARNING)
    async with find_server(server).api() as api:
        request = await _waiting(api, approval_id)
        whole = await api.whole_call(approval_id, reveal=reveal)
    if as_json:
        put_json({**request.model_dump(mode="json"), "whole": whole.text})
        return
    for line in _approval_lines(request):
        put(line)
    put(quoted(whole.text))
    if MASK_PREFIX in whole.text and not reveal:
        say(f"See what is masked with `byleave approvals show {shown(request.id)} --reveal`.")


@in_loop(app)
async def approve(approval_id: ApprovalId, server: Server = None, as_json: AsJson = False) -> None:
    """Let a call run: exactly as it was shown, once.

    \b
    Example:
      byleave approvals approve appr_1
    """
    await _decide(approval_id, approve=True, server=server, as_json=as_json)


@in_loop(app)
async def reject(
    approval_id: ApprovalId,
    reason: Annotated[str | None, typer.Option(metavar="WHY", help="Told to the agent.")] = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Say no; the agent is told why.

    \b
    Example:
      byleave approvals reject appr_1 --reason "use npm ci instead"
    """
    await _decide(approval_id, approve=False, reason=reason, server=server, as_json=as_json)
