"""`byleave conversations`: list, find, rename, export and delete conversations, and see what one changed.

All of it asks the server. Deleting asks first, and says what goes and what stays.
"""

import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from byleave.client.api import ServerApi
from byleave.protocol.chat import Session
from byleave.protocol.errors import CallerError, NotFound

from .options import AsJson, ExitCode, ProjectId, Server, called_alone, new_app
from .places import find_server, project_to_watch, unknown_project
from .process import in_loop, run_short, set_up_logging
from .screen import agreed, counted, put, put_json, say, shortened, shown, wall_time

app = new_app()

GOES = "Deleting removes its title, all its messages and what the agent remembered of them. This cannot be undone."
STAYS = "What its calls did stays on record, and files stay as they are."

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The conversation, as the list names it.")]


class Format(StrEnum):
    """Format of an export."""

    MARKDOWN = "markdown"
    JSON = "json"


@asynccontextmanager
async def _project(server: str | None, project: str | None) -> AsyncGenerator[tuple[ServerApi, str]]:
    """The server and the project whose conversations are meant."""
    set_up_logging(logging.WARNING)
    known = find_server(server)
    async with known.api() as api:
        project_id = project or (await project_to_watch(api, known, Path.cwd())).project_id
        try:
            yield api, project_id
        except NotFound as error:
            if project is None or any(one.project_id == project for one in (await api.list_projects()).projects):
                raise NotFound(error.message, hint="`byleave conversations` lists yours") from error
            raise await unknown_project(api, project) from error


def _line(session: Session) -> Text:
    title = shortened(session.title) or "Untitled"
    return Text.assemble(
        f"{wall_time(session.created_at)}  ", (title, "bold"), (f"  {shown(session.session_id)}", "dim")
    )


async def _list(server: str | None, project: str | None, *, as_json: bool) -> None:
    async with _project(server, project) as (api, project_id):
        found = await api.list_sessions(project_id)
    if as_json:
        put_json(found.model_dump(mode="json"))
        return
    for session in found.sessions:
        put(_line(session))
    if not found.sessions:
        say("There is no conversation yet.")


@app.callback(invoke_without_command=True)
def conversations(
    context: typer.Context, project: ProjectId = None, server: Server = None, as_json: AsJson = False
) -> None:
    """List your conversations in a project, newest first.

    \b
    Example:
      byleave conversations
      byleave conversations search "release notes"
      byleave conversations export sess_1 > talk.md
    """
    if called_alone(context, given=bool(project or server or as_json), names="--project / --server / --json"):
        run_short(_list(server, project, as_json=as_json))


@in_loop(app)
async def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words of its title or a message, in any case.")],
    project: ProjectId = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Find conversations by their titles and messages.

    \b
    Example:
      byleave conversations search "release notes"
    """
    async with _project(server, project) as (api, project_id):
        search = await api.search_sessions(project_id, text)
    if as_json:
        put_json(search.model_dump(mode="json"))
        return
    for found in search.found:
        put(_line(found.session))
        if found.excerpt is not None:
            number = f"{counted(found.messages, 'message', 'messages')}: "
            put(Text.assemble("    ", (number, "dim"), shortened(found.excerpt, 200)))
    if not search.found:
        say("Nothing was found.")
    elif not search.complete:
        say("There is more than is shown: give more words.")


@in_loop(app)
async def rename(
    session_id: SessionId,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title.")],
    project: ProjectId = None,
    server: Server = None,
) -> None:
    """Give a conversation another title.

    \b
    Example:
      byleave conversations rename sess_1 "Release 2"
    """
    async with _project(server, project) as (api, project_id):
        try:
            session = await api.rename_session(project_id, session_id, title)
        except ValidationError:
            raise CallerError("A title has 1 to 200 characters.") from None
    put(_line(session))


@in_loop(app)
async def delete(
    session_id: SessionId,
    project: ProjectId = None,
    server: Server = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> ExitCode:
    """Delete a conversation; what its calls did stays on record.

    \b
    Example:
      byleave conversations delete sess_1
    """
    async with _project(server, project) as (api, project_id):
        sessions = (await api.list_sessions(project_id)).sessions
        session = next((one for one in sessions if one.session_id == session_id), None)
        if not yes:
            if session is not None:
                put(_line(session))
            say(GOES)
            say(STAYS)
            if not agreed("Delete it?", refusal="Nobody can be asked here; nothing was deleted.", hint="add --yes"):
                say("Nothing was deleted.")
                return ExitCode.FAILED
        answer = await api.delete_session(project_id, session_id)
    say(shown(answer.message))
    return ExitCode.OK


@in_loop(app)
async def export(
    session_id: SessionId,
    format: Annotated[Format, typer.Option(help="Markdown to read, or JSON with everything.")] = Format.MARKDOWN,  # noqa: A002 - the option's name
    project: ProjectId = None,
    server: Server = None,
) -> None:
    """Write a conversation on stdout, with its calls as the record has them: secrets are masked.

    \b
    Example:
      byleave conversations export sess_1 > talk.md
      byleave conversations export sess_1 --format json > talk.json
    """
    async with _project(server, project) as (api, project_id):
        if format is Format.JSON:
            put_json((await api.export_session(project_id, session_id)).model_dump(mode="json"))
            return
        text = (await api.session_markdown(project_id, session_id)).text
    # As it is in a file; on a terminal no control character in it may act.
    sys.stdout.write(shown(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


@in_loop(app)
async def changes(
    session_id: SessionId, project: ProjectId = None, server: Server = None, as_json: AsJson = False
) -> None:
    """List the files a conversation changed, and the commands it ran.

    \b
    Example:
      byleave conversations changes sess_1
    """
    async with _project(server, project) as (api, project_id):
        found = await api.session_changes(project_id, session_id)
    if as_json:
        put_json(found.model_dump(mode="json"))
        return
    for file in found.files:
        put(f"{file.change:8} {shown(file.path)}")
    if found.total_files > len(found.files):
        put(Text(f"and {found.total_files - len(found.files)} more", style="dim"))
    for command in found.commands:
        code = "" if command.exit_code in (0, None) else f" (exit code {command.exit_code})"
        put(f"ran      {shortened(command.line, 200)}{code}")
    if not found.files and not found.commands:
        say("It changed nothing.")
    elif found.files:
        say(f"To put all of it back: byleave undo --conversation {shown(found.session_id)}")
