"""The undo desk: plans and carries out undos for a person elsewhere, and describes plans in words.

`UndoDesk.look` shows what an undo would do, with texts masked and bounded. `carry_out` plans again while no call runs,
and acts only if the plan's digest is the one that was shown and `why_not` has no objection. Paths that the owner's or
the organisation's rules deny are never written: they count as lost, and their texts are not shown. It blocks, serves
one request at a time, and belongs on a thread beside the loop; `UndoHistory` takes every step in the workspace.
`byleave undo` uses the same words, so both describe a plan alike; invisible characters in names are escaped.
"""

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from byleave.gate import cover_key, mask_text, secret_name
from byleave.protocol.changes import (
    MAX_SHOWN_TEXT,
    MAX_UNDO_CALLS,
    MAX_UNDO_FILES,
    ChangeKind,
    SessionUndoPlan,
    ShownChange,
    UndoPlan,
)
from byleave.protocol.engine import MAX_LISTED_CHANGES, ChangedFile, TextBefore, UndoList, UndoneCall
from byleave.protocol.errors import CallerError, ToolFailure
from byleave.workspace.denied_paths import Denials
from byleave.workspace.paths import PathValidator, visible

from .recorder import UndoRecorder
from .restoring import Plan, Step, UndoHistory, path_of, without
from .snapshots import State, same
from .store import Entry

MAX_NAMED = 10
SECRET = "not shown: it may hold secrets"  # noqa: S105 - a remark, not a secret
NO_TEXT = "not shown: large, or no text"
CHANGED = "Something changed while you decided; nothing was undone."
MAX_PLAN_TEXT = 2 * 1024 * 1024
"""Most characters of all texts in one plan."""
TEXT_SECONDS = 2.0
"""Texts that are not ready by then are not shown."""
PATIENCE_SECONDS = 3.0
"""Time to wait for a running call to end: enough for a write, often not for a command."""
_PAUSE = 0.05
_MAX_TOLD = 1000
_MAX_PATH = 4096
_MAX_NOTES = 50
_MAX_TOGETHER = 50
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DENIED = "{} rules deny it, so it stays as it is"
_NOT_READ = "not shown: {} rules deny reading it"
_TOO_MUCH = "not shown: there is too much in all"
_MASKED = "it differs only in what is masked here"
_NOTHING: Mapping[str, Sequence[str]] = MappingProxyType({})
_PARTIAL = "Undoing the rest must be asked for."
_GIT_STAYS = "git's own state (commits, branches, what is staged) is left as it is."


@contextlib.contextmanager
def readable(home: Path) -> Generator[None]:
    """Turn an error of the disk into one that names the undo store."""
    try:
        yield
    except OSError as error:
        raise ToolFailure(
            f"What calls changed here cannot be read: {error.strerror}.", hint=f"look at {home / 'undo'}"
        ) from error


def change_kind(before: State | None, after: State | None) -> ChangeKind:
    """Return what happens to a path that goes from one state to another."""
    if before is None:
        return ChangeKind.CREATE
    return ChangeKind.DELETE if after is None else ChangeKind.CHANGE


def mode_words(step: Step) -> str:
    """Describe how a path's mode changes; empty if it does not."""
    if step.now is None or step.target is None or step.now.mode == step.target.mode or step.target.kind == "link":
        return ""
    return f"mode {step.now.mode:o} becomes {step.target.mode:o}"


def same_content(step: Step) -> bool:
    """True if a file keeps its content: only its mode goes back."""
    return step.now is not None and step.target is not None and step.now.digest == step.target.digest


def why_not(plan: Plan, *, partial: bool, what: str = "this call") -> str | None:
    """Return the reason why a plan is not carried out, or None. `partial`: contents not kept are no reason."""
    if plan.conflicts:
        return f"Changed since {what}: {named(plan.conflicts)}. So nothing was undone."
    if plan.lost and not partial:
        return f"This cannot be brought back: {reasons(plan.lost)}. So nothing was undone."
    return None


def plan_notes(plan: Plan) -> list[str]:
    """Return notes for a person to read before an undo."""
    notes = [*plan.entry.notes]
    if plan.left:
        notes.append(f"Left where it is: {reasons(plan.left)}.")
    if _is_git(plan.entry):
        notes.append(_GIT_STAYS)
    return notes


def _is_git(entry: Entry) -> bool:
    return entry.summary.split(" ")[0] == "git"


@dataclass(frozen=True, slots=True)
class ManyPlans:
    """The undo of several calls."""

    plans: list[Plan]
    """Newest call first."""
    unknown: list[str]
    """Calls of which nothing is kept."""

    def merged(self, tool_id: str) -> Plan:
        """Each path from now to what it was before all the calls, as the plan of one."""
        steps: dict[str, Step] = {}
        own = {plan.entry.id for plan in self.plans}
        notes = dict.fromkeys(note for plan in self.plans for note in plan.entry.notes)
        if any(_is_git(plan.entry) for plan in self.plans):
            notes[_GIT_STAYS] = None
        together = dict.fromkeys(one for plan in self.plans for one in plan.entry.together if one not in own)
        entry = Entry(tool_id, "", "", "", notes=list(notes), together=list(together))
        for plan in self.plans:
            for step in plan.steps:
                known = steps.get(step.path)
                steps[step.path] = step if known is None else replace(known, target=step.target)
        conflicts = dict.fromkeys(path for plan in self.plans for path in plan.conflicts)
        lost = {path: why for plan in reversed(self.plans) for path, why in plan.lost.items() if path not in conflicts}
        left = {path: why for plan in reversed(self.plans) for path, why in plan.left.items()}
        changing = [step for step in steps.values() if not same(step.now, step.target)]
        return Plan(entry, changing, list(conflicts), lost, left)

    def digest(self) -> str:
        return hashlib.sha256("".join(map(plan_digest, self.plans)).encode()).hexdigest()


def plan_many(
    history: UndoHistory, tool_ids: Iterable[str], denied: Callable[[Entry], Mapping[str, str]] | None = None
) -> ManyPlans:
    """Plan the undo of these calls, in the order in which they ended, without those that are undone already."""
    entries = {entry.id: entry for entry in history.entries() if entry.undoes is None}
    wanted = list(tool_ids)
    for tool_id in wanted:
        if tool_id in entries and not entries[tool_id].done:
            history.entry(tool_id)  # raises, in words
    chosen = [entry for entry in reversed(entries.values()) if entry.id in set(wanted) and entry.undoable]
    plans = history.plan_all(chosen) if denied is None else history.plan_all(chosen, denied)
    return ManyPlans(plans, [tool_id for tool_id in wanted if tool_id not in entries])


def holds_texts(step: Step) -> bool:
    """True if a step changes the content of a file, so that texts can be compared."""
    states = [state for state in (step.now, step.target) if state is not None]
    return all(state.kind == "file" for state in states) and not same_content(step)


def texts_of(history: UndoHistory, step: Step, most: int) -> tuple[str | None, str | None] | None:
    """Return a file's text now and after the undo (None: no file); None if one cannot be shown."""
    now, target = (text_in(history.content(state), most) for state in (step.now, step.target))
    if (now is None and step.now is not None) or (target is None and step.target is not None):
        return None
    return now, target


def named(names: Iterable[str]) -> str:
    """List a few names, and the number of others."""
    names = list(names)
    listed = ", ".join(visible(name) for name in names[:MAX_NAMED])
    return f"{listed} and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else listed


def reasons(paths: Mapping[str, str]) -> str:
    """List a few paths with their reasons, and the number of others."""
    return named(f"{path} ({why})" for path, why in paths.items())


def text_in(content: bytes | None, most: int) -> str | None:
    """Decode a text; None if it was not kept, is larger than `most` bytes, or is not text."""
    if content is None or len(content) > most or b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


Forbids = Callable[[str, str], bool]
"""True if the owner's rules deny a path to a tool."""

KeepOff = Mapping[str, Sequence[str]]
"""Paths that the organisation's rules deny, by tool; they come with the request."""


class _Rules:
    """The rules that apply to one undo."""

    def __init__(self, own: Forbids, keep_off: KeepOff) -> None:
        self._own = own
        self._theirs = {tool: Denials(globs) for tool, globs in keep_off.items()}

    def denying(self, path: str, *tools: str) -> str | None:
        """Return whose rules deny a path to one of these tools, or None."""
        if any(self._own(path, tool) for tool in tools):
            return "this machine's"
        if any(tool in self._theirs and self._theirs[tool].forbid(path) for tool in tools):
            return "the organisation's"
        return None


class UndoRefused(CallerError):
    """A plan that is not carried out, with the reason."""

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

    def look(self, tool_id: str, keep_off: KeepOff = _NOTHING) -> UndoPlan:
        """Return what undoing a call would do now. Raises if that cannot be determined, as while a call runs."""
        rules = _Rules(self._forbids, keep_off)
        with self._lock:
            history = self._open()
            with _alone(history):
                return _told(_plan(history, tool_id, rules), lambda step, room: _shown(history, step, room, rules))

    def carry_out(
        self, tool_id: str, digest: str, *, partial: bool, wanted: Callable[[], bool], keep_off: KeepOff = _NOTHING
    ) -> tuple[UndoPlan, str | None]:
        """Undo a call as it was shown; return the plan, and the id of the undo (None: nothing was done).

        `wanted` is called right before the first step: if nobody waits any more, nothing is done.
        """
        rules = _Rules(self._forbids, keep_off)
        with self._lock:
            history = self._open()
            with _alone(history):
                plan = _plan(history, tool_id, rules)
                told = _told(plan)
                if told.plan != digest:
                    raise UndoRefused(CHANGED, told, hint="Look at what it would do now.")
                why = why_not(plan, partial=partial)
                if why is not None:
                    raise UndoRefused(why, told, hint=None if plan.conflicts else _PARTIAL)
                if not wanted():
                    raise UndoRefused("Its time was up before it could begin; nothing was undone.", told)
                done = history.apply(plan)
        return told, done.id if done.changes else None

    def look_all(self, tool_ids: Sequence[str], keep_off: KeepOff = _NOTHING) -> SessionUndoPlan:
        """Return what undoing several calls would do now; `tool_ids` newest first."""
        rules = _Rules(self._forbids, keep_off)
        with self._lock:
            history = self._open()
            with _alone(history):
                many = plan_many(history, tool_ids, lambda entry: _denied(entry, rules))
                return _told_many(many, tool_ids, lambda step, room: _shown(history, step, room, rules))

    def carry_out_all(
        self,
        tool_ids: Sequence[str],
        digest: str,
        undone: list[tuple[UndoPlan, str]],
        *,
        partial: bool,
        wanted: Callable[[], bool],
        keep_off: KeepOff = _NOTHING,
    ) -> SessionUndoPlan:
        """Undo several calls as it was shown, newest first; each that is done is added to `undone` at once, with the id
        of its undo."""
        rules = _Rules(self._forbids, keep_off)
        with self._lock:
            history = self._open()
            with _alone(history):
                many = plan_many(history, tool_ids, lambda entry: _denied(entry, rules))
                told = _told_many(many, tool_ids)
                if told.plan != digest:
                    raise UndoRefused(CHANGED, told, hint="Look at what it would do now.")
                why = why_not(many.merged(tool_ids[-1]), partial=partial, what="these calls")
                if why is not None:
                    raise UndoRefused(why, told, hint=None if told.conflicts else _PARTIAL)
                if not wanted():
                    raise UndoRefused("Its time was up before it could begin; nothing was undone.", told)
                for plan, done in history.apply_all(many.plans):
                    undone.append((_told(plan), done.id))
        return told

    def changes(self) -> UndoList:
        """List files that calls changed, and undos that can be undone; newest first."""
        with self._lock:
            entries = self._open().entries()
        begun = {one.undoes for one in entries if one.undoes is not None and not one.done}
        calls = {one.id for one in entries if one.undoes is None}
        changed = [
            ChangedFile(
                tool_id=one.id, path=_path(path), kind=change_kind(*pair), at=one.at, interrupted=one.id in begun
            )
            for one in reversed(entries)
            if one.undoable and one.undoes is None
            for path, pair in one.changes.items()
            if any(state is not None and state.kind == "file" for state in pair)
        ]
        undone = [
            UndoneCall(undo_id=one.id, paths=[_path(path) for path in one.changes][:MAX_UNDO_FILES], at=one.at)
            for one in reversed(entries)
            if one.undoable and one.undoes in calls
        ]
        return UndoList(changes=changed[:MAX_LISTED_CHANGES], undone=undone[:MAX_LISTED_CHANGES])

    def before(self, tool_id: str, path: str) -> TextBefore:
        """Return the text of a file in `changes` before the call changed it."""
        with self._lock:
            history = self._open()
            entries = (one.changes for one in history.entries() if one.id == tool_id)
            found = next(
                ((name, pair[0]) for one in entries for name, pair in one.items() if _path(name) == path), None
            )
            if found is None or found[1] is None:
                return TextBefore(text=None, shown=True)
            name, state = found
            if self._forbids(name, "read_file"):
                return TextBefore(text=None, shown=False)
            with history.reading():
                text = text_in(history.content(state), 4 * MAX_SHOWN_TEXT)
        return TextBefore(text=text, shown=text is not None)

    def outcome(self, tool_id: str, since: str) -> tuple[str, int, bool] | None:
        """Return the last undo of a call since a time: its id, its number of paths, and True if it finished."""
        with self._lock:
            found = [one for one in self._open().entries() if one.undoes == tool_id and one.at >= since]
        return (found[-1].id, len(found[-1].changes), found[-1].done) if found else None

    def close(self) -> None:
        with self._lock:
            if self._history is not None:
                self._history.close()
                self._history = None

    def _open(self) -> UndoHistory:
        """Open the history on first use and keep it, so that the store is not read again."""
        with readable(self._home):
            self._recorder.recover()
            if self._history is None:
                self._history = UndoHistory(self._paths, self._home)
        return self._history


def _plan(history: UndoHistory, tool_id: str, rules: _Rules) -> Plan:
    """Plan an undo without the paths that the rules deny."""
    entry = history.entry(tool_id)
    return without(history.plan(entry), _denied(entry, rules))


def _denied(entry: Entry, rules: _Rules) -> dict[str, str]:
    # Restoring is writing. A path denied to the call's own tool is not touched in its name either.
    whose = {path: rules.denying(path, "write_file", entry.tool_name) for path in entry.changes}
    return {path: _DENIED.format(who) for path, who in whose.items() if who is not None}


# In the protocol's form


def _told(plan: Plan, shown: Callable[[Step, int], ShownChange] | None = None) -> UndoPlan:
    """Convert a plan to the protocol's form; `shown` adds the texts of a path if there is room."""
    entry, room = plan.entry, MAX_PLAN_TEXT
    until = time.monotonic() + TEXT_SECONDS
    files: list[ShownChange] = []
    for step in sorted(plan.steps, key=path_of)[:MAX_UNDO_FILES]:
        # Calls wait meanwhile, and a text can be crafted so that masking takes long.
        room = room if time.monotonic() < until else 0
        change = _outlined(step) if shown is None else shown(step, room)
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


def _told_many(
    many: ManyPlans, tool_ids: Sequence[str], shown: Callable[[Step, int], ShownChange] | None = None
) -> SessionUndoPlan:
    told = _told(many.merged(tool_ids[-1]), shown)
    values: dict[str, Any] = {
        **dict(told),
        "plan": many.digest(),
        "calls": [plan.entry.id for plan in many.plans][:MAX_UNDO_CALLS],
        "unknown": many.unknown[:MAX_UNDO_CALLS],
    }
    return SessionUndoPlan(**values)


def _shown(history: UndoHistory, step: Step, room: int, rules: _Rules) -> ShownChange:
    """Describe one path with its texts, or with the reason why they are not shown."""
    outlined = _outlined(step)
    if not holds_texts(step):
        return outlined
    if secret_name(step.path):
        return _unshown(outlined, SECRET)
    whose = rules.denying(step.path, "read_file")
    if whose is not None:
        return _unshown(outlined, _NOT_READ.format(whose))
    if room <= 0:
        return _unshown(outlined, _TOO_MUCH)
    texts = texts_of(history, step, MAX_SHOWN_TEXT)
    masked = None if texts is None else [None if text is None else mask_text(text, cover_key) for text in texts]
    if masked is None or any(len(text or "") > 2 * MAX_SHOWN_TEXT for text in masked):
        return _unshown(outlined, NO_TEXT)
    before, after = masked
    if len(before or "") + len(after or "") > room:
        return _unshown(outlined, _TOO_MUCH)
    if before == after:
        outlined = _unshown(outlined, _MASKED)
    return outlined.model_copy(update={"before": before, "after": after})


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
                # Polling, on a thread of its own: a call of another process sends no event when it ends.
                time.sleep(_PAUSE)
        yield


def plan_digest(plan: Plan) -> str:
    """Hash everything a plan would do and leave; it changes if any path does."""
    value = {
        "id": plan.entry.id,
        "steps": sorted([step.path, _key(step.now), _key(step.target)] for step in plan.steps),
        "conflicts": sorted(plan.conflicts),
        "lost": sorted(plan.lost),
        "left": sorted(plan.left),
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _key(state: State | None) -> list[Any]:
    """Return the parts of a state that matter to a person: not its times, unless no content was kept."""
    if state is None:
        return []
    known = state.digest or (list(state.stamp) if state.kind == "file" else "")
    return [state.kind, state.mode, list(state.owner), known, state.target or ""]


def _outlined(step: Step) -> ShownChange:
    """Describe one path without its texts."""
    kind = change_kind(step.now, step.target)
    return ShownChange(path=_path(step.path), kind=kind, note=_told_words(_kind_words(step)) or None)


def _kind_words(step: Step) -> str:
    """Describe a path that is not a file, or whose mode changes."""
    states = [state for state in (step.now, step.target) if state is not None]
    words = [_thing(state) for state in states] if any(state.kind != "file" for state in states) else []
    said = " becomes ".join(dict.fromkeys(words))
    return "; ".join(part for part in (said, mode_words(step)) if part)


def _thing(state: State) -> str:
    if state.kind == "link":
        return f"a link to {mask_text(visible(state.target or ''))!r}"
    return "a file" if state.kind == "file" else "a directory" if state.kind == "directory" else "something else"


def _unshown(change: ShownChange, why: str) -> ShownChange:
    return change.model_copy(update={"unshown": _told_words(why)})


def _notes(plan: Plan) -> list[str]:
    notes = plan_notes(plan)
    counts = (("would change", plan.steps), ("changed since", plan.conflicts), ("cannot be brought back", plan.lost))
    more = [f"{len(paths)} {what}" for what, paths in counts if len(paths) > MAX_UNDO_FILES]
    if more:
        # First, so that it is not cut off if there are too many notes.
        notes.insert(0, f"Not all paths are listed: {', '.join(more)}.")
    return notes


def _paths(paths: Iterable[str]) -> list[str]:
    return [_path(path) for path in sorted(paths)[:MAX_UNDO_FILES]]


def _path(path: str) -> str:
    return visible(path)[:_MAX_PATH]


def _told_words(text: str) -> str:
    return visible(text)[:_MAX_TOLD]
