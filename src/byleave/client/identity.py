"""Client identity: its id, its key, its state directory, and the user's token.

There is one state directory for each server, project and workspace: the journal in it must know every call that
reached this machine, and no others. A client that loses its journal or its key becomes a new one, with a new id. All
files are readable by their owner alone. The key proves to the server that this is the client it knows by that id,
whoever else has a token of the same user. A token that others could have read is refused, and neither a token nor the
key is ever logged. A one-time link can be exchanged for a token: its code only goes to the link's server, without
redirects, and a loopback name is reached by address.
"""

import contextlib
import hashlib
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from pydantic import ValidationError
from yarl import URL

from byleave.protocol.errors import ByleaveError, ConfigurationError, Problem, RefusedError, UnreachableError
from byleave.protocol.sign_in import ExchangeBody, ExchangedToken
from byleave.protocol.wire import new_id

from .log import log
from .loopback import CONNECT_SECONDS, LoopbackAddress

TOKEN_HINT = "make a token with `byleave token --user NAME`"  # noqa: S105 - a sentence, not a token
MAX_TOKEN_BYTES = 64 * 1024
_CLIENT_ID = re.compile(r"client_[0-9a-f]{32}")
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Identity:
    """A client on a workspace."""

    client_id: str
    key: str = field(repr=False)
    directory: Path


def client_directory(home: Path, server_url: str, project_id: str, workspace: Path) -> Path:
    """Return the state directory for this server, project and workspace."""
    key = "\0".join((server_url.rstrip("/"), project_id, str(workspace)))
    return home / "clients" / hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def open_identity(directory: Path) -> Identity:
    """Return the identity kept in a state directory; create it on first use.

    Open the journal first: its lock keeps other clients away, and a damaged one makes this a new client.
    """
    private_directory(directory)
    client_id, key = _kept(directory / "client_id", _CLIENT_ID), _kept(directory / "client_key", _KEY)
    if client_id is None or key is None:
        # A server refuses a known id with another key, so both are new.
        if client_id is not None or key is not None:
            lost = "key" if key is None else "id"
            log.warning(
                f"This client's {lost} is lost, so it comes as a new client; calls of the old one are given up."
            )
        forget_identity(directory)
        client_id, key = new_id("client"), secrets.token_hex(32)
        # The key first: an id that a server knows by a key must not be left without it.
        write_private(directory / "client_key", key)
        write_private(directory / "client_id", client_id)
    return Identity(client_id, key, directory)


def forget_identity(directory: Path) -> None:
    """Remove id and key, so that the next identity is new."""
    (directory / "client_id").unlink(missing_ok=True)
    (directory / "client_key").unlink(missing_ok=True)


def _kept(path: Path, form: re.Pattern[str]) -> str | None:
    """Return the content of a file; None if it is missing or broken."""
    with contextlib.suppress(FileNotFoundError):
        known = path.read_text("ascii", "replace").strip()
        return known if form.fullmatch(known) else None
    return None


def load_token(home: Path) -> str | None:
    """Return the stored token, or None."""
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
    """Store the token, readable by its owner alone."""
    private_directory(home)
    path = home / "token"
    write_private(path, token.strip())
    return path


def private_directory(path: Path) -> None:
    """Create a directory that only its owner may enter."""
    try:
        # An existing directory keeps its mode: it may be somebody's /tmp. The files we put in are private.
        for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)  # `parents=True` would open those above to everybody
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"The state directory {str(path)!r} cannot be used: {error.strerror}.", hint="set BYLEAVE_HOME to another"
        ) from error


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


ANSWER_SECONDS = 30.0
MAX_ANSWER_BYTES = 64 * 1024


async def exchange_link(server_url: str, code: str) -> ExchangedToken:
    """Exchange a link's code for a token. Raise errors with a message for a person."""
    base = URL(server_url)
    if base.scheme not in ("http", "https") or not base.host or base.user or base.query_string or base.fragment:
        raise ConfigurationError(f"{server_url!r} is not the address of a server.", hint="write it as http://HOST:PORT")
    url = await LoopbackAddress(base, connect_seconds=CONNECT_SECONDS).at(base.joinpath("signin", "exchange"))
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
    body = ExchangeBody(code=code).model_dump()
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.post(url, json=body, allow_redirects=False) as response,
        ):
            return _parse_exchange(base, response.status, await response.content.read(MAX_ANSWER_BYTES))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnreachableError(
            f"Nothing answers at {base.origin()}.",
            hint="is the server of this link still running? start it, then get a new link",
        ) from error


def _parse_exchange(base: URL, status: int, answer: bytes) -> ExchangedToken:
    try:
        if status == 200:
            return ExchangedToken.model_validate_json(answer)
        problem = Problem.model_validate_json(answer)
    except ValidationError:
        problem = None
    if problem is None or status in (404, 405):
        raise _no_exchange(base, status)
    raise RefusedError(problem.detail[:500], hint=None if problem.hint is None else problem.hint[:500])


def _no_exchange(base: URL, status: int) -> ByleaveError:
    return ConfigurationError(
        f"The program at {base.origin()} gives no token for a link ({status}).",
        hint="is it a Byleave server of this version? a token works too: `byleave token --user NAME` prints one",
    )
