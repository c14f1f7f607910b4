"""The terminal prompt through a real pseudo-terminal: what is shown, and what counts as an answer."""

import asyncio
import contextlib
import os
import re
import sys
import termios
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypedDict, Unpack

import pytest
from rich.console import Console
from rich.text import Text

from byleave.client import prompts as prompts_module
from byleave.client.approvals import Answer, Question
from byleave.client.prompts import TerminalPrompt
from byleave.gate.text.render import file_lines
from byleave.protocol.approvals import Inspection, SeenFile, SeenRole
from byleave.protocol.changes import ChangeKind, ShownChange, WriteChange
from byleave.protocol.errors import UnreachableError
from byleave.protocol.events import ApprovalRequested
from byleave.protocol.grants import EVERYTHING_WARNING, GrantPreview, GrantRule, GrantTerms, PastCall, Suggestion
from byleave.protocol.states import ApprovalScope, ExecutionStatus, RiskLevel
from byleave.protocol.verdicts import Finding, VerdictLevel
from byleave.protocol.wire import now

from .conftest import MakeRequest

MENU = "v to see all of it: "
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
OURS = re.compile(
    r"$|MEDIUM write_file$|  [a-z ]+:( |$)|Type |Allow similar calls|  1  |     at most: |Your answer was not taken: |"
    r".*v to see all of it: "
)
THIS = Suggestion(rule=GrantRule(tool="write_file", paths=("src/a.md",)), text="Write 'src/a.md'.", widest="It alone.")
SRC = Suggestion(
    rule=GrantRule(tool="write_file", paths=("src/**",)), text="Write below 'src'.", widest="All below it."
)
WEB = Suggestion(rule=GrantRule(tool="search_web"), text="Search the web.", widest="Any text is sent.")


def script(**changes: object) -> SeenFile:
    known: dict[str, object] = {"path": "x.py", "sha256": "a" * 64, "size": 18, "text": "print(1)\n"}
    return SeenFile.model_validate(known | changes)


def previewing(problem: str | None = None) -> Callable[[GrantRule], Awaitable[GrantPreview]]:
    """A server's answer to what a rule would have covered."""
    refused = PastCall(
        tool_id="exec_9",
        description="Write 'src/x.md'",
        risk_level=RiskLevel.MEDIUM,
        status=ExecutionStatus.REJECTED,
        created_at=now(),
    )

    async def preview(rule: GrantRule) -> GrantPreview:
        return GrantPreview(
            rule=rule,
            text="",
            widest="",
            problem=problem,
            looked_at=9,
            covered=3,
            refused=[refused],
            examples=[],
            sentence="It would have covered 3 of your last 9 calls, among them 1 you refused.",
        )

    return preview


class Fetches(TypedDict, total=False):
    """What a question can fetch from the server."""

    preview: Callable[[GrantRule], Awaitable[GrantPreview]]
    whole: Callable[[bool], Awaitable[str]]
    change: Callable[[], Awaitable[WriteChange]]


class Terminal:
    """A pseudo-terminal: `type` is the person, `screen` what they see."""

    def __init__(self) -> None:
        self.person, self.program = os.openpty()
        os.set_blocking(self.person, False)
        self.output = os.fdopen(os.dup(self.program), "w")
        console = Console(file=self.output, markup=False, emoji=False, highlight=False, force_terminal=True, width=80)
        self.prompt = TerminalPrompt(self.program, console)
        self.screen = ""
        self.read_to = 0

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

    async def expect(self, text: str) -> str:
        """Wait until this appears after what was expected before; what was said up to it, without colour."""
        async with asyncio.timeout(10):
            while text not in COLOUR.sub("", self.look())[self.read_to :]:
                await asyncio.sleep(0.005)
        seen = COLOUR.sub("", self.screen)
        end = seen.index(text, self.read_to) + len(text)
        said, self.read_to = seen[self.read_to : end], end
        return said

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


def question(event: ApprovalRequested, seconds: float = 300, **more: Unpack[Fetches]) -> Question:
    loop = asyncio.get_running_loop()
    return Question(event=event, closed=loop.create_future(), until=loop.time() + seconds, **more)


async def answer(terminal: Terminal, event: ApprovalRequested, *typed: str) -> Answer | None:
    """Ask, and type each line once the question waits for it."""
    asking = asyncio.create_task(terminal.prompt.ask(question(event)))
    for text in typed:
        await terminal.expect(MENU)
        terminal.type(text)
    async with asyncio.timeout(10):
        return await asking


async def walk(terminal: Terminal, asked: Question, *steps: tuple[str, str]) -> Answer | None:
    """Ask, and at each step type once these words have appeared."""
    asking = asyncio.create_task(terminal.prompt.ask(asked))
    for words, text in steps:
        await terminal.expect(words)
        terminal.type(text)
    async with asyncio.timeout(10):
        return await asking


@pytest.mark.promise("L4")
async def test_it_says_what_why_how_risky_and_how_long(terminal: Terminal, request_event: MakeRequest) -> None:
    asked = await answer(terminal, request_event(), "y\n")
    assert asked == Answer(allow=True)
    for part in ("MEDIUM", "write_file", "Write 3 bytes to 'a.txt'", "Writes a text file.", "5:00", "network: none"):
        assert part in terminal.look()
    await answer(terminal, request_event(network=True, agent_id=None), "y\n")
    assert "it may use the network" in terminal.look()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("y\n", Answer(allow=True)),
        ("allow\n", Answer(allow=True)),
        (" yes \n", Answer(allow=True)),
        ("n use another file\n", Answer(allow=False, reason="use another file")),
        ("deny use another file\n", Answer(allow=False, reason="use another file")),
    ],
)
async def test_medium_takes_short_answers(
    terminal: Terminal, request_event: MakeRequest, typed: str, expected: Answer
) -> None:
    assert await answer(terminal, request_event(), typed) == expected


@pytest.mark.parametrize(("typed", "reason"), [("\n", None), ("not here\n", "not here")])
async def test_a_bare_no_is_asked_for_its_reason(
    terminal: Terminal, request_event: MakeRequest, typed: str, reason: str | None
) -> None:
    told = await walk(terminal, question(request_event()), (MENU, "n\n"), ("Enter for no reason: ", typed))
    assert told == Answer(allow=False, reason=reason)


@pytest.mark.promise("A")
async def test_high_takes_a_second_step(terminal: Terminal, request_event: MakeRequest) -> None:
    event = request_event(risk_level=RiskLevel.HIGH, suggestions=[SRC])
    step = "Type yes to run it all the same"
    told = await walk(
        terminal,
        question(event),
        (MENU, "y\n"),
        (step, "y\n"),
        (MENU, "yes\n"),
        (step, "YES\n"),
        (MENU, "s\n"),
        ("asks every time", ""),
        (MENU, "y\n"),
        (step, "yes\n"),
    )
    assert told == Answer(allow=True)
    assert "s to allow similar" not in terminal.look(), "no class is offered from HIGH"


@pytest.mark.promise("A")
async def test_two_lines_typed_at_once_do_not_take_two_steps(terminal: Terminal, request_event: MakeRequest) -> None:
    event = request_event(risk_level=RiskLevel.HIGH)
    step = "anything else goes back: "
    told = await walk(terminal, question(event), (MENU, "y\nyes\n"), (step, "\n"), (MENU, "n no\n"))
    assert told == Answer(allow=False, reason="no")


@pytest.mark.promise("A")
@pytest.mark.parametrize(
    "garbage", ["\n", "   \n", "Y\n", "yy\n", "allow it\n", "y y\n", "\x1b[Ay\n", "al\u200blow\n", "s\n", "a a\n"]
)
async def test_anything_else_is_no_answer(terminal: Terminal, request_event: MakeRequest, garbage: str) -> None:
    assert await answer(terminal, request_event(), garbage, "n no\n") == Answer(allow=False, reason="no")


@pytest.mark.promise("A")
async def test_the_end_of_input_is_no_answer(terminal: Terminal, request_event: MakeRequest) -> None:
    assert await answer(terminal, request_event(), "\x04") is None
    await terminal.until("stays open elsewhere")


@pytest.mark.promise("A")
async def test_a_terminal_that_went_away_is_no_answer(terminal: Terminal, request_event: MakeRequest) -> None:
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event())))
    await terminal.expect(MENU)
    os.close(terminal.person)
    # What is printed then goes nowhere, which is not this test's matter.
    terminal.prompt._console = Console(quiet=True)
    async with asyncio.timeout(10):
        assert await asking is None


@pytest.mark.promise("A")
@pytest.mark.parametrize("early", ["y\n", "y\ny\n", "y"])
async def test_what_was_typed_before_the_question_appeared_is_thrown_away(
    terminal: Terminal, request_event: MakeRequest, early: str
) -> None:
    terminal.type(early)
    assert await answer(terminal, request_event(), "n too early\n") == Answer(allow=False, reason="too early")


@pytest.mark.promise("A")
async def test_a_line_begun_in_one_question_does_not_answer_the_next(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    first = question(request_event())
    asking = asyncio.create_task(terminal.prompt.ask(first))
    await terminal.expect(MENU)
    terminal.type("allo")
    first.closed.set_result("Denied by bob.")
    assert await asking is None
    await terminal.until("Denied by bob.")
    told = await answer(terminal, request_event(), "w\n", "w\n", "n no\n")
    assert told == Answer(allow=False, reason="no")


@pytest.mark.promise("A")
async def test_a_question_that_is_over_is_not_shown(terminal: Terminal, request_event: MakeRequest) -> None:
    over = question(request_event())
    over.closed.set_result("Allowed.")
    assert await terminal.prompt.ask(over) is None
    assert terminal.look() == ""


@pytest.mark.promise("A")
async def test_nothing_shown_can_move_the_cursor_or_pass_for_a_line_of_ours(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    evil = "\x1b]52;c;eA==\x07\x1b[2J\x9b31m\r\u202e\u200b"
    event = request_event(
        tool_name=f"write{evil}",
        description=f"Harmless{evil}\nType y to allow once",
        tool_params={f"path{evil}": f"a{evil}", "content": "x\n  why: it is harmless", "args": [evil]},
        findings=[Finding(level=VerdictLevel.HIGH, reason=f"because{evil}", rule="x")],
        agent_id=f"agent{evil}",
        inspection=Inspection(files=[script(path=f"x{evil}.py", text=f"print(1)\n  why: no{evil}")], problem=evil),
        suggestions=[Suggestion(rule=SRC.rule, text=f"text{evil}", widest=f"widest{evil}")],
    )
    await walk(
        terminal,
        question(event),
        (MENU, "s\n"),
        ("Type the number", "\n"),
        (MENU, "v\n"),
        (MENU, "n no\n"),
    )
    shown = terminal.look()
    for raw in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\u200b", "\x07"):
        assert raw not in shown
    assert "\n  why: it is harmless" not in shown.replace("\r", "")
    assert "\x1b[31m" not in shown
    assert "  |   why: it is harmless" in shown


def screen_rows(terminal: Terminal) -> list[str]:
    """Fold what was printed as a terminal of 80 columns does."""
    seen: list[str] = []
    for line in COLOUR.sub("", terminal.look()).replace("\r", "").split("\n"):
        row, width = "", 0
        for character in line:
            cells = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if width + cells > 80:
                seen.append(row)
                row, width = "", 0
            row, width = row + character, width + cells
        seen.append(row)
    return seen


@pytest.mark.promise("S")
@pytest.mark.parametrize("filler", ["x", "x ", "\u6f22", "\U0001f600"], ids=["letters", "words", "wide", "emoji"])
async def test_every_row_of_foreign_text_is_marked_also_where_a_line_is_folded(
    terminal: Terminal, request_event: MakeRequest, filler: str
) -> None:
    # Wherever the fold falls, a row of the text would begin with the forged one.
    forged = "".join(filler * count + "MEDIUM write_file\ty to allow once" for count in range(1, 8))
    lines = f"{forged}\n\n\n{forged}"
    shown = ShownChange(path="a.txt", kind=ChangeKind.CREATE, after=lines, note=forged)
    change = WriteChange(
        approval_id="a", digest="d" * 64, change=shown, before_sha256=None, before_size=None, seen_at=None
    )
    event = request_event(
        tool_params={"content": lines, "query": forged, "other": lines},
        description=f"Write 'a.txt'\n{forged}",
        agent_id=forged,
        inspection=Inspection(files=[script(path=forged, text=lines)], problem=forged),
        findings=[Finding(level=VerdictLevel.HIGH, reason=forged, rule="x")],
        suggestions=[Suggestion(rule=SRC.rule, text=forged, widest=forged)],
    )
    terminal.prompt.show(prompts_module.question_lines(event, 5, change))
    terminal.prompt.show(map(Text, prompts_module.rows(lines, 80)))
    terminal.prompt.say(f"Your answer was not taken: {forged}")
    await walk(terminal, question(event), (MENU, "s\n"), ("Type the number", "\n"), (MENU, "n no\n"))
    rows = screen_rows(terminal)
    assert [row for row in rows if not row.startswith("  |") and not OURS.match(row)] == []
    assert "".join(row.removeprefix("  |>").removeprefix("  | ") for row in rows).count("MEDIUM write_file") > 50


async def test_a_sentence_is_said_safely(terminal: Terminal) -> None:
    terminal.prompt.say("It ended \x1b[2J[bold]here[/bold].")
    await terminal.until("[bold]here[/bold].")
    assert "\x1b[2J" not in terminal.look()


async def test_the_loop_goes_on_while_a_person_thinks(terminal: Terminal, request_event: MakeRequest) -> None:
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event())))
    await terminal.expect(MENU)
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


async def test_input_that_is_no_terminal_is_read_too(request_event: MakeRequest) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        prompt = TerminalPrompt(reading, Console(quiet=True))
        prompt._readable()
        asking = asyncio.create_task(prompt.ask(question(request_event())))
        await asyncio.sleep(0)
        os.write(writing, b"n no\n")
        assert await asking == Answer(allow=False, reason="no")
        with pytest.raises(termios.error):
            termios.tcflush(reading, termios.TCIFLUSH)
    finally:
        os.close(reading)
        os.close(writing)


async def test_input_that_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    prompt = TerminalPrompt(descriptor, Console(quiet=True))
    prompt._readable()
    os.close(descriptor)
    assert prompt._lines.get_nowait() is None


# Answers that reach further


@pytest.mark.promise("G8")
async def test_similar_calls_are_allowed_by_the_rule_that_was_shown(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    asked = question(request_event(suggestions=[THIS, SRC]), preview=previewing())
    asking = asyncio.create_task(
        walk(
            terminal,
            asked,
            (MENU, "s\n"),
            ("Type the number of one", "2\n"),
            ("Enter keeps the rule", "\n"),
            ("For how long?", "30m\n"),
            ("How many times", "5\n"),
        )
    )
    await terminal.until("Type yes to allow this")
    said = COLOUR.sub("", terminal.look())
    for told in ("src/**", "text files below 'src'", "covered 3 of your last 9", "you refused: Write 'src/x.md'"):
        assert told in said
    last = said[said.index("This would be allowed without asking:") :]
    assert "rule: write_file  src/**" in last, "the exact rule once more"
    assert "for 30 minutes, at most 5 times, in this session only" in last
    terminal.type("yes\n")
    terms = GrantTerms(rule=SRC.rule, expires_in_seconds=1800, max_uses=5)
    assert await asking == Answer(allow=True, scope=ApprovalScope.CLASS, terms=terms)


@pytest.mark.promise("G8")
async def test_a_rule_may_be_narrowed_but_not_made_too_broad(terminal: Terminal, request_event: MakeRequest) -> None:
    edit = "Enter keeps the rule"
    told = await walk(
        terminal,
        question(request_event(suggestions=[SRC])),
        (MENU, "s\n"),
        ("Type the number of one", "1\n"),
        (edit, "**\n"),
        ("covers the whole workspace", ""),
        (edit, "\n"),
        ("needs at least one word", ""),
        (edit, "'src\n"),
        ("quotation mark is not closed", ""),
        (edit, "src/a/*.md docs/*.md\n"),
        (edit, "\n"),
        ("For how long?", "soon\n"),
        ("is no time", ""),
        ("For how long?", "25h\n"),
        ("24 hours", ""),
        ("For how long?", "\n"),
        ("How many times", "0\n"),
        ("is no number", ""),
        ("How many times", "\n"),
        ("Type yes to allow this", "yes\n"),
    )
    assert told is not None
    assert told.terms == GrantTerms(
        rule=GrantRule(tool="write_file", paths=("src/a/*.md", "docs/*.md")), expires_in_seconds=8 * 3600
    )


@pytest.mark.promise("G8")
async def test_every_step_of_a_grant_leads_back_to_the_question(terminal: Terminal, request_event: MakeRequest) -> None:
    first = (MENU, "s\n")
    told = await walk(
        terminal,
        question(request_event(suggestions=[WEB])),
        first,
        ("Type the number of one", "9\n"),
        first,
        ("Type the number of one", "1\n"),
        ("For how long?", "\n"),
        ("How many times", "\n"),
        ("Type yes to allow this", "y\n"),
        (MENU, "n no\n"),
    )
    assert told == Answer(allow=False, reason="no")


@pytest.mark.promise("G8")
async def test_a_grant_needs_no_preview_to_be_given(terminal: Terminal, request_event: MakeRequest) -> None:
    async def unreachable(rule: GrantRule) -> GrantPreview:
        raise UnreachableError("Cannot reach the server.")

    told = await walk(
        terminal,
        question(request_event(suggestions=[WEB]), preview=unreachable),
        (MENU, "s\n"),
        ("Type the number of one", "1\n"),
        ("cannot say what it would have covered", ""),
        ("For how long?", "\n"),
        ("How many times", "\n"),
        ("Type yes to allow this", "yes\n"),
    )
    assert told is not None
    assert told.scope is ApprovalScope.CLASS


@pytest.mark.promise("G8")
async def test_what_the_server_would_not_save_is_not_asked_for(terminal: Terminal, request_event: MakeRequest) -> None:
    edit = "Enter keeps the rule"
    told = await walk(
        terminal,
        question(request_event(suggestions=[SRC]), preview=previewing("The organisation forbids it.")),
        (MENU, "s\n"),
        ("Type the number of one", "1\n"),
        ("The organisation forbids it.", ""),
        (edit, "\n"),
        ("needs at least one word", ""),
        (edit, "\x04"),
    )
    assert told is None


@pytest.mark.promise("G8")
@pytest.mark.parametrize(
    ("typed", "seconds"), [("everything\n", 3600), ("everything 30m\n", 1800), ("everything 2h\n", 7200)]
)
async def test_everything_takes_that_word_after_the_warning(
    terminal: Terminal, request_event: MakeRequest, typed: str, seconds: int
) -> None:
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event())))
    step = "Type everything"
    for refused in ("y\n", "yes\n", "\n", "Everything\n", "everything soon\n"):
        await terminal.expect(MENU)
        terminal.type("a\n")
        assert EVERYTHING_WARNING in (await terminal.expect(step)).replace("\r\n", "")
        await terminal.expect("goes back: ")
        terminal.type(refused)
    await terminal.expect(MENU)
    terminal.type("a\n")
    await terminal.expect(step)
    await terminal.expect("goes back: ")
    terminal.type(typed)
    terms = GrantTerms(expires_in_seconds=seconds, warned=True)
    assert await asking == Answer(allow=True, scope=ApprovalScope.SESSION, terms=terms)


@pytest.mark.promise("G8")
@pytest.mark.parametrize(
    "changes",
    [
        {"session_id": None},
        {"findings": [Finding(level=VerdictLevel.MEDIUM, reason="A secret.", rule="x", always_asks=True)]},
        {"suggestions": []},
    ],
)
async def test_no_class_is_offered_where_none_can_be_given(
    terminal: Terminal, request_event: MakeRequest, changes: dict[str, object]
) -> None:
    await answer(terminal, request_event("approval_1", **({"suggestions": [SRC]} | changes)), "s\n", "n no\n")
    assert "s to allow similar" not in terminal.look()


@pytest.mark.promise("A")
async def test_a_question_decided_elsewhere_ends_a_grant_half_given(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    asked = question(request_event(suggestions=[SRC]), preview=previewing())
    asking = asyncio.create_task(terminal.prompt.ask(asked))
    for words, text in ((MENU, "s\n"), ("Type the number of one", "1\n")):
        await terminal.expect(words)
        terminal.type(text)
    await terminal.expect("Enter keeps the rule")
    asked.closed.set_result("Denied by bob.")
    assert await asking is None
    await terminal.expect("Denied by bob.")


# What would run


async def test_what_would_run_is_shown_with_its_digest(terminal: Terminal, request_event: MakeRequest) -> None:
    files = [
        script(text="print(1)\nprint(2)\n"),
        script(path="data.bin", text=None),
        script(path="none.py", text="", size=0),
        script(path="gone.py", sha256="missing", text=None),
    ]
    event = request_event(
        tool_name="execute_command",
        description="Run 'python' 'x.py' for at most 30 seconds",
        tool_params={"command": "python", "args": ["x.py"], "timeout": 30},
        inspection=Inspection(files=files),
    )
    await answer(terminal, event, "y\n")
    shown = COLOUR.sub("", terminal.look()).replace("\r\n", "\n")
    assert "runs: 'x.py', 18 bytes, sha256 aaaaaaaaaaaa…, which holds:\n  | print(1)\n  | print(2)\n" in shown
    assert "'data.bin', 18 bytes, sha256 aaaaaaaaaaaa…, whose content is not text" in shown
    assert "'none.py', 0 bytes, sha256 aaaaaaaaaaaa…, which is empty" in shown
    assert "'gone.py', which is not there" in shown
    assert "args:" not in shown, "the description has the arguments"


async def test_long_content_is_shortened_and_v_shows_all_of_it(terminal: Terminal, request_event: MakeRequest) -> None:
    content = "\n".join(f"line {number}" for number in range(60)) + "\n" + "x" * 1000

    async def whole(_: bool) -> str:
        return "\n".join(["write_file", f"content: {content}", *file_lines(seen_files)])

    seen_files = [script(text="tail of the script", shortened=True)]
    event = request_event(tool_params={"path": "a.txt", "content": content}, inspection=Inspection(files=seen_files))
    asking = asyncio.create_task(terminal.prompt.ask(question(event, whole=whole)))
    said = await terminal.expect(MENU)
    assert "line 19" in said
    assert "line 20" not in said
    assert "[… 41 more lines: v shows all]" in said
    terminal.type("v\n")
    seen = ""
    while "only its beginning is here" not in seen:
        seen += await terminal.expect(": ")
        if "q stops" in seen[-40:]:
            terminal.type("\n")
    assert all(f"line {number}\r\n" in seen for number in range(60))
    assert seen.count("x") >= 1000
    assert "tail of the script" in seen
    await terminal.expect(MENU)
    terminal.type("v\n")
    await terminal.expect("q stops: ")
    terminal.type("q\n")
    await terminal.expect(MENU)
    terminal.type("n no\n")
    assert await asking == Answer(allow=False, reason="no")


async def test_m_shows_what_is_masked_and_is_offered_only_where_something_is(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    async def whole(reveal: bool) -> str:
        return "API_KEY=aB3xyz99" if reveal else "API_KEY=[masked:key, 8 characters]"

    event = request_event(tool_params={"path": ".env.sample", "content": "API_KEY=[masked:key, 8 characters]"})
    asking = asyncio.create_task(terminal.prompt.ask(question(event, whole=whole)))
    await terminal.expect("v to see all of it, m to see what is masked: ")
    terminal.type("m\n")
    assert "API_KEY=aB3xyz99" in await terminal.expect("m to see what is masked: ")
    terminal.type("n no\n")
    assert await asking == Answer(allow=False, reason="no")


@pytest.mark.promise("X-reveal")
async def test_m_is_offered_for_a_file_that_runs_and_after_v_for_what_only_the_whole_call_shows(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    async def whole(reveal: bool) -> str:
        return "'run.py':\n  | token = ghp_a1B2" if reveal else "'run.py':\n  | token = [masked:token, 8 characters]"

    masked = Inspection(files=[script(text="token = [masked:token, 8 characters]")])
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event(inspection=masked), whole=whole)))
    await terminal.expect("v to see all of it, m to see what is masked: ")
    terminal.type("m\n")
    assert "token = ghp_a1B2" in await terminal.expect("m to see what is masked: ")
    terminal.type("n no\n")
    await asking
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event(), whole=whole)))
    await terminal.expect("v to see all of it: ")
    terminal.type("v\n")
    await terminal.expect("v to see all of it, m to see what is masked: ")
    terminal.type("n no\n")
    await asking


async def test_a_whole_call_that_cannot_be_had_is_said(terminal: Terminal, request_event: MakeRequest) -> None:
    async def whole(_: bool) -> str:
        raise UnreachableError("Cannot reach the server.")

    event = request_event(inspection=Inspection(files=[script(text="print(2)")]))
    told = await walk(
        terminal,
        question(event, whole=whole),
        (MENU, "v\n"),
        ("cannot show more: Cannot reach the server.", ""),
        ("print(2)", ""),
        (MENU, "y\n"),
    )
    assert told == Answer(allow=True)


async def test_a_long_line_is_shortened_and_said_so(terminal: Terminal, request_event: MakeRequest) -> None:
    await answer(terminal, request_event(tool_params={"path": "a.txt", "content": "y" * 5000}), "y\n")
    assert "v shows all of this line" in terminal.look()


# The difference a write would make


def changing(
    before: str | None,
    after: str | None,
    kind: ChangeKind = ChangeKind.CHANGE,
    *,
    note: str | None = None,
    digest: str = "d" * 64,
) -> Callable[[], Awaitable[WriteChange]]:
    async def change() -> WriteChange:
        shown = ShownChange(path="a.txt", kind=kind, before=before, after=after, note=note)
        return WriteChange(
            approval_id="approval_1",
            digest=digest,
            change=shown,
            before_sha256="a" * 64,
            before_size=9,
            seen_at=now(),
        )

    return change


async def shown(terminal: Terminal, event: ApprovalRequested, **more: Unpack[Fetches]) -> str:
    asking = asyncio.create_task(terminal.prompt.ask(question(event, **more)))
    said = await terminal.expect(MENU)
    terminal.type("n no\n")
    async with asyncio.timeout(10):
        await asking
    return said


@pytest.mark.promise("A")
async def test_a_write_is_shown_as_the_difference_it_makes(terminal: Terminal, request_event: MakeRequest) -> None:
    before = "".join(f"line {number}\n" for number in range(1, 101))
    after = before.replace("line 50\n", "line fifty\x1b[2J\n")
    said = await shown(terminal, request_event(), change=changing(before, after, note="Secrets are masked."))
    assert "  | -line 50" in said
    assert "  | +line fifty\\x1b[2J" in said
    assert "  |  line 47" in said
    assert "line 46" not in said
    assert "note: Secrets are masked." in said
    assert "content:" not in said  # once is enough
    assert "@@ -47 +47 @@" in said


async def test_a_new_file_and_a_lost_line_end_are_shown(terminal: Terminal, request_event: MakeRequest) -> None:
    said = await shown(terminal, request_event(), change=changing(None, "a\nb", ChangeKind.CREATE))
    assert "new file:" in said
    assert "  | +b [no line end]" in said
    said = await shown(terminal, request_event(), change=changing("a\n", "a\n"))
    assert "difference: none is to be seen" in said


async def test_a_difference_is_bounded_in_lines_and_width(terminal: Terminal, request_event: MakeRequest) -> None:
    said = await shown(terminal, request_event(), change=changing("x" * 200_000, "y\n" * 100_000))
    assert "1 lines from 1 become 100000" in said
    assert "more lines of the difference: v shows all that would be written" in said
    assert len(said) < 10_000
    tangled = "".join(f"{number % 7}\n" for number in range(900)), "".join(f"{number % 5}\n" for number in range(900))
    async with asyncio.timeout(10):
        assert "difference:" in await shown(terminal, request_event(), change=changing(*tangled))


async def test_a_difference_that_cannot_be_had_is_said_and_the_question_is_put(
    terminal: Terminal, request_event: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> WriteChange:
        raise UnreachableError("The server is gone.")

    async def never() -> WriteChange:
        await asyncio.Event().wait()
        raise AssertionError

    said = await shown(terminal, request_event(), change=broken)
    assert "The server cannot say what would change: The server is gone." in said
    assert "content: abc" in said
    monkeypatch.setattr(prompts_module, "CHANGE_SECONDS", 0.05)
    assert "did not say in time" in await shown(terminal, request_event(), change=never)
    said = await shown(terminal, request_event(), change=changing("a\n", "b\n", digest="e" * 64))
    assert "The server tells of another change" in said
    assert "+b" not in said
    said = await shown(terminal, request_event(), change=changing(None, "b\n", note="It is not text."))
    assert "note: It is not text." in said
    assert "content: abc" in said


async def test_a_question_that_ends_while_the_difference_is_fetched_is_not_put(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    started = asyncio.Event()

    async def never() -> WriteChange:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    asked = question(request_event(), change=never)
    asking = asyncio.create_task(terminal.prompt.ask(asked))
    await started.wait()
    asked.closed.set_result("Denied by bob.")
    async with asyncio.timeout(10):
        assert await asking is None
    assert terminal.look() == ""


async def test_without_a_difference_what_is_replaced_is_still_named(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    file = SeenFile(path="a.txt", role=SeenRole.REPLACES, sha256="a" * 64, size=9000, shortened=True)
    said = await shown(terminal, request_event(inspection=Inspection(files=[file])))
    assert "replaces: 'a.txt', 9000 bytes, sha256 aaaaaaaaaaaa…, which is not shown here" in said
    noted = file.model_copy(update={"note": "It is not text."})
    assert "It is not text." in await shown(terminal, request_event(inspection=Inspection(files=[noted])))
