"""Where things are: which server to talk to, with which token, and which project belongs to which directory.

`assent up` leaves a note in the state directory, locked for as long as it runs; other commands find its server
there, and a note that nobody holds is not believed. The note holds a token and goes only to the address beside it.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from assent.client import ServerApi, load_token
from assent.client.identity import TOKEN_HINT, private_directory
from assent.protocol.chat import Project
from assent.protocol.errors import CallerError, ConfigurationError
from assent.settings import ClientSettings

from .preferences import read_settings
from .screen import shown


class Note(BaseModel):
    """What a running `assent up` says of itself."""

    model_config = ConfigDict(frozen=True)

    server_url: str
    token: str


@dataclass(frozen=True)
class Place:
    """A server and the token for it."""

    server_url: str
    token: str
    home: Path

    def api(self) -> ServerApi:
        return ServerApi(self.server_url, self.token)


def find_place(server_url: str | None = None) -> Place:
    """The server that was named, else the one `assent up` runs here, else the default."""
    settings = read_settings(ClientSettings, server_url=server_url)
    named = "server_url" in settings.model_fields_set
    note = None if named else running_note(settings.home)
    if note is not None and settings.token is None:
        return Place(note.server_url, note.token, settings.home)
    token = settings.token.get_secret_value() if settings.token is not None else load_token(settings.home)
    if not token:
        raise ConfigurationError(
            "There is no token.", hint=f"set ASSENT_TOKEN, or {TOKEN_HINT} --save; or start everything with `assent up`"
        )
    return Place(note.server_url if note is not None else settings.server_url, token, settings.home)


# The note of a running `assent up`


def _note_path(home: Path) -> Path:
    return home / "up.json"


def running_note(home: Path) -> Note | None:
    """The note, when the process that wrote it still runs."""
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
            return None  # nobody holds it: what it says is over
        try:
            return Note.model_validate_json(file.read())
        except ValidationError:
            return None


@contextlib.contextmanager
def leave_note(home: Path, note: Note) -> Iterator[None]:
    """Say where the server is for as long as the block runs."""
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


# Which project belongs to a directory


def known_project(home: Path, server_url: str, directory: Path) -> str | None:
    """The project this directory had the last time."""
    return _known(home).get(_key(server_url, directory))


def remember_project(home: Path, server_url: str, directory: Path, project_id: str) -> None:
    private_directory(home)
    known = {**_known(home), _key(server_url, directory): project_id}
    path = home / "projects.json"
    draft = path.with_name(f".projects.{os.getpid()}")
    draft.write_text(json.dumps(known, indent=1), encoding="utf-8")
    draft.replace(path)


def _known(home: Path) -> dict[str, str]:
    try:
        value = json.loads((home / "projects.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # kept for convenience only: without it a new project is made
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else {}


def _key(server_url: str, directory: Path) -> str:
    return f"{server_url} {directory}"


async def project_for(api: ServerApi, home: Path, directory: Path, *, where: str, always_own: bool = False) -> Project:
    """The project of a directory: the one it had, else the user's only one, else a new one named after it.

    With `always_own` another directory's project is never taken. `where` names the server in the memory.
    """
    projects = (await api.list_projects()).projects
    known = known_project(home, where, directory)
    for project in projects:
        if project.project_id == known:
            return project
    if projects and not always_own:
        if len(projects) > 1:
            raise ambiguous(projects)
        return projects[0]
    project = await api.create_project(directory.name or "workspace")
    remember_project(home, where, directory, project.project_id)
    return project


async def only_project(api: ServerApi, home: Path, directory: Path, *, where: str) -> Project:
    """The project to talk about from here: the directory's, else the user's only one."""
    projects = (await api.list_projects()).projects
    known = known_project(home, where, directory)
    for project in projects:
        if project.project_id == known:
            return project
    if len(projects) == 1:
        return projects[0]
    if not projects:
        raise CallerError(
            "You have no project on this server yet.", hint="connect a directory with `assent connect --workspace DIR`"
        )
    raise ambiguous(projects)


def ambiguous(projects: list[Project]) -> CallerError:
    listed = ", ".join(f"{shown(project.project_id)} ({shown(project.name)})" for project in projects[:10])
    more = f" and {len(projects) - 10} more" if len(projects) > 10 else ""
    return CallerError(
        f"You have {len(projects)} projects, so say which one.", hint=f"add --project ID, one of: {listed}{more}"
    )
