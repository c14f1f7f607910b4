"""Asks a person on a terminal, one question at a time, and reads the answer.

Single keys answer, and only those pressed while the choice is on the screen, after a pause: whoever was typing
something else must not allow a call by it. What reaches further than one MEDIUM call takes a typed word, or a second
step that shows exactly what would be allowed. Anything else, the end of input included, is no answer.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection
from functools import cached_property, partial
from typing import TextIO, TypeVar

from rich.console import Console
from rich.text import Text

from byleave.client.approvals import Answer, Question, span_words, uses_words
from byleave.client.tasks import cancel
from byleave.gate import safe_text
from byleave.gate.policy.grants import problem_with, text_of, widest_of
from byleave.protocol.approvals import EditableCall, EditBody
from byleave.protocol.changes import WriteChange
from byleave.protocol.errors import ByleaveError, CallerError
from byleave.protocol.grants import (
    DEFAULT_EVERYTHING_SECONDS,
    DEFAULT_GRANT_SECONDS,
    DEFAULT_PROJECT_SECONDS,
    EVERYTHING_WARNING,
    LONGEST_GRANT_SECONDS,
    LONGEST_PROJECT_SECONDS,
    GrantPreview,
    GrantRule,
    GrantTerms,
)
from byleave.protocol.states import ApprovalScope, RiskLevel
from byleave.protocol.tools import MAX_COMMAND_SECONDS

from .keyboard import QUIET_SECONDS, Keyboard, Line
from .pager import Pager
from .question import detail_rows, lines_that_fit, preview_lines, question_lines, rule_lines, suggestion_lines
from .rules import read_rule, read_span, read_uses, rule_line
from .screen import Screen
from .words import clock, masked_parts

MAX_REASON_CHARACTERS = 1000
CHANGE_SECONDS = 5.0
"""Time to wait for the difference; then the question is asked without it."""
EDIT_TEXT = "\nEdit the content. Nothing runs yet.  [Ctrl-S] review your change  [Ctrl-C] back"
EDIT_LINE = "\nEdit the line; there is no shell. Nothing runs yet.  [Ctrl-S] review your change  [Ctrl-C] back"
PRESS = "Press one of the keys in brackets."
SOON = 30.0
"""Seconds before the end from which the time left is shown in red."""

SPANS = {
    ApprovalScope.CLASS: (DEFAULT_GRANT_SECONDS, LONGEST_GRANT_SECONDS),
    ApprovalScope.PROJECT: (DEFAULT_PROJECT_SECONDS, LONGEST_PROJECT_SECONDS),
}
"""Usual and longest time of a grant, in seconds."""

Value = TypeVar("Value")


class NoAnswer(Exception):
    """The question or the input ended; no more answers will come. Not an error."""


class TerminalPrompt:
    """Asks on a terminal."""

    def __init__(
        self, stdin: TextIO, console: Console, quiet_seconds: float = QUIET_SECONDS, tick_seconds: float = 1.0
    ) -> None:
        self.screen = Screen(console, tick_seconds)
        self.keyboard = Keyboard(stdin, self.screen, quiet_seconds)
        self.typed: str | None = None
        """Text typed while the last question appeared, which was no answer to it."""

    @classmethod
    def here(cls) -> "TerminalPrompt":
        """Return a prompt on this process's terminal."""
        return cls(sys.stdin, Console(stderr=True, markup=False, emoji=False, highlight=False))

    @cached_property
    def _line(self) -> Line:
        return self.keyboard.line()

    def say(self, sentence: str) -> None:
        self.screen.say(sentence)

    async def ask(self, question: Question) -> Answer | None:
        if question.closed.done():
            return None
        self.typed = None
        with self.keyboard.silent(), self.screen.status(Text):
            change, unknown = await _change(question)
            if question.closed.done():
                return None
            most = lines_that_fit(self.screen.size[1])
            # In a thread: comparing long texts takes a moment.
            lines = await asyncio.to_thread(
                lambda: list(question_lines(question.event, change, most=most, unknown=unknown))
            )
            self.screen.show([Text(), *lines])
            try:
                return await _Dialog(self, question, change).answer()
            except NoAnswer:
                return None

    async def choose(self, question: Question, menu: Callable[[], Text], keys: Collection[str]) -> str:
        """Show a menu and return which of these keys is pressed alone while it is on the screen."""
        with self.keyboard.keys():
            while True:
                typed = await self.unless_closed(question, self.keyboard.settle())
                self.typed = typed if self.typed is None else self.typed
                with self.screen.status(menu):
                    key = await self.unless_closed(question, self.keyboard.key())
                if key is None or key == "c-d":
                    raise self._no_answer()
                if key in keys and not self.keyboard.has_more:
                    return key
                # Of "why?" and of a pasted line no letter may be an answer: they wait for a pause again.
                self.say(PRESS)

    async def line(self, question: Question, label: str, default: str = "") -> str:
        """Ask for a line; what was typed before it appeared is thrown away."""
        line = await self.unless_closed(question, self._line.read(label, default))
        if line is None:
            raise self._no_answer()
        return line

    async def text(self, question: Question, label: str, text: str) -> str | None:
        """Let the person edit a text of many lines; None if they leave it. Its line ends stay what they were."""
        is_crlf = "\r\n" in text and text.count("\r\n") == text.count("\n") == text.count("\r")
        typed = await self.unless_closed(
            question, self.keyboard.text().read(label, text.replace("\r\n", "\n") if is_crlf else text)
        )
        return typed.replace("\n", "\r\n") if typed is not None and is_crlf else typed

    def _no_answer(self) -> NoAnswer:
        self.say("No answer was given here; the question stays open elsewhere until it expires.")
        return NoAnswer()

    async def page(self, question: Question, texts: list[Text]) -> None:
        """Show rows that fit the screen's width: at once, or page by page if they are too many."""
        if len(texts) < self.screen.size[1]:
            self.screen.show(texts)
            return
        with self.keyboard.keys(), self.screen.held():
            pager = Pager(self.screen, texts)
            await self.unless_closed(question, pager.run(self.keyboard.key))

    async def unless_closed(self, question: Question, awaitable: Awaitable[Value]) -> Value:
        """Await something, but no longer than the question is open."""
        waiting: asyncio.Future[Value] = asyncio.ensure_future(awaitable)
        try:
            await asyncio.wait({waiting, question.closed}, return_when=asyncio.FIRST_COMPLETED)
            if not question.closed.done():
                return waiting.result()
        finally:
            await cancel(waiting)
        self.say(question.closed.result())
        raise NoAnswer


async def _change(question: Question) -> tuple[WriteChange | None, str | None]:
    """Return the server's difference of a write, or the reason there is none."""
    if question.change is None:
        return None, None
    asking = asyncio.ensure_future(question.change())
    try:
        await asyncio.wait({asking, question.closed}, timeout=CHANGE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            return None, "The server did not say in time what would change."
        change = asking.result()
    except ByleaveError as error:
        return None, f"The server cannot say what would change: {error.message}"
    finally:
        asking.cancel()
    if change.digest != question.event.digest:
        return None, "The server told of another change than the one that is asked about."
    return change, None


class _Dialog:
    """Dialog for one question. Every step that is not completed returns to the question."""

    def __init__(self, prompt: TerminalPrompt, question: Question, change: WriteChange | None) -> None:
        self._prompt = prompt
        self._question = question
        self._change = change
        event = self._event = question.event
        in_session = event.session_id is not None
        always = event.risk_level is RiskLevel.HIGH or any(finding.always_asks for finding in event.findings)
        self._similar_offered = in_session and not always and bool(event.suggestions)
        self._all_offered = in_session
        files = () if event.inspection is None else event.inspection.files
        self._masked = masked_parts(event.tool_params, *(file.text for file in files))
        self._typed: str | None = None
        """The text of a change that was not taken."""

    async def answer(self) -> Answer:
        while True:
            given = await self._act(await self._prompt.choose(self._question, self._menu, self._keys()))
            if given is not None:
                return given

    def _keys(self) -> dict[str, str]:
        keys = {"y": "allow", "n": "deny"}
        if self._similar_offered:
            keys["s"] = "similar…"
        if self._all_offered:
            keys["a"] = "all…"
        if self._question.edit is not None:
            keys["e"] = "edit"
        keys["v"] = "details"
        if self._masked:
            keys["m"] = f"show {self._masked} masked"
        return keys

    def _menu(self) -> Text:
        number, count = self._question.position()
        left = self._question.until - asyncio.get_running_loop().time()
        tail = Text(f"{number} of {count} · " if count > 1 else "", "dim")
        tail.append(f"expires in {clock(left)}", "bold red" if left < SOON else "dim")
        return self._choices(self._keys(), tail)

    def _choices(self, keys: dict[str, str], tail: Text | None = None) -> Text:
        """Return a menu in rows that fit, never folded within a choice."""
        parts = [
            Text.assemble((f"[{key.capitalize() if len(key) > 1 else key}]", "bold"), f" {does}")
            for key, does in keys.items()
        ]
        text, used = Text(), 0
        for part in [*parts, *([] if tail is None else [tail])]:
            gap = "   " if part is tail else "  "
            fits = used + len(gap) + len(part) < self._prompt.screen.size[0]
            text.append("" if not used else gap if fits else "\n").append_text(part)
            used = len(part) + (used + len(gap) if fits else 0)
        return text

    async def _act(self, key: str) -> Answer | None:
        """Act on a key; return None if it is no answer, or the person went back."""
        match key:
            case "y":
                return await self._once()
            case "n":
                reason = (await self._line("Why? The agent is told. Enter for no reason: ")).strip()
                return Answer(allow=False, reason=reason[:MAX_REASON_CHARACTERS] or None)
            case "s":
                return await self._similar()
            case "a":
                return await self._everything()
            case "e":
                return await self._edit()
            case _:
                return await self._show_all(reveal=key == "m")

    async def _once(self) -> Answer | None:
        if self._event.risk_level is RiskLevel.HIGH:
            line = await self._line("High risk. Runs immediately. Type yes to allow it, anything else goes back: ")
            if line.strip() != "yes":
                return None
        return Answer(allow=True)

    async def _edit(self) -> None:
        """Let the person change the call. The server judges it anew and then asks about it with another question."""
        call = await self._editable()
        if call is None or self._question.edit is None:
            return
        changes: dict[str, object] = {}
        for name in ("content", "line", "query"):
            text = getattr(call, name)
            if text is not None:
                self._prompt.say(EDIT_TEXT if name == "content" else EDIT_LINE)
                typed = await self._prompt.text(self._question, "", text if self._typed is None else self._typed)
                if typed is None:
                    return
                self._typed = typed  # after a refusal it need not be typed again
                changes |= {} if typed == text else {name: typed if name == "content" else typed.strip("\n")}
        if call.timeout is not None:
            seconds = await self._number_of("Time limit in seconds: ", call.timeout)
            changes |= {} if seconds == call.timeout else {"timeout": seconds}
        if not changes:
            self._prompt.say("Nothing was changed.")
            return
        body = EditBody.model_validate({"digest": self._event.digest, "calls": self._event.calls, **changes})
        try:
            told = await self._prompt.unless_closed(self._question, self._question.edit(body))
        except ByleaveError as error:
            self._prompt.say(f"Your change was not taken: {error}")
            return
        if told.approval_id is None:
            self._prompt.say(told.message)
        raise NoAnswer

    async def _editable(self) -> EditableCall | None:
        """Return what may be changed, or None after saying why nothing may."""
        fetch = self._question.editable
        if fetch is None:
            return None
        reveal = False
        try:
            call = await self._prompt.unless_closed(self._question, fetch(reveal))
            if call.masked:
                line = await self._line("A part is masked: it looks secret. Type show to see and edit it: ")
                if line.strip() != "show":
                    return None
                reveal = True
                call = await self._prompt.unless_closed(self._question, fetch(reveal))
        except ByleaveError as error:
            self._prompt.say(f"It cannot be changed: {error}")
            return None
        if call.digest != self._event.digest:
            self._prompt.say("What came belongs to another call.")
            return None
        return call

    async def _number_of(self, label: str, before: int) -> int:
        while True:
            typed = (await self._line(label, str(before))).strip()
            if typed.isascii() and typed.isdigit() and 1 <= int(typed[:9]) <= MAX_COMMAND_SECONDS:
                return int(typed)
            self._prompt.say(f"Type a number from 1 to {MAX_COMMAND_SECONDS}.")

    async def _everything(self) -> Answer | None:
        usual = span_words(DEFAULT_EVERYTHING_SECONDS)
        self._prompt.say(f"\n{EVERYTHING_WARNING}")
        line = await self._line(f"Type everything for {usual}, or everything 30m; anything else goes back: ")
        word, _, span = line.strip().partition(" ")
        if word != "everything":
            return None
        try:
            seconds = read_span(span) if span.strip() else DEFAULT_EVERYTHING_SECONDS
        except CallerError as error:
            self._prompt.say(str(error))
            return None
        terms = GrantTerms(expires_in_seconds=seconds, warned=True)
        return Answer(allow=True, scope=ApprovalScope.SESSION, terms=terms)

    async def _similar(self) -> Answer | None:
        """Show a rule with its limits; Enter allows exactly that, other keys change it first."""
        suggestions = self._event.suggestions
        chosen: int | None = 0
        rule, uses, scope = suggestions[0].rule, None, ApprovalScope.CLASS
        usual, longest = SPANS[scope]
        seconds = usual
        agent = "the agent of this chat" if self._event.agent_id is None else f"agent {safe_text(self._event.agent_id)}"
        while True:
            for_project = scope is ApprovalScope.PROJECT
            where = "in every conversation of this project" if for_project else "in this conversation only"
            self._prompt.say("\nAllow similar calls without asking:")
            for number, suggestion in enumerate(suggestions):
                self._prompt.screen.show(suggestion_lines(number + 1, suggestion, chosen=number == chosen))
            problem = await self._preview_rule(rule)
            terms = f"for {span_words(seconds)}, {uses_words(uses)}, {where}, for {agent} only"
            self._prompt.screen.show([Text.assemble(("  limits: ", "dim"), terms)])
            keys = self._rule_keys(rule, problem, for_project=for_project)
            match await self._prompt.choose(self._question, lambda shown=keys: self._choices(shown), _pressed(keys)):
                case "enter":
                    terms = GrantTerms(rule=rule, expires_in_seconds=seconds, max_uses=uses)
                    return Answer(allow=True, scope=scope, terms=terms)
                case "p":
                    scope = ApprovalScope.CLASS if for_project else ApprovalScope.PROJECT
                    usual, longest = SPANS[scope]
                    seconds = usual
                case "e":
                    rule, chosen = await self._edited(rule), None
                case "t":
                    label = f"For how long? {'2h, 7d' if for_project else '30m, 2h'}; Enter for {span_words(usual)}: "
                    seconds = await self._number(label, partial(read_span, longest=longest)) or usual
                case "u":
                    uses = await self._number("How many times at most? Enter for no limit: ", read_uses)
                case "escape" | "b":
                    return None
                case digit:
                    chosen = int(digit) - 1
                    rule = suggestions[chosen].rule

    def _rule_keys(self, rule: GrantRule, problem: str | None, *, for_project: bool) -> dict[str, str]:
        keys = {} if problem is not None else {"enter": "allow"}
        count = len(self._event.suggestions)
        if count > 1:
            keys[f"1-{count}"] = "choose"
        if rule_line(rule) is not None:
            keys["e"] = "edit rule"
        return {
            **keys,
            "p": "conversation only" if for_project else "whole project",
            "t": "time",
            "u": "uses",
            "b": "back",
        }

    async def _edited(self, rule: GrantRule) -> GrantRule:
        """Let the person edit the rule until it can be parsed."""
        is_command = rule.tool == "execute_command"
        syntax = "words; ... at the end for anything after them" if is_command else "space-separated path patterns"
        line = rule_line(rule) or ""
        while True:
            line = (await self._line(f"Enter to keep, or edit the rule ({syntax}): ", line)).strip()
            if line == rule_line(rule):
                return rule  # as it is, also where its line shows escapes
            try:
                return read_rule(line, rule)
            except CallerError as error:
                self._prompt.say(str(error))

    async def _preview_rule(self, rule: GrantRule) -> str | None:
        """Show a rule with its preview; return the reason it may not be saved, if any."""
        self._prompt.screen.show(rule_lines(rule, text_of(rule), widest_of(rule)))
        problem = problem_with(rule)
        if problem is None and self._question.preview is not None:
            try:
                preview: GrantPreview = await self._prompt.unless_closed(self._question, self._question.preview(rule))
                problem = preview.problem
                self._prompt.screen.show(preview_lines(preview))
            except ByleaveError as error:
                self._prompt.say(f"  The server cannot say what it would have covered: {error.message}")
        if problem is not None:
            self._prompt.say(f"  This may not be saved: {problem}")
        return problem

    async def _number(self, label: str, read: Callable[[str], int]) -> int | None:
        while True:
            typed = (await self._line(label)).strip()
            if not typed:
                return None
            try:
                return read(typed)
            except CallerError as error:
                self._prompt.say(str(error))

    async def _show_all(self, *, reveal: bool) -> None:
        """Show the whole call; with `reveal`, unmasked."""
        whole: str | None = None
        try:
            if self._question.whole is not None:
                whole = await self._prompt.unless_closed(self._question, self._question.whole(reveal))
        except ByleaveError as error:
            self._prompt.say(f"The server cannot show more: {error.message}")
        self._masked = max(self._masked, masked_parts(whole))
        width = self._prompt.screen.size[0]
        laying_out = asyncio.to_thread(detail_rows, self._event, self._change, whole, width)
        await self._prompt.page(self._question, await self._prompt.unless_closed(self._question, laying_out))

    async def _line(self, label: str, default: str = "") -> str:
        return await self._prompt.line(self._question, label, default)


def _pressed(keys: dict[str, str]) -> set[str]:
    """Return the keys that a menu names; Escape is another name for back."""
    found = {"escape"} if "b" in keys else set[str]()
    for key in keys:
        first, dash, last = key.partition("-")
        found |= {str(number) for number in range(int(first), int(last) + 1)} if dash else {key}
    return found
