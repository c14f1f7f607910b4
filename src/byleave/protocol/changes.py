"""Changes: effects of a write or of an undo, as diffs for people.

Both sides of a diff are masked texts; only digests are compared before anything happens. Nothing here reads a file.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictBool, StringConstraints

from .wire import Digest, Identifier, Timestamp, Whole, WireModel

MAX_SHOWN_TEXT = 256 * 1024
MAX_UNDO_FILES = 200
MAX_UNDO_CALLS = 500
"""Most calls of a conversation that are undone together: the newest."""
ShownPath = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
ShownText = Annotated[str, StringConstraints(max_length=2 * MAX_SHOWN_TEXT)]
Note = Annotated[str, StringConstraints(max_length=1000)]


class ChangeKind(StrEnum):
    """Effect on a path."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


class ShownChange(WireModel):
    """A path before and after."""

    # Sent in both directions: without this, the schema would have two names for it.
    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    path: ShownPath
    kind: ChangeKind
    before: ShownText | None = None
    """Current text; null if there is none to show."""
    after: ShownText | None = None
    """Resulting text; null if there is none to show."""
    note: Note | None = None
    """What to know beside the texts: a further change (a mode, a link), or what a write does not show and why."""
    unshown: Note | None = None
    """Reason an undo shows no text (too large, binary, may hold secrets), or no difference in it."""


class WriteChange(WireModel):
    """Effect of the write that waits for a decision (`GET /my/approvals/{approval_id}/change`)."""

    approval_id: str
    digest: str
    """The approval's digest: the diff belongs to exactly this question."""
    change: ShownChange
    before_sha256: Digest | None
    """Content read by the machine; other content at run time is drift, and refused. Null if no machine has looked."""
    before_size: int | None
    seen_at: Timestamp | None
    asked: ShownText | None = None
    """If a person changed the content: `after`, as it would have been by what the agent asked."""


class UndoPlan(WireModel):
    """Preview of an undo, from the machine that ran the call."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    tool_id: Identifier
    plan: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """Digest of the plan; required to carry it out."""
    files: list[ShownChange] = Field(max_length=MAX_UNDO_FILES)
    total_files: Whole = Field(ge=0)
    """Larger than `files` if there are too many to show."""
    conflicts: list[ShownPath] = Field(default_factory=list[str], max_length=MAX_UNDO_FILES)
    """Files changed since the call; nothing can be undone while there are any."""
    lost: dict[ShownPath, Note] = Field(default_factory=dict[str, str], max_length=MAX_UNDO_FILES)
    """Files that were not kept and cannot be restored, with the reason; undoing the rest must be requested."""
    left: list[ShownPath] = Field(default_factory=list[str], max_length=MAX_UNDO_FILES)
    notes: list[Note] = Field(default_factory=list[str], max_length=50)
    together: list[Identifier] = Field(default_factory=list[str], max_length=50)
    """Calls that ran at the same time; some changes may be theirs."""


class UndoBody(WireModel):
    """Request to carry an undo out."""

    plan: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """The plan that was shown."""
    partial: StrictBool = False
    """Undo the rest even if some files are lost."""


class UndoReport(WireModel):
    """A client's answer to `tool.undo_request`."""

    request_id: Identifier
    plan: UndoPlan | None = None
    """The plan, or the result."""
    undo_id: Identifier | None = None
    """Id to redo it by; set if it was carried out and changed something."""
    done: StrictBool = False
    begun: StrictBool = False
    """The undo has begun and takes long: another report follows."""
    problem: Note | None = None
    """Reason it was not done."""


class UndoAnswer(WireModel):
    """Outcome of an undo, or that it is still in progress."""

    tool_id: str
    state: Literal["done", "undoing"] = "done"
    """`undoing`: the machine is not done yet; `tool.undone` on the feed reports the end."""
    undo_id: str | None
    files: int
    message: str


class SessionUndoPlan(UndoPlan):
    """Preview of undoing all calls of a conversation, newest first; each file from now to what it was before them.

    `tool_id` is the oldest of `calls`."""

    calls: list[Identifier] = Field(max_length=MAX_UNDO_CALLS)
    """Calls that would be undone, newest first: not those undone already, nor those that changed nothing."""
    unknown: list[Identifier] = Field(default_factory=list[str], max_length=MAX_UNDO_CALLS)
    """Calls of which the machine keeps nothing: they changed no file, or it is too long ago."""


class CallUndo(WireModel):
    """A call that was undone together with others."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    tool_id: Identifier
    undo_id: Identifier
    files: Whole = Field(ge=0)


class SessionUndoReport(WireModel):
    """A client's answer to `session.undo_request`."""

    request_id: Identifier
    tool_id: Identifier
    """The oldest call that was named."""
    plan: SessionUndoPlan | None = None
    undone: list[CallUndo] = Field(default_factory=list[CallUndo], max_length=MAX_UNDO_CALLS)
    """Calls that were undone, also if it then stopped."""
    done: StrictBool = False
    begun: StrictBool = False
    """It has begun and takes long: another report follows."""
    problem: Note | None = None
    """Reason it was not done, or stopped."""


class SessionUndoAnswer(WireModel):
    """Outcome of undoing a conversation, or that it is still in progress."""

    session_id: str
    state: Literal["done", "undoing"] = "done"
    """`undoing`: the machine is not done yet; each call's `tool.undone` on the feed reports it."""
    undone: list[CallUndo]
    files: int
    message: str
