"""An undo in words: what becomes of a path, why nothing is undone, what of a file can be shown.

Shared by `byleave undo` and by the plan a client gives the server (`undo_plans`), so that both say the same of the same
plan. It looks at plans and at what a history kept, opens no file of a workspace and decides nothing about one. Names
are escaped where they cannot be seen; contents are not masked here.
"""

import contextlib
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

from byleave.protocol.changes import ChangeKind
from byleave.protocol.errors import ToolFailure
from byleave.workspace.paths import visible

from .restoring import UndoHistory
from .snapshots import State
from .steps import Plan, Step

MAX_NAMED = 10
SECRET = "not shown: it may hold secrets"  # noqa: S105 - a remark, not a secret
NO_TEXT = "not shown: large, or no text"
CHANGED = "Something changed while you decided; nothing was undone."
_GIT_STAYS = "git's own state (commits, branches, what is staged) is left as it is."


@contextlib.contextmanager
def readable(home: Path) -> Generator[None]:
    """What the disk says against reading what was kept, in words."""
    try:
        yield
    except OSError as error:
        raise ToolFailure(
            f"What calls changed here cannot be read: {error.strerror}.", hint=f"look at {home / 'undo'}"
        ) from error


def change_kind(before: State | None, after: State | None) -> ChangeKind:
    """What happens to a path that goes from one state to another."""
    if before is None:
        return ChangeKind.CREATE
    return ChangeKind.DELETE if after is None else ChangeKind.CHANGE


def mode_words(step: Step) -> str:
    """What becomes of a path's mode; empty where it stays."""
    if step.now is None or step.target is None or step.now.mode == step.target.mode or step.target.kind == "link":
        return ""
    return f"mode {step.now.mode:o} becomes {step.target.mode:o}"


def same_content(step: Step) -> bool:
    """Whether a file keeps its content: only its mode goes back."""
    return step.now is not None and step.target is not None and step.now.digest == step.target.digest


def why_not(plan: Plan, *, partial: bool) -> str | None:
    """Why a plan is not carried out, or None. `partial`: what was not kept may stay as it is."""
    if plan.conflicts:
        return f"Changed since this call: {named(plan.conflicts)}. So nothing was undone."
    if plan.lost and not partial:
        return f"This cannot be brought back: {reasons(plan.lost)}. So nothing was undone."
    return None


def plan_notes(plan: Plan) -> list[str]:
    """What a person should know before anything is undone."""
    notes = [*plan.entry.notes]
    if plan.left:
        notes.append(f"Left where it is: {reasons(plan.left)}.")
    if plan.entry.summary.split(" ")[0] == "git":
        # It keeps a state that no undo touches.
        notes.append(_GIT_STAYS)
    return notes


def holds_texts(step: Step) -> bool:
    """Whether there may be two texts to compare: of files, and of those whose content changes."""
    states = [state for state in (step.now, step.target) if state is not None]
    return all(state.kind == "file" for state in states) and not same_content(step)


def texts_of(history: UndoHistory, step: Step, most: int) -> tuple[str | None, str | None] | None:
    """A file's texts now and as it would be, None where there is no file; None for both where one cannot be shown."""
    now, target = (text_in(history.content(state), most) for state in (step.now, step.target))
    if (now is None and step.now is not None) or (target is None and step.target is not None):
        return None
    return now, target


def named(names: Iterable[str]) -> str:
    """A few names, and how many more."""
    names = list(names)
    listed = ", ".join(visible(name) for name in names[:MAX_NAMED])
    return f"{listed} and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else listed


def reasons(paths: Mapping[str, str]) -> str:
    """A few paths with why, and how many more."""
    return named(f"{path} ({why})" for path, why in paths.items())


def text_in(content: bytes | None, most: int) -> str | None:
    """A file's text; None where it was not kept, is larger than `most` bytes, or is no text."""
    if content is None or len(content) > most or b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
