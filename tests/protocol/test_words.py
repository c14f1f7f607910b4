"""Words on the wire: what goes out comes back the same, and what says too much is refused."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from byleave.protocol import errors
from byleave.protocol.approvals import ApproveBody, ConfirmBody, RejectBody
from byleave.protocol.chat import MAX_MESSAGE_CHARACTERS, MessageBody, ProjectBody
from byleave.protocol.events import FEED_EVENT, FeedEvent
from byleave.protocol.executions import ExecuteRequest, FailedReport, OutputChunk, ResultReport, ToolResponse
from byleave.protocol.schema import wire_words
from byleave.protocol.states import ErrorType, ResponseStatus
from byleave.protocol.tools import SCRIPT_NAMES, TOOLS, tool_catalogue
from byleave.protocol.verdicts import Finding, VerdictLevel, verdict_of
from byleave.protocol.wire import WireModel, new_id
from harness.json_values import JsonObject

NOW = "2026-11-15T12:00:00.000Z"
DEADLINE = "2026-11-15T12:05:00.000Z"
FINDING = Finding(level=VerdictLevel.MEDIUM, reason="npm runs scripts", rule="commands.npm").model_dump(mode="json")
RULE = {"tool": "execute_command", "command": ["npm", "install"], "exact": True, "paths": [], "files": {}}

EVENTS: list[JsonObject] = [
    {
        "kind": "tool.approval_request",
        "approval_id": "appr_1",
        "tool_id": "exec_1",
        "tool_name": "execute_command",
        "risk_level": "MEDIUM",
        "timeout_seconds": 300,
        "description": "Run npm install",
        "tool_params": {"command": "npm", "args": ["install"]},
        "findings": [FINDING],
        "network": True,
        "digest": "d" * 64,
        "calls": 1,
        "deadline": DEADLINE,
        "session_id": "ses_1",
        "agent_id": None,
        "inspection": {
            "files": [
                {
                    "path": "x.py",
                    "role": "runs",
                    "sha256": "d" * 64,
                    "size": 9,
                    "modified_at": NOW,
                    "written_at": None,
                    "text": "print(1)",
                    "shortened": False,
                    "note": None,
                }
            ],
            "problem": None,
        },
        "suggestions": [{"rule": RULE, "text": "Run exactly npm install.", "widest": "This very line."}],
        "edit": {"edited_by": "person:alice", "asked": {"command": "npm", "args": ["install", "left-pad"]}},
    },
    {
        "kind": "tool.inspection_request",
        "tool_id": "exec_1",
        "tool_name": "execute_command",
        "tool_params": {"command": "python", "args": ["x.py"]},
        "client_id": "cli_1",
        "session_id": "ses_1",
    },
    {
        "kind": "tool.undo_request",
        "request_id": "undo_1",
        "tool_id": "exec_1",
        "client_id": "cli_1",
        "session_id": "ses_1",
        "plan": None,
        "partial": False,
        "deadline": DEADLINE,
        "keep_off": {"read_file": ["private/**"]},
    },
    {
        "kind": "session.undo_request",
        "request_id": "undo_1",
        "tool_id": "exec_1",
        "tool_ids": ["exec_2", "exec_1"],
        "client_id": "cli_1",
        "session_id": "ses_1",
        "plan": None,
        "partial": False,
        "deadline": DEADLINE,
        "keep_off": {},
    },
    {
        "kind": "tool.undone",
        "tool_id": "exec_1",
        "undo_id": "exec_2",
        "files": 2,
        "undone_by": "person:alice",
        "session_id": "ses_1",
    },
    {
        "kind": "project.machines",
        "machines": [
            {"client_id": "cli_1", "workspace": "/home/a/app", "isolation": "bwrap", "next": True, "editor": None}
        ],
    },
    {"kind": "feed.gap", "oldest": 41},
    {
        "kind": "grant.changed",
        "grant": {
            "id": "grant_1",
            "user_id": "alice",
            "project_id": "proj_1",
            "session_id": "ses_1",
            "agent_id": None,
            "scope": "class",
            "rule": RULE,
            "text": "Run exactly npm install.",
            "status": "active",
            "approval_id": "appr_1",
            "uses": 0,
            "max_uses": 3,
            "created_at": NOW,
            "created_by": "person:alice",
            "expires_at": DEADLINE,
            "revoked_at": None,
            "revoked_by": None,
        },
    },
    {
        "kind": "tool.approval_decided",
        "approval_id": "appr_1",
        "tool_ids": ["exec_1"],
        "status": "rejected",
        "decided_by": "alice",
        "reason": "not now",
        "session_id": None,
        "scope": None,
        "grant_id": None,
        "decided_from": "page",
    },
    {
        "kind": "tool.execution_signal",
        "tool_id": "exec_1",
        "tool_name": "read_file",
        "tool_params": {"path": "a.txt"},
        "digest": "d" * 64,
        "risk_level": "LOW",
        "approval_id": None,
        "approved_by": "risk:LOW",
        "bound": {"x.py": "d" * 64},
        "mode": "sandbox",
        "network": False,
        "deadline": DEADLINE,
        "client_id": "cli_1",
        "session_id": "ses_1",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    },
    {"kind": "tool.cancel_signal", "tool_id": "exec_1", "client_id": "cli_1", "session_id": "ses_1"},
    {"kind": "tool.result_ack", "tool_id": "exec_1", "status": "completed", "session_id": "ses_1"},
    {
        "kind": "tool.started",
        "tool_id": "exec_1",
        "tool_name": "read_file",
        "tool_params": {"path": "a.txt"},
        "risk_level": "LOW",
        "session_id": "ses_1",
        "run_id": None,
        "approved_by": "risk:LOW",
    },
    {
        "kind": "tool.finished",
        "tool_id": "exec_1",
        "tool_name": "read_file",
        "status": "failed",
        "result": None,
        "result_shortened": False,
        "error": "No such file: 'a.txt'",
        "error_type": "tool_error",
        "execution_time_ms": 3,
        "session_id": "ses_1",
        "run_id": "run_1",
        "approved_by": None,
    },
    {"kind": "tool.queued", "tool_id": "exec_1", "waits": True, "session_id": "ses_1"},
    {
        "kind": "tool.output",
        "tool_id": "exec_1",
        "stream": "stderr",
        "text": "warning\n",
        "sequence": 0,
        "session_id": "ses_1",
    },
    {
        "kind": "chat.message",
        "message_id": "msg_1",
        "session_id": "ses_1",
        "run_id": None,
        "role": "user",
        "content": "read package.json",
    },
    {"kind": "chat.text", "session_id": "ses_1", "run_id": "run_1", "text": "The version is"},
    {"kind": "chat.run", "session_id": "ses_1", "run_id": "run_1", "state": "done"},
    {
        "kind": "chat.usage",
        "session_id": "ses_1",
        "run_id": "run_1",
        "requests": 2,
        "input_tokens": 1200,
        "output_tokens": 80,
        "cost_usd": "0.0042",
    },
    {"kind": "chat.session", "session_id": "ses_1", "title": "Release 2", "deleted": False},
    {"kind": "chat.error", "session_id": "ses_1", "run_id": None, "message": "No model.", "hint": None},
]


def _kind(event: JsonObject) -> str:
    return event["kind"]


@pytest.mark.promise("R-events")
@pytest.mark.parametrize("event", EVENTS, ids=_kind)
def test_event_comes_back_as_it_went(event: JsonObject) -> None:
    whole = {**event, "timestamp": NOW}
    read = FEED_EVENT.validate_json(json.dumps(whole))
    assert json.loads(read.model_dump_json()) == whole
    assert FEED_EVENT.validate_json(read.model_dump_json()) == read


@pytest.mark.promise("R-events")
def test_every_kind_of_event_is_tried() -> None:
    union = FEED_EVENT.json_schema()["discriminator"]["mapping"]
    assert sorted(union) == sorted(event["kind"] for event in EVENTS)
    assert FeedEvent is not None


@pytest.mark.promise("R-events")
@pytest.mark.parametrize("event", EVENTS, ids=_kind)
def test_event_without_a_utc_time_is_refused(event: JsonObject) -> None:
    for time in (None, "2026-11-15T12:00:00Z", "2026-11-15T12:00:00.000+01:00", "now", 1763208000):
        with pytest.raises(ValidationError):
            FEED_EVENT.validate_python({**event, "timestamp": time})


@pytest.mark.parametrize("event", EVENTS, ids=_kind)
def test_event_that_says_more_is_refused(event: JsonObject) -> None:
    with pytest.raises(ValidationError):
        FEED_EVENT.validate_python({**event, "timestamp": NOW, "approved": True})


@pytest.mark.parametrize("word", wire_words().values(), ids=lambda word: word.__name__)
def test_word_is_frozen_and_refuses_what_it_does_not_know(word: type[WireModel]) -> None:
    assert word.model_config.get("frozen") is True
    assert word.model_config.get("extra") == "forbid"


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    "body",
    [
        {"project_id": "p", "tool_type": "read_file", "args": {}},
        {"project_id": "p", "tool_name": "read_file", "args": {"path": "a"}},
        {"project_id": "p", "tool_name": "read_file", "tool_params": {}, "approved": True},
        {"project_id": "p", "tool_name": "read_file", "tool_params": {}, "user_id": "bob"},
        {"project_id": "p", "tool_name": "read_file", "tool_params": "path=a"},
        {"project_id": "../p", "tool_name": "read_file", "tool_params": {}},
        {"project_id": "p" * 65, "tool_name": "read_file", "tool_params": {}},
        {"project_id": "p", "tool_name": "x" * 101, "tool_params": {}},
        {"project_id": "p", "tool_name": "read_file", "tool_params": {}, "idempotency_key": ""},
    ],
)
def test_call_in_other_words_is_refused(body: JsonObject) -> None:
    with pytest.raises(ValidationError):
        ExecuteRequest.model_validate(body)


@pytest.mark.promise("W-response")
def test_response_has_the_agreed_fields_and_statuses() -> None:
    response = ToolResponse(tool_id="exec_1", tool_name="read_file", status=ResponseStatus.COMPLETED)
    assert {"tool_id", "tool_name", "status", "result", "error", "approval_id"} <= set(response.model_dump())
    assert [status.value for status in ResponseStatus] == [
        "pending",
        "awaiting_approval",
        "completed",
        "rejected",
        "timeout",
        "failed",
    ]


@pytest.mark.promise("R3")
def test_report_needs_the_form_its_status_names() -> None:
    report: TypeAdapter[ResultReport] = TypeAdapter(ResultReport)
    assert report.validate_python({"status": "completed", "result": {"success": True}}).status == "completed"
    failed = report.validate_python({"status": "failed", "error": "gone", "error_type": "interrupted"})
    assert isinstance(failed, FailedReport)
    assert failed.error_type is ErrorType.INTERRUPTED
    for wrong in (
        {},
        {"status": "done", "result": {}},
        {"status": "completed"},
        {"status": "completed", "result": []},
        {"status": "completed", "error": "x"},
        {"status": "failed"},
        {"status": "failed", "error": None},
        {"status": "completed", "result": {}, "duration_ms": -1},
    ):
        with pytest.raises(ValidationError):
            report.validate_python(wrong)


@pytest.mark.promise("R4", "R5", "R9")
def test_decision_says_which_one_it_is() -> None:
    assert ApproveBody(decision="approved").decision == "approved"
    assert RejectBody(reason="no").decision == "rejected"
    for body, wrong in (
        (ApproveBody, {"decision": "rejected"}),
        (ApproveBody, {"scope": "everything"}),
        (RejectBody, {"decision": "approved"}),
        (RejectBody, {"reason": "x" * 1001}),
        (ConfirmBody, {}),
        (ConfirmBody, {"decision": "maybe"}),
        (ConfirmBody, {"decision": True}),
    ):
        with pytest.raises(ValidationError):
            body.model_validate(wrong)


@pytest.mark.promise("R0", "R1")
def test_names_and_messages_have_bounds() -> None:
    assert ProjectBody(name="  demo ").name == "demo"
    for name in ("", "   ", "x" * 201):
        with pytest.raises(ValidationError):
            ProjectBody(name=name)
    for content in ("", "x" * (MAX_MESSAGE_CHARACTERS + 1)):
        with pytest.raises(ValidationError):
            MessageBody(content=content)
    with pytest.raises(ValidationError):
        OutputChunk(stream="stdout", text="x", sequence=-1)


@pytest.mark.promise("T-catalogue", "X7")
def test_catalogue_lists_the_six_tools() -> None:
    catalogue = tool_catalogue()
    assert catalogue.total_count == 6
    assert [(tool.name, tool.risk_level, tool.requires_approval) for tool in catalogue.tools] == [
        ("read_file", "LOW", False),
        ("write_file", "MEDIUM", True),
        ("execute_command", "HIGH", True),
        ("list_directory", "LOW", False),
        ("search_files", "LOW", False),
        ("search_web", "MEDIUM", True),
    ]
    for tool in catalogue.tools:
        assert tool.description.endswith(".")
        assert tool.parameters["additionalProperties"] is False
        assert tool.timeout_seconds > 0
    assert list(SCRIPT_NAMES) == ["readFile", "writeFile", "runCommand", "listDir", "searchFiles", "searchWeb"]


@pytest.mark.promise("W4", "S1")
@pytest.mark.parametrize(
    ("tool", "params"),
    [
        ("read_file", {}),
        ("read_file", {"path": ""}),
        ("read_file", {"path": 7}),
        ("read_file", {"path": "a" * 4097}),
        ("read_file", {"path": "a", "start_line": 0}),
        ("read_file", {"path": "a", "start_line": "1"}),
        ("read_file", {"path": "a", "approved": True}),
        ("write_file", {"path": "a.txt"}),
        ("write_file", {"path": "a.txt", "content": b"x"}),
        ("write_file", {"path": "a.txt", "content": "x", "mode": "overwrite"}),
        ("execute_command", {"command": ""}),
        ("execute_command", {"command": "ls", "args": "-l"}),
        ("execute_command", {"command": "ls", "args": [1]}),
        ("execute_command", {"command": "ls", "timeout": 301}),
        ("execute_command", {"command": "ls", "timeout": 0}),
        ("execute_command", {"command": "ls", "timeout": True}),
        ("execute_command", {"command": "ls", "cwd": "/"}),
        ("execute_command", {"command": "ls", "env": {}}),
        ("list_directory", {"recursive": "yes"}),
        ("list_directory", {"pattern": ""}),
        ("search_files", {}),
        ("search_files", {"pattern": "x", "max_results": 1001}),
        ("search_web", {"query": ""}),
        ("search_web", {"query": "x" * 401}),
    ],
)
def test_parameters_that_do_not_fit_are_refused(tool: str, params: JsonObject) -> None:
    with pytest.raises(ValidationError):
        TOOLS[tool].params.model_validate(params)


@pytest.mark.promise("T-result")
@pytest.mark.parametrize("tool", TOOLS)
def test_every_result_says_success_and_error(tool: str) -> None:
    fields = TOOLS[tool].result.model_fields
    assert fields["success"].default is True
    assert fields["error"].default is None


def test_strictest_finding_decides() -> None:
    low = Finding(level=VerdictLevel.LOW, reason="reads", rule="a")
    high = Finding(level=VerdictLevel.HIGH, reason="writes", rule="b")
    refuse = Finding(level=VerdictLevel.REFUSE, reason="Command not allowed: rm", rule="c", instead="ask the user")
    assert verdict_of([low, high]).level is VerdictLevel.HIGH
    assert verdict_of([low, high]).level.risk == "HIGH"
    refused = verdict_of([low, refuse, high])
    assert refused.refused
    assert refused.error_type is ErrorType.REFUSED
    assert refused.level.risk == "HIGH"
    assert refused.reasons == ["Command not allowed: rm", "writes", "reads"]
    assert refused.message == "Command not allowed: rm"
    assert refused.findings[0].instead == "ask the user"
    assert verdict_of([refuse], error_type=ErrorType.INVALID).error_type is ErrorType.INVALID


def test_one_finding_that_always_asks_is_enough() -> None:
    plain = Finding(level=VerdictLevel.HIGH, reason="writes", rule="a")
    secret = Finding(level=VerdictLevel.MEDIUM, reason="holds secrets", rule="b", always_asks=True)
    assert not verdict_of([plain]).always_asks
    assert verdict_of([plain, secret]).always_asks


@pytest.mark.promise("C10")
def test_errors_have_their_names_and_say_what_to_do() -> None:
    for name in (
        "ToolTypeError",
        "ConcurrencyLimitError",
        "ToolApprovalTimeout",
        "ExecutionCancelled",
        "PathValidationError",
    ):
        assert issubclass(getattr(errors, name), errors.ByleaveError)
    error = errors.PathValidationError("'../x' lies outside the workspace.", hint="use a path inside it")
    assert str(error) == "'../x' lies outside the workspace.\nhint: use a path inside it"
    assert error.error_type is ErrorType.REFUSED
    assert str(errors.NotFound("No such project.")) == "No such project."
    assert errors.ConflictError("Already decided.", state="approved").state == "approved"


def test_new_ids_say_what_they_name_and_differ() -> None:
    ids = {new_id("exec") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(value.startswith("exec_") for value in ids)
