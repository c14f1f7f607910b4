"""The six tools: names, parameters, results and their catalogue.

Parameter models are strict: a string is not a number, an unknown key is an error. An agent that sends `approved` or
`cwd` gets an error. The gate decides what a call may do; this module never does.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from .states import RiskLevel
from .wire import Timestamp, WireModel

MAX_FILE_BYTES = 100 * 1024 * 1024
MAX_OUTPUT_BYTES = 1024 * 1024
MAX_COMMAND_SECONDS = 300
MAX_LISTING = 1000
MAX_MATCHES = 1000
MAX_PATH_CHARACTERS = 4096
MAX_PATTERN_CHARACTERS = 1000
MAX_ARGUMENTS = 256
MAX_ARGUMENT_BYTES = 128 * 1024
MAX_QUERY_CHARACTERS = 400
WEB_RESULTS = 5
MAX_CHANGES = 200

WorkspacePath = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_PATH_CHARACTERS,
        description="Path inside the workspace, relative to it (or absolute below it).",
        examples=["src/app.py"],
    ),
]


class ToolParams(WireModel):
    """Parameters of a tool."""

    model_config = ConfigDict(strict=True)


class ReadFileParams(ToolParams):
    path: WorkspacePath
    start_line: int | None = Field(default=None, ge=1, description="First line to read, counted from 1.")
    end_line: int | None = Field(default=None, ge=1, description="Last line to read, inclusive.")


class WriteFileParams(ToolParams):
    path: WorkspacePath
    content: str = Field(description="The text to write.")
    mode: Literal["write", "append"] = Field(default="write", description="Replace the file, or add to its end.")


class ExecuteCommandParams(ToolParams):
    command: str = Field(
        min_length=1,
        max_length=256,
        description="Name of an allowed command; no path, no shell.",
        examples=["git"],
    )
    args: list[str] = Field(
        default_factory=list,
        description="Arguments, one item each; nothing is expanded.",
        examples=[["status"]],
    )
    timeout: int = Field(default=30, ge=1, le=MAX_COMMAND_SECONDS, description="Seconds it may run.")


class ListDirectoryParams(ToolParams):
    path: WorkspacePath = "."
    recursive: bool = Field(default=False, description="Also list what lies below.")
    pattern: str = Field(
        default="*",
        min_length=1,
        max_length=MAX_PATTERN_CHARACTERS,
        description="Glob on names; hidden files are listed only when it starts with a dot.",
    )


class SearchFilesParams(ToolParams):
    pattern: str = Field(min_length=1, max_length=MAX_PATTERN_CHARACTERS, description="What to look for.")
    path: WorkspacePath = "."
    regex: bool = Field(default=False, description="Take the pattern as a regular expression, not as text.")
    glob: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_PATTERN_CHARACTERS,
        description="Only files whose name fits.",
    )
    case_sensitive: bool = Field(default=True, description="Whether upper and lower case differ.")
    max_results: int = Field(default=MAX_MATCHES, ge=1, le=MAX_MATCHES, description="Stop after so many matches.")


class SearchWebParams(ToolParams):
    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="What to search the web for.")
    max_results: int = Field(default=WEB_RESULTS, ge=1, le=20, description="How many results to return.")


class ToolResult(WireModel):
    """Fields common to all results."""

    success: bool = True
    error: str | None = None


class ReadFileResult(ToolResult):
    content: str
    """The text; base64 when `encoding` is `base64` (pdf and images)."""
    encoding: str
    size: int
    """Bytes of the whole file."""
    start_line: int | None = None
    end_line: int | None = None
    total_lines: int | None = None


class WriteFileResult(ToolResult):
    path: str
    size: int
    """The file's new size in bytes."""
    warnings: list[str] = Field(default_factory=list)
    """Notes for a person, for example that the write cannot be undone."""


class FileChange(WireModel):
    """A file changed by a command."""

    path: str
    change: Literal["created", "changed", "deleted"]


class ExecuteCommandResult(ToolResult):
    """Output of a command. A command that ran to its end is a success, whatever its exit code."""

    stdout: str
    stderr: str
    exit_code: int | None
    """None if we ended it."""
    execution_time: float
    """Seconds."""
    truncated: bool = False
    """True if output was left out of the middle."""
    isolation: dict[str, Any] = Field(default_factory=dict)
    """Isolation that was in fact applied."""
    changed: list[FileChange] = Field(default_factory=list[FileChange], max_length=MAX_CHANGES)
    """The first 200 files that differ afterwards."""
    changed_count: int = 0
    """Number of files that differ afterwards."""
    warnings: list[str] = Field(default_factory=list)
    """Notes for a person: a changed file runs later, or changes could not be detected."""


class DirectoryEntry(WireModel):
    name: str
    path: str
    type: Literal["file", "directory"]
    size: int
    modified: Timestamp


class ListDirectoryResult(ToolResult):
    files: list[DirectoryEntry]
    """The first 1000 entries."""
    total_count: int
    """Number of entries."""
    truncated: bool = False
    """True if there are more entries than `files` holds."""
    at_least: bool = False
    """There may be more than `total_count`: counting them takes too long, or they are too deep."""


class SearchMatch(WireModel):
    path: str
    line_number: int
    line: str


class SearchFilesResult(ToolResult):
    matches: list[SearchMatch]
    total_count: int
    """Number of matches returned."""
    truncated: bool = False
    """True if there are more: the search stops at `max_results`."""
    warnings: list[str] = Field(default_factory=list)
    """Notes, for example which files were left out because of their names."""


class WebHit(WireModel):
    title: str
    url: str
    snippet: str


class SearchWebResult(ToolResult):
    results: list[WebHit]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """Catalogue entry of a tool, as the code sees it."""

    name: str
    script_name: str
    """Name of the tool for JavaScript agents."""
    description: str
    params: type[ToolParams]
    result: type[ToolResult]
    risk_level: RiskLevel
    """Level of an ordinary use; the gate decides each call."""
    timeout_seconds: int
    changes_things: bool
    """True if running it twice could do harm."""

    @property
    def requires_approval(self) -> bool:
        return self.risk_level is not RiskLevel.LOW


TOOLS: dict[str, ToolSpec] = {
    spec.name: spec
    for spec in (
        ToolSpec(
            "read_file",
            "readFile",
            "Read a text file of the workspace, or a range of its lines. PDFs and images come as base64; other binary "
            "files are refused. Up to 100 MB.",
            ReadFileParams,
            ReadFileResult,
            RiskLevel.LOW,
            30,
            changes_things=False,
        ),
        ToolSpec(
            "write_file",
            "writeFile",
            "Write or append text to a file of the workspace. The user is asked first. Up to 100 MB.",
            WriteFileParams,
            WriteFileResult,
            RiskLevel.MEDIUM,
            60,
            changes_things=True,
        ),
        ToolSpec(
            "execute_command",
            "runCommand",
            "Run one allowed command with a list of arguments in the workspace, inside a sandbox, without a shell. "
            "Reading commands run at once; others ask the user first. Output up to 1 MB.",
            ExecuteCommandParams,
            ExecuteCommandResult,
            RiskLevel.HIGH,
            MAX_COMMAND_SECONDS,
            changes_things=True,
        ),
        ToolSpec(
            "list_directory",
            "listDir",
            "List a directory of the workspace, optionally with all that lies below. Up to 1000 entries.",
            ListDirectoryParams,
            ListDirectoryResult,
            RiskLevel.LOW,
            30,
            changes_things=False,
        ),
        ToolSpec(
            "search_files",
            "searchFiles",
            "Search the workspace's files for text or a regular expression. Ignored files are left out. "
            "Up to 1000 matches.",
            SearchFilesParams,
            SearchFilesResult,
            RiskLevel.LOW,
            60,
            changes_things=False,
        ),
        ToolSpec(
            "search_web",
            "searchWeb",
            "Search the web. The query leaves the machine, so the user is asked first.",
            SearchWebParams,
            SearchWebResult,
            RiskLevel.MEDIUM,
            60,
            changes_things=True,
        ),
    )
}

SCRIPT_NAMES: dict[str, str] = {spec.script_name: spec.name for spec in TOOLS.values()}


class ToolInfo(WireModel):
    """Catalogue entry of a tool, as the API shows it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the parameters."""
    requires_approval: bool
    risk_level: RiskLevel
    timeout_seconds: int


class ToolCatalogue(WireModel):
    tools: list[ToolInfo]
    total_count: int


def tool_catalogue() -> ToolCatalogue:
    """Return the answer of `tools/available`."""
    tools = [
        ToolInfo(
            name=spec.name,
            description=spec.description,
            parameters=spec.params.model_json_schema(),
            requires_approval=spec.requires_approval,
            risk_level=spec.risk_level,
            timeout_seconds=spec.timeout_seconds,
        )
        for spec in TOOLS.values()
    ]
    return ToolCatalogue(tools=tools, total_count=len(tools))
