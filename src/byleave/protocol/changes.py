"""Changes: what a write would do to a file, and what an undo would bring back, as differences people read.

Both sides of a difference are texts with their secrets masked; what is compared before anything happens are digests.
Nothing here reads a file.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StringConstraints

from .wire import Digest, Identifier, Timestamp, WireModel

MAX_SHOWN_TEXT = 256 * 1024
MAX_UNDO_FILES = 200
ShownPath = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
ShownText = Annotated[str, StringConstraints(max_length=2 * MAX_SHOWN_TEXT)]
Told = Annotated[str, StringConstraints(max_length=1000)]


class ChangeKind(StrEnum):
    """What happens to a path."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


class ShownChange(WireModel):
    """One path, before and after."""

    # It travels both ways: without this, its schema would have two names.
    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    path: ShownPath
    kind: ChangeKind
    before: ShownText | None = None
    """The text as it is now; null where there is none to show."""
    after: ShownText | None = None
    """The text as it would be; null where there is none to show."""
    note: Told | None = None
    """Why a text is not shown (too large, no text, may hold secrets), or what else changes (a mode, a link)."""


class WriteChange(WireModel):
    """What the write that waits for a decision would do (`GET /my/approvals/{approval_id}/change`)."""

    approval_id: str
    digest: str
    """The approval's: the difference belongs to exactly this question."""
    change: ShownChange
    before_sha256: Digest | None
    """What the machine read; another content when it runs is drift, and refused. Null: no machine has looked."""
    before_size: int | None
    seen_at: Timestamp | None


class UndoPlan(WireModel):
    """What an undo would do, as the machine that ran the call sees it now."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    tool_id: Identifier
    plan: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """A digest of all of it; carrying it out needs the same one."""
    files: list[ShownChange] = Field(max_length=MAX_UNDO_FILES)
    total_files: StrictInt = Field(ge=0)
    """More than `files` has when there are too many to show."""
    conflicts: list[ShownPath] = Field(default_factory=list[str], max_length=MAX_UNDO_FILES)
    """Changed since the call: nothing can be undone while there is one."""
    lost: dict[ShownPath, Told] = Field(default_factory=dict[str, str], max_length=MAX_UNDO_FILES)
    """What was not kept and cannot be brought back, with why; undoing the rest must be asked for."""
    left: list[ShownPath] = Field(default_factory=list[str], max_length=MAX_UNDO_FILES)
    notes: list[Told] = Field(default_factory=list[str], max_length=50)
    together: list[Identifier] = Field(default_factory=list[str], max_length=50)
    """Calls that ran at the same time; some of this may be their doing."""


class UndoBody(WireModel):
    """Carry an undo out."""

    plan: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """The plan that was shown."""
    partial: StrictBool = False
    """Also when something is lost: undo the rest."""


class UndoReport(WireModel):
    """What a client answers to `tool.undo_request`."""

    request_id: Identifier
    plan: UndoPlan | None = None
    """What it would do, or did."""
    undo_id: Identifier | None = None
    """When it was carried out and changed something: under this name it can be taken back."""
    done: StrictBool = False
    begun: StrictBool = False
    """It was begun and takes long: another report follows."""
    problem: Told | None = None
    """Why not."""


class UndoAnswer(WireModel):
    """How an undo ended, or that it goes on."""

    tool_id: str
    state: Literal["done", "undoing"] = "done"
    """`undoing`: the machine has begun and is not done yet; `tool.undone` on the feed says when it is."""
    undo_id: str | None
    files: int
    message: str
