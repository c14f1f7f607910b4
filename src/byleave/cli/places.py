"""Lookup of the server, its token, and a directory's project.

`byleave up` leaves a note in the state directory, locked while it runs; other commands find its server there, and
ignore a note without a lock. The note holds a token, which is sent only to the address beside it.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from yarl import URL

from byleave.client.api import ServerApi
from byleave.client.identity import load_token, private_directory, write_private
from byleave.protocol.chat import Project
from byleave.protocol.errors import CallerError, ConfigurationError, NotFound
from byleave.settings import ClientSettings

from .process import read_settings
from .screen import say

UP = "up"


class Note(BaseModel):
    """Note of a running `byleave up`."""

    model_config = ConfigDict(frozen=True)

    server_url: str
    token: str


@dataclass(frozen=True)
class KnownServer:
    """A server and the token for it."""

    server_url: str
    token: str
    home: Path
    name: str
    """Key in the stored projects: the server of `byleave up` may have another port each time."""

    def api(self) -> ServerApi:
        return ServerApi(self.server_url, self.token)


def find_server(server_url: str | None = None) -> KnownServer:
    """Return the named server, else the one `byleave up` runs here, else the default."""
    settings = read_settings(ClientSettings, server_url=server_url)
    named = "server_url" in settings.model_fields_set
    note = running_note(settings.home)
    if note is not None and named and not _same_server(settings.server_url, note.server_url):
        note = None
    if note is not None and settings.token is None:
        return KnownServer(note.server_url, note.token, settings.home, UP)
    token = settings.token.get_secret_value() if settings.token is not None else load_token(settings.home)
    if not token:
        raise ConfigurationError(
            f"There is no token for {settings.server_url}, and `byleave up` does not run here.",
            hint="start everything with `byleave up`; or set BYLEAVE_TOKEN to what `byleave token --user NAME` prints",
        )
    if note is not None:
        return KnownServer(note.server_url, token, settings.home, UP)
    return KnownServer(settings.server_url, token, settings.home, settings.server_url)


def _same_server(named: str, noted: str) -> bool:
    """True if a named server is the one of the note; its token is sent to the note's address in any case."""
    try:
        one, other = URL(named), URL(noted)
    except ValueError:
        return False
    host = other.host if one.host == "localhost" else one.host
    return (one.scheme, host, one.port, one.path) == (other.scheme, other.host, other.port, "/")


# Note of a running `byleave up`


def _note_path(home: Path) -> Path:
    return home / "up.json"


def running_note(home: Path) -> Note | None:
    """Return the note if the process that wrote it still runs."""
    try:
        descriptor = os.open(_note_path(home), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return None
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # not locked, so stale
        try:
            return Note.model_validate_json(file.read())
        except ValidationError:
            return None


@contextlib.contextmanager
def leave_note(home: Path, note: Note) -> Generator[None]:
    """Publish the server's note while the block runs."""
    private_directory(home)
    path = _note_path(home)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(note.model_dump_json().encode())
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


# Projects of directories


def known_project(server: KnownServer, directory: Path) -> str | None:
    """Return the project this directory had last time."""
    return _known(server.home).get(f"{server.name} {directory}")


def known_directory(server: KnownServer, project_id: str) -> Path | None:
    """Return the directory that had this project last time."""
    prefix = f"{server.name} "
    for key, known in reversed(_known(server.home).items()):
        if known == project_id and key.startswith(prefix):
            return Path(key.removeprefix(prefix))
    return None


def remember_project(server: KnownServer, directory: Path, project_id: str) -> None:
    """Store a directory's project. For convenience only: a full or read-only disk is no reason to stop."""
    before = _known(server.home)
    known = {**before, f"{server.name} {directory}": project_id}
    if known == before:
        return
    try:
        private_directory(server.home)
        write_private(server.home / "projects.json", json.dumps(known, indent=1))
    except (OSError, ConfigurationError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message
        say(f"warning: the project of this directory cannot be stored ({reason}); name it next time with --project.")


def _known(home: Path) -> dict[str, str]:
    try:
        value: Any = json.loads((home / "projects.json").read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, ValueError):
        return {}  # for convenience only: without it a directory gets a new project
    items = cast("dict[Any, Any]", value).items() if isinstance(value, dict) else ()
    return {str(key): str(item) for key, item in items}


async def own_project(api: ServerApi, server: KnownServer, directory: Path) -> Project:
    """Return the directory's own project, never another's; create it at the first `byleave up`."""
    projects = (await api.list_projects()).projects
    return _remembered(projects, server, directory) or await _new_project(api, server, directory)


async def project_to_serve(api: ServerApi, server: KnownServer, directory: Path) -> Project:
    """Return the project for `byleave connect`: the directory's, else the user's only one, else a new one."""
    projects = (await api.list_projects()).projects
    if projects:
        return _remembered(projects, server, directory) or _only(projects)
    return await _new_project(api, server, directory)


async def project_to_watch(api: ServerApi, server: KnownServer, directory: Path) -> Project:
    """Return the project for `byleave chat`: the directory's, else the user's only one."""
    projects = (await api.list_projects()).projects
    if not projects:
        raise CallerError(
            "You have no project on this server yet.", hint="connect a directory with `byleave connect --workspace DIR`"
        )
    return _remembered(projects, server, directory) or _only(projects)


async def check_project(api: ServerApi, project_id: str) -> None:
    """Raise an error that lists the known projects, unless this is one."""
    try:
        await api.available_tools(project_id)
    except NotFound as error:
        raise await unknown_project(api, project_id) from error


async def unknown_project(api: ServerApi, project_id: str) -> CallerError:
    """Return the error for an unknown project, with the known ones."""
    projects = (await api.list_projects()).projects
    hint = (
        f"yours: {_listed(projects)}" if projects else "you have none yet; `byleave connect` or `byleave up` makes one"
    )
    return CallerError(f"You have no project {project_id!r} on this server.", hint=hint)


def _listed(projects: list[Project]) -> str:
    listed = ", ".join(f"{project.project_id} ({project.name})" for project in projects[:10])
    return f"{listed}, …" if len(projects) > 10 else listed


def _remembered(projects: list[Project], server: KnownServer, directory: Path) -> Project | None:
    known = known_project(server, directory)
    return next((project for project in projects if project.project_id == known), None)


def _only(projects: list[Project]) -> Project:
    if len(projects) == 1:
        return projects[0]
    raise CallerError(
        f"You have {len(projects)} projects, so say which one.", hint=f"add --project ID: {_listed(projects)}"
    )


async def _new_project(api: ServerApi, server: KnownServer, directory: Path) -> Project:
    project = await api.create_project(directory.name or "workspace")
    remember_project(server, directory, project.project_id)
    return project
