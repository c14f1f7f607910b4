"""Whole conversations: found, renamed, exported, and what their calls changed.

A call in an export is as the record has it, with secrets masked.
"""

from typing import Literal

from .chat import Message, Session
from .executions import Execution
from .states import ExecutionStatus
from .wire import Name, Timestamp, WireModel

MAX_SEARCH_CHARACTERS = 200


class OfferedFile(WireModel):
    """A file or directory that a message could name."""

    path: str
    type: Literal["file", "directory"]


class FileOffers(WireModel):
    files: list[OfferedFile]
    """The most fitting first."""
    complete: bool
    """False if there are more than were looked through, or than are listed."""


class SessionTitle(WireModel):
    """Request to rename a conversation."""

    title: Name


class SessionDeleted(WireModel):
    success: bool
    message: str


class FoundSession(WireModel):
    """A conversation that a search found."""

    session: Session
    messages: int
    """Number of its messages that hold the text; 0 if only the title does."""
    excerpt: str | None
    """Part of the newest of them."""


class SessionSearch(WireModel):
    """Newest conversations first."""

    found: list[FoundSession]
    complete: bool
    """False if there is more than was looked through, or than is listed."""


class SessionExport(WireModel):
    """A conversation with its messages and calls, oldest first."""

    session: Session
    project_name: str
    exported_at: Timestamp
    messages: list[Message]
    calls: list[Execution]
    """Results that are too long for a list are left out and say `shortened`; `GET /my/tools/{tool_id}` has them."""
    complete: bool
    """False if older messages or calls were left out."""


class SessionText(WireModel):
    """A conversation as a Markdown document."""

    file_name: str
    text: str


class ChangedPath(WireModel):
    """A file that calls of a conversation changed, as the record tells."""

    path: str
    change: Literal["created", "changed", "deleted"]
    tool_ids: list[str]
    """Calls that changed it, oldest first."""


class RanCommand(WireModel):
    """A command of a conversation that could have changed something."""

    tool_id: str
    line: str
    status: ExecutionStatus
    exit_code: int | None
    """None if it did not end by itself."""
    created_at: Timestamp


class SessionChanges(WireModel):
    """What the calls of a conversation changed."""

    session_id: str
    files: list[ChangedPath]
    """By path. A file that a call made and a later one deleted is left out."""
    total_files: int
    """Larger than `files` if there are too many to list, or a command changed more than its record names."""
    commands: list[RanCommand]
    """Oldest first, without those that only read."""
    complete: bool
    """False if there were more calls than are looked at: these are the newest."""
