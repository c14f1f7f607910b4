"""Undoing one call: every path it changed back to what it was, or nothing at all.

A `Restoration` first compares each path with what the call left; where one was changed since, or what was there was not
kept, it says so and touches nothing. Then it goes back: each step in a directory that was opened without following a
link, each file written beside and renamed. It removes only what the call made (a directory only when it is empty), and
never enters `.git`. The undo is written down before its first step and confirmed after its last, so it can be undone
itself, and one that was interrupted can be repeated: what is already as it was is passed over.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from assent.protocol.errors import CallerError, NotFound, ToolFailure
from assent.protocol.values import new_id, now

from .paths import PathValidator, told_of, visible
from .snapshots import CLOSED, Change, State, look, same, state_of
from .undo import CALL_BYTES
from .undo_entries import Entry, changes_json, read_entries
from .undo_store import Index, ObjectStore, hold

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = os.O_PATH | os.O_DIRECTORY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_OBJECT = 1 << 40
_BUSY = "A call runs in this workspace right now, so nothing is undone."


@dataclass(frozen=True, slots=True)
class Step:
    """One path on its way back."""

    path: str
    now: State | None
    target: State | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What an undo would do."""

    entry: Entry
    steps: list[Step] = field(default_factory=list[Step])
    conflicts: list[str] = field(default_factory=list[str])
    """Paths that changed since."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """Paths that cannot be brought back, and why."""
    left: list[str] = field(default_factory=list[str])
    """What the call made and an undo leaves: directories that nobody looked into, pipes, sockets."""


class UndoHistory:
    """What was recorded for one workspace, and the way back. Needs no server and no client."""

    def __init__(self, paths: PathValidator, home: Path) -> None:
        self._paths = paths
        # Going back may always keep what it replaces: the bound is for what calls pile up.
        self._store = ObjectStore(Path(os.path.realpath(home)), max_bytes=_MAX_OBJECT)
        self._index = Index.of(self._store, paths.root)

    def entries(self) -> list[Entry]:
        """What calls changed here, oldest first."""
        return [entry for entry in read_entries(self._index) if entry.changes or not entry.done]

    def entry(self, tool_id: str | None) -> Entry:
        """The entry of a call; without an id the last call that can be undone."""
        entries = self.entries()
        if tool_id is None:
            last = next((one for one in reversed(entries) if one.undoable and one.undoes is None), None)
            if last is None:
                raise NotFound("There is nothing to undo in this workspace.")
            return last
        found = next((one for one in entries if one.id == tool_id), None)
        if found is None:
            raise NotFound(
                f"Nothing that {tool_id!r} changed in this workspace is known.",
                hint="`assent undo --list` shows what can be undone here",
            )
        if found.undone_by is not None:
            raise CallerError(f"{tool_id!r} is already undone.", hint=f"`assent undo {found.undone_by}` brings it back")
        if not found.done and found.undoes is None:
            raise CallerError(f"{tool_id!r} still runs, or its client stopped; what it changed is not known yet.")
        return found

    def content(self, state: State | None) -> bytes | None:
        """What a file held; None where that was not kept, or it was no file."""
        return None if state is None or state.digest is None else self._store.read(state.digest)

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """While no call runs here, and none begins. Raises ToolFailure where one runs."""
        with (
            hold(self._index.lock, fcntl.LOCK_EX, patient=False, busy=_BUSY),
            hold(self._store.lock, fcntl.LOCK_SH, patient=True),
        ):
            self._store.refresh()
            yield

    # Looking before acting

    def plan(self, entry: Entry) -> Plan:
        """Compare everything, change nothing. Keeps what is there now, so that an undo can be undone."""
        plan = Plan(entry)
        for path, (before, after) in entry.changes.items():
            try:
                current = self._current(path)
            except OSError:
                plan.conflicts.append(path)
                continue
            if same(current, before):
                continue
            if before is None and after is not None and after.kind in ("closed", "other"):
                plan.left.append(path)
                continue
            if not same(current, after):
                plan.conflicts.append(path)
                continue
            why = self._cannot(before, after, path)
            if why is not None:
                plan.lost[path] = why
            else:
                plan.steps.append(Step(path, current, before))
        return plan

    def _current(self, path: str) -> State | None:
        state = look(self._paths, path)
        if state is None or state.kind in ("link", "other"):
            return state
        if state.kind == "directory":
            return state._replace(kind="closed") if path.rpartition("/")[2].casefold() in CLOSED else state
        fd = self._paths.open_exact(path, _READ)
        try:
            state = state_of(os.fstat(fd))
            if state.kind != "file" or state.stamp[0] > CALL_BYTES:
                return state  # what is too large to be kept is known by its stamp
            return state._replace(digest=self._store.put_file(fd, max_bytes=CALL_BYTES))
        finally:
            os.close(fd)

    def _cannot(self, before: State | None, after: State | None, path: str) -> str | None:
        kinds = {state.kind for state in (before, after) if state is not None}
        if "closed" in kinds:
            return "what lies in such a directory is not kept"
        if "other" in kinds:
            return "it is neither a file, a directory nor a link"
        if before is None or before.kind != "file":
            return None
        if before.digest is None:
            return "its old content was not kept: too large, or not readable"
        if not self._store.has(before.digest):
            return "its old content has expired"
        return None

    # Acting

    def apply(self, plan: Plan) -> Entry:
        """Go back. The caller is `alone`. Raises where something changed since the plan was made."""
        changes: dict[str, Change] = {step.path: (step.now, step.target) for step in plan.steps}
        summary = f"undo of {plan.entry.id}: {plan.entry.summary}"
        undo = Entry(new_id("undo"), "undo", summary, now(), changes, undoes=plan.entry.id)
        line = {"step": "undo", "id": undo.id, "undoes": plan.entry.id, "summary": summary, "at": undo.at}
        self._index.append({**line, "changes": changes_json(changes)})
        self._loosen(plan)
        for step in sorted(plan.steps, key=_path_of, reverse=True):
            if step.now is not None and (step.target is None or step.target.kind != step.now.kind):
                with told_of(visible(step.path)):
                    self._remove(step)
        for step in sorted(plan.steps, key=_path_of):
            if step.target is not None:
                with told_of(visible(step.path)):
                    self._put_back(step, step.target)
        for step in sorted(plan.steps, key=_path_of, reverse=True):
            if step.target is not None and step.target.kind == "directory":
                self._set_mode(step.path, step.target.mode)
        self._index.append({"step": "undone", "id": undo.id})
        return undo

    def _loosen(self, plan: Plan) -> None:
        """A directory the call closed must be open while its inside is put back."""
        for step in sorted(plan.steps, key=_path_of):
            if step.now is not None and step.now.kind == "directory":
                stays = step.target if step.target is not None and step.target.kind == "directory" else step.now
                self._set_mode(step.path, stays.mode | 0o700)

    @contextlib.contextmanager
    def _parent(self, path: str) -> Generator[tuple[int, str]]:
        parent, _, name = path.rpartition("/")
        try:
            fd = self._paths.open_exact(parent or ".", _DIRECTORY)
        except OSError as error:
            raise _changed(path) from error
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _check(self, dir_fd: int, name: str, step: Step) -> None:
        """Right before a step: is it still what was compared?"""
        try:
            info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            if step.now is None:
                return
            raise _changed(step.path) from None
        stamp = (info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns)
        if step.now is None or (step.now.kind != "directory" and stamp != step.now.stamp):
            raise _changed(step.path)

    def _remove(self, step: Step) -> None:
        with self._parent(step.path) as (dir_fd, name):
            self._check(dir_fd, name, step)
            if step.now is not None and step.now.kind == "directory":
                try:
                    os.rmdir(name, dir_fd=dir_fd)
                except OSError as error:
                    # Somebody put something in it: it stays, unless something else has to take its name.
                    if step.target is not None:
                        raise _changed(step.path) from error
            else:
                os.unlink(name, dir_fd=dir_fd)

    def _put_back(self, step: Step, target: State) -> None:
        with self._parent(step.path) as (dir_fd, name):
            replaced = step.now is not None and step.now.kind != target.kind
            here = Step(step.path, None, target) if replaced else step
            match target.kind:
                case "directory":
                    if here.now is None:
                        os.mkdir(name, 0o700, dir_fd=dir_fd)
                        with contextlib.suppress(PermissionError):
                            os.chown(name, *target.owner, dir_fd=dir_fd, follow_symlinks=False)
                case "link":
                    draft = _draft()
                    os.symlink(target.target or "", draft, dir_fd=dir_fd)
                    self._rename(dir_fd, draft, name, here)
                case _:
                    self._put_file(dir_fd, name, here, target)

    def _put_file(self, dir_fd: int, name: str, step: Step, target: State) -> None:
        if step.now is not None and step.now.digest == target.digest:
            self._check(dir_fd, name, step)
            self._set_mode(step.path, target.mode)
            return
        data = self.content(target)  # compared with its digest as it is read
        if data is None:
            raise ToolFailure(f"What {visible(step.path)!r} held can no longer be read.")
        draft = _draft()
        fd = os.open(draft, _CREATE, 0o600, dir_fd=dir_fd)
        try:
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.fchown(fd, *target.owner)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fchmod(fd, target.mode & 0o777)  # never set-uid
            os.fsync(fd)
        except BaseException:
            os.unlink(draft, dir_fd=dir_fd)
            raise
        finally:
            os.close(fd)
        self._rename(dir_fd, draft, name, step)

    def _rename(self, dir_fd: int, draft: str, name: str, step: Step) -> None:
        try:
            self._check(dir_fd, name, step)
            os.rename(draft, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=dir_fd)
            raise

    def _set_mode(self, path: str, mode: int) -> None:
        try:
            fd = self._paths.open_exact(path, os.O_PATH)
        except OSError as error:
            raise _changed(path) from error
        try:
            # Through the descriptor: fchmod takes none that was opened by path alone, and chmod follows links.
            os.chmod(f"/proc/self/fd/{fd}", mode & 0o3777 if os.path.isdir(f"/proc/self/fd/{fd}") else mode & 0o777)
        finally:
            os.close(fd)


def _path_of(step: Step) -> str:
    return step.path


def _draft() -> str:
    return f".assent-{secrets.token_hex(8)}.tmp"


def _changed(path: str) -> ToolFailure:
    return ToolFailure(
        f"{visible(path)!r} changed while it was undone; the undo stopped there.",
        hint="Look at the file, then undo again: what is already as it was is passed over.",
    )
