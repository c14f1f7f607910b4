"""What a conversation looks like: safe, short, and on the right stream."""

import json
from typing import TypedDict

import pytest

from byleave.cli.history import execution_line
from byleave.cli.screen import call_summary, changed_files
from byleave.cli.transcript import (
    JsonTranscript,
    PlainTranscript,
    failure_summary,
    output_lines,
    result_summary,
    weaker_isolation,
)
from byleave.protocol.events import (
    ApprovalRequested,
    ChatError,
    ChatMessage,
    ChatText,
    RunChanged,
    RunUsage,
    ToolFinished,
    ToolOutput,
    ToolStarted,
)
from byleave.protocol.executions import Execution
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, RiskLevel, RunState
from byleave.protocol.wire import now
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("L5")


class InRun(TypedDict):
    timestamp: str
    session_id: str
    run_id: str


IN_RUN: InRun = {"timestamp": now(), "session_id": "sess_1", "run_id": "run_1"}


def finished(name: str, result: JsonObject | None, **more: object) -> ToolFinished:
    told: dict[str, object] = {
        "tool_id": "exec_1",
        "tool_name": name,
        "status": ExecutionStatus.COMPLETED,
        "result": result,
        "result_shortened": False,
        "error": None,
        "error_type": None,
        "execution_time_ms": 1,
    }
    return ToolFinished.model_validate({**IN_RUN, **told, **more})


def test_text_is_streamed_once_and_the_whole_message_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = PlainTranscript()
    for piece in ("It is ", "1.2.3"):
        transcript.show(ChatText(**IN_RUN, text=piece))
    transcript.show(ChatMessage(**IN_RUN, message_id="m", role="agent", content="It is 1.2.3"))
    transcript.show(ChatMessage(**IN_RUN, message_id="n", role="user", content="not repeated"))
    transcript.end_turn()
    assert capsys.readouterr().out == "It is 1.2.3\n"


def test_text_around_calls_is_not_repeated_either(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = PlainTranscript()
    transcript.show(ChatText(**IN_RUN, text="First."))
    transcript.show(finished("read_file", {"size": 3}))
    transcript.show(ChatText(**IN_RUN, text="\n\nThen."))
    transcript.show(ChatMessage(**IN_RUN, message_id="m", role="agent", content="First.\n\nThen."))
    transcript.end_turn()
    assert capsys.readouterr().out.split() == ["First.", "Then."]


def test_message_that_was_not_streamed_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = PlainTranscript()
    transcript.show(ChatText(**IN_RUN, text="First."))
    transcript.show(ChatMessage(**IN_RUN, message_id="m", role="agent", content="Second."))
    transcript.end_turn()
    assert capsys.readouterr().out == "First.\nSecond.\n"


def test_usage_is_told_once_at_the_end_of_a_turn(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = PlainTranscript()
    for requests in (1, 2):
        transcript.show(RunUsage(**IN_RUN, requests=requests, input_tokens=1200 * requests, output_tokens=80))
    transcript.show(ChatText(**IN_RUN, text="Done."))
    transcript.end_turn()
    transcript.end_turn()
    captured = capsys.readouterr()
    assert captured.out == "Done.\n"
    assert captured.err == "2 requests, 2,400 tokens in, 80 out\n"


def test_nothing_from_elsewhere_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "\x1b[2J\u202e\x07"
    transcript = PlainTranscript()
    transcript.show(ChatText(**IN_RUN, text=bad))
    transcript.show(
        ToolStarted(**IN_RUN, tool_id="e", tool_name=bad, tool_params={"path": bad}, risk_level=RiskLevel.LOW)
    )
    for name in ("read_file", "write_file", "execute_command", "list_directory", "search_files", "other"):
        transcript.show(finished(name, {"size": bad, "path": bad, "exit_code": bad, "total_count": bad, "stdout": bad}))
    transcript.show(finished("read_file", None, status=ExecutionStatus.FAILED, error=bad, error_type=ErrorType.REFUSED))
    transcript.show(
        ToolOutput(
            timestamp=IN_RUN["timestamp"],
            session_id=IN_RUN["session_id"],
            tool_id="e",
            stream="stdout",
            text=bad,
            sequence=0,
        )
    )
    transcript.show(ChatError(**IN_RUN, message=bad, hint=bad))
    transcript.show(
        ApprovalRequested(
            timestamp=IN_RUN["timestamp"],
            session_id=IN_RUN["session_id"],
            approval_id=bad,
            tool_id="e",
            tool_name=bad,
            risk_level=RiskLevel.HIGH,
            timeout_seconds=1,
            description=bad,
            tool_params={},
            findings=[],
            network=False,
            digest="d",
            deadline=now(),
            agent_id=None,
        )
    )
    said = "".join(capsys.readouterr())
    assert "\\x1b" in said
    assert not set(said) & set("\x1b\u202e\x07")


def test_output_that_was_streamed_is_not_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = PlainTranscript()
    transcript.show(
        ToolOutput(
            timestamp=IN_RUN["timestamp"],
            session_id=IN_RUN["session_id"],
            tool_id="exec_1",
            stream="stdout",
            text="one\ntwo\n",
            sequence=0,
        )
    )
    transcript.show(finished("execute_command", {"exit_code": 0, "stdout": "one\ntwo\n"}))
    transcript.show(RunChanged(**IN_RUN, state=RunState.DONE))
    assert capsys.readouterr().err == "  | one\n  | two\n← execute_command: exit code 0\n"


def test_long_output_is_shortened_and_says_so() -> None:
    lines = output_lines({"stdout": "".join(f"{number}\n" for number in range(20)), "stderr": "end\n"})
    assert lines == ["… 16 lines before …", "16", "17", "18", "19", "end"]


@pytest.mark.parametrize(
    ("name", "params", "told"),
    [
        ("read_file", {"path": "a b.md"}, "read_file a b.md"),
        ("execute_command", {"command": "git", "args": ["log", "a b"]}, "execute_command git log 'a b'"),
        ("execute_command", {"command": "git", "args": "x"}, "execute_command git"),
        ("search_files", {"pattern": "TODO"}, "search_files TODO in ."),
        ("search_web", {"query": "news"}, "search_web news"),
        ("other", {}, "other"),
    ],
)
def test_call_is_told_in_a_line(name: str, params: JsonObject, told: str) -> None:
    assert call_summary(name, params) == told


@pytest.mark.parametrize(
    ("name", "result", "told"),
    [
        ("list_directory", {"total_count": 3}, "3 entries"),
        ("search_files", {"total_count": 2}, "2 matches"),
        ("search_web", {"results": [{}]}, "1 result"),
        ("search_web", {}, "0 results"),
        ("other", {"a": 1}, "{'a': 1}"),
    ],
)
def test_result_is_told_in_a_line(name: str, result: JsonObject, told: str) -> None:
    assert result_summary(name, result) == told


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = JsonTranscript()
    transcript.show(ChatText(**IN_RUN, text="\u202e\x1bä"))
    transcript.end_turn()
    said = capsys.readouterr().out
    assert said.isascii()
    assert json.loads(said)["text"] == "\u202e\x1bä"


@pytest.mark.parametrize(
    ("status", "error_type", "error", "told"),
    [
        ("rejected", "rejected", "Rejected by the user: no", "Rejected by the user: no"),
        ("failed", "refused", "Command not allowed: rm", "refused: Command not allowed: rm"),
        ("failed", "tool_error", "There is no 'a'.", "failed: There is no 'a'."),
        ("timeout", "approval_timeout", "Approval timeout", "timeout: Approval timeout"),
    ],
)
def test_a_call_that_did_not_complete_is_told_by_its_outcome(
    status: str, error_type: str, error: str, told: str
) -> None:
    event = finished("x", None, status=ExecutionStatus(status), error=error, error_type=ErrorType(error_type))
    assert failure_summary(event) == told


def test_what_a_stopped_command_printed_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    kept = {"exit_code": None, "stdout": "before the stop\n", "stderr": ""}
    told = {
        "status": ExecutionStatus.FAILED,
        "error": "It was stopped while it ran.",
        "error_type": ErrorType.CANCELLED,
    }
    PlainTranscript().show(finished("execute_command", kept, **told))
    assert "before the stop" in capsys.readouterr().err


FULL = {"isolated": True, "backend": "bwrap", "degraded": []}


def test_what_a_command_changed_is_told_with_each_warning(capsys: pytest.CaptureFixture[str]) -> None:
    result = {
        "exit_code": 0,
        "changed": [
            {"path": "package.json", "change": "changed"},
            {"path": "a, b", "change": "created"},
            {"path": "old\x1b[2J", "change": "deleted"},
        ],
        "changed_count": 3,
        "warnings": ["It changed 'package.json'. npm runs\n\u202eits scripts.", "Another."],
        "isolation": FULL,
    }
    for status in (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED):
        PlainTranscript().show(finished("execute_command", result, status=status, error="late"))
        said = capsys.readouterr().err.splitlines()[1:]
        assert said == [
            r"  changed 3 files: package.json, 'a, b' (created), 'old\x1b[2J' (deleted)",
            r"  warning: It changed 'package.json'. npm runs \u{202e}its scripts.",
            "  warning: Another.",
        ]


def test_warning_of_a_write_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"path": "a.md", "size": 2, "warnings": ["It cannot be undone."]}
    PlainTranscript().show(finished("write_file", result))
    assert capsys.readouterr().err == "← write_file: a.md, now 2 bytes\n  warning: It cannot be undone.\n"


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({}, ""),
        ({"changed": [], "changed_count": 0}, ""),
        ({"changed": "x", "changed_count": "y"}, ""),
        ({"changed": [{"path": "a", "change": "changed"}], "changed_count": 1}, "changed 1 file: a"),
        (
            {"changed": [{"path": str(n), "change": "created"} for n in range(7)], "changed_count": 300},
            "changed 300 files: 0 (created), 1 (created), 2 (created), 3 (created), 4 (created), 295 more",
        ),
        ({"changed": ["junk", {}]}, "changed 1 file: None (None)"),
    ],
)
def test_changed_files_are_told_in_a_line(result: JsonObject, told: str) -> None:
    assert changed_files(result) == told


@pytest.mark.parametrize(
    ("isolation", "told"),
    [
        ({}, ""),
        (None, ""),
        (FULL, ""),
        (
            {"isolated": False, "backend": "none", "degraded": ["There is no bwrap."]},
            "It ran without isolation. There is no bwrap.",
        ),
        (
            {"isolated": True, "backend": "landlock", "degraded": []},
            "isolation is weaker than it should be: It was held by landlock alone",
        ),
        ({**FULL, "degraded": ["No\x07 filter."]}, r"isolation is weaker than it should be: No\x07 filter"),
        ({**FULL, "degraded": ["One: a, b.", "Two."]}, "isolation is weaker than it should be: One (1 more)"),
    ],
)
def test_isolation_is_told_where_it_is_weaker_than_full(isolation: object, told: str) -> None:
    assert weaker_isolation(isolation) == told


def test_the_same_weak_isolation_is_told_once_and_none_at_all_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    weak, weaker = {**FULL, "degraded": ["As root."]}, {**FULL, "degraded": ["As root.", "No limit."]}
    none = {"isolated": False, "backend": "none", "degraded": ["There is no bwrap."]}
    transcript = PlainTranscript()
    for isolation in (weak, weak, weaker, none, none):
        transcript.show(finished("execute_command", {"exit_code": 0, "isolation": isolation}))
        transcript.end_turn()
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("  ")] == [
        "  isolation is weaker than it should be: As root",
        "  isolation is weaker than it should be: As root (1 more)",
        "  It ran without isolation. There is no bwrap.",
        "  It ran without isolation. There is no bwrap.",
    ]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"status": "completed", "approved_by": "person:u"}, "done      Write a.md · medium risk · approved by you"),
        ({"status": "completed", "approved_by": "rule:user.1"}, "done      Write a.md · medium risk · by rule user.1"),
        ({"status": "completed", "result": {"exit_code": 2}}, "exit 2    Write a.md · medium risk"),
        ({"status": "rejected", "error_type": "rejected"}, "denied    Write a.md · medium risk"),
        ({"status": "failed", "error_type": "refused"}, "refused   Write a.md · medium risk"),
        ({"status": "failed", "error_type": "cancelled"}, "stopped   Write a.md · medium risk"),
        ({"status": "timeout"}, "expired   Write a.md · medium risk"),
        ({"status": "awaiting_approval"}, "waiting   Write a.md · medium risk"),
        ({"status": "pending"}, "pending   Write a.md · medium risk"),
    ],
)
def test_history_tells_a_call_in_words(told: JsonObject, words: str) -> None:
    line = execution_line(executed(**told), {}).plain
    assert line.endswith(f" {words}  exec_1")


def executed(**more: object) -> Execution:
    nothing = dict.fromkeys(Execution.model_fields)
    told: dict[str, object] = {
        "tool_id": "exec_1",
        "user_id": "u",
        "project_id": "p",
        "session_id": "s",
        "digest": "d",
        "created_at": now(),
    }
    told |= {"mode": AgentMode.SANDBOX, "tool_name": "write_file", "tool_params": {"path": "a.md"}}
    told |= {"risk_level": RiskLevel.MEDIUM, "requires_approval": True, "reasons": []}
    return Execution.model_validate({**nothing, **told, **more})


def test_history_tells_what_a_call_changed() -> None:
    result = {"changed": [{"path": "package.json", "change": "changed"}], "warnings": ["npm runs\x1b its scripts."]}
    execution = executed(result=result, status=ExecutionStatus.COMPLETED)
    lines = execution_line(execution, {}).plain.splitlines()[1:]
    assert lines == ["  changed 1 file: package.json", r"  warning: npm runs\x1b its scripts."]
