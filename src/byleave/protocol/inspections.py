"""Inspections: what a call would run or replace, as the machine that will run it sees it.

The server cannot see the user's files. Before it asks about `python x.py`, `npm test` or a write, the client that will
execute looks at them and says what they hold; the approval shows that and is bound to it.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StringConstraints, model_validator

from .changes import MAX_SHOWN_TEXT
from .wire import Digest, Timestamp, WireModel

MAX_SEEN_TEXT = 16 * 1024
MAX_SEEN_FILES = 16
LOOKS_AT_WRITES = "write_file"
"""What a client sends as `Byleave-Looks` with its stream when it answers `tool.inspection_request`. From one that does
not, no look is asked for: a person is asked without one, and told so."""


class SeenRole(StrEnum):
    """What the call would do with a file."""

    RUNS = "runs"
    REPLACES = "replaces"


class SeenFile(WireModel):
    """One file that a call would use, as it is now."""

    # It travels both ways: without this, its schema would have two names.
    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    """From the workspace."""
    role: SeenRole = SeenRole.RUNS
    sha256: Digest
    size: StrictInt | None = Field(default=None, ge=0)
    modified_at: Timestamp | None = None
    text: str | None = Field(default=None, max_length=2 * MAX_SHOWN_TEXT)
    """What will run, or its beginning; or all of what will be replaced. Secrets masked."""
    shortened: StrictBool = False
    """Not all of it is here. Of a long file that would be replaced none is: see `GET /my/approvals/{id}/change`."""
    note: Annotated[str, StringConstraints(max_length=400)] | None = None
    """Why there is no text: it is binary, too long, or may hold secrets."""

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        if self.role is SeenRole.RUNS and len(self.text or "") > 2 * MAX_SEEN_TEXT:
            raise ValueError(f"the text of a file that runs is at most {2 * MAX_SEEN_TEXT} characters")
        return self


class Inspection(WireModel):
    """What a client says of the files a call would run or replace."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    files: list[SeenFile] = Field(max_length=MAX_SEEN_FILES)
    problem: Annotated[str, StringConstraints(max_length=400)] | None = None
    """Why it could not look; then nothing is known, and the approval says so."""

    @property
    def bound(self) -> dict[str, str]:
        """What the approval is bound to: the digest of each file."""
        return {file.path: file.sha256 for file in self.files}

    def without_texts(self) -> Self:
        """The same for an agent: what files hold it learns by reading them, under the rules for that."""
        files = [
            file if file.text is None else file.model_copy(update={"text": None, "shortened": True})
            for file in self.files
        ]
        return self.model_copy(update={"files": files})
