"""Journal of executions, written before each acts: the reason no call ever runs twice.

`acting` is written before a tool acts and `done`, with the report, before it is posted. `accepted` then overwrites
that line: a result may hold secrets, so it is kept no longer than needed. After a crash, `acting` without `done`
becomes a report that says so (never a second run), and `done` without `accepted` is sent again. One process owns a
journal. If a line cannot be written, nothing is executed. Each line has a checksum; if one cannot be read, or the
journal or its first line is missing, calls that ran may be unknown, so the client takes a new identity: the server
never signals the old one's calls to it. Each opening is another generation, counted in the first line: a journal
that was copied or restored cannot pass for the newest.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import zlib
from pathlib import Path
from typing import Any, NamedTuple, cast

from byleave.protocol.errors import ConfigurationError, MachineError
from byleave.protocol.executions import FailedReport
from byleave.protocol.generation import Generation
from byleave.protocol.states import ErrorType
from byleave.protocol.wire import now

from .identity import forget_identity, private_directory
from .log import log

KEPT_IDS = 10_000
SPOOL_BYTES = 1024 * 1024
"""A larger report gets its own file."""
COMPACT_BYTES = 32 * 1024 * 1024
INTERRUPTED = "The client stopped while this was running; it may or may not have had its effect. It was not run again."
_CHECKSUM = b',"crc":"'
_TOOL_ID = re.compile(rb'"tool_id":"([^"\\]{1,200})"')


class AlreadyServed(ConfigurationError):
    """Another client works on the same workspace for the same project."""


class Unsent(NamedTuple):
    """A report the server has not received: its bytes, or the file that holds them."""

    body: bytes | None
    spool: str | None = None
    line: tuple[int, int] | None = None
    """Offset and length of its line in the journal; None if it is not written there."""


class Journal:
    """A client's record of its executions, in its own directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / "journal.jsonl"
        self._spool = directory / "spool"
        private_directory(directory)
        private_directory(self._spool)
        self._lock = _lock(directory / "lock")
        self._openings = 0
        self._acting: dict[str, bytes] = {}
        self._unsent: dict[str, Unsent] = {}
        self._seen: dict[str, None] = {}
        self._taken: set[str] = set()
        self._file = -1
        self._size = self._compacted = 0
        self._syncing = 0
        self._broken = False
        self._entry_synced = True
        """True if the directory entry of the current file is synced, and so survives a power cut."""
        try:
            self._load()
            self._openings += 1
            self.generation = Generation(self._openings, secrets.token_hex(16))
            self._compact()
        except BaseException:
            if self._file >= 0:
                os.close(self._file)
            os.close(self._lock)
            raise

    def knows(self, tool_id: str) -> bool:
        """Return True if this call reached this machine before."""
        return tool_id in self._seen or tool_id in self._taken

    def take(self, tool_id: str) -> None:
        """Mark a call as known to this process. If it never acts, it may be signalled again after a restart."""
        self._taken.add(tool_id)

    @property
    def unsent(self) -> list[str]:
        """Calls whose report the server has not received, oldest first."""
        return list(self._unsent)

    def report(self, tool_id: str) -> bytes | None:
        """Return the report to post for a call; None if there is none."""
        unsent = self._unsent.get(tool_id)
        if unsent is None or unsent.spool is None:
            return None if unsent is None else unsent.body
        try:
            return (self._spool / unsent.spool).read_bytes()
        except OSError as error:
            log.error("kept result unreadable", tool_id=tool_id, error=str(error))
            return _failed("The result was kept on disk and can no longer be read.", ErrorType.INTERNAL)

    async def acting(self, tool_id: str, tool_name: str, digest: str, *, durable: bool) -> None:
        """Record that a tool is about to act. If this raises, the tool must not act."""
        line = _line(step="acting", tool_id=tool_id, tool_name=tool_name, digest=digest, at=now())
        self._remember(tool_id)
        try:
            self._append(line)
            # Set before the sync: a compaction meanwhile must carry it over.
            self._acting[tool_id] = line
            if durable:
                await self._sync()
        except OSError as error:
            self._acting.pop(tool_id, None)
            raise MachineError(
                f"The client's journal cannot be written ({error.strerror}), so nothing was run.",
                hint="free some space on the disk that holds BYLEAVE_HOME",
            ) from error

    async def done(self, tool_id: str, report: bytes, *, durable: bool) -> None:
        """Keep a report until the server has it. On a full disk it is kept in memory only."""
        self._remember(tool_id)
        before, unsent = self._unsent.get(tool_id), Unsent(report)
        try:
            if len(report) > SPOOL_BYTES:
                name = f"{hashlib.sha256(tool_id.encode()).hexdigest()}.json"
                await asyncio.to_thread(lambda: os.close(write_private(self._spool / name, report)))
                unsent = Unsent(None, name)
            line = _done_line(tool_id, unsent)
            self._append(line)
            unsent = unsent._replace(line=(self._size - len(line), len(line)))
            self._unsent[tool_id] = unsent
            self._acting.pop(tool_id, None)
            if before is not None:
                self._drop(before, _line(step="acting", tool_id=tool_id), keep=unsent.spool)
            if durable:
                await self._sync()
        except OSError as error:
            log.error("result not written to the journal", tool_id=tool_id, error=str(error))
            self._unsent[tool_id] = unsent

    def accepted(self, tool_id: str) -> None:
        """Drop a report that the server has or does not want; keep the id."""
        unsent = self._unsent.pop(tool_id, None)
        if unsent is None:
            return  # accepted before, by the answer to the post or the acknowledgement on the feed
        line = _line(step="accepted", tool_id=tool_id)
        try:
            if unsent.line is None:
                self._append(line)
            self._drop(unsent, line)
            if self._size - self._compacted > COMPACT_BYTES and not self._syncing:
                self._compact()
        except OSError as error:
            # It is sent again after a restart, and the server then answers that it is over.
            log.error("acceptance not written to the journal", tool_id=tool_id, error=str(error))

    def close(self) -> None:
        """Close the files; unsent reports stay in them."""
        if self._file < 0:
            return
        with contextlib.suppress(OSError):
            self._compact()
        os.close(self._file)
        os.close(self._lock)
        self._file = -1

    # Writing

    def _remember(self, tool_id: str) -> None:
        self._taken.discard(tool_id)
        self._seen[tool_id] = None
        if len(self._seen) > 2 * KEPT_IDS:
            self._forget()

    def _append(self, line: bytes) -> None:
        if self._broken or self._file < 0:
            raise OSError(5, "the journal is closed")
        written = 0
        try:
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(28, "no space left for a whole line")
        except OSError:
            try:
                os.ftruncate(self._file, self._size)
                os.lseek(self._file, self._size, os.SEEK_SET)
            except OSError:
                # A torn line in the middle could hide a call: nothing may be written after it.
                self._broken = True
            raise
        self._size += written

    def _drop(self, unsent: Unsent, line: bytes, *, keep: str | None = None) -> None:
        """Overwrite the line of a report that is no longer needed with a shorter one, padded with blanks."""
        if unsent.line is not None and not self._broken and self._file >= 0:
            at, length = unsent.line
            os.pwrite(self._file, line[:-1].ljust(length - 1) + b"\n", at)
        if unsent.spool is not None and unsent.spool != keep:
            (self._spool / unsent.spool).unlink(missing_ok=True)

    async def _sync(self) -> None:
        self._syncing += 1
        try:
            await asyncio.to_thread(self._to_disk)
        finally:
            self._syncing -= 1

    def _to_disk(self) -> None:
        os.fdatasync(self._file)
        self._sync_entry()

    def _sync_entry(self) -> None:
        if not self._entry_synced:
            sync_directory(self._path.parent)
            self._entry_synced = True

    def _compact(self) -> None:
        """Rewrite the journal without old entries, atomically.

        Once the new file is renamed, lines go there: a restart would not find lines written to the old one.
        """
        self._forget()
        draft = self._path.with_suffix(".draft")
        first = _line(step="seen", generation=self._openings, tool_ids=list(self._seen))
        content = bytearray(b"".join([first, *self._acting.values()]))
        unsent: dict[str, Unsent] = {}
        for tool_id, report in self._unsent.items():
            line = _done_line(tool_id, report)
            unsent[tool_id] = report._replace(line=(len(content), len(line)))
            content += line
        fresh = write_private(draft, content)
        try:
            draft.replace(self._path)
        except OSError:
            os.close(fresh)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self._broken, self._entry_synced = fresh, False, False
        self._size = self._compacted = len(content)
        self._unsent = unsent
        self._sync_entry()

    def _forget(self) -> None:
        """Drop the oldest ids beyond the limit, but none that is still open."""
        surplus = len(self._seen) - KEPT_IDS
        if surplus > 0:
            oldest = [i for i in list(self._seen)[:surplus] if i not in self._acting and i not in self._unsent]
            for tool_id in oldest:
                del self._seen[tool_id]

    # Reading

    def _load(self) -> None:
        try:
            damage = self._read(self._path.read_bytes())
        except FileNotFoundError:
            damage = "is missing" if (self.directory / "client_id").exists() else None
        if damage is not None:
            log.warning(
                f"The journal {str(self._path)!r} {damage}, so calls that ran may be missing from it: "
                "this machine comes as a new client, and calls of the old one are given up."
            )
            # On disk before the journal is whole again: the old id with a whole journal would be trusted.
            forget_identity(self.directory)
            sync_directory(self.directory)
            self._acting.clear()
            self._unsent.clear()
        for tool_id in list(self._acting):
            log.warning("interrupted when the client ended", tool_id=tool_id)
            self._unsent[tool_id] = Unsent(_failed(INTERRUPTED, ErrorType.INTERRUPTED))
        self._acting.clear()
        self._sweep_spool()

    def _read(self, content: bytes) -> str | None:
        """Take all readable lines; return what is damaged, as the end of a sentence."""
        *lines, torn = content.split(b"\n")
        first = _entry(lines[0], checked=False) if lines else None
        if first is None or first["step"] != "seen":
            return "has lost its first line"
        checked = "crc" in first  # journals of earlier versions have no checksums
        damage: str | None = None
        for number, line in enumerate(lines, start=1):
            entry = _entry(line, checked=checked)
            if entry is None:
                damage = damage or f"cannot be read at line {number}"
            else:
                self._take(entry)
        if torn:
            # Its write was cut short, or the file was; in the second case it may have run.
            found = _TOOL_ID.search(torn)
            if found is None:
                return damage or "ends in half a line"
            tool_id = found[1].decode("utf-8", "replace")
            log.warning("journal ends in a torn line; its call counts as run", tool_id=tool_id)
            self._take({"step": "acting", "tool_id": tool_id})
        return damage

    def _take(self, entry: dict[str, Any]) -> None:
        step = entry["step"]
        if step == "seen":
            self._seen.update(dict.fromkeys(entry["tool_ids"]))
            self._openings = entry.get("generation", 0)  # earlier versions counted none
            return
        tool_id: str = entry["tool_id"]
        self._seen[tool_id] = None
        self._acting.pop(tool_id, None)
        if step == "acting":
            self._acting[tool_id] = b""
        elif step == "done":
            report, spool = entry.get("report"), entry.get("spool")
            self._unsent[tool_id] = Unsent(None, Path(spool).name) if spool else Unsent(json.dumps(report).encode())
        else:
            self._unsent.pop(tool_id, None)

    def _sweep_spool(self) -> None:
        wanted = {unsent.spool for unsent in self._unsent.values()}
        for path in self._spool.iterdir():
            if path.name not in wanted:
                path.unlink(missing_ok=True)


def _entry(line: bytes, *, checked: bool) -> dict[str, Any] | None:
    """Return a line's entry; None if it cannot be read. With `checked`, it must have its checksum."""
    body, mark, end = line.rstrip(b" ").rpartition(_CHECKSUM)
    if checked and (not mark or end != b'%08x"}' % zlib.crc32(body)):
        return None
    try:
        value: Any = json.loads(line)
        match value:
            case {"step": "seen", "tool_ids": [*tool_ids]}:
                whole = all(isinstance(tool_id, str) for tool_id in tool_ids)
                whole = whole and isinstance(value.get("generation", 0), int)
            case {"step": "done", "tool_id": str(), "report": {}} | {"step": "done", "tool_id": str(), "spool": str()}:
                whole = True
            case {"step": "acting" | "accepted", "tool_id": str()}:
                whole = True
            case _:
                whole = False
    except ValueError:
        return None
    return cast(dict[str, Any], value) if whole else None


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise AlreadyServed(
            "Another client already works on this workspace for this project.",
            hint="stop it first, or connect another directory",
        ) from error
    return descriptor


def _line(**entry: object) -> bytes:
    return _checked(json.dumps(entry, separators=(",", ":")).encode())


def _checked(line: bytes) -> bytes:
    """Add a checksum to a JSON object, as its last field, and a newline."""
    body = line[:-1]
    return b'%s%s%08x"}\n' % (body, _CHECKSUM, zlib.crc32(body))


def _done_line(tool_id: str, unsent: Unsent) -> bytes:
    if unsent.body is None:
        return _line(step="done", tool_id=tool_id, spool=unsent.spool)
    # The report is already JSON on one line; it is not parsed and written again.
    return _checked(b'{"step":"done","tool_id":%s,"report":%s}' % (json.dumps(tool_id).encode(), unsent.body))


def _failed(error: str, error_type: ErrorType) -> bytes:
    report = FailedReport(status="failed", error=error, error_type=error_type, timestamp=now())
    return report.model_dump_json().encode()


def write_private(path: Path, content: bytes | bytearray) -> int:
    """Write a private file and sync it; return its descriptor, positioned at the end."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(descriptor)
    except OSError:
        os.close(descriptor)
        path.unlink(missing_ok=True)  # half of a result may hold secrets, and takes the room that is missing
        raise
    return descriptor


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
