"""Undoing for somebody who is not at this machine: the plan as the protocol says it, and carrying out exactly that one.

`UndoDesk.look` shows what an undo would do, with texts masked and bounded; `carry_out` plans again while no call runs
(`UndoHistory.alone`), and acts only when its digest is the one that was shown and nothing stands against it. What the
owner's rules deny is never written: it counts as lost, and is not shown. Blocking, one at a time, for a thread beside
the loop. It never reaches outside the workspace: every step is `UndoHistory`'s.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from assent.gate import mask_text, secret_name
from assent.protocol.changes import MAX_SHOWN_TEXT, MAX_UNDO_FILES, ShownChange, UndoPlan
from assent.protocol.errors import CallerError, ToolFailure

from .paths import PathValidator, visible
from .restoring import Plan, Step, UndoHistory
from .snapshots import State
from .undo import UndoRecorder
from .undo_words import (
    GIT_STAYS,
    NO_TEXT,
    SECRET,
    change_kind,
    is_git,
    mode_words,
    reasons,
    same_content,
    text_in,
    why_not,
)

MAX_PLAN_TEXT = 2 * 1024 * 1024
"""Most characters of all texts in one plan."""
TEXT_SECONDS = 2.0
"""Texts that are not ready by then are not shown."""
PATIENCE_SECONDS = 3.0
"""How long the end of a call that runs is waited for: a write is over soon, a command need not be."""
_PAUSE = 0.05
_MAX_TOLD = 1000
_MAX_PATH = 4096
_MAX_NOTES = 50
_MAX_TOGETHER = 50
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DENIED = "this machine's rules deny it, so it stays as it is"
_NOT_READ = "not shown: this machine's rules deny reading it"
_TOO_MUCH = "not shown: there is too much in all"
_MASKED = "it differs only in what is masked here"
_PARTIAL = "Undoing the rest must be asked for."
_CHANGED = "Something changed while you decided; nothing was undone."

Forbids = Callable[[str, str], bool]
"""Whether the owner's rules deny a path to a tool."""


class UndoRefused(CallerError):
    """A plan that is not carried out; it is told with the reason."""

    def __init__(self, message: str, plan: UndoPlan, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.plan = plan


class UndoDesk:
    """Plans and carries out undos in one workspace, for a person elsewhere."""

    def __init__(self, paths: PathValidator, home: Path, recorder: UndoRecorder, forbids: Forbids) -> None:
        self._paths = paths
        self._home = home
        self._recorder = recorder
        self._forbids = forbids
        self._history: UndoHistory | None = None
        self._lock = threading.Lock()

    def look(self, tool_id: str) -> UndoPlan:
        """What undoing a call would do now. Raises where that cannot be said, as while a call runs."""
        with self._lock:
            history = self._open()
            with _alone(history):
                return self._told(history, self._plan(history, tool_id), texts=True)

    def carry_out(
        self, tool_id: str, digest: str, *, partial: bool, wanted: Callable[[], bool]
    ) -> tuple[UndoPlan, str | None]:
        """Undo a call as it was shown; what was done, and the id under which it can be taken back (None: nothing was).

        `wanted` is asked right before the first step: what nobody waits for any more is not done.
        """
        with self._lock:
            history = self._open()
            with _alone(history):
                plan = self._plan(history, tool_id)
                told = self._told(history, plan, texts=False)
                if told.plan != digest:
                    raise UndoRefused(_CHANGED, told, hint="Look at what it would do now.")
                why = why_not(plan, partial=partial)
                if why is not None:
                    raise UndoRefused(why, told, hint=None if plan.conflicts else _PARTIAL)
                if not wanted():
                    raise UndoRefused("Its time was up before it could begin; nothing was undone.", told)
                done = history.apply(plan)
        return told, done.id if done.changes else None

    def close(self) -> None:
        with self._lock:
            if self._history is not None:
                self._history.close()
                self._history = None

    def _open(self) -> UndoHistory:
        """Opened at the first use, and kept: what was read of the store need not be read again."""
        try:
            self._recorder.recover()
            if self._history is None:
                self._history = UndoHistory(self._paths, self._home)
        except OSError as error:
            raise ToolFailure(f"What calls changed here cannot be read: {error.strerror}.") from error
        return self._history

    def _plan(self, history: UndoHistory, tool_id: str) -> Plan:
        """The plan, without what the owner's rules keep every tool's hands off."""
        entry = history.entry(tool_id)
        plan = history.plan(entry)
        denied = {path for path in entry.changes if self._denies(path, entry.tool_name)}
        if not denied:
            return plan
        return replace(
            plan,
            # Also what an interrupted undo left beside such a path is not cleared away.
            entry=replace(entry, changes={path: pair for path, pair in entry.changes.items() if path not in denied}),
            steps=[step for step in plan.steps if step.path not in denied],
            conflicts=[path for path in plan.conflicts if path not in denied],
            lost=plan.lost | dict.fromkeys(sorted(denied.intersection(_touched(plan))), _DENIED),
        )

    def _denies(self, path: str, tool_name: str) -> bool:
        # Putting back is writing; and what is denied to the call's own tool is not touched in its name either.
        return self._forbids(path, "write_file") or self._forbids(path, tool_name)

    # As it is told

    def _told(self, history: UndoHistory, plan: Plan, *, texts: bool) -> UndoPlan:
        entry = plan.entry
        steps = sorted(plan.steps, key=_path_of)[:MAX_UNDO_FILES]
        room = MAX_PLAN_TEXT if texts else 0
        until = time.monotonic() + TEXT_SECONDS
        files: list[ShownChange] = []
        for step in steps:
            # No call runs meanwhile, and texts can be made so that masking takes long.
            room = room if time.monotonic() < until else 0
            change = self._shown(history, step, room) if texts else _outlined(step)
            room -= len(change.before or "") + len(change.after or "")
            files.append(change)
        return UndoPlan(
            tool_id=entry.id,
            plan=plan_digest(plan),
            files=files,
            total_files=len(plan.steps),
            conflicts=_paths(plan.conflicts),
            lost={_path(path): _told_words(why) for path, why in sorted(plan.lost.items())[:MAX_UNDO_FILES]},
            left=_paths(plan.left),
            notes=[_told_words(note) for note in _notes(plan)][:_MAX_NOTES],
            together=[one for one in entry.together if _IDENTIFIER.fullmatch(one)][:_MAX_TOGETHER],
        )

    def _shown(self, history: UndoHistory, step: Step, room: int) -> ShownChange:
        """One path with its texts, or with why they are not there."""
        outlined = _outlined(step)
        if not _holds_texts(step):
            return outlined
        if secret_name(step.path):
            return _noted(outlined, SECRET)
        if self._forbids(step.path, "read_file"):
            return _noted(outlined, _NOT_READ)
        if room <= 0:
            return _noted(outlined, _TOO_MUCH)
        before, after = (
            (None, True) if state is None else _masked(history.content(state)) for state in (step.now, step.target)
        )
        if not before[1] or not after[1]:
            return _noted(outlined, NO_TEXT)
        if len(before[0] or "") + len(after[0] or "") > room:
            return _noted(outlined, _TOO_MUCH)
        if before[0] == after[0]:
            outlined = _noted(outlined, _MASKED)
        return outlined.model_copy(update={"before": before[0], "after": after[0]})


@contextmanager
def _alone(history: UndoHistory) -> Generator[None]:
    until = time.monotonic() + PATIENCE_SECONDS
    with ExitStack() as ends:
        while True:
            try:
                ends.enter_context(history.alone())
                break
            except ToolFailure:
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE)
        yield


def plan_digest(plan: Plan) -> str:
    """A digest of all that a plan would do and leave: the same only while every path is what it was."""
    value = {
        "id": plan.entry.id,
        "steps": sorted([step.path, _key(step.now), _key(step.target)] for step in plan.steps),
        "conflicts": sorted(plan.conflicts),
        "lost": sorted(plan.lost),
        "left": sorted(plan.left),
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _key(state: State | None) -> list[Any]:
    """What a person would call another state: not when it was touched, but what it is."""
    if state is None:
        return []
    known = state.digest or (list(state.stamp) if state.kind == "file" else "")
    return [state.kind, state.mode, list(state.owner), known, state.target or ""]


def _touched(plan: Plan) -> Iterable[str]:
    yield from (step.path for step in plan.steps)
    yield from plan.conflicts
    yield from plan.lost


def _holds_texts(step: Step) -> bool:
    states = [state for state in (step.now, step.target) if state is not None]
    return all(state.kind == "file" for state in states) and not same_content(step)


def _masked(content: bytes | None) -> tuple[str | None, bool]:
    """A text with its secrets masked, and whether there is one to show."""
    text = text_in(content, MAX_SHOWN_TEXT)
    masked = None if text is None else mask_text(text)
    return (None, False) if masked is None or len(masked) > 2 * MAX_SHOWN_TEXT else (masked, True)


def _outlined(step: Step) -> ShownChange:
    """One path without its texts."""
    kind = change_kind(step.now, step.target)
    return ShownChange(path=_path(step.path), kind=kind, note=_told_words(_kind_words(step)) or None)


def _kind_words(step: Step) -> str:
    """What else there is to say of a path that is no file, or whose mode changes."""
    states = [state for state in (step.now, step.target) if state is not None]
    words = [_thing(state) for state in states] if any(state.kind != "file" for state in states) else []
    said = " becomes ".join(dict.fromkeys(words))
    return "; ".join(part for part in (said, mode_words(step)) if part)


def _thing(state: State) -> str:
    if state.kind == "link":
        return f"a link to {mask_text(visible(state.target or ''))!r}"
    return "a file" if state.kind == "file" else "a directory" if state.kind == "directory" else "something else"


def _noted(change: ShownChange, note: str) -> ShownChange:
    said = note if change.note is None else f"{change.note}; {note}"
    return change.model_copy(update={"note": _told_words(said)})


def _notes(plan: Plan) -> list[str]:
    notes = [*plan.entry.notes]
    if plan.left:
        notes.append(f"Left where it is: {reasons(plan.left)}.")
    if is_git(plan):
        notes.append(GIT_STAYS)
    counts = (("would change", plan.steps), ("changed since", plan.conflicts), ("cannot be brought back", plan.lost))
    more = [f"{len(paths)} {what}" for what, paths in counts if len(paths) > MAX_UNDO_FILES]
    if more:
        # First: of many notes it must not be among those that are left out.
        notes.insert(0, f"Not all paths are listed: {', '.join(more)}.")
    return notes


def _paths(paths: Iterable[str]) -> list[str]:
    return [_path(path) for path in sorted(paths)[:MAX_UNDO_FILES]]


def _path(path: str) -> str:
    return visible(path)[:_MAX_PATH]


def _told_words(text: str) -> str:
    return visible(text)[:_MAX_TOLD]


def _path_of(step: Step) -> str:
    return step.path
