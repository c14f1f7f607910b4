"""A conversation on a terminal: rendered, in order, and nothing in it moves the cursor."""

import asyncio
import io
import re
from typing import TypedDict

import pytest
from rich.console import Console

from byleave.cli import live
from byleave.cli.live import LiveTranscript, outcome
from byleave.client.terminal.screen import Screen
from byleave.protocol.events import (
    ApprovalDecided,
    ChatError,
    ChatMessage,
    ChatText,
    RunUsage,
    ToolFinished,
    ToolOutput,
    ToolQueued,
    ToolStarted,
)
from byleave.protocol.states import ApprovalStatus, ErrorType, ExecutionStatus, RiskLevel
from byleave.protocol.wire import now
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("L5")

CODES = re.compile(r"\x1b\[[0-9;]*m")
ERASED = re.compile(r"[^\n]*\r\x1b\[J")


class InRun(TypedDict):
    timestamp: str
    session_id: str
    run_id: str


IN_RUN: InRun = {"timestamp": now(), "session_id": "sess_1", "run_id": "run_1"}


class Seen:
    """A transcript on a terminal that is a text."""

    def __init__(self, *, colour: bool = True, term: str = "xterm") -> None:
        self.file = io.StringIO()
        console = Console(
            file=self.file,
            force_terminal=True,
            width=60,
            height=24,
            no_color=not colour,
            highlight=False,
            markup=False,
            _environ={"TERM": term},
        )
        self.transcript = LiveTranscript(Screen(console))
        self.transcript._out = console

    @property
    def raw(self) -> str:
        return self.file.getvalue()

    @property
    def text(self) -> str:
        """What stays on the screen."""
        rows = CODES.sub("", ERASED.sub("", self.raw)).split("\n")
        return "\n".join(row.rstrip() for row in rows)


def started(name: str, params: JsonObject, tool_id: str = "exec_1") -> ToolStarted:
    return ToolStarted(**IN_RUN, tool_id=tool_id, tool_name=name, tool_params=params, risk_level=RiskLevel.LOW)


def finished(name: str, result: JsonObject | None, **more: object) -> ToolFinished:
    told: dict[str, object] = {
        "tool_id": "exec_1",
        "tool_name": name,
        "status": ExecutionStatus.COMPLETED,
        "result": result,
        "result_shortened": False,
        "error": None,
        "error_type": None,
        "execution_time_ms": 1500,
    }
    return ToolFinished.model_validate({**IN_RUN, **told, **more})


def output(text: str, tool_id: str = "exec_1") -> ToolOutput:
    return ToolOutput(timestamp=now(), session_id="sess_1", tool_id=tool_id, stream="stdout", text=text, sequence=0)


async def test_markdown_is_rendered_block_by_block_while_it_streams() -> None:
    seen = Seen()
    seen.transcript.begin_turn()
    text = "# Title\n\nSome **bold** words\nin a paragraph.\n\n- one\n- two\n\n"
    text += "```python\nprint(1)\n\nprint(2)\n```\n\nEnd."
    for start in range(0, len(text), 3):
        seen.transcript.show(ChatText(**IN_RUN, text=text[start : start + 3]))
        if start == 48:
            assert "Some bold words in a paragraph." in seen.text, "a block is shown when it is whole"
            assert "one" not in seen.text
    seen.transcript.show(ChatMessage(**IN_RUN, message_id="m", role="agent", content=text))
    seen.transcript.end_turn()
    for part in ("Title", "Some bold words in a paragraph.", " • one\n • two", " print(1)\n\n print(2)", "\nEnd."):
        assert seen.text.count(part) == 1, (part, seen.text)
    assert "**" not in seen.text
    assert "```" not in seen.text
    assert "\x1b[1mbold" in seen.raw


async def test_no_colour_is_written_with_no_color() -> None:
    seen = Seen(colour=False)
    seen.transcript.show(started("read_file", {"path": "a.md"}))
    seen.transcript.show(finished("read_file", {"size": 3}))
    seen.transcript.show(ChatText(**IN_RUN, text="`code`\n\n```python\nprint(1)\n```\n"))
    seen.transcript.end_turn()
    assert not re.search(r"\x1b\[[0-9;]*(3[0-79]|4[0-79]|9[0-7])[0-9;]*m", seen.raw), ascii(seen.raw)


async def test_terminal_that_cannot_move_its_cursor_gets_lines_only() -> None:
    seen = Seen(term="dumb")
    seen.transcript.begin_turn()
    seen.transcript.show(started("read_file", {"path": "a.md"}))
    seen.transcript.show(finished("read_file", {"size": 3}))
    seen.transcript.end_turn()
    assert seen.raw == "✓ Read a.md · 3 bytes · 1.5 s\n"


async def test_links_say_where_they_lead_and_html_is_text() -> None:
    seen = Seen()
    seen.transcript.show(ChatText(**IN_RUN, text="[here](https://evil.example) <b>x</b> <!-- unseen -->"))
    seen.transcript.end_turn()
    assert "here (https://evil.example) <b>x</b> <!-- unseen -->" in seen.text.replace("\n", " ")
    assert "\x1b]8" not in seen.raw


async def test_nothing_from_elsewhere_moves_the_cursor() -> None:
    bad = "\x1b[2J\u202e\x07\r"
    seen = Seen()
    seen.transcript.begin_turn()
    seen.transcript.show(ChatText(**IN_RUN, text=f"a{bad}\n\n```\n{bad}\n```\n"))
    for name in ("read_file", "write_file", "execute_command", "search_files", "search_web", bad):
        params = {"path": bad, "command": bad, "args": [bad], "query": bad, "pattern": bad}
        seen.transcript.show(started(name, params))
        seen.transcript.show(output(bad))
        result = {"size": bad, "exit_code": bad, "total_count": bad, "warnings": [bad], "changed": [{"path": bad}]}
        seen.transcript.show(finished(name, result))
        seen.transcript.show(finished(name, None, status=ExecutionStatus.FAILED, error=bad, error_type="refused"))
    seen.transcript.show(ChatError(**IN_RUN, message=bad, hint=bad))
    seen.transcript.end_turn()
    left = CODES.sub("", seen.raw).replace("\r\x1b[J", "")
    assert not re.findall("[\x1b\u202e\x07\r].{10}", left)
    assert "\\x1b[2J" in left


async def test_call_is_told_once_with_its_result_and_time() -> None:
    seen = Seen()
    seen.transcript.show(started("read_file", {"path": "a b.md"}))
    seen.transcript.show(finished("read_file", {"size": 3}))
    seen.transcript.show(started("execute_command", {"command": "npm", "args": ["test"]}))
    seen.transcript.show(output("one\ntwo\n"))
    seen.transcript.allowed("exec_1", "by grant g")
    seen.transcript.show(finished("execute_command", {"exit_code": 1, "stdout": "one\ntwo\n"}))
    seen.transcript.show(started("execute_command", {"command": "ls"}))
    seen.transcript.show(finished("execute_command", {"exit_code": 0, "stdout": "a\n"}, execution_time_ms=7))
    seen.transcript.show(RunUsage(**IN_RUN, requests=2, input_tokens=1200, output_tokens=80))
    seen.transcript.end_turn()
    assert seen.text == (
        "✓ Read 'a b.md' · 3 bytes · 1.5 s\n"
        "• Run npm test\n  | one\n  | two\n"
        "  ✗ exit code 1 · 1.5 s · by grant g\n"
        "✓ Run ls · exit code 0 · 7 ms\n  | a\n"
        "2 requests, 1,200 tokens in, 80 out\n"
    )


async def test_end_of_a_long_output_is_told_above_how_it_ended() -> None:
    seen = Seen()
    seen.transcript.show(started("execute_command", {"command": "make"}))
    for start in (0, 25):
        seen.transcript.show(output("".join(f"{number}\n" for number in range(start, start + 25))))
    assert seen.transcript._status().plain.startswith("  | 49\n"), "what comes is seen before the end"
    assert seen.text.endswith("  | 18\n  | 19\n")
    seen.transcript.show(finished("execute_command", {"exit_code": 1}))
    assert seen.text.splitlines()[21:24] == [
        "  … 10 lines left out; `byleave history exec_1` shows them",
        "  | 30",
        "  | 31",
    ]
    assert seen.text.endswith("  | 48\n  | 49\n  ✗ exit code 1 · 1.5 s\n")


async def test_long_output_of_a_call_without_an_end_is_kept() -> None:
    seen = Seen()
    seen.transcript.show(started("execute_command", {"command": "make"}))
    seen.transcript.show(output("".join(f"{number}\n" for number in range(21))))
    seen.transcript.end_turn()
    assert seen.text.endswith("  | 19\n  | 20\n")


async def test_output_of_a_failed_call_that_was_not_streamed_stands_above_how_it_ended() -> None:
    seen = Seen()
    seen.transcript.show(started("execute_command", {"command": "make"}))
    stdout = "".join(f"{number}\n" for number in range(29))
    seen.transcript.show(finished("execute_command", {"exit_code": 2, "stdout": stdout, "stderr": "no\n"}))
    told = seen.text.splitlines()
    assert told[:2] == ["• Run make", "  … 10 lines left out; `byleave history exec_1` shows them"]
    assert told[2:3] + told[-3:] == ["  | 10", "  | 28", "  | no", "  ✗ exit code 2 · 1.5 s"]


async def test_calls_at_the_same_time_are_told_apart() -> None:
    seen = Seen()
    for tool_id, name in (("exec_1", "a"), ("exec_2", "b")):
        seen.transcript.show(started("execute_command", {"command": name}, tool_id))
    for tool_id, text in (("exec_1", "1\n"), ("exec_2", "2\n"), ("exec_1", "3\n")):
        seen.transcript.show(output(text, tool_id))
    seen.transcript.show(finished("execute_command", {"exit_code": 0}, tool_id="exec_2"))
    assert seen.text == ("• Run a\n  | 1\n• Run b\n  | 2\n• Run a\n  | 3\n✓ Run b · exit code 0 · 1.5 s\n")


async def test_line_at_the_bottom_says_what_runs_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: clock[0])
    seen = Seen()
    bottom = seen.transcript._status
    seen.transcript.begin_turn()
    assert "Working · 0:00 · Ctrl-C stops it" in bottom().plain
    clock[0] += 17
    assert "Waiting for the model · 0:17" in bottom().plain
    seen.transcript.show(started("execute_command", {"command": "npm", "args": ["test" * 30]}))
    clock[0] += 3
    assert len(bottom()) < 60
    assert "Run npm test" in bottom().plain
    seen.transcript.show(ToolQueued(timestamp=now(), tool_id="exec_1", waits=True, session_id="sess_1"))
    assert "waits for its turn" in bottom().plain
    seen.transcript.show(ToolQueued(timestamp=now(), tool_id="exec_1", waits=False, session_id="sess_1"))
    clock[0] += 2
    assert "0:02" in bottom().plain
    seen.transcript.show(
        ApprovalDecided(
            timestamp=now(),
            approval_id="a",
            tool_ids=["exec_1"],
            status=ApprovalStatus.APPROVED,
            decided_by="person:a",
            reason=None,
            session_id="sess_1",
        )
    )
    assert "0:00" in bottom().plain, "the time in which a person was asked is not the call's"
    seen.transcript.show(started("read_file", {"path": "a"}, "exec_2"))
    assert "and 1 more" in bottom().plain
    seen.transcript.end_turn()
    assert seen.text == "", "nothing of it stays"


async def test_line_at_the_bottom_is_drawn_again_as_time_passes() -> None:
    seen = Seen()
    seen.transcript.begin_turn()
    frames = set[str]()
    async with asyncio.timeout(10):
        while len(frames) < 3:
            frames = set(re.findall(f"[{live.FRAMES}]", seen.raw))
            await asyncio.sleep(0.01)
    seen.transcript.end_turn()


async def test_reason_of_a_denial_is_told_with_its_call() -> None:
    seen = Seen()
    seen.transcript.show(
        ApprovalDecided(
            timestamp=now(),
            approval_id="appr_1",
            tool_ids=["exec_1"],
            status=ApprovalStatus.REJECTED,
            decided_by="person:alice",
            reason="use npm ci",
            session_id="sess_1",
            scope=None,
            grant_id=None,
            decided_from=None,
        )
    )
    rejected = ExecutionStatus.REJECTED
    seen.transcript.show(finished("write_file", None, status=rejected, error_type=ErrorType.REJECTED))
    assert "denied: use npm ci" in seen.text


@pytest.mark.parametrize(
    ("status", "error_type", "error", "told"),
    [
        ("rejected", "rejected", "Rejected by the user: use npm ci", "denied: use npm ci"),
        ("timeout", "approval_timeout", "Approval timeout", "expired without an answer"),
        ("failed", "cancelled", "It was stopped while it ran; what it did until then stays.", "stopped by you"),
        ("failed", "refused", "Command not allowed: rm", "refused: Command not allowed: rm"),
        ("failed", "tool_error", "There is no 'a'.", "failed: There is no 'a'."),
    ],
)
def test_call_that_did_not_complete_is_told_by_its_outcome(status: str, error_type: str, error: str, told: str) -> None:
    event = finished("x", None, status=ExecutionStatus(status), error=error, error_type=ErrorType(error_type))
    assert outcome(event, "use npm ci") == told
    assert outcome(event) == told.replace("denied: use npm ci", "denied")
