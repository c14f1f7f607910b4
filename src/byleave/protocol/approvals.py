"""Approvals: the inspection of a call's files, the question, its answer, and the digest that binds them.

An inspection is made on the user's machine before anybody is asked. The approval shows it and is bound to it: a file
that changes afterwards stops the call.
"""

import hashlib
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StrictBool, StringConstraints, model_validator

from .changes import MAX_SHOWN_TEXT
from .grants import GrantTerms, Suggestion
from .states import AnsweredFrom, ApprovalScope, ApprovalStatus, RiskLevel
from .verdicts import Finding
from .wire import Count, Digest, JsonObject, Timestamp, Whole, WireModel, canonical_json

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
    size: Count | None = None
    modified_at: Timestamp | None = None
    written_at: Timestamp | None = None
    """Time at which an agent last wrote it; set by the server, whatever a client sends."""
    text: str | None = Field(default=None, max_length=2 * MAX_SHOWN_TEXT)
    """Content that will run, or its beginning; or all content that will be replaced. A question masks its secrets."""
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


class Edit(WireModel):
    """A person's change of a call before they allowed it."""

    edited_by: str
    """`person:alice`."""
    asked: JsonObject
    """Parameters as the agent asked for them, masked and shortened like those beside which they stand."""


Reason = Annotated[str, StringConstraints(max_length=1000)]


class ApprovalRequest(WireModel):
    """The question. `digest` covers the tool, its true parameters and project: what is shown is what runs."""

    id: str
    user_id: str
    project_id: str
    session_id: str | None
    agent_id: str | None
    tool_ids: list[str]
    """Executions that wait for the answer; identical calls share one question."""
    tool_name: str
    tool_params: JsonObject
    """Parameters as shown: secrets masked, long text shortened and marked so."""
    digest: str
    risk_level: RiskLevel
    findings: list[Finding]
    network: bool
    """True if approving grants the network."""
    description: str
    """The call on the first line; each further line is a note to be shown before an answer. The second tells of the
    `edit`, if there was one. Made from the stored parameters, safe to print. Reasons are in `findings`, files in
    `inspection`.
    """
    inspection: Inspection | None = None
    """Files that would run, as the machine sees them; the digest covers them."""
    suggestions: list[Suggestion] = Field(default_factory=list[Suggestion])
    """Rules that could be saved with a yes; none for a call that no rule may cover."""
    edit: Edit | None = None
    """Set if a person changed the call: everything else here is about the changed one."""
    status: ApprovalStatus
    timeout_seconds: int
    created_at: Timestamp
    deadline: Timestamp
    decided_at: Timestamp | None = None
    decided_by: str | None = None
    reason: str | None = None
    scope: ApprovalScope | None = None
    grant_id: str | None = None
    """Grant saved with the answer, or grant that answered."""
    decided_from: AnsweredFrom | None = None
    """Kind of client the person answered from; null if no person did."""


class Decision(WireModel):
    """Outcome of a question: answered, expired (`timeout`) or withdrawn (`cancelled`)."""

    approval_id: str
    status: ApprovalStatus
    decided_by: str | None
    """`person:alice`, `grant:…`; null if nobody answered."""
    decided_from: AnsweredFrom | None
    decided_at: Timestamp
    reason: str | None
    """Reason the person gave for a no."""
    scope: ApprovalScope | None
    """Reach of a yes."""
    grant_id: str | None


class ApprovalList(WireModel):
    approvals: list[ApprovalRequest]
    total_count: int


class WholeCall(WireModel):
    """The complete call of a question that shows only a part."""

    approval_id: str
    text: str
    """The complete call and the files it would run, secrets masked unless revealed, safe to print."""


class ApproveBody(WireModel):
    decision: Literal["approved"]
    """Required: an empty body approves nothing."""
    scope: ApprovalScope = ApprovalScope.ONCE
    """Reach of the answer."""
    terms: GrantTerms | None = None
    """Rule, expiry and number of uses, for a scope wider than this call."""
    digest: str | None = Field(default=None, max_length=64)
    """Digest that was shown; if given, it must match the pending one."""
    calls: Whole = Field(default=1, ge=1)
    """Number of waiting calls that was shown: if more wait now, nothing is approved."""


class RejectBody(WireModel):
    decision: Literal["rejected"] = "rejected"
    reason: Reason | None = None
    """Passed on to the agent."""


class ConfirmBody(WireModel):
    """A decision without the project in the path (R9)."""

    decision: Literal["approved", "rejected"]
    reason: Reason | None = None
    scope: ApprovalScope = ApprovalScope.ONCE
    terms: GrantTerms | None = None
    digest: str | None = Field(default=None, max_length=64)
    calls: Whole = Field(default=1, ge=1)
    """Number of waiting calls that was shown: if more wait now, nothing is approved."""


MAX_EDITED = MAX_SHOWN_TEXT
"""Longest text that can be edited, in characters."""


class EditableCall(WireModel):
    """The parts of a waiting call that a person may change, as they are. Null: not a part of this call, or masked."""

    approval_id: str
    digest: str
    tool_name: str
    content: str | None = None
    line: str | None = None
    """Command line; one that cannot be misread is parsed into the same words again."""
    timeout: int | None = None
    query: str | None = None
    masked: bool = False
    """True if something in it is masked for people: then it is only given with `reveal`."""


class EditBody(WireModel):
    """A person's change of a waiting call. The tool and whatever is left out stay as they are."""

    digest: Digest
    """Digest of the question that was shown."""
    calls: Whole = Field(default=1, ge=1)
    """Number of waiting calls that was shown: if more wait now, nothing is changed."""
    content: str | None = Field(default=None, max_length=MAX_EDITED)
    """For write_file: all of the new content."""
    line: str | None = Field(default=None, max_length=MAX_EDITED)
    """For execute_command: the command line, as typed. It is split into words; there is no shell."""
    timeout: Whole | None = None
    """For execute_command, in seconds."""
    query: str | None = Field(default=None, max_length=4096)
    """For search_web."""


class EditAnswer(WireModel):
    """The changed call was judged and is asked about anew; nothing has run."""

    approval_id: str | None
    """The new question; null while the machine still looks, or if nobody can be asked."""
    tool_ids: list[str]
    message: str


class DecisionAnswer(WireModel):
    success: bool
    approval_id: str
    status: ApprovalStatus
    message: str
    grant_id: str | None = None
    released: list[str] = Field(default_factory=list[str])
    """Other waiting executions that the same answer released."""


def call_digest(tool_name: str, tool_params: JsonObject, project_id: str, bound: JsonObject | None = None) -> str:
    """Digest of one call. `bound` holds what else was shown, such as the content of a script that would run."""
    value = {"tool": tool_name, "params": tool_params, "project": project_id, "bound": bound or {}}
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()
