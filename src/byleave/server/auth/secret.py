"""The server's own secret, and the keys made from it.

Without a configured secret, a random one is made once and kept in the state directory, readable by its owner alone.
This module must stay cheap to import and free of server dependencies: verifying a record needs only the secret.
"""

import hmac
import os
import secrets
from pathlib import Path

from pydantic import SecretStr

from byleave.protocol.errors import ConfigurationError
from byleave.settings import ServerSettings

SHORTEST_SECRET = 32


def server_secret(settings: ServerSettings) -> bytes:
    """Return the configured secret, else the random one kept in the state directory."""
    if settings.secret is not None:
        return _long_enough(settings.secret, "BYLEAVE_SECRET")
    return _kept_secret(settings.home / "secret")


def seal_keys(settings: ServerSettings) -> tuple[bytes, ...]:
    """Keys that seal the heads of audit chains: of the current secret, then of the previous one, if set."""
    secrets_known = [server_secret(settings)]
    if settings.previous_secret is not None:
        secrets_known.append(_long_enough(settings.previous_secret, "BYLEAVE_PREVIOUS_SECRET"))
    return tuple(hmac.digest(secret, b"byleave audit head", "sha256") for secret in secrets_known)


def link_key(settings: ServerSettings) -> bytes:
    """Key of the digests under which sign-in links are stored."""
    return hmac.digest(server_secret(settings), b"byleave sign-in link", "sha256")


def push_seed(settings: ServerSettings) -> bytes:
    """What the key is made from by which push services know this server: the same at all servers of a record."""
    return hmac.digest(server_secret(settings), b"byleave push messages", "sha512")


def has_secret(settings: ServerSettings) -> bool:
    """True if a secret is configured or kept already; makes none."""
    return settings.secret is not None or (settings.home / "secret").exists()


def _long_enough(given: SecretStr, name: str) -> bytes:
    secret = given.get_secret_value().encode()
    if len(secret) < SHORTEST_SECRET:
        raise ConfigurationError(
            f"{name} is too short: {len(secret)} bytes, at least {SHORTEST_SECRET} are needed.",
            hint="Make one with `openssl rand -hex 32`, or leave it out and one is made for you.",
        )
    return secret


def _kept_secret(path: Path) -> bytes:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        if not path.exists():
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "w") as file:
                    file.write(secrets.token_hex(32))
                # `os.link` fails if the file exists, so two servers that start at once get the same secret.
                os.link(fresh, path)
            except FileExistsError:
                pass
            finally:
                os.unlink(fresh)
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(
            f"Cannot keep a secret in {str(path)!r}: {error.strerror}.",
            hint="Make room if the disk is full, set BYLEAVE_SECRET, or choose another directory with BYLEAVE_HOME.",
        ) from None
    if len(secret) < SHORTEST_SECRET:
        raise ConfigurationError(
            f"The secret in {str(path)!r} is too short.", hint="Delete the file; it is made again."
        )
    return secret
