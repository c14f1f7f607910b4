"""Undos this client began, written down before the first step and struck out when the server knows how they ended.

A client that is killed between an undo and its report finds here, when it starts again, what it still owes the record.
One small file for each: few are ever open at a time. How an undo ended is not kept here: the workspace's own list says.
"""

import contextlib
import os
from pathlib import Path

from pydantic import ValidationError

from byleave.protocol.wire import Identifier, Timestamp, Word, now

from .identity import private_directory
from .log import log

MOST = 1000
"""More are not kept: nobody asks for so many, and one that is lost costs a line in the record."""
_SUFFIX = ".json"


class UndoIntent(Word):
    """An undo that is about to begin."""

    request_id: Identifier
    tool_id: Identifier
    plan: str
    at: Timestamp


class UndoIntents:
    """The intents of one client, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "undos"
        private_directory(self._directory)
        self.left = self._read()
        """By request: those of a client that stopped before it could say how they ended."""
        self._own: set[str] = set()

    def keep(self, request_id: str, tool_id: str, plan: str) -> None:
        """On the disk when this returns. Raises OSError as the disk does: then nothing may begin."""
        content = UndoIntent(request_id=request_id, tool_id=tool_id, plan=plan, at=now()).model_dump_json().encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path(request_id), flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._own.add(request_id)

    def has(self, request_id: str) -> bool:
        """Whether it is one of this client's own that the server does not know of yet."""
        return request_id in self._own

    def drop(self, request_id: str) -> None:
        """The server knows, or never will."""
        self.left.pop(request_id, None)
        self._own.discard(request_id)
        with contextlib.suppress(OSError):  # found again at the next start, and told once more: that does no harm
            self._path(request_id).unlink(missing_ok=True)

    def _path(self, request_id: str) -> Path:
        return self._directory / f"{request_id}{_SUFFIX}"

    def _read(self) -> dict[str, UndoIntent]:
        found: list[UndoIntent] = []
        for path in sorted(self._directory.glob(f"*{_SUFFIX}"))[:MOST]:
            try:
                found.append(UndoIntent.model_validate_json(path.read_bytes()))
            except (OSError, ValidationError):
                # Torn: it was not on the disk yet, so the undo had not begun.
                log.warning("an undo's intent cannot be read", name=path.name)
                path.unlink(missing_ok=True)
        return {intent.request_id: intent for intent in sorted(found, key=lambda intent: intent.at)}
