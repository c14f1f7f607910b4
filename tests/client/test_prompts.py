"""The terminal prompt through a real pseudo-terminal: what is shown, and what counts as an answer."""

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from assent.client import Answer, Question, TerminalPrompt
from assent.protocol.states import RiskLevel
from assent.protocol.verdicts import Finding, VerdictLevel


class Terminal:
    """A pseudo-terminal: `type` is the person, `screen` what they see."""

    def __init__(self) -> None:
        self.person, self.program = os.openpty()
        os.set_blocking(self.person, False)
        self.output = os.fdopen(os.dup(self.program), "w")
        console = Console(file=self.output, markup=False, emoji=False, highlight=False, force_terminal=True, width=80)
        self.prompt = TerminalPrompt(self.program, console)
        self.screen = ""

    def type(self, text: str) -> None:
        os.write(self.person, text.encode())

    def look(self) -> str:
        try:
            while data := os.read(self.person, 65536):
                self.screen += data.decode("utf-8", "replace")
        except (BlockingIOError, OSError):
            pass
        return self.screen

    async def until(self, text: str, times: int = 1) -> None:
        async with asyncio.timeout(10):
            while self.look().count(text) < times:
                await asyncio.sleep(0.005)

    def close(self) -> None:
        self.output.close()
        for descriptor in (self.person, self.program):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
async def terminal() -> AsyncIterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def question(event: Any, seconds: float = 300) -> Question:
    loop = asyncio.get_running_loop()
    return Question(event=event, closed=loop.create_future(), until=loop.time() + seconds)


async def answer(terminal: Terminal, event: Any, *typed: str) -> Answer | None:
    """Ask, and type each line once the prompt waits for it."""
    asking = asyncio.create_task(terminal.prompt.ask(question(event)))
    for number, text in enumerate(typed, start=1):
        await terminal.until("to deny: ", number)
        terminal.type(text)
    async with asyncio.timeout(10):
        return await asking


@pytest.mark.promise("L4")
async def test_it_says_what_why_how_risky_and_how_long(terminal: Terminal, request_event: Any) -> None:
    asked = await answer(terminal, request_event(), "a\n")
    assert asked == Answer(allow=True)
    for part in ("MEDIUM", "write_file", "Write 3 bytes to 'a.txt'", "Writes a text file.", "5:00", "network: none"):
        assert part in terminal.look()
    await answer(terminal, request_event(network=True, agent_id=None), "a\n", "a\n")
    assert "it may use the network" in terminal.look()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("allow\n", Answer(allow=True)),
        (" a \n", Answer(allow=True)),
        ("d\n", Answer(allow=False)),
        ("deny\n", Answer(allow=False)),
        ("d use another file\n", Answer(allow=False, reason="use another file")),
    ],
)
async def test_medium_takes_short_answers(terminal: Terminal, request_event: Any, typed: str, expected: Answer) -> None:
    assert await answer(terminal, request_event(), typed) == expected


@pytest.mark.promise("A")
async def test_high_takes_the_whole_word(terminal: Terminal, request_event: Any) -> None:
    event = request_event(risk_level=RiskLevel.HIGH)
    assert await answer(terminal, event, "a\n", "y\n", "ALLOW\n", "allow\n") == Answer(allow=True)
    assert terminal.look().count("Type `allow` to allow") == 4


@pytest.mark.promise("A")
@pytest.mark.parametrize(
    "garbage", ["\n", "   \n", "yes\n", "y\n", "allow it\n", "a a\n", "\x1b[Aallow\n", "al\u200blow\n"]
)
async def test_anything_else_is_no_answer(terminal: Terminal, request_event: Any, garbage: str) -> None:
    assert await answer(terminal, request_event(), garbage, "d\n") == Answer(allow=False)


@pytest.mark.promise("A")
async def test_the_end_of_input_is_no_answer(terminal: Terminal, request_event: Any) -> None:
    assert await answer(terminal, request_event(), "\x04") is None
    await terminal.until("stays open elsewhere")


@pytest.mark.promise("A")
async def test_a_terminal_that_went_away_is_no_answer(terminal: Terminal, request_event: Any) -> None:
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event())))
    await terminal.until("to deny: ")
    os.close(terminal.person)
    # What is printed then goes nowhere, which is not this test's matter.
    terminal.prompt._console = Console(quiet=True)
    async with asyncio.timeout(10):
        assert await asking is None


@pytest.mark.promise("A")
@pytest.mark.parametrize("early", ["allow\n", "allow\nallow\n", "allow"])
async def test_what_was_typed_before_the_question_appeared_is_thrown_away(
    terminal: Terminal, request_event: Any, early: str
) -> None:
    terminal.type(early)
    assert await answer(terminal, request_event(), "d too early\n") == Answer(allow=False, reason="too early")


@pytest.mark.promise("A")
async def test_a_line_begun_in_one_question_does_not_answer_the_next(terminal: Terminal, request_event: Any) -> None:
    first = question(request_event())
    asking = asyncio.create_task(terminal.prompt.ask(first))
    await terminal.until("to deny: ")
    terminal.type("allo")
    first.closed.set_result("Denied by bob.")
    assert await asking is None
    await terminal.until("Denied by bob.")
    assert await answer(terminal, request_event(), "w\n", "w\n", "d\n") == Answer(allow=False)


@pytest.mark.promise("A")
async def test_a_question_that_is_over_is_not_shown(terminal: Terminal, request_event: Any) -> None:
    over = question(request_event())
    over.closed.set_result("Allowed.")
    assert await terminal.prompt.ask(over) is None
    assert terminal.look() == ""


@pytest.mark.promise("A")
async def test_nothing_shown_can_move_the_cursor_or_pass_for_a_line_of_ours(
    terminal: Terminal, request_event: Any
) -> None:
    evil = "\x1b]52;c;eA==\x07\x1b[2J\x9b31m\r\u202e\u200b"
    event = request_event(
        tool_name=f"write{evil}",
        description=f"Harmless{evil}\nType `a` to allow",
        tool_params={f"path{evil}": f"a{evil}", "content": "x\n  why: it is harmless", "args": [evil]},
        findings=[Finding(level=VerdictLevel.HIGH, reason=f"because{evil}", rule="x")],
        agent_id=f"agent{evil}",
    )
    await answer(terminal, event, "d\n")
    shown = terminal.look()
    for raw in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\u200b", "\x07"):
        assert raw not in shown
    assert "\n  why: it is harmless" not in shown.replace("\r", "")
    assert "\x1b[31m" not in shown
    assert "  |   why: it is harmless" in shown


async def test_a_sentence_is_said_safely(terminal: Terminal) -> None:
    terminal.prompt.say("It ended \x1b[2J[bold]here[/bold].")
    await terminal.until("[bold]here[/bold].")
    assert "\x1b[2J" not in terminal.look()


async def test_the_loop_goes_on_while_a_person_thinks(terminal: Terminal, request_event: Any) -> None:
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event())))
    await terminal.until("to deny: ")
    terminal.type("al")
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asking.done()
    terminal.type("low\n")
    assert await asking == Answer(allow=True)


async def test_a_prompt_needs_a_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing, os.fdopen(os.dup(terminal.program), "r") as tty:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert TerminalPrompt.here() is None
        monkeypatch.setattr(sys, "stdin", tty)
        monkeypatch.setattr(sys, "stderr", tty)
        assert isinstance(TerminalPrompt.here(), TerminalPrompt)


async def test_input_that_is_no_terminal_is_read_too(request_event: Any) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        prompt = TerminalPrompt(reading, Console(quiet=True))
        prompt._readable(asyncio.Queue())
        asking = asyncio.create_task(prompt.ask(question(request_event())))
        await asyncio.sleep(0)
        os.write(writing, b"d\n")
        assert await asking == Answer(allow=False)
        with pytest.raises(termios.error):
            termios.tcflush(reading, termios.TCIFLUSH)
    finally:
        os.close(reading)
        os.close(writing)


async def test_input_that_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    TerminalPrompt(descriptor, Console(quiet=True))._readable(lines)
    os.close(descriptor)
    assert lines.get_nowait() is None
