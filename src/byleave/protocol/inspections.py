"""Inspections: files that a call would run or replace, as read on the user's machine.

The server cannot see those files. Before it asks about `python x.py`, `npm test` or a write, the executing client
reports their content; the approval shows it and is bound to it.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StringConstraints, model_validator

from .changes import MAX_SHOWN_TEXT
from .wire import Digest, Timestamp, WireModel

MAX_SEEN_TEXT = 16 * 1024
MAX_SEEN_FILES = 16
LOOKS_AT_WRITES = "write_file"
"""Value of the `Byleave-Looks` header of a client that answers `tool.inspection_request`. The server asks no other
client for an inspection: the person is asked without one, and is told so.
"""


class SeenRole(StrEnum):
    """Use of a file by the call."""

    RUNS = "runs"
    REPLACES = "replaces"


class SeenFile(WireModel):
    """A file that a call would use, as it is now."""

    # Sent in both directions: without this, the schema would have two names for it.
    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    """Workspace-relative."""
    role: SeenRole = SeenRole.RUNS
    sha256: Digest
    size: StrictInt | None = Field(default=None, ge=0)
    modified_at: Timestamp | None = None
    text: str | None = Field(default=None, max_length=2 * MAX_SHOWN_TEXT)
    """Content that will run, or its beginning; or all content that will be replaced. Secrets are masked."""
    shortened: StrictBool = False
    """The text is incomplete. A long file that would be replaced has none: see `GET /my/approvals/{id}/change`."""
    note: Annotated[str, StringConstraints(max_length=400)] | None = None
    """Reason there is no text: binary, too long, or may hold secrets."""

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        if self.role is SeenRole.RUNS and len(self.text or "") > 2 * MAX_SEEN_TEXT:
            raise ValueError(f"the text of a file that runs is at most {2 * MAX_SEEN_TEXT} characters")
        return self


class Inspection(WireModel):
    """A client's report on the files a call would run or replace."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    files: list[SeenFile] = Field(max_length=MAX_SEEN_FILES)
    problem: Annotated[str, StringConstraints(max_length=400)] | None = None
    """Reason the inspection failed; then nothing is known, and the approval says so."""

    @property
    def bound(self) -> dict[str, str]:
        """Digests of the files, to which the approval is bound."""
        return {file.path: file.sha256 for file in self.files}

    def without_texts(self) -> Self:
        """Return a copy without texts, for an agent: it may only read files under the rules for reading."""
        files = [
            file if file.text is None else file.model_copy(update={"text": None, "shortened": True})
            for file in self.files
        ]
        return self.model_copy(update={"files": files})
