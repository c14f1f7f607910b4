"""One call full of tricks, on every surface where a person or a log reader meets it: nothing hidden, nothing obeyed."""

import asyncio
import io
import json
import logging
import os
import re
from collections.abc import Iterator
from typing import TypeVar

import pytest
import structlog
from rich.console import Console
from typer.testing import CliRunner

from byleave.cli.main import app
from byleave.cli.process import set_up_logging
from byleave.cli.screen import shortened, shown
from byleave.cli.transcript import PlainTranscript
from byleave.client.approvals import Question
from byleave.client.terminal.prompt import TerminalPrompt
from byleave.gate import Gate, describe, shown_params
from byleave.gate.text.characters import hidden_in_prose
from byleave.gate.text.render import full_text
from byleave.protocol.events import ApprovalRequested, ToolFinished, ToolOutput, ToolStarted
from byleave.protocol.states import ExecutionStatus, RiskLevel
from byleave.protocol.verdicts import Finding, Verdict, VerdictLevel
from byleave.protocol.wire import now
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("S")

TRICKS = {
    "clear the screen": "\x1b[2J\x1b[H",
    "title": "\x1b]0;ls\x07",
    "link": "\x1b]8;;https://evil.example\x1b\\ok\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "carriage return": "\rRun 'ls'",
    "backspaces": "rm\b\bls",
    "c1": "\x9b2J",
    "bidi": "\u202egpj.\u2066x\u2069",
    "zero width": "a\u200bb\u200d\u2060\ufeff",
    "tags": "\U000e0041\U000e0042",
    "variation": "\ufe0f\U000e0100",
    "fillers": "\u180e\u115f\u3164\u00ad\u2800",
    "musical and shorthand": "\U0001d173\U0001bca0",
    "separators": "\u2028\u2029",
}
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3


CODES = re.compile(r"\x1b\[\?2004[hl]|\r\x1b\[J")
"""What the prompt itself writes: how pasted text is told apart, and the menu taken away."""


def assert_plain(text: str) -> None:
    found = hidden_in_prose(text)
    assert found is None, ascii(found)
    assert SECRET not in text


def everything(trick: str) -> ApprovalRequested:
    """A question in which every field that comes from elsewhere holds a trick."""
    bad = f"{trick} --api-key={SECRET}"
    return ApprovalRequested(
        approval_id="appr_1",
        tool_id="exec_1",
        tool_name=f"execute{trick}",
        risk_level=RiskLevel.HIGH,
        timeout_seconds=600,
        description=describe("execute_command", {"command": trick, "args": [bad]}, _verdict(bad)),
        tool_params=shown_params("execute_command", {"command": trick, "args": [bad], f"x{trick}": bad}),
        findings=[Finding(level=VerdictLevel.HIGH, reason=f"because {trick}", rule="x.y")],
        network=False,
        digest="d",
        deadline=now(),
        session_id=None,
        agent_id=f"agent{trick}",
        timestamp=now(),
    )


def _verdict(bad: str) -> Verdict:
    return Gate().judge("execute_command", {"command": "gcc", "args": [bad]}).verdict


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS.keys())
def test_texts_show_what_they_hold(trick: str) -> None:
    event = everything(trick)
    assert_plain(event.description)
    assert_plain(
        full_text(
            f"x{trick}",
            {f"n{trick}": trick, "args": [trick, f"--token={SECRET}"], "content": f"a\n{trick}\n\nKEY={SECRET}"},
        )
    )
    assert_plain(shown(f"a\n{trick}"))
    assert_plain(shortened(f"a\n{trick}"))


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS.keys())
async def test_prompt_on_a_terminal_shows_what_it_holds(trick: str) -> None:
    person, program = os.openpty()
    screen = io.StringIO()
    typed = os.fdopen(os.dup(program), "r")
    prompt = TerminalPrompt(typed, Console(file=screen, markup=False, emoji=False, highlight=False, width=80), 0.01)
    loop = asyncio.get_running_loop()
    question = Question(event=everything(trick), closed=loop.create_future(), until=loop.time() + 60)
    try:
        asking = asyncio.create_task(prompt.ask(question))
        async with asyncio.timeout(10):
            while "deny" not in screen.getvalue():
                await asyncio.sleep(0)
        question.closed.set_result(f"Answered elsewhere{trick}.")
        assert await asking is None
    finally:
        typed.close()
        os.close(person)
        os.close(program)
    assert_plain(CODES.sub("", screen.getvalue()))


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS.keys())
def test_transcript_shows_what_it_holds(trick: str, capsys: pytest.CaptureFixture[str]) -> None:
    transcript = PlainTranscript()
    common: dict[str, str | None] = {"tool_id": "exec_1", "session_id": "s", "run_id": None}
    params = {"command": trick, "args": [trick]}
    transcript.show(_event(ToolStarted, tool_name=f"x{trick}", tool_params=params, risk_level=RiskLevel.LOW, **common))
    transcript.show(_event(ToolOutput, stream="stdout", text=f"{trick}\n", sequence=0, **common))
    result: JsonObject = {"stdout": trick, "stderr": trick, "exit_code": 0}
    result["changed"] = [{"path": f"a{trick}", "change": trick}]
    result["warnings"] = [f"It changed {trick}."]
    result["isolation"] = {"isolated": True, "backend": f"b{trick}", "degraded": [f"Weak {trick}."]}
    ended = {"tool_name": "execute_command", "status": ExecutionStatus.COMPLETED, "result": result}
    transcript.show(_event(ToolFinished, error=None, error_type=None, **ended, **common))
    transcript.show(everything(trick))
    transcript.end_turn()
    captured = capsys.readouterr()
    assert_plain(captured.out + captured.err)


E = TypeVar("E", ToolStarted, ToolOutput, ToolFinished)


def _event(kind: type[E], **fields: object) -> E:
    known = kind.model_fields
    return kind.model_construct(None, **{name: value for name, value in fields.items() if name in known})


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS.keys())
def test_check_shows_what_it_holds(trick: str) -> None:
    call = json.dumps({"command": "git", "args": ["log", trick]})
    answer = CliRunner().invoke(app, ["check", "execute_command", call])
    assert_plain(answer.output)
    assert_plain(CliRunner().invoke(app, ["check", f"x{trick}", "{}"]).output)


@pytest.fixture
def logs(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield capsys
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.promise("C9")
@pytest.mark.parametrize("form", ["", "json"])
@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS.keys())
def test_log_shows_what_it_holds_and_masks(
    trick: str, form: str, logs: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYLEAVE_LOG", form)
    set_up_logging(logging.INFO)
    log = structlog.get_logger("byleave.test")
    log.warning(f"event {trick}", tool=trick, params={"args": [trick, f"--token={SECRET}"]})
    try:
        raise ValueError(f"{trick} {SECRET}")
    except ValueError:
        log.exception("failed")
    written = logs.readouterr().err
    assert "event" in written
    assert "Traceback" in written
    assert_plain(written)
