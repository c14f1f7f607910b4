"""The terminal prompt through a real pseudo-terminal: what is shown, and what counts as an answer."""

import asyncio
import contextlib
import os
import re
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypedDict, Unpack

import pytest
from rich.console import Console

from byleave.client.approvals import Answer, Question
from byleave.client.terminal import prompt as prompt_module
from byleave.client.terminal.prompt import TerminalPrompt
from byleave.client.terminal.question import detail_rows, question_lines
from byleave.client.terminal.words import ago
from byleave.gate.text.differences import unified
from byleave.gate.text.render import file_lines, full_text
from byleave.protocol.approvals import EditableCall, EditAnswer, EditBody, Inspection, SeenFile, SeenRole
from byleave.protocol.changes import ChangeKind, ShownChange, WriteChange
from byleave.protocol.errors import CallerError, UnreachableError
from byleave.protocol.events import ApprovalRequested
from byleave.protocol.grants import EVERYTHING_WARNING, GrantPreview, GrantRule, GrantTerms, PastCall, Suggestion
from byleave.protocol.states import ApprovalScope, ExecutionStatus, RiskLevel
from byleave.protocol.verdicts import Finding, VerdictLevel
from byleave.protocol.wire import later, now
from harness.json_values import JsonObject

from .conftest import MakeRequest

MENU = "expires in "
"""The end of the menu."""
PRESS = prompt_module.PRESS
WHY = "Enter for no reason:"
RULE = "[b] back"
"""The end of the menu below a rule."""
DENY = ((MENU, "n"), (WHY, "no\n"))
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
OURS = re.compile(
    r"$|(Write|Create) a\.txt|  medium risk|  [a-z ]+:( |$)|Allow similar calls|→ 1  |Your answer was not taken: |"
    r"Press one |\[y\] |\[Enter\] |  \[…"
)
THIS = Suggestion(rule=GrantRule(tool="write_file", paths=("src/a.md",)), text="Write 'src/a.md'.", widest="It alone.")
SRC = Suggestion(
    rule=GrantRule(tool="write_file", paths=("src/**",)), text="Write below 'src'.", widest="All below it."
)
WEB = Suggestion(rule=GrantRule(tool="search_web"), text="Search the web.", widest="Any text is sent.")


def script(**changes: object) -> SeenFile:
    known: dict[str, object] = {"path": "x.py", "sha256": "a" * 64, "size": 18, "text": "print(1)\n"}
    return SeenFile.model_validate(known | changes)


NOON = "2026-01-04T12:00:00.000Z"


def minutes_ago(count: int) -> str:
    return later(NOON, -60 * count)


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
    position: Callable[[], tuple[int, int]]
    editable: Callable[[bool], Awaitable[EditableCall]]
    edit: Callable[[EditBody], Awaitable[EditAnswer]]


class Terminal:
    """A pseudo-terminal: `type` is the person, `screen` what they see."""

    def __init__(self) -> None:
        self.person, self.program = os.openpty()
        os.set_blocking(self.person, False)
        self.output = os.fdopen(os.dup(self.program), "w")
        self.input = os.fdopen(os.dup(self.program), "r")
        console = Console(
            file=self.output, markup=False, emoji=False, highlight=False, force_terminal=True, width=80, height=30
        )
        # A menu that is drawn again would be taken for the next one.
        self.prompt = TerminalPrompt(self.input, console, quiet_seconds=0.02, tick_seconds=1000)
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
        async with asyncio.timeout(4):
            while self.look().count(text) < times:
                await asyncio.sleep(0.005)

    async def expect(self, text: str) -> str:
        """Wait until this appears after what was expected before; what was said up to it, without colour."""
        async with asyncio.timeout(4):
            while text not in CODES.sub("", self.look())[self.read_to :]:
                await asyncio.sleep(0.005)
        seen = CODES.sub("", self.screen)
        end = seen.index(text, self.read_to) + len(text)
        said, self.read_to = seen[self.read_to : end], end
        return said

    def close(self) -> None:
        self.output.close()
        self.input.close()
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
    async with asyncio.timeout(4):
        return await asking


async def walk(terminal: Terminal, asked: Question, *steps: tuple[str, str]) -> Answer | None:
    """Ask, and at each step type once these words have appeared."""
    asking = asyncio.create_task(terminal.prompt.ask(asked))
    for words, text in steps:
        await terminal.expect(words)
        terminal.type(text)
    async with asyncio.timeout(4):
        return await asking


@pytest.mark.promise("L4")
async def test_it_says_what_why_how_risky_and_how_long(terminal: Terminal, request_event: MakeRequest) -> None:
    asked = await answer(terminal, request_event(), "y")
    assert asked == Answer(allow=True)
    seen = CODES.sub("", terminal.look())
    for part in ("Write a.txt", "medium risk", "why: Writes a text file.", "expires in 5:00"):
        assert part in seen
    await answer(terminal, request_event(network=True, agent_id=None), "y")
    assert "medium risk · uses the network" in CODES.sub("", terminal.look())


@pytest.mark.parametrize(("typed", "reason"), [("\n", None), ("not here\n", "not here")])
async def test_a_no_is_asked_for_its_reason(
    terminal: Terminal, request_event: MakeRequest, typed: str, reason: str | None
) -> None:
    told = await walk(terminal, question(request_event()), (MENU, "n"), (WHY, typed))
    assert told == Answer(allow=False, reason=reason)


async def test_it_says_which_of_how_many_it_is_and_the_time_that_is_left(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    terminal.prompt.screen._tick_seconds = 0.01
    asked = question(request_event(), seconds=65, position=lambda: (1, 2))
    asking = asyncio.create_task(terminal.prompt.ask(asked))
    await terminal.expect("1 of 2 · expires in 1:05")
    await terminal.expect("expires in 1:04")
    terminal.type("y")
    assert await asking == Answer(allow=True)


@pytest.mark.promise("A")
async def test_high_takes_a_second_step(terminal: Terminal, request_event: MakeRequest) -> None:
    event = request_event(risk_level=RiskLevel.HIGH, suggestions=[SRC])
    step = "anything else goes back:"
    told = await walk(
        terminal,
        question(event),
        (MENU, "y"),
        (step, "y\n"),
        (MENU, "y"),
        (step, "YES\n"),
        (MENU, "s"),
        (PRESS, ""),
        (MENU, "y"),
        (step, "yes\n"),
    )
    assert told == Answer(allow=True)
    assert "similar" not in terminal.look(), "no class is offered from HIGH"


@pytest.mark.promise("A")
async def test_what_is_typed_at_once_does_not_take_two_steps(terminal: Terminal, request_event: MakeRequest) -> None:
    event = request_event(risk_level=RiskLevel.HIGH)
    step = "anything else goes back:"
    told = await walk(terminal, question(event), (MENU, "yyes\n"), (PRESS, ""), (MENU, "y"), (step, "\n"), *DENY)
    assert told == Answer(allow=False, reason="no")


@pytest.mark.promise("A")
async def test_enter_typed_with_s_does_not_take_its_defaults(terminal: Terminal, request_event: MakeRequest) -> None:
    event = request_event(suggestions=[SRC])
    told = await walk(terminal, question(event), (MENU, "s\n"), (PRESS, ""), (MENU, "s"), (RULE, "b"), *DENY)
    assert told == Answer(allow=False, reason="no")


@pytest.mark.promise("A")
@pytest.mark.parametrize(
    "garbage",
    [
        *("\n", "   ", "Y", "N", "yes\n", "why", "\x1b[A", "\x1bOP", "\x1by", "\u200b", "s", "m"),
        *("\x1b[200~y\x1b[201~", "\x1b[200~yes\ny\x1b[201~"),
    ],
    ids=ascii,
)
async def test_anything_else_is_no_answer(terminal: Terminal, request_event: MakeRequest, garbage: str) -> None:
    told = await walk(terminal, question(request_event()), (MENU, garbage), (PRESS, ""), *DENY)
    assert told == Answer(allow=False, reason="no")


@pytest.mark.promise("A")
async def test_no_letter_of_a_word_is_an_answer(terminal: Terminal, request_event: MakeRequest) -> None:
    terminal.prompt.keyboard._quiet_seconds = 0.3
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event())))
    await terminal.expect(MENU)
    for key in "why":
        terminal.type(key)
        for _ in range(10):
            await asyncio.sleep(0)
    await terminal.expect(PRESS)
    await terminal.expect(MENU)
    assert not asking.done()
    terminal.type("y")
    assert await asking == Answer(allow=True)


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
    terminal.prompt.screen.console = Console(quiet=True)
    async with asyncio.timeout(4):
        assert await asking is None


@pytest.mark.promise("A")
@pytest.mark.parametrize("early", ["y\n", "yy", "y"])
async def test_what_was_typed_before_the_question_appeared_is_thrown_away(
    terminal: Terminal, request_event: MakeRequest, early: str
) -> None:
    terminal.type(early)
    told = await walk(terminal, question(request_event()), *DENY)
    assert told == Answer(allow=False, reason="no")


@pytest.mark.promise("A")
async def test_whoever_types_on_while_the_question_appears_does_not_answer_it(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    terminal.prompt.keyboard._quiet_seconds = 0.2
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event())))
    await terminal.expect("why: ")
    for key in "may":
        terminal.type(key)
        await asyncio.sleep(0)
    await terminal.expect(MENU)
    assert not asking.done()
    assert terminal.prompt.typed == "may"
    terminal.type("y")
    assert await asking == Answer(allow=True)


@pytest.mark.promise("A")
async def test_a_line_begun_in_one_question_does_not_answer_the_next(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    first = question(request_event(risk_level=RiskLevel.HIGH))
    asking = asyncio.create_task(terminal.prompt.ask(first))
    await terminal.expect(MENU)
    terminal.type("y")
    await terminal.expect("goes back:")
    terminal.type("ye")
    await terminal.expect("ye")
    first.closed.set_result("Denied by bob.")
    assert await asking is None
    await terminal.expect("Denied by bob.")
    second = question(request_event(risk_level=RiskLevel.HIGH))
    told = await walk(terminal, second, (MENU, "y"), ("goes back:", "s\n"), *DENY)
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
        (MENU, "s"),
        (RULE, "b"),
        (MENU, "v"),
        *DENY,
    )
    shown = terminal.look()
    for raw in ("\x1b]", "\x1b[2J", "\r\x1b[K", "\x9b", "\u202e", "\u200b", "\x07"):
        assert raw not in shown
    assert "\n  why: it is harmless" not in shown.replace("\r", "")
    assert "\x1b[31m" not in shown
    assert "  |   why: it is harmless" in shown


def screen_rows(terminal: Terminal) -> list[str]:
    """Fold what was printed as a terminal of 80 columns does."""
    seen: list[str] = []
    seen_at_last = re.sub(r"[^\n]*\r\x1b\[J", "", terminal.look())  # without what was taken away again
    for line in CODES.sub("", seen_at_last).replace("\r", "").split("\n"):
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
        tool_params={"path": "a.txt", "content": lines, "query": forged, "other": lines},
        description=f"Write 'a.txt'\n{forged}",
        agent_id=forged,
        inspection=Inspection(files=[script(path=forged, text=lines)], problem=forged),
        findings=[Finding(level=VerdictLevel.HIGH, reason=forged, rule="x")],
        suggestions=[Suggestion(rule=SRC.rule, text=forged, widest=forged)],
    )
    terminal.prompt.screen.show(question_lines(event, change, most=100))
    terminal.prompt.screen.show(detail_rows(event, change, lines, 80))
    terminal.prompt.say(f"Your answer was not taken: {forged}")
    await walk(terminal, question(event), (MENU, "s"), (RULE, "b"), (MENU, "y"))
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
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asking.done()
    terminal.type("y")
    assert await asking == Answer(allow=True)


async def test_what_is_said_meanwhile_appears_above_the_menu_and_above_a_line(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event())))
    await terminal.expect(MENU)
    terminal.prompt.say("The server is back.")
    assert "The server is back." in await terminal.expect(MENU)
    terminal.type("n")
    await terminal.expect(WHY)
    terminal.type("bec")
    await terminal.expect("bec")
    terminal.prompt.say("It left again.")
    assert "It left again." in await terminal.expect(f"{WHY} bec")
    terminal.type("ause\n")
    assert await asking == Answer(allow=False, reason="because")


# Answers that reach further


@pytest.mark.promise("G8")
async def test_similar_calls_are_allowed_by_the_rule_that_was_shown(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    asked = question(request_event(suggestions=[THIS, SRC]), preview=previewing())
    steps = (
        (MENU, "s"),
        (RULE, "2"),
        (RULE, "t"),
        ("For how long?", "30m\n"),
        (RULE, "u"),
        ("How many times", "5\n"),
    )
    asking = asyncio.create_task(walk(terminal, asked, *steps, (RULE, "")))
    while "at most 5 times" not in (said := CODES.sub("", terminal.look())) or not said.endswith(RULE):
        await asyncio.sleep(0.005)
    for told in ("src/**", "text files below 'src'", "covered 3 of your last 9", "you denied: Write 'src/x.md'"):
        assert told in said
    last = said[said.rindex("Allow similar calls") :]
    assert "→ 2  Write below 'src'." in last
    assert "rule: write_file  src/**" in last, "the exact rule once more"
    assert "limits: for 30 minutes, at most 5 times, in this conversation only, for agent agent_1 only" in " ".join(
        last.replace("|>", "").split()
    )
    terminal.type("\r")
    terms = GrantTerms(rule=SRC.rule, expires_in_seconds=1800, max_uses=5)
    assert await asking == Answer(allow=True, scope=ApprovalScope.CLASS, terms=terms)


@pytest.mark.promise("G8")
async def test_one_enter_takes_the_narrowest_rule_with_its_usual_limits(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    asked = question(request_event(suggestions=[THIS, SRC]), preview=previewing())
    told = await walk(terminal, asked, (MENU, "s"), ("for 8 hours, any number of times", ""), (RULE, "\r"))
    terms = GrantTerms(rule=THIS.rule, expires_in_seconds=8 * 3600)
    assert told == Answer(allow=True, scope=ApprovalScope.CLASS, terms=terms)


CLEAR = "\x01\x0b"
"""To the beginning of the line, and away with the rest."""


@pytest.mark.promise("G8")
async def test_a_rule_may_be_narrowed_but_not_made_too_broad(terminal: Terminal, request_event: MakeRequest) -> None:
    edit = "path patterns):"
    told = await walk(
        terminal,
        question(request_event(suggestions=[SRC])),
        (MENU, "s"),
        (RULE, "e"),
        (f"{edit} src/**", f"{CLEAR}**\n"),
        ("covers the whole workspace", ""),
        (RULE, "\r"),
        (PRESS, ""),
        (RULE, "e"),
        (edit, f"{CLEAR}\n"),
        ("needs at least one word", ""),
        (edit, "'src\n"),
        ("quotation mark is not closed", ""),
        (f"{edit} 'src", f"{CLEAR}src/a/*.md docs/*.md\n"),
        (RULE, "t"),
        ("For how long?", "soon\n"),
        ("is no time", ""),
        ("For how long?", "25h\n"),
        ("24 hours", ""),
        ("For how long?", "\n"),
        (RULE, "u"),
        ("How many times", "0\n"),
        ("is no number", ""),
        ("How many times", "\n"),
        (RULE, "\r"),
    )
    assert told is not None
    assert told.terms == GrantTerms(
        rule=GrantRule(tool="write_file", paths=("src/a/*.md", "docs/*.md")), expires_in_seconds=8 * 3600
    )


@pytest.mark.promise("G8")
async def test_every_step_of_a_grant_leads_back_to_the_question(terminal: Terminal, request_event: MakeRequest) -> None:
    first = (MENU, "s")
    told = await walk(
        terminal,
        question(request_event(suggestions=[WEB])),
        first,
        (RULE, "b"),
        first,
        (RULE, "9"),
        (PRESS, ""),
        (RULE, "e"),
        (PRESS, ""),
        (RULE, "\x1b"),
        *DENY,
    )
    assert told == Answer(allow=False, reason="no")
    assert "edit rule" not in terminal.look(), "a rule without words or paths"


@pytest.mark.promise("G8")
async def test_a_grant_needs_no_preview_to_be_given(terminal: Terminal, request_event: MakeRequest) -> None:
    async def unreachable(rule: GrantRule) -> GrantPreview:
        raise UnreachableError("Cannot reach the server.")

    told = await walk(
        terminal,
        question(request_event(suggestions=[WEB]), preview=unreachable),
        (MENU, "s"),
        ("cannot say what it would have covered", ""),
        (RULE, "\r"),
    )
    assert told is not None
    assert told.scope is ApprovalScope.CLASS


@pytest.mark.promise("G8")
async def test_what_the_server_would_not_save_cannot_be_allowed(terminal: Terminal, request_event: MakeRequest) -> None:
    told = await walk(
        terminal,
        question(request_event(suggestions=[SRC]), preview=previewing("The organisation forbids it.")),
        (MENU, "s"),
        ("The organisation forbids it.", ""),
        (RULE, "\r"),
        (PRESS, ""),
        (RULE, "b"),
        *DENY,
    )
    assert told == Answer(allow=False, reason="no")
    assert "[Enter]" not in terminal.look()


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
        terminal.type("a")
        said = (await terminal.expect(step)).replace("\r\n  |>", "")
        assert EVERYTHING_WARNING in said
        await terminal.expect("goes back:")
        terminal.type(refused)
    await terminal.expect(MENU)
    terminal.type("a")
    await terminal.expect(step)
    await terminal.expect("goes back:")
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
    event = request_event("approval_1", **({"suggestions": [SRC]} | changes))
    assert await walk(terminal, question(event), (MENU, "s"), (PRESS, ""), *DENY) == Answer(allow=False, reason="no")
    assert "similar" not in terminal.look()


@pytest.mark.promise("A")
async def test_a_question_decided_elsewhere_ends_a_grant_half_given(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    asked = question(request_event(suggestions=[SRC]), preview=previewing())
    asking = asyncio.create_task(terminal.prompt.ask(asked))
    for words, text in ((MENU, "s"), (RULE, "e")):
        await terminal.expect(words)
        terminal.type(text)
    await terminal.expect("edit the rule")
    asked.closed.set_result("Denied by bob.")
    assert await asking is None
    await terminal.expect("Denied by bob.")


# What would run


async def test_what_would_run_is_shown(terminal: Terminal, request_event: MakeRequest) -> None:
    files = [
        script(text="print(1)\n-print(2)\n"),
        script(path="data.bin", text=None),
        script(path="none.py", text="", size=0),
        script(path="gone.py", sha256="missing", text=None),
    ]
    event = request_event(
        tool_name="execute_command",
        description="Run 'python' 'x.py' for at most 300 seconds",
        tool_params={"command": "python", "args": ["x.py", "a b", "c\x1bd\u202e"], "timeout": 300},
        inspection=Inspection(files=files),
    )
    await answer(terminal, event, "y")
    shown = CODES.sub("", terminal.look()).replace("\r\n", "\n")
    assert "Run python x.py 'a b' 'c\\x1bd\\u{202e}'\n" in shown
    assert "medium risk · no network · up to 5 min · runs x.py, data.bin, none.py" in shown
    assert "runs: x.py (18 bytes)\n  | print(1)\n  | -print(2)\n" in shown
    assert "runs: data.bin (18 bytes): its content is not shown here" in shown
    assert "runs: none.py (0 bytes): it is empty" in shown
    assert "gone.py" not in shown
    assert "args:" not in shown, "the headline has the arguments"
    assert "sha256" not in shown, "details have it"


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (
            SeenFile(path="a b", role=SeenRole.REPLACES, sha256="missing"),
            "bound to: 'a b', not there; if it appears first, nothing is written",
        ),
        (SeenFile(path="x.py", sha256="missing"), "bound to: x.py, not there; if it appears first, nothing runs"),
        (
            script(path="a", role=SeenRole.REPLACES, size=9, modified_at=minutes_ago(4)),
            "bound to: a as it is now (9 bytes, changed 4 min ago); if it changes first, nothing is written",
        ),
        (
            script(path="x.py", size=9, modified_at=minutes_ago(4), written_at=minutes_ago(1)),
            "bound to: x.py as it is now (9 bytes, written by the agent 60 s ago); if it changes first, nothing runs",
        ),
        (script(path="x.py", size=None), "bound to: x.py as it is now; if it changes first, nothing runs"),
    ],
)
def test_details_say_what_becomes_of_the_call_if_a_file_changes(
    request_event: MakeRequest, file: SeenFile, words: str
) -> None:
    event = request_event(timestamp=NOON, inspection=Inspection(files=[file]))
    told = [line.plain.strip() for line in detail_rows(event, None, "", 200)]
    assert words in told
    assert words not in [line.plain.strip() for line in question_lines(event, most=10)]


async def test_who_wrote_what_would_run_is_said(terminal: Terminal, request_event: MakeRequest) -> None:
    file = script(path="x.py", text="print(1)\n", size=9, modified_at=minutes_ago(9), written_at=minutes_ago(3))
    event = request_event(timestamp=NOON, inspection=Inspection(files=[file]))
    await answer(terminal, event, "y")
    assert "runs: x.py (9 bytes, written by the agent 3 min ago)\r\n" in CODES.sub("", terminal.look())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (172_800, "2 days")],
)
def test_time_is_told_in_the_largest_unit_that_fits(seconds: int, words: str) -> None:
    assert ago(NOON, later(NOON, -seconds)) == f"{words} ago"


async def test_parameters_that_were_not_given_are_not_shown(terminal: Terminal, request_event: MakeRequest) -> None:
    params = {"path": ".env", "start_line": None, "end_line": None, "encoding": None}
    await answer(terminal, request_event(tool_name="read_file", description="Read '.env'", tool_params=params), "y")
    seen = CODES.sub("", terminal.look())
    assert "Read .env\r\n" in seen
    assert "None" not in seen


def test_details_name_no_parameter_that_was_not_given_and_no_digest_of_nothing(request_event: MakeRequest) -> None:
    params: JsonObject = {"path": "a", "start_line": None}
    missing = script(path="a", role=SeenRole.REPLACES, sha256="missing", text=None)
    whole = full_text("write_file", {**params, "content": "start_line: None\n'a' (sha256 missing):\n(no text)"})
    told = [
        row.plain
        for row in detail_rows(request_event(tool_params=params), None, "\n".join([whole, *file_lines([missing])]), 80)
    ]
    assert "  | start_line: None" not in told
    assert "  |   | start_line: None" in told, "the content is shown as it is"
    assert "  |   | 'a' (sha256 missing):" in told
    assert told[-2] == "  | 'a': not there"
    kept_apart = script(path="a", role=SeenRole.REPLACES, text=None)
    assert detail_rows(request_event(), None, "\n".join(file_lines([kept_apart])), 200)[-2].plain == (
        f"  | 'a' (sha256 {'a' * 64})"
    )


async def test_long_content_is_shortened_and_v_shows_all_of_it(terminal: Terminal, request_event: MakeRequest) -> None:
    content = "\n".join(f"line {number}" for number in range(60)) + "\n" + "x" * 1000

    async def whole(_: bool) -> str:
        return "\n".join(["write_file", f"content: {content}", *file_lines(seen_files)])

    seen_files = [script(text="tail of the script", shortened=True)]
    event = request_event(tool_params={"path": "a.txt", "content": content}, inspection=Inspection(files=seen_files))
    asking = asyncio.create_task(terminal.prompt.ask(question(event, whole=whole)))
    said = await terminal.expect(MENU)
    assert "line 17" in said
    assert "line 18" not in said
    assert "[… 43 more lines: v shows all]" in said
    terminal.type("v")
    seen = await terminal.expect("q: close")
    while "Space: next page" in seen[-50:]:
        terminal.type(" ")
        seen += await terminal.expect("q: close")
    assert all(f"line {number}\r\n" in seen for number in range(60))
    assert seen.count("x") >= 1000
    assert "tail of the script" in seen
    terminal.prompt.say("The server is back.")
    moves = {"g": "rows 1-29", "j": "rows 2-30", "k": "rows 1-29", " ": "rows 30-58", "b": "rows 1-29", "G": "q: close"}
    for key, where in moves.items():
        terminal.type(key)
        await terminal.expect(where)
    terminal.type("?q")
    assert "The server is back." in await terminal.expect(MENU)
    terminal.type("v")
    await terminal.expect("rows 1-29")
    terminal.type("\x1b")
    await terminal.expect(MENU)
    terminal.type("y")
    assert await asking == Answer(allow=True)


async def test_m_shows_what_is_masked_and_is_offered_only_where_something_is(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    async def whole(reveal: bool) -> str:
        return "API_KEY=aB3xyz99" if reveal else "API_KEY=[masked:key, 8 characters]"

    event = request_event(tool_params={"path": ".env.sample", "content": "API_KEY=[masked:key, 8 characters]"})
    asking = asyncio.create_task(terminal.prompt.ask(question(event, whole=whole)))
    assert "1 masked part" in await terminal.expect("[m] show 1 masked")
    await terminal.expect(MENU)
    terminal.type("m")
    assert "API_KEY=aB3xyz99" in await terminal.expect("[m] show 1 masked")
    await terminal.expect(MENU)
    terminal.type("y")
    assert await asking == Answer(allow=True)


@pytest.mark.promise("X-reveal")
async def test_m_is_offered_for_a_file_that_runs_and_after_v_for_what_only_the_whole_call_shows(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    async def whole(reveal: bool) -> str:
        return "'run.py':\n  | token = ghp_a1B2" if reveal else "'run.py':\n  | token = [masked:token, 8 characters]"

    masked = Inspection(files=[script(text="token = [masked:token, 8 characters]")])
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event(inspection=masked), whole=whole)))
    await terminal.expect("[m] show 1 masked")
    await terminal.expect(MENU)
    terminal.type("m")
    assert "token = ghp_a1B2" in await terminal.expect("[m] show 1 masked")
    await terminal.expect(MENU)
    terminal.type("y")
    await asking
    asking = asyncio.create_task(terminal.prompt.ask(question(request_event(), whole=whole)))
    assert "masked" not in await terminal.expect(MENU)
    terminal.type("v")
    await terminal.expect("[m] show 1 masked")
    await terminal.expect(MENU)
    terminal.type("y")
    await asking


async def test_a_whole_call_that_cannot_be_had_is_said(terminal: Terminal, request_event: MakeRequest) -> None:
    async def whole(_: bool) -> str:
        raise UnreachableError("Cannot reach the server.")

    event = request_event(inspection=Inspection(files=[script(text="print(2)")]))
    told = await walk(
        terminal,
        question(event, whole=whole),
        (MENU, "v"),
        ("cannot show more: Cannot reach the server.", ""),
        ("print(2)", ""),
        (MENU, "y"),
    )
    assert told == Answer(allow=True)


async def test_a_long_line_is_shortened_and_said_so(terminal: Terminal, request_event: MakeRequest) -> None:
    await answer(terminal, request_event(tool_params={"path": "a.txt", "content": "y" * 5000}), "y")
    assert "v shows all of this line" in CODES.sub("", terminal.look()).replace("\r\n  |>       ", "")


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
    terminal.type("y")
    async with asyncio.timeout(4):
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
    assert "· new file ·" in said
    assert "Create a.txt" in said
    assert "  | +b [no line end]" in said
    assert "@@" not in said
    said = await shown(terminal, request_event(), change=changing("a\n", "a\n"))
    assert "no difference is to be seen" in said


def test_two_changed_lines_of_a_long_repetitive_file_are_two_hunks() -> None:
    before = [f"line {number % 7}" for number in range(440)]
    after = [*before[:50], "fifty", *before[51:300], "three hundred", *before[301:]]
    found = list(unified(before, after))
    assert [line for line in found if line[0] == "@"] == ["@@ -48 +48 @@", "@@ -298 +298 @@"]
    assert [line for line in found if line[0] in "+-"] == ["-line 1", "+fifty", "-line 6", "+three hundred"]
    assert len(found) == 18


async def test_all_of_a_difference_is_in_the_details(terminal: Terminal, request_event: MakeRequest) -> None:
    change = await changing("", "".join(f"line {number}\n" for number in range(5000)), ChangeKind.CREATE)()
    found = detail_rows(request_event(), change, "write_file", 80)
    assert all(any(row.plain == f"  | +line {number}" for row in found) for number in range(5000))


async def test_a_difference_is_bounded_in_lines_and_width(terminal: Terminal, request_event: MakeRequest) -> None:
    said = await shown(terminal, request_event(), change=changing("x" * 200_000, "y\n" * 100_000))
    assert "1 lines from 1 become 100000" in said
    assert "more lines: v shows all" in said
    assert len(said) < 10_000
    tangled = "".join(f"{number % 7}\n" for number in range(900)), "".join(f"{number % 5}\n" for number in range(900))
    async with asyncio.timeout(4):
        assert "  | @@ -" in await shown(terminal, request_event(), change=changing(*tangled))


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
    monkeypatch.setattr(prompt_module, "CHANGE_SECONDS", 0.05)
    assert "did not say in time" in await shown(terminal, request_event(), change=never)
    said = await shown(terminal, request_event(), change=changing("a\n", "b\n", digest="e" * 64))
    assert "The server told of another change" in said
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
    async with asyncio.timeout(4):
        assert await asking is None
    assert terminal.look() == ""


async def test_without_a_difference_what_is_replaced_is_still_named(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    file = SeenFile(path="a.txt", role=SeenRole.REPLACES, sha256="a" * 64, size=9000, shortened=True)
    said = await shown(terminal, request_event(inspection=Inspection(files=[file])))
    assert "replaces: a.txt (9,000 bytes): its content is not shown here" in said
    noted = file.model_copy(update={"note": "It is not text."})
    assert "It is not text." in await shown(terminal, request_event(inspection=Inspection(files=[noted])))


async def test_a_menu_is_folded_between_choices_on_a_narrow_screen(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    terminal.prompt.screen.console.width = 30
    await answer(terminal, request_event(suggestions=[SRC]), "y")
    seen = CODES.sub("", terminal.look()).replace("\r", "")
    assert "\n[y] allow  [n] deny\n[s] similar…  [a] all…\n[v] details   expires in 5:00" in seen


@pytest.mark.promise("G8")
async def test_a_rule_is_allowed_for_the_whole_project_with_its_end_and_the_agent_named(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    asked = question(request_event(suggestions=[THIS]), preview=previewing())
    steps = ((MENU, "s"), (RULE, "p"), (RULE, "t"), ("For how long? 2h, 7d; Enter for 7 days", "14d\n"), (RULE, "\r"))
    told = await walk(terminal, asked, *steps)
    terms = GrantTerms(rule=THIS.rule, expires_in_seconds=14 * 24 * 3600)
    assert told == Answer(allow=True, scope=ApprovalScope.PROJECT, terms=terms)
    said = " ".join(CODES.sub("", terminal.look()).replace("|>", "").split())
    assert "for 14 days, any number of times, in every conversation of this project, for agent agent_1 only" in said


# A call that is changed before it is allowed

SAVE, LEAVE = "\x13", "\x03"
LIMIT = "Time limit in seconds:"


class Editing:
    """A server's side of a change: what may be changed, and what was sent."""

    def __init__(self, problem: str | None = None, **parts: object) -> None:
        self.parts = {"approval_id": "approval_1", "digest": "d" * 64, "tool_name": "write_file", **parts}
        self.problem = problem
        self.sent: list[EditBody] = []
        self.revealed: list[bool] = []

    async def editable(self, reveal: bool) -> EditableCall:
        self.revealed.append(reveal)
        call = EditableCall.model_validate(self.parts)
        return call.model_copy(update={"content": None}) if call.masked and not reveal else call

    async def edit(self, body: EditBody) -> EditAnswer:
        self.sent.append(body)
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise CallerError(problem)
        return EditAnswer(approval_id="approval_2", tool_ids=["exec_1"], message="")


def editing(event: ApprovalRequested, server: Editing) -> Question:
    return question(event, editable=server.editable, edit=server.edit)


async def test_a_command_line_is_changed_and_sent_with_the_digest_that_was_shown(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    server = Editing(line="npm test", timeout=30)
    asked = editing(request_event(tool_name="execute_command", tool_params={"command": "npm"}, calls=2), server)
    told = await walk(terminal, asked, (MENU, "e"), ("npm test", " -- -x" + SAVE), (LIMIT, "0\r"))
    assert told is None, "the changed call is another question"
    assert server.sent == [EditBody(digest="d" * 64, calls=2, line="npm test -- -x", timeout=300)]


async def test_content_is_changed_in_many_lines_and_keeps_its_line_ends(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    server = Editing(content="one\r\ntwo\r\n")
    told = await walk(terminal, editing(request_event(), server), (MENU, "e"), ("two", "three\r" + SAVE))
    assert told is None
    assert server.sent == [EditBody(digest="d" * 64, content="one\r\ntwo\r\nthree\r\n")]


async def test_what_is_left_or_not_changed_is_not_sent_and_decides_nothing(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    server = Editing(content="one\n")
    steps = ((MENU, "e"), ("one", "two" + LEAVE), (MENU, "e"), ("one", SAVE), ("Nothing was changed.", ""), *DENY)
    told = await walk(terminal, editing(request_event(), server), *steps)
    assert told == Answer(allow=False, reason="no")
    assert server.sent == []


async def test_a_refused_change_says_why_and_the_question_stays(terminal: Terminal, request_event: MakeRequest) -> None:
    server = Editing("Not allowed: rm.", content="one\n")
    steps = ((MENU, "e"), ("one", "x" + SAVE), ("Not allowed: rm.", ""), (MENU, "e"), ("x", "y" + SAVE))
    assert await walk(terminal, editing(request_event(), server), *steps) is None
    assert [body.content for body in server.sent] == ["one\nx", "one\nxy"], "what was typed is not lost"


async def test_what_is_masked_is_shown_before_it_is_changed(terminal: Terminal, request_event: MakeRequest) -> None:
    server = Editing(content="token\n", masked=True)
    show = "Type show to see and edit it"
    steps = ((MENU, "e"), (show, "no\r"), (MENU, "e"), (show, "show\r"), ("token", "x" + SAVE))
    assert await walk(terminal, editing(request_event(), server), *steps) is None
    assert server.revealed == [False, False, True]
    assert [body.content for body in server.sent] == ["token\nx"]


async def test_a_question_that_ends_while_it_is_changed_leaves_the_text(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    server = Editing(content="one\n")
    asked = editing(request_event(), server)
    asking = asyncio.create_task(terminal.prompt.ask(asked))
    await terminal.expect(MENU)
    terminal.type("e")
    await terminal.expect("one")
    asked.closed.set_result("Denied by bob.")
    async with asyncio.timeout(4):
        assert await asking is None
    assert "Denied by bob." in terminal.look()
    assert server.sent == []


async def test_the_question_about_a_changed_call_shows_what_was_changed(
    terminal: Terminal, request_event: MakeRequest
) -> None:
    async def change() -> WriteChange:
        made = await changing("old\n", "new\n")()
        return made.model_copy(update={"asked": "asked\n"})

    said = await shown(terminal, request_event(), change=change)
    assert "changed (- as the agent asked, + now):" in said
    assert "  | -asked" in said
    assert said.index("  | -asked") < said.index("the file:") < said.index("  | -old")
