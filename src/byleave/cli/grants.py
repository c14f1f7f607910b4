"""`byleave grants`: list, revoke and preview grants.

All of it asks the server. Nothing is granted here: a grant is only ever given with the answer to a question.
"""

import logging
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from byleave.client.approvals import span_words
from byleave.protocol.errors import CallerError, ConflictError, NotFound
from byleave.protocol.executions import PROGRAM, PROGRAM_WORDS
from byleave.protocol.grants import Grant, GrantPreview, GrantRule, GrantStatus
from byleave.protocol.states import ApprovalScope
from byleave.protocol.wire import moment, now

from .options import AsJson, ProjectId, Server, called_alone, new_app
from .places import find_server, project_to_watch, unknown_project
from .process import in_loop, run_short, set_up_logging
from .screen import put, put_json, say, shown

app = new_app()


async def _list(server: str | None, *, everything: bool, as_json: bool) -> None:
    set_up_logging(logging.WARNING)
    async with find_server(server).api() as api:
        found = await api.grants({"all": "true"} if everything else None)
    if as_json:
        put_json(found.model_dump(mode="json"))
        return
    for grant in found.grants:
        for line in _grant_lines(grant):
            put(line)
    if not found.grants:
        say("Nothing is allowed beyond single calls." if not everything else "You never gave a grant.")
    elif any(grant.status is GrantStatus.ACTIVE for grant in found.grants):
        say("Take one back with `byleave grants revoke ID`, or all with `byleave grants revoke --all-of-them`.")


def _grant_lines(grant: Grant) -> list[Text]:
    active = grant.status is GrantStatus.ACTIVE
    agent = "the chat's agent" if grant.agent_id is None else f"agent {shown(grant.agent_id)}"
    if grant.agent_id == PROGRAM:
        agent = PROGRAM_WORDS
    head = Text.assemble((shown(grant.text), "bold" if active else "dim"))
    return [
        head,
        Text(f"  {_use(grant)}, {_end(grant)}"),
        Text(f"  {shown(grant.id)} {_where(grant)}, for {agent} only"),
    ]


def _where(grant: Grant) -> str:
    if grant.scope is ApprovalScope.PROJECT:
        return f"in every conversation of project {shown(grant.project_id)}"
    return f"in conversation {shown(grant.session_id)}"


def _use(grant: Grant) -> str:
    used = "never used" if grant.uses == 0 else "used once" if grant.uses == 1 else f"used {grant.uses} times"
    return used if grant.max_uses is None else f"{used}, {max(0, grant.max_uses - grant.uses)} left"


def _end(grant: Grant) -> str:
    match grant.status:
        case GrantStatus.ACTIVE:
            return f"expires in {span_words((moment(grant.expires_at) - moment(now())).total_seconds())}"
        case GrantStatus.REVOKED:
            return f"revoked {_when(grant.revoked_at or '')}"
        case GrantStatus.EXPIRED:
            return f"expired {_when(grant.expires_at)}"
        case GrantStatus.USED_UP:
            return "used up"


def _when(time: str) -> str:
    return shown(time[:16].replace("T", " "))


def _preview_lines(preview: GrantPreview) -> list[str]:
    lines = [shown(preview.text), f"Widest effect: {shown(preview.widest)}", shown(preview.sentence)]
    lines += [f"  you denied: {shown(call.description)}" for call in preview.refused]
    lines += [f"  for example: {shown(call.description)}" for call in preview.examples if call not in preview.refused]
    if preview.problem is not None:
        lines.append(f"It may not be saved: {shown(preview.problem)}")
    return lines


@app.callback(invoke_without_command=True)
def grants(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List what you allowed beyond one call, or take it back.

    By which rule, in which conversation, how often it was used, when it expires. Newest first.

    \b
    Example:
      byleave grants
      byleave grants revoke grant_1
      byleave grants preview '{"tool": "write_file", "paths": ["src/**"]}'
    """
    if called_alone(context, given=server is not None or as_json or everything, names="--all / --server / --json"):
        run_short(_list(server, everything=everything, as_json=as_json))


@in_loop(app)
async def revoke(
    grant_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The grant.")] = None,
    all_of_them: Annotated[bool, typer.Option("--all-of-them", help="Every grant in force.")] = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Take a grant back: calls that come later ask again.

    \b
    Example:
      byleave grants revoke grant_1
      byleave grants revoke --all-of-them
    """
    if (grant_id is None) is not all_of_them:
        raise typer.BadParameter("give the ID of a grant, or --all-of-them", param_hint="ID")
    set_up_logging(logging.WARNING)
    revoked: list[Grant] = []
    async with find_server(server).api() as api:
        ids = [grant.id for grant in (await api.grants()).grants] if grant_id is None else [grant_id]
        for each in ids:
            try:
                revoked.append(await api.revoke_grant(each))
            except NotFound as error:
                raise NotFound(f"You have no grant {each!r}.", hint="`byleave grants` lists yours") from error
            except ConflictError as error:
                if grant_id is not None:
                    raise CallerError(error.message, hint="`byleave grants --all` shows how it ended") from error
    if as_json:
        put_json({"revoked": [grant.model_dump(mode="json") for grant in revoked]})
        return
    for grant in revoked:
        put(f"Revoked: {shown(grant.text)} ({shown(grant.id)})")
    if not revoked:
        say("There was nothing to revoke.")


@in_loop(app)
async def preview(
    rule: Annotated[str, typer.Argument(metavar="JSON", help="The rule.")],
    project: ProjectId = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Say what a rule would have covered; saves nothing.

    Held against your last 200 calls in the project, also those you refused.

    \b
    Example:
      byleave grants preview '{"tool": "execute_command", "command": ["git", "commit"]}'
    """
    set_up_logging(logging.WARNING)
    try:
        parsed = GrantRule.model_validate_json(rule)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CallerError(
            f"This is no rule: {where + ': ' if where else ''}{first['msg']}.",
            hint='write it as {"tool": "write_file", "paths": ["src/**"]}',
        ) from error
    known = find_server(server)
    async with known.api() as api:
        project_id = project or (await project_to_watch(api, known, Path.cwd())).project_id
        try:
            found = await api.preview_grant(project_id, parsed)
        except NotFound as error:
            raise await unknown_project(api, project_id) from error
    if as_json:
        put_json(found.model_dump(mode="json"))
        return
    for line in _preview_lines(found):
        put(line)
