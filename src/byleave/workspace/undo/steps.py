"""The steps of an undo: what a plan holds, and what is told from the states of a path alone.

Pure: nothing here opens a file or looks at a disk. What acts on the steps is `restoring`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .entries import Entry
from .snapshots import Change, State

BATCH = 2000
BATCH_BYTES = 64 * 1024 * 1024
"""Files that are written before one sync for all of them: they lie there twice until then."""


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
    left: dict[str, str] = field(default_factory=dict[str, str])
    """What the call made and an undo leaves, and why: directories that nobody looked into, pipes, sockets."""


def path_of(step: Step) -> str:
    return step.path


def replaced(step: Step) -> State | None:
    """What is there now and is of the same kind as what takes its place; another kind was removed before."""
    return step.now if step.now is not None and step.target is not None and step.now.kind == step.target.kind else None


def is_content(step: Step) -> bool:
    """Whether a file gets its content back, not its mode alone."""
    if step.target is None or step.target.kind in ("directory", "link"):
        return False
    was = replaced(step)
    return was is None or was.digest != step.target.digest


def batches(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """In order, as many together as may lie beside their places at a time."""
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
    """Why an undo does not touch a path at all, or None."""
    if any(state is not None and state.kind == "git" for state in (before, after)):
        return "git's own state is left alone"
    if before is None and after is not None and after.kind in ("closed", "other"):
        return "nobody looked into it" if after.kind == "closed" else "it is no file, directory or link"
    return None


def is_too_large(current: State | None) -> bool:
    return current is not None and current.kind == "file" and current.digest is None


def is_behind_link(path: str, changes: Mapping[str, Change]) -> bool:
    """Whether above a path a link took a directory's place, or the other way round: behind a link is nothing of it."""
    while path := path.rpartition("/")[0]:
        if {state.kind for state in changes.get(path, ()) if state is not None} == {"directory", "link"}:
            return True
    return False


def half_way(current: State | None, before: State | None, after: State | None, *, tried: bool) -> bool:
    """Whether a path is as an interrupted undo leaves it. `tried`: one began, was to change it, and did not end."""
    if before is not None and after is not None and before.kind != after.kind:
        return tried and _between_kinds(current, before, after)
    if current is None or current.kind != "directory":
        return False
    if before is None:  # it goes when it is empty, whatever its mode
        return after is not None and after.kind == "directory"
    if before.kind != "directory":
        return False
    return current.mode == (0o700 if after is None else before.mode | 0o700)


def _between_kinds(current: State | None, before: State, after: State) -> bool:
    """What took its place is gone, or about to go; or the directory is there again and not yet done."""
    if current is None:
        return True
    if current.kind != "directory":
        return False
    return current.mode == (0o700 if before.kind == "directory" else after.mode | 0o700)
