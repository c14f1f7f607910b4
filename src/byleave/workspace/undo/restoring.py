"""Undoing one call: every path it changed back to what it was, or nothing at all.

`UndoHistory.plan` compares each path with what the call left; where one was changed since, or what was there was not
kept, it says so and touches nothing. Then it goes back: each step in a directory that was opened without following a
link, each file written beside and swapped in, so that one somebody saves at that moment is not lost (`swapping`). It
removes only what the call made, and only after its content is kept: an undo can be undone. A directory goes only when
it is empty; `.git` is never entered. The undo is written down before its first step and confirmed after its last, and
one that was interrupted can be repeated: what is already as it was is passed over.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shlex
from collections import deque
from collections.abc import Generator
from pathlib import Path

from byleave.protocol.errors import CallerError, ConfigurationError, NotFound, ToolFailure
from byleave.protocol.wire import new_id, now
from byleave.workspace.files.batch_fsync import Settling, give, write_draft
from byleave.workspace.files.drafts import PASSING
from byleave.workspace.files.swapping import new_name, place, swap, take_away
from byleave.workspace.paths import PathValidator, visible

from .entries import Entry, Index, changes_json, read_entries
from .recorder import CALL_BYTES, INSIDE
from .snapshots import CLOSED, Change, State, look, same, state_of
from .steps import Plan, Step, batches, half_way, is_behind_link, is_content, is_too_large, path_of, replaced, why_left
from .stops import acting, changed, refuse_full, stopped
from .store import ObjectStore, hold
from .watching import why_not_kept

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = os.O_PATH | os.O_DIRECTORY
_MAX_OBJECT = 1 << 40
_BUSY = "A call or another undo runs in this workspace right now, so this one did not begin."


class UndoHistory:
    """What was recorded for one workspace, and the way back. Needs no server and no client."""

    def __init__(self, paths: PathValidator, home: Path) -> None:
        self._paths = paths
        if Path(os.path.realpath(home)).is_relative_to(paths.root):
            raise ConfigurationError(f"{INSIDE}.", hint="Nothing is kept there, since commands could change it.")
        # Going back may always keep what it replaces: the bound is for what calls pile up.
        self._store = ObjectStore(Path(os.path.realpath(home)), max_bytes=_MAX_OBJECT)
        self._index = Index.of(self._store, paths.root)

    def close(self) -> None:
        self._store.close()

    def entries(self) -> list[Entry]:
        """What calls changed here, oldest first."""
        return [entry for entry in read_entries(self._index) if entry.changes or not entry.done]

    def entry(self, tool_id: str | None) -> Entry:
        """The entry of a call; without an id the last call that can be undone."""
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
        """The nearest directory above this one in which calls worked."""
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
        """What a file held; None where that was not kept, or it was no file."""
        return None if state is None or state.digest is None else self._store.read(state.digest)

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """While contents are read: what was kept since is there, and nothing is swept away."""
        with hold(self._store.lock, fcntl.LOCK_SH, patient=True):
            self._store.refresh()
            yield

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """While no call runs here, and none begins. Raises ToolFailure where one runs."""
        with (
            hold(self._index.lock, fcntl.LOCK_EX, patient=False, busy=_BUSY),
            self.reading(),
        ):
            yield

    # Looking before acting

    def plan(self, entry: Entry) -> Plan:
        """Compare everything, change nothing. Keeps what is there now, so that an undo can be undone."""
        plan = Plan(entry)
        tried = {path for one in self._begun(entry) for path in one.changes}
        for path, (before, after) in entry.changes.items():
            left = why_left(before, after)
            if left is not None:
                plan.left[path] = left
                continue
            try:
                current = self._found(path, entry)
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
                return state  # what is too large to be kept is known by its stamp
            return state._replace(digest=self._store.put_file(fd, max_bytes=CALL_BYTES))
        finally:
            os.close(fd)

    def _cannot(self, before: State | None, after: State | None, current: State | None) -> str | None:
        if after is not None and after.kind in ("closed", "other"):
            return "what took its place is left alone"
        if is_too_large(current):
            return "what is there now is too large to be kept, and would be lost: move it away first"
        why = why_not_kept(before, self._store)
        # Read now, though it is read again to be put back: what is found out then stops an undo in the middle.
        if why is None and is_content(Step("", current, before)) and self.content(before) is None:
            return "its old content was damaged on the disk"
        return why

    # Acting

    def apply(self, plan: Plan) -> Entry:
        """Go back. The caller is `alone`. Raises where something changed since the plan was made."""
        begun = self._begun(plan.entry)
        changes = self._already_back(begun)
        first = {path: pair[0] for one in reversed(begun) for path, pair in one.changes.items()}
        changes.update({step.path: (first.get(step.path, step.now), step.target) for step in plan.steps})
        summary = f"undo of {plan.entry.id}: {plan.entry.summary}"
        undo = Entry(new_id("undo"), "undo", summary, now(), changes, undoes=plan.entry.id)
        line = {"step": "undo", "id": undo.id, "undoes": plan.entry.id, "summary": summary, "at": undo.at}
        self._store.sync()
        told = [{"step": "void", "id": one.id} for one in begun]
        self._index.append({**line, "changes": changes_json(changes)}, *told)
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
        self._index.append({"step": "undone", "id": undo.id})
        return undo

    def _begun(self, entry: Entry) -> list[Entry]:
        """Undos of it that were interrupted."""
        return [one for one in read_entries(self._index) if one.undoes == entry.id and not one.done]

    def _already_back(self, begun: list[Entry]) -> dict[str, Change]:
        """What undos of the same call did before they were interrupted."""
        done: dict[str, Change] = {}
        for entry in begun:
            for path, (before, after) in entry.changes.items():
                with contextlib.suppress(OSError):
                    if same(self._found(path, entry), after):
                        done.setdefault(path, (before, after))
        return done

    def _clean(self, plan: Plan) -> None:
        """Remove what an interrupted undo left between two steps: its content is kept."""
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
        """A directory the call closed must be open while its inside is put back."""
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
        """Whether a file or link is still the one the plan saw, down to its bytes."""
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
            # Not the time of the inode's change: giving it another name is one.
            if found.kind != "file" or found.stamp[:3] != state.stamp[:3] or found.mode != state.mode:
                return False
            # What was compared is kept; so nothing is written for this, also where the disk is full.
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
                # Somebody put something in it: it stays, unless something else has to take its name.
                if step.target is not None:
                    raise changed(step.path) from error

    def _put_back(self, step: Step, target: State) -> None:
        """A directory, a link, or the mode of a file that keeps its content."""
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
        """Each written beside its place, then all of them onto the disk, then each moved in: old or new, never torn."""
        drafts: deque[tuple[Step, str]] = deque()
        try:
            with Settling() as settling:
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

    def _draft(self, dir_fd: int, name: str, step: Step, settling: Settling) -> str:
        data = self.content(step.target)  # compared with its digest as it is read
        if data is None or step.target is None:
            raise stopped(ToolFailure(f"What {visible(step.path)!r} held can no longer be read."))
        return write_draft(dir_fd, name, step.target, data, settling)

    def _settle_names(self, plan: Plan) -> None:
        """What was renamed and removed is on the disk before it is confirmed."""
        with Settling() as settling:
            for parent in {step.path.rpartition("/")[0] or "." for step in plan.steps}:
                with contextlib.suppress(OSError):  # gone with what was in it, or not ours to read
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
        """Of a directory."""
        try:
            fd = self._paths.open_exact(path, _DIRECTORY)
        except OSError as error:
            raise changed(path) from error
        try:
            _chmod(fd, mode & 0o3777)
        finally:
            os.close(fd)


def _chmod(fd: int, mode: int) -> None:
    # Through the descriptor: fchmod takes none that was opened by path alone, and chmod follows links.
    os.chmod(f"/proc/self/fd/{fd}", mode)
