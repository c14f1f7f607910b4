"""Who this client is: its id, its state directory, and where the user's token is kept.

There is one state directory for each server, project and workspace, because the journal in it must know every call
that reached this machine and no others. Everything here is readable by its owner alone. A token that others could
have read is refused, and a token is never logged.
"""

import contextlib
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from byleave.protocol.errors import ConfigurationError
from byleave.protocol.wire import new_id

TOKEN_HINT = "make a token with `byleave token --user NAME`"  # noqa: S105 - a sentence, not a token
MAX_TOKEN_BYTES = 64 * 1024
_CLIENT_ID = re.compile(r"client_[0-9a-f]{32}")


@dataclass(frozen=True)
class Identity:
    """One client on one workspace."""

    client_id: str
    directory: Path


def open_identity(home: Path, server_url: str, project_id: str, workspace: Path) -> Identity:
    """The identity for this server, project and workspace; made at the first use."""
    told = "\0".join((server_url.rstrip("/"), project_id, str(workspace)))
    directory = home / "clients" / hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    private_directory(directory)
    path = directory / "client_id"
    with contextlib.suppress(FileNotFoundError):
        known = path.read_text("ascii", "replace").strip()
        if _CLIENT_ID.fullmatch(known):
            return Identity(known, directory)
    client_id = new_id("client")
    _replace(path, client_id)
    return Identity(client_id, directory)


def load_token(home: Path) -> str | None:
    """The stored token; None when there is none."""
    path = home / "token"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"The token file {str(path)!r} cannot be read: {error.strerror}.") from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ConfigurationError(
                f"The token file {str(path)!r} can be read or changed by others, so it is not used.",
                hint=f"chmod 600 {path}; if others may have read it, {TOKEN_HINT} and store that",
            )
        token = file.read(MAX_TOKEN_BYTES).decode("ascii", "replace").strip()
    return token or None


def save_token(home: Path, token: str) -> Path:
    """Store the token for later use, readable by its owner alone."""
    private_directory(home)
    path = home / "token"
    _replace(path, token.strip())
    return path


def private_directory(path: Path) -> None:
    """Make a directory that only its owner may enter."""
    try:
        # A directory that is there already keeps its mode: it may be somebody's /tmp. What we put in is private.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"The state directory {str(path)!r} cannot be used: {error.strerror}.", hint="set BYLEAVE_HOME to another"
        ) from error


def _replace(path: Path, text: str) -> None:
    """Write a private file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
