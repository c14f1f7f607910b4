"""Undo of one call: a plan of steps, and its execution.

`UndoHistory.plan` compares each path with the state the call left; it lists paths that changed since or whose old
content was not kept, and changes nothing in the workspace. `apply` carries the plan out: each step in a directory that
was opened without following a link, each file written beside its target, synced and swapped in, so that a file somebody
saves at that moment is not lost (`files.drafts`). It removes only what the call created, and only after its content is
kept: an undo can be undone. A directory is removed only if empty; `.git` is never entered. The undo is recorded before
its first step and confirmed after its last; an interrupted one can be repeated and skips paths already restored. Its
errors say whether anything happened.
"""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import shlex
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType

from byleave.protocol.errors import ByleaveError, CallerError, ConfigurationError, NotFound, ToolFailure
from byleave.protocol.wire import new_id, now
from byleave.workspace.files.drafts import PASSING, Unexpected, new_name, place, swap, take_attributes_of, take_away
from byleave.workspace.paths import PathValidator, path_error, visible

from .recorder import CALL_BYTES, INSIDE
from .snapshots import CLOSED, Change, State, look, same, state_of
from .store import Entry, Index, ObjectStore, hold, why_not_kept

BATCH = 2000
BATCH_BYTES = 64 * 1024 * 1024
"""Most bytes written before one sync for all files: they take space twice until then."""
FEW = 16
"""Up to this many files are synced one by one, which does not wait for other programs' writes."""
NOTHING_UNDONE: Mapping[str, State | None] = MappingProxyType({})
NOTHING_DENIED: Mapping[str, str] = MappingProxyType({})
_STAYS = "a later change of it stays, so this one does too"
_AGAIN = "what is already as it was is passed over."
_BUSY = "A call or another undo runs in this workspace right now, so this one did not begin."
_MAX_OBJECT = 1 << 40
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = os.O_PATH | os.O_DIRECTORY
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Step:
    """The restoration of one path."""

    path: str
    now: State | None
    target: State | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of an undo, and the paths that it cannot or will not restore."""

    entry: Entry
    steps: list[Step] = field(default_factory=list[Step])
    conflicts: list[str] = field(default_factory=list[str])
    """Paths that changed since the call."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """Paths that cannot be restored, and why."""
    left: dict[str, str] = field(default_factory=dict[str, str])
    """Paths that an undo leaves as they are, and why: git's own files, unscanned directories, pipes, sockets."""


def without(plan: Plan, kept: Mapping[str, str]) -> Plan:
    """The plan without these paths, which count as lost where it would have touched them."""
    if not kept:
        return plan
    touched = {*(step.path for step in plan.steps), *plan.conflicts, *plan.lost}
    return replace(
        plan,
        # So temporary files of an interrupted undo beside such a path are not removed either.
        entry=replace(
            plan.entry, changes={path: pair for path, pair in plan.entry.changes.items() if path not in kept}
        ),
        steps=[step for step in plan.steps if step.path not in kept],
        conflicts=[path for path in plan.conflicts if path not in kept],
        lost=plan.lost | {path: kept[path] for path in sorted(kept.keys() & touched)},
    )


def path_of(step: Step) -> str:
    return step.path


def replaced(step: Step) -> State | None:
    """Return the state a step replaces; None if nothing is there or another kind was removed before."""
    return step.now if step.now is not None and step.target is not None and step.now.kind == step.target.kind else None


def is_content(step: Step) -> bool:
    """True if a file gets its content back, not its mode alone."""
    if step.target is None or step.target.kind in ("directory", "link"):
        return False
    was = replaced(step)
    return was is None or was.digest != step.target.digest


def batches(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Split steps, in order, into batches that are written before one sync."""
    batch: list[Step] = []
    size = 0
    for step in sorted(steps, key=path_of):
        length = 0 if step.target is None else step.target.stamp[0]
        if batch and (len(batch) >= BATCH or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(step)
        size += length
    if batch:
        yield batch


def why_left(before: State | None, after: State | None) -> str | None:
    """Return the reason why an undo does not touch a path at all, or None."""
    if any(state is not None and state.kind == "git" for state in (before, after)):
        return "git's own state is left alone"
    if before is None and after is not None and after.kind in ("closed", "other"):
        return "nobody looked into it" if after.kind == "closed" else "it is no file, directory or link"
    return None


def is_too_large(current: State | None) -> bool:
    return current is not None and current.kind == "file" and current.digest is None


def is_behind_link(path: str, changes: Mapping[str, Change]) -> bool:
    """True if a parent changed between directory and link: the path does not exist behind a link."""
    while path := path.rpartition("/")[0]:
        if {state.kind for state in changes.get(path, ()) if state is not None} == {"directory", "link"}:
            return True
    return False


def half_way(current: State | None, before: State | None, after: State | None, *, tried: bool) -> bool:
    """True if a path is as an interrupted undo leaves it. `tried`: it was among that undo's steps."""
    if before is not None and after is not None and before.kind != after.kind:
        return tried and _between_kinds(current, before, after)
    if current is None or current.kind != "directory":
        return False
    if before is None:  # it is removed if empty, whatever its mode
        return after is not None and after.kind == "directory"
    if before.kind != "directory":
        return False
    return current.mode == (0o700 if after is None else before.mode | 0o700)


def _between_kinds(current: State | None, before: State, after: State) -> bool:
    """True if a path is missing, or a directory whose mode is not restored yet."""
    if current is None:
        return True
    if current.kind != "directory":
        return False
    return current.mode == (0o700 if before.kind == "directory" else after.mode | 0o700)


def refuse_full(error: OSError, store: Path) -> None:
    """Raise ToolFailure if the disk is full, before any file is changed."""
    if error.errno in _FULL:
        raise ToolFailure(
            "There is no room on the disk to keep what is there now, so nothing is undone.",
            hint=f"Free some space where {str(store)!r} lies, then undo again.",
        ) from error


@contextlib.contextmanager
def acting(path: str) -> Generator[None]:
    """Carry out one step; turn its errors into one about `path`."""
    try:
        yield
    except (Unexpected, FileNotFoundError, FileExistsError, NotADirectoryError) as error:
        raise changed(path) from error
    except OSError as error:
        raise stopped(path_error(visible(path), error)) from error


def stopped(error: ByleaveError) -> ToolFailure:
    """Add to an error that the undo stopped halfway, and what to do."""
    hint = "Undo again when that is mended" if error.hint is None else f"{error.hint} Then undo again"
    return ToolFailure(
        f"{error.message} The undo stopped there; other paths may be back already.", hint=f"{hint}: {_AGAIN}"
    )


def changed(path: str) -> ToolFailure:
    return ToolFailure(
        f"{visible(path)!r} changed while it was undone; the undo stopped there.",
        hint=f"Look at the file, then undo again: {_AGAIN}",
    )


class BatchFsync:
    """Sync many files when the block ends: one by one if few, else their file systems."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._devices: dict[int, int] = {}
        """One open file of each file system."""
        self._count = 0

    def add(self, fd: int) -> None:
        self._count += 1
        if not hasattr(_libc, "syncfs"):
            os.fsync(fd)
            return
        if self._count <= FEW:
            self._first.append(os.dup(fd))
        device = os.fstat(fd).st_dev
        if device not in self._devices:
            self._devices[device] = os.dup(fd)

    def __enter__(self) -> "BatchFsync":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None and self._count <= FEW:
                for fd in self._first:
                    os.fsync(fd)
            elif kind is None:
                for fd in self._devices.values():
                    _sync_file_system(fd)
        finally:
            for fd in (*self._first, *self._devices.values()):
                os.close(fd)


def _sync_file_system(fd: int) -> None:
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def write_draft(dir_fd: int, name: str, state: State, data: bytes, settling: BatchFsync) -> str:
    """Write a file beside the one it will replace, with mode and owner; return its temporary name."""
    draft = new_name()
    fd = os.open(draft, _CREATE, 0o600, dir_fd=dir_fd)
    try:
        give(fd, state)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fchmod(fd, state.mode & 0o777)  # never set-uid
        take_attributes_of(name, dir_fd, fd)
        settling.add(fd)
    except BaseException:
        os.unlink(draft, dir_fd=dir_fd)
        raise
    finally:
        os.close(fd)
    return draft


def give(name: str | int, state: State, dir_fd: int | None = None) -> None:
    """Set the old owner; only root may give files away."""
    with contextlib.suppress(PermissionError):
        if isinstance(name, int):
            os.fchown(name, *state.owner)
        else:
            os.chown(name, *state.owner, dir_fd=dir_fd, follow_symlinks=False)


class UndoHistory:
    """The recorded calls of one workspace, and their undo. Needs no server and no client."""

    def __init__(self, paths: PathValidator, home: Path) -> None:
        self._paths = paths
        if Path(os.path.realpath(home)).is_relative_to(paths.root):
            raise ConfigurationError(f"{INSIDE}.", hint="Nothing is kept there, since commands could change it.")
        # An undo may always keep what it replaces; the size limit is for recorded calls.
        self._store = ObjectStore(Path(os.path.realpath(home)), max_bytes=_MAX_OBJECT)
        self._index = Index.of(self._store, paths.root)

    def close(self) -> None:
        self._store.close()
        self._index.close()

    def entries(self) -> list[Entry]:
        """Return the entries of this workspace, oldest first."""
        return [entry for entry in self._index.entries() if entry.changes or not entry.done]

    def entry(self, tool_id: str | None) -> Entry:
        """Return the entry of a call; without an id, the last call that can be undone."""
        entries = self.entries()
        if tool_id is None:
            last = next((one for one in reversed(entries) if one.undoable and one.undoes is None), None)
            if last is None:
                raise self._nothing(entries)
            return last
        found = next((one for one in entries if one.id == tool_id), None)
        if found is None:
            raise NotFound(
                f"Nothing that {tool_id!r} changed in this workspace is known.",
                hint="`byleave undo --list` shows what can be undone here",
            )
        if found.undone_by is not None:
            raise CallerError(
                f"{tool_id!r} is already undone.", hint=f"`byleave undo {found.undone_by}` brings it back"
            )
        if not found.done and found.undoes is None:
            raise CallerError(f"{tool_id!r} still runs, or its client stopped; what it changed is not known yet.")
        return found

    def above(self) -> Path | None:
        """Return the nearest parent directory in which calls were recorded."""
        return next((path for path in self._paths.root.parents if Index.is_kept(self._store, path)), None)

    def _nothing(self, entries: list[Entry]) -> NotFound:
        told = f"There is nothing to undo in {str(self._paths.root)!r}"
        above = self.above()
        where = "the directory that the agent works in" if above is None else "the one above it that an agent worked in"
        elsewhere = f"name {where}: `byleave undo --workspace {'DIR' if above is None else shlex.quote(str(above))}`"
        if any(one.undone_by is not None for one in entries):
            hint = f"`byleave undo --list` shows it, and what brings it back; or {elsewhere}"
            return NotFound(f"{told}: all that is known is undone.", hint=hint)
        return NotFound(f"{told}.", hint=elsewhere)

    def content(self, state: State | None) -> bytes | None:
        """Return a file's content; None if it was not kept or it is not a file."""
        return None if state is None or state.digest is None else self._store.read(state.digest)

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Keep sweeps out while contents are read, and load contents that others kept."""
        with hold(self._store.lock, fcntl.LOCK_SH, patient=True):
            self._store.refresh()
            yield

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Keep calls out. Raises ToolFailure if one runs."""
        with (
            hold(self._index.lock, fcntl.LOCK_EX, patient=False, busy=_BUSY),
            self.reading(),
        ):
            yield

    # Looking before acting

    def plan(self, entry: Entry, later: Mapping[str, State | None] = NOTHING_UNDONE) -> Plan:
        """Compare every path and change none; keep the current contents, so that the undo can be undone.

        `later`: what paths will be once later calls are undone.
        """
        plan = Plan(entry)
        tried = {path for one in self._begun(entry) for path in one.changes}
        for path, (before, after) in entry.changes.items():
            left = why_left(before, after)
            if left is not None:
                plan.left[path] = left
                continue
            try:
                current = later[path] if path in later else self._found(path, entry)
            except OSError as error:
                refuse_full(error, self._store.directory)
                plan.conflicts.append(path)
                continue
            if same(current, before):
                continue
            if not same(current, after) and not half_way(current, before, after, tried=path in tried):
                plan.conflicts.append(path)
            elif before is None and is_too_large(current):
                plan.left[path] = "too large to be kept, so it is yours to remove"
            elif (why := self._cannot(before, after, current)) is not None:
                plan.lost[path] = why
            else:
                plan.steps.append(Step(path, current, before))
        return plan

    def plan_all(
        self, entries: Iterable[Entry], denied: Callable[[Entry], Mapping[str, str]] = lambda entry: NOTHING_DENIED
    ) -> list[Plan]:
        """Plan the undo of several calls, newest first, each as if those before it in the list were undone.

        A path that one of them cannot restore stays as it is, so it is lost for the older ones too. `denied`: paths of
        a call that must not be restored, and why.
        """
        plans: list[Plan] = []
        later: dict[str, State | None] = {}
        stays: set[str] = set()
        for entry in entries:
            kept = {**dict.fromkeys(stays & entry.changes.keys(), _STAYS), **denied(entry)}
            plan = without(self.plan(entry, later), kept)
            later |= {step.path: step.target for step in plan.steps}
            stays |= {*kept, *plan.lost, *plan.left, *plan.conflicts}
            plans.append(plan)
        return plans

    def _found(self, path: str, entry: Entry) -> State | None:
        try:
            return self._current(path)
        except OSError as error:
            if error.errno == errno.ELOOP and is_behind_link(path, entry.changes):
                return None
            raise

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
                return state  # too large to keep; its stamp identifies it
            return state._replace(digest=self._store.put_file(fd, max_bytes=CALL_BYTES))
        finally:
            os.close(fd)

    def _cannot(self, before: State | None, after: State | None, current: State | None) -> str | None:
        if after is not None and after.kind in ("closed", "other"):
            return "what took its place is left alone"
        if is_too_large(current):
            return "what is there now is too large to be kept, and would be lost: move it away first"
        why = why_not_kept(before, self._store)
        # Read now, though it is read again later: damage found then would stop the undo halfway.
        if why is None and is_content(Step("", current, before)) and self.content(before) is None:
            return "its old content was damaged on the disk"
        return why

    # Acting

    def apply(self, plan: Plan) -> Entry:
        """Carry a plan out. The caller is `alone`. Raises if something changed since the plan was made."""
        begun = self._begun(plan.entry)
        changes = self._already_back(begun)
        first = {path: pair[0] for one in reversed(begun) for path, pair in one.changes.items()}
        changes.update({step.path: (first.get(step.path, step.now), step.target) for step in plan.steps})
        summary = f"undo of {plan.entry.id}: {plan.entry.summary}"
        undo = Entry(new_id("undo"), "undo", summary, now(), changes, undoes=plan.entry.id, done=False)
        self._store.sync()
        self._index.put(undo, without=[one.id for one in begun])
        if begun:
            self._clean(plan)
        self._loosen(plan)
        for step in sorted(plan.steps, key=path_of, reverse=True):
            if step.now is not None and (step.target is None or step.target.kind != step.now.kind):
                with acting(step.path):
                    self._remove(step, step.now)
        for step in sorted(plan.steps, key=path_of):
            if step.target is not None and not is_content(step):
                with acting(step.path):
                    self._put_back(step, step.target)
        for batch in batches(filter(is_content, plan.steps)):
            self._put_files(batch)
        for step in sorted(plan.steps, key=path_of, reverse=True):
            if step.target is not None and step.target.kind == "directory":
                with acting(step.path):
                    self._set_mode(step.path, step.target.mode)
        self._settle_names(plan)
        undo.done = True
        self._index.put(undo)
        return undo

    def apply_all(self, plans: Iterable[Plan]) -> Iterator[tuple[Plan, Entry]]:
        """Carry out plans of `plan_all` in their order; yield each call's undo once it is done. The caller is `alone`.

        Each call is compared with what is there once more, since the calls before it in the list have been undone.
        """
        for plan in plans:
            if not plan.steps:
                continue
            found = self.plan(plan.entry)
            targets = {step.path: step.target for step in plan.steps}
            other = {step.path: step.target for step in found.steps}
            if found.conflicts or other != targets:
                raise changed(min({*found.conflicts, *(targets.keys() ^ other.keys()), *targets}))
            yield plan, self.apply(found)

    def _begun(self, entry: Entry) -> list[Entry]:
        """Return the interrupted undos of a call."""
        return [one for one in self._index.entries() if one.undoes == entry.id and not one.done]

    def _already_back(self, begun: list[Entry]) -> dict[str, Change]:
        """Return the changes that interrupted undos of the same call finished."""
        done: dict[str, Change] = {}
        for entry in begun:
            for path, (before, after) in entry.changes.items():
                with contextlib.suppress(OSError):
                    if same(self._found(path, entry), after):
                        done.setdefault(path, (before, after))
        return done

    def _clean(self, plan: Plan) -> None:
        """Remove temporary files of an interrupted undo, after keeping their content."""
        for parent in {path.rpartition("/")[0] or "." for path in plan.entry.changes}:
            with contextlib.suppress(OSError):
                fd = self._paths.open_exact(parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    for name in os.listdir(fd):
                        if PASSING.fullmatch(name):
                            self._current(name if parent == "." else f"{parent}/{name}")
                            self._store.sync()
                            os.unlink(name, dir_fd=fd)
                finally:
                    os.close(fd)

    def _loosen(self, plan: Plan) -> None:
        """Make directories writable while their content is restored."""
        for step in sorted(plan.steps, key=path_of):
            if step.now is not None and step.now.kind == "directory":
                stays = step.target if step.target is not None and step.target.kind == "directory" else step.now
                with acting(step.path):
                    self._set_mode(step.path, stays.mode | 0o700)

    @contextlib.contextmanager
    def _parent(self, path: str) -> Generator[tuple[int, str]]:
        parent, _, name = path.rpartition("/")
        try:
            fd = self._paths.open_exact(parent or ".", _DIRECTORY)
        except OSError as error:
            raise changed(path) from error
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _is_what_was_compared(self, dir_fd: int, name: str, state: State) -> bool:
        """True if a file or link is still the one the plan saw, down to its bytes."""
        if state.kind == "link":
            with contextlib.suppress(OSError):
                return os.readlink(name, dir_fd=dir_fd) == state.target
            return False
        try:
            fd = os.open(name, _READ | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        except OSError:
            return False
        try:
            found = state_of(os.fstat(fd))
            # Not the ctime: a rename changes it.
            if found.kind != "file" or found.stamp[:3] != state.stamp[:3] or found.mode != state.mode:
                return False
            # Only hashed: the content is kept already, and the disk may be full.
            with open(fd, "rb", closefd=False) as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == state.digest
        finally:
            os.close(fd)

    def _remove(self, step: Step, state: State) -> None:
        with self._parent(step.path) as (dir_fd, name):
            if state.kind != "directory":
                take_away(dir_fd, name, lambda name: self._is_what_was_compared(dir_fd, name, state))
                return
            try:
                os.rmdir(name, dir_fd=dir_fd)
            except OSError as error:
                # Somebody put a file in it: it stays, unless another kind has to take its name.
                if step.target is not None:
                    raise changed(step.path) from error

    def _put_back(self, step: Step, target: State) -> None:
        """Restore a directory, a link, or the mode of a file that keeps its content."""
        was = replaced(step)
        with self._parent(step.path) as (dir_fd, name):
            if target.kind == "directory":
                if was is None:
                    os.mkdir(name, 0o700, dir_fd=dir_fd)
                    give(name, target, dir_fd)
            elif target.kind == "link":
                draft = new_name()
                os.symlink(target.target or "", draft, dir_fd=dir_fd)
                give(draft, target, dir_fd)
                self._move_in(dir_fd, draft, name, was)
            elif was is not None:
                self._set_file_mode(dir_fd, name, was, target.mode, step.path)

    def _put_files(self, steps: list[Step]) -> None:
        """Write each file beside its target, sync all, then move each in: old or new, never torn."""
        drafts: deque[tuple[Step, str]] = deque()
        try:
            with BatchFsync() as settling:
                for step in steps:
                    with acting(step.path), self._parent(step.path) as (dir_fd, name):
                        drafts.append((step, self._draft(dir_fd, name, step, settling)))
            while drafts:
                step, draft = drafts.popleft()
                with acting(step.path), self._parent(step.path) as (dir_fd, name):
                    self._move_in(dir_fd, draft, name, replaced(step))
        finally:
            for step, draft in drafts:
                with contextlib.suppress(OSError, ToolFailure), self._parent(step.path) as (dir_fd, _):
                    os.unlink(draft, dir_fd=dir_fd)

    def _draft(self, dir_fd: int, name: str, step: Step, settling: BatchFsync) -> str:
        data = self.content(step.target)  # compared with its digest as it is read
        if data is None or step.target is None:
            raise stopped(ToolFailure(f"What {visible(step.path)!r} held can no longer be read."))
        return write_draft(dir_fd, name, step.target, data, settling)

    def _settle_names(self, plan: Plan) -> None:
        """Sync the directories before the undo is confirmed."""
        with BatchFsync() as settling:
            for parent in {step.path.rpartition("/")[0] or "." for step in plan.steps}:
                with contextlib.suppress(OSError):  # removed by the undo, or not readable
                    fd = self._paths.open_exact(parent, os.O_RDONLY | os.O_DIRECTORY)
                    try:
                        settling.add(fd)
                    finally:
                        os.close(fd)

    def _move_in(self, dir_fd: int, draft: str, name: str, was: State | None) -> None:
        try:
            if was is None:
                place(dir_fd, draft, name)
            else:
                swap(dir_fd, draft, name, lambda name: self._is_what_was_compared(dir_fd, name, was))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=dir_fd)
            raise

    def _set_file_mode(self, dir_fd: int, name: str, was: State, mode: int, path: str) -> None:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            if state_of(os.fstat(fd)).stamp != was.stamp:
                raise changed(path)
            _chmod(fd, mode & 0o777)
        finally:
            os.close(fd)

    def _set_mode(self, path: str, mode: int) -> None:
        """Set the mode of a directory."""
        try:
            fd = self._paths.open_exact(path, _DIRECTORY)
        except OSError as error:
            raise changed(path) from error
        try:
            _chmod(fd, mode & 0o3777)
        finally:
            os.close(fd)


def _chmod(fd: int, mode: int) -> None:
    # Through /proc: fchmod does not take an O_PATH descriptor, and chmod by name follows links.
    os.chmod(f"/proc/self/fd/{fd}", mode)
