"""Questions on a terminal: how one is rendered, and how it is answered, one at a time, by whole lines.

Every field is escaped again here, whatever the server did, and foreign text has a mark before each line and before each
row on which a line goes on, so that it cannot pass for ours. Nothing is left out without saying how to see it. Diffs
are bounded: the common beginning and end are skipped, and a middle too long to compare is shown as removed and added.
A person types a grant's rule, expiry and number of uses; a line that cannot be parsed is an error, never a guess,
because a mistyped rule must not become a wider one.
"""

import asyncio
import contextlib
import difflib
import os
import re
import shlex
import sys
import termios
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from byleave.gate import MASK_PREFIX, safe_text
from byleave.gate.policy.grants import problem_with, text_of, widest_of
from byleave.gate.text.render import file_lines
from byleave.protocol.approvals import Inspection, SeenFile, SeenRole
from byleave.protocol.changes import ChangeKind, ShownChange, WriteChange
from byleave.protocol.errors import ByleaveError, CallerError
from byleave.protocol.events import ApprovalRequested
from byleave.protocol.grants import (
    DEFAULT_EVERYTHING_SECONDS,
    DEFAULT_GRANT_SECONDS,
    EVERYTHING_WARNING,
    LONGEST_GRANT_SECONDS,
    GrantPreview,
    GrantRule,
    GrantTerms,
    Suggestion,
)
from byleave.protocol.states import ApprovalScope, RiskLevel

from .approvals import Answer, Question, span_words, uses_words

DIFFERENCE_LINES = 40
SHOWN_CHARACTERS = 400
COMPARED_LINES = 1000
"""Above this many differing lines on a side, diffing takes too long for a terminal."""
CONTEXT = 3
_HUNK = re.compile(r"^@@ -(\d+).* \+(\d+).*")
_STYLES = {"+": "green", "-": "red", "@": "dim"}
MARK = "  | "
CONTINUED = "  |>"
"""Mark of a row that goes on with the line above it: the terminal must never fold a line itself, without a mark."""


def difference_lines(change: WriteChange) -> Iterator[Text]:
    """Yield the diff of a write."""
    shown = change.change
    if shown.note is not None:
        yield Text.assemble(("  note: ", "dim"), safe_text(shown.note))
    if not shows_after(change):
        return
    title = "new file" if shown.kind is ChangeKind.CREATE else "difference"
    lines = _unified(shown)
    if not lines:
        yield Text.assemble((f"  {title}: ", "dim"), "none is to be seen")
        return
    yield Text.assemble((f"  {title}:", "dim"))
    for line in lines[:DIFFERENCE_LINES]:
        yield Text(f"{MARK}{_short(line)}", _STYLES.get(line[:1], ""))
    left = len(lines) - DIFFERENCE_LINES
    if left > 0:
        yield Text(f"{MARK}[… {left} more lines of the difference: v shows all that would be written]")


def shows_after(change: WriteChange | None) -> bool:
    """Return True if the diff shows the whole new text, so that it need not be shown twice."""
    return (
        change is not None
        and change.change.after is not None
        and (change.change.before is not None or change.change.kind is ChangeKind.CREATE)
    )


def _unified(shown: ShownChange) -> list[str]:
    before, after = _lines(shown.before or ""), _lines(shown.after or "")
    start = _shared(before, after)
    end = _shared(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if not old and not new:
        return []
    first = max(0, start - CONTEXT)
    if max(len(old), len(new)) > COMPARED_LINES:
        head = f"@@ {len(old)} lines from {start + 1} become {len(new)} @@"
        return [head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    tail = min(end, CONTEXT)
    near = before[first:start], before[len(before) - end : len(before) - end + tail]
    return list(_hunks([*near[0], *old, *near[1]], [*near[0], *new, *near[1]], first))


def _hunks(old: list[str], new: list[str], offset: int) -> Iterator[str]:
    for line in islice(difflib.unified_diff(old, new, n=CONTEXT, lineterm=""), 2, None):
        # difflib says 0 for a file without lines.
        yield _HUNK.sub(lambda at: f"@@ -{max(int(at[1]), 1) + offset} +{max(int(at[2]), 1) + offset} @@", line)


def _lines(text: str) -> list[str]:
    """Split into safe lines; mark a last line without a newline."""
    if not text:
        return []
    lines = safe_text(text, lines=True).split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], f"{lines[-1]} [no line end]"]


def _shared(one: list[str], other: list[str]) -> int:
    """Count the lines both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _short(line: str) -> str:
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]} [… {len(line)} characters]"


RISK_STYLE = {RiskLevel.LOW: "green", RiskLevel.MEDIUM: "yellow", RiskLevel.HIGH: "bold red"}
SHOWN_LINES = 20
SHOWN_LINE_CHARACTERS = 400
_IN_DESCRIPTION = {
    "execute_command": frozenset({"command", "args", "timeout"}),
    "write_file": frozenset({"path", "mode", "content_size"}),
}
"""Parameters that the description already shows in full."""


def question_lines(
    event: ApprovalRequested, seconds: float, change: WriteChange | None = None, *, unknown: str | None = None
) -> Iterator[Text]:
    """Yield a question without its answers. `unknown` is the reason there is no diff."""
    risk = event.risk_level
    yield Text.assemble("\n", (f"{risk.value} ", RISK_STYLE[risk]), (safe_text(event.tool_name), "bold"))
    # Reasons and content have lines of their own below; the rest of the description says what would happen.
    reasons = {finding.reason for finding in event.findings}
    first, *rest = event.description.split("\n")
    rest = [
        line
        for line in rest
        if line not in reasons and not ("content" in event.tool_params and line.startswith("Content: "))
    ]
    yield Text(quoted("\n".join([first, *rest])))
    described = _IN_DESCRIPTION.get(event.tool_name, frozenset[str]())
    if shows_after(change):
        described |= {"content"}
    for name, value in event.tool_params.items():
        if name not in described:
            yield _named(safe_text(name), value if isinstance(value, str) else repr(value))
    if event.inspection is not None and change is None:
        yield from _inspection_lines(event.inspection)
    if change is not None:
        yield from difference_lines(change)
    elif unknown is not None:
        yield _named("difference", unknown)
    for finding in event.findings:
        yield _named("why", finding.reason)
    yield Text("  network: it may use the network" if event.network else "  network: none")
    if event.agent_id is not None:
        yield Text(f"  agent: {safe_text(event.agent_id)}")
    if event.calls > 1:
        yield Text(f"  {event.calls} identical calls wait for this one answer")
    yield Text(f"  time left: {clock(seconds)}")


def _named(name: str, text: str) -> Text:
    shown = f"\n{quoted(text, short=True)}" if "\n" in text else f" {shortened(safe_text(text))}"
    return Text.assemble((f"  {name}:", "dim"), shown)


def _inspection_lines(inspection: Inspection) -> Iterator[Text]:
    if inspection.problem is not None:
        yield Text.assemble(("  what it runs: ", "dim"), "it could not be looked at: ", safe_text(inspection.problem))
    for file in inspection.files:
        yield Text.assemble((f"  {file.role.value}: ", "dim"), _seen(file))
        if file.text:
            yield Text(quoted(file.text, short=True))
        if file.shortened and file.role is SeenRole.RUNS:
            yield Text("  (only its beginning is here: the whole file is on the machine)")


def _seen(file: SeenFile) -> str:
    name = f"'{safe_text(file.path)}'"
    if file.sha256 == "missing":
        return f"{name}, which is not there"
    size = "" if file.size is None else f", {file.size} bytes"
    unseen = safe_text(file.note) if file.note else "whose content is not text"
    if file.role is SeenRole.REPLACES and file.note is None:
        unseen = "which is not shown here"
    what = "which holds:" if file.text else "which is empty" if file.size == 0 else unseen
    return f"{name}{size}, sha256 {safe_text(file.sha256[:12])}…, {what}"


def suggestion_lines(number: int, suggestion: Suggestion) -> Iterator[Text]:
    """Yield one rule to choose."""
    yield Text.assemble((f"  {number}  ", "bold"), safe_text(suggestion.text))
    yield Text.assemble(("     at most: ", "dim"), safe_text(suggestion.widest))


def rule_lines(rule: GrantRule, text: str, widest: str) -> Iterator[Text]:
    """Yield a rule exactly as it would be saved."""
    line = rule_line(rule)
    yield Text.assemble(("  rule: ", "dim"), (f"{safe_text(rule.tool)}{'' if line is None else f'  {line}'}", "bold"))
    for path, digest in rule.files.items():
        yield Text.assemble(("  only while: ", "dim"), f"'{safe_text(path)}' has sha256 {safe_text(digest[:12])}…")
    yield Text.assemble(("  covers: ", "dim"), safe_text(text))
    yield Text.assemble(("  at most: ", "dim"), safe_text(widest))


def preview_lines(preview: GrantPreview) -> Iterator[Text]:
    """Yield the preview of a rule."""
    yield Text.assemble(("  so far: ", "dim"), safe_text(preview.sentence))
    for call in preview.refused:
        yield Text.assemble(("    you refused: ", "yellow"), safe_text(call.description))


def rows(text: str, width: int) -> list[str]:
    """Split text into safe, marked rows that fit the screen."""
    room = max(10, width - len(MARK) - 1)
    return [
        f"{MARK if start == 0 else CONTINUED}{line[start:end]}"
        for line in safe_text(text, lines=True).expandtabs(4).split("\n")
        for start, end in _pieces(line, room, room)
    ]


def fitted(text: Text, width: int) -> Iterator[Text]:
    """Split a text that is already safe into rows that fit the screen, marked where a line goes on."""
    room = max(14, width - 1)
    for line in text.split("\n", allow_blank=True):
        line.expand_tabs(8)
        for start, end in _pieces(line.plain, room, room - len(CONTINUED)):
            yield line[start:end] if start == 0 else Text(CONTINUED, "dim").append_text(line[start:end])


def _pieces(line: str, first: int, room: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each row of a line: `first` cells wide, the others `room`."""
    start = 0
    while len(line) - start > first // 2 and (end := start + _fitting(line[start : start + first], first)) < len(line):
        # After a word if the row stays long enough; every character is kept.
        blank = line.rfind(" ", start + first // 2, end)
        end = end if blank < 0 else blank + 1
        yield start, end
        start, first = end, room
    yield start, len(line)


def _fitting(text: str, room: int) -> int:
    """Count the characters that fit: two cells for each that some terminal may draw wide."""
    if text.isascii():
        return len(text)
    for count, character in enumerate(text):
        room -= 1 if character < "\u1100" else 2
        if room < 0:
            return count
    return len(text)


def shortened(text: str) -> str:
    """Return the first lines, and how to see the rest."""
    lines = text.split("\n")
    shown = [
        line if len(line) <= SHOWN_LINE_CHARACTERS else f"{line[:SHOWN_LINE_CHARACTERS]} [… v shows all of this line]"
        for line in lines[:SHOWN_LINES]
    ]
    left = len(lines) - SHOWN_LINES
    return "\n".join([*shown, f"[… {left} more lines: v shows all]"] if left > 0 else shown)


def quoted(text: str, *, short: bool = False) -> str:
    """Return safe text with each line marked, so that none can pass for ours."""
    safe = safe_text(text, lines=True)
    return "\n".join(f"{MARK}{line}" for line in (shortened(safe) if short else safe).split("\n"))


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02d}"


OPEN = "..."
"""Suffix of a command prefix: anything may follow."""
MOST_USES = 10_000
_PLAIN_WORD = re.compile(r"[^\s'\"\\]+")
_SPAN = re.compile(r"(\d{1,6})\s*(s|sec|m|min|h)?", re.ASCII)
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}


def rule_line(rule: GrantRule) -> str | None:
    """Return the editable part of a rule, as typed; None if there is none."""
    if rule.tool == "execute_command":
        return safe_text(_joined((*rule.command, *(() if rule.exact else (OPEN,)))))
    return safe_text(_joined(rule.paths)) if rule.paths else None


def _joined(words: tuple[str, ...]) -> str:
    return " ".join(word if _PLAIN_WORD.fullmatch(word) else shlex.quote(word) for word in words)


def read_rule(line: str, rule: GrantRule) -> GrantRule:
    """Return the rule with its editable part as typed; bound files stay."""
    if safe_text(line) != line:
        raise CallerError("The line holds characters that cannot be seen.", hint="type it anew")
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise CallerError("A quotation mark is not closed.", hint="type it anew") from error
    if not words:
        raise CallerError("A rule needs at least one word.")
    changed = rule.model_dump()
    if rule.tool == "execute_command":
        is_open = words[-1] in (OPEN, "…")
        changed |= {"command": words[:-1] if is_open else words, "exact": not is_open}
    else:
        changed |= {"paths": words}
    try:
        return GrantRule.model_validate(changed)
    except ValidationError as error:
        raise CallerError("A rule cannot have so many or such long words.", hint="shorten it") from error


def read_span(text: str) -> int:
    """Parse `30m`, `2h` or `45` (minutes) into seconds."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise CallerError(f"{safe_text(text)!r} is no time.", hint="write it as 30m or 2h")
    seconds = int(found[1]) * _SECONDS[found[2] or "m"]
    if not 1 <= seconds <= LONGEST_GRANT_SECONDS:
        raise CallerError(f"A grant lasts between 1 second and {span_words(LONGEST_GRANT_SECONDS)}.")
    return seconds


def read_uses(text: str) -> int:
    """Parse a maximum number of uses."""
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit()) or not 1 <= int(plain[:9]) <= MOST_USES:
        raise CallerError(f"{safe_text(text)!r} is no number from 1 to {MOST_USES}.")
    return int(plain)


MAX_REASON_CHARACTERS = 1000
MAX_LINE_BYTES = 16 * 1024
CHANGE_SECONDS = 5.0
"""Time to wait for the diff; then the question is asked without it."""

Value = TypeVar("Value")


class NoAnswer(Exception):
    """The question or the input ended; no more answers will come. Not an error."""


class TerminalPrompt:
    """Asks on a terminal."""

    def __init__(self, descriptor: int, console: Console) -> None:
        self._descriptor = descriptor
        self._console = console
        self._typed = bytearray()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()

    @classmethod
    def here(cls) -> "TerminalPrompt | None":
        """Return a prompt on this process's terminal; None if it has none."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        return cls(sys.stdin.fileno(), Console(stderr=True, markup=False, emoji=False, highlight=False))

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._console.size

    def say(self, sentence: str) -> None:
        self.show([Text(safe_text(sentence, lines=True))])

    def show(self, texts: Iterable[Text]) -> None:
        """Print texts that are already safe."""
        for text in texts:
            for row in fitted(text, self._console.width):
                self._console.print(row, soft_wrap=True)

    async def ask(self, question: Question) -> Answer | None:
        if question.closed.done():
            return None
        loop = asyncio.get_running_loop()
        change, unknown = await _diff(question)
        if question.closed.done():
            return None
        seconds = question.until - loop.time()
        # Rendered in a thread: diffing long texts takes a moment.
        lines = await asyncio.to_thread(lambda: list(question_lines(question.event, seconds, change, unknown=unknown)))
        self.show(lines)
        self._lines = asyncio.Queue()
        self._forget_typed()
        loop.add_reader(self._descriptor, self._readable)
        try:
            return await _Dialog(self, question).answer()
        except NoAnswer:
            return None
        finally:
            loop.remove_reader(self._descriptor)

    async def line(self, question: Question, text: str, *, fresh: bool = True) -> str:
        """Ask for a line. With `fresh`, discard input typed before this text appeared."""
        if fresh:
            self._forget_typed()
            while not self._lines.empty():
                # Keep the end of input: there will be no other.
                if self._lines.get_nowait() is None:
                    self._lines.put_nowait(None)
                    break
        self._console.print(Text(text), end="", soft_wrap=True)
        line = await self.unless_closed(question, self._lines.get())
        if line is None:
            self.say("\nNo answer was given here; the question stays open elsewhere until its time is up.")
            raise NoAnswer
        return line

    async def unless_closed(self, question: Question, awaitable: Awaitable[Value]) -> Value:
        """Await something, but no longer than the question is open."""
        waiting: asyncio.Future[Value] = asyncio.ensure_future(awaitable)
        try:
            await asyncio.wait({waiting, question.closed}, return_when=asyncio.FIRST_COMPLETED)
            if question.closed.done():
                self.say(f"\n{question.closed.result()}")
                raise NoAnswer
            return waiting.result()
        finally:
            waiting.cancel()

    def _forget_typed(self) -> None:
        """Discard input typed before the question could be read."""
        self._typed.clear()
        with contextlib.suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def _readable(self) -> None:
        try:
            data = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._lines.put_nowait(None)
            return
        self._typed += data
        *whole, rest = bytes(self._typed).split(b"\n")
        self._typed = bytearray(rest[:MAX_LINE_BYTES])
        for line in whole:
            self._lines.put_nowait(line.decode("utf-8", "replace"))


async def _diff(question: Question) -> tuple[WriteChange | None, str | None]:
    """Return the server's diff of a write, or the reason there is none."""
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
        return None, "The server tells of another change than the one that is asked about."
    return change, None


class _Dialog:
    """Dialog for one question. Every step that is not completed returns to the question."""

    def __init__(self, prompt: TerminalPrompt, question: Question) -> None:
        self._prompt = prompt
        self._question = question
        event = self._event = question.event
        in_session = event.session_id is not None
        always = event.risk_level is RiskLevel.HIGH or any(finding.always_asks for finding in event.findings)
        self._similar_offered = in_session and not always and bool(event.suggestions)
        self._all_offered = in_session
        files = () if event.inspection is None else event.inspection.files
        self._masked = MASK_PREFIX in str((event.tool_params, *(file.text for file in files)))

    async def answer(self) -> Answer:
        while True:
            line = await self._prompt.line(self._question, self._menu(), fresh=False)
            word, _, rest = line.strip().partition(" ")
            given = await self._parse(word, rest.strip())
            if given is not None:
                return given

    def _menu(self) -> str:
        similar = ", s to allow similar calls" if self._similar_offered else ""
        everything = ", a to allow everything in this session" if self._all_offered else ""
        masked = ", m to see what is masked" if self._masked else ""
        return f"Type y to allow once, n to deny{similar}{everything}, v to see all of it{masked}: "

    async def _parse(self, word: str, rest: str) -> Answer | None:
        """Parse a line; return None if it is no answer, or the person went back."""
        if word in ("n", "no", "d", "deny"):
            return await self._no(rest)
        if rest:
            return None
        if word in ("y", "yes", "allow"):
            return await self._once()
        if word in ("v", "m"):
            await self._show_all(reveal=word == "m")
        elif word == "s" and self._similar_offered:
            return await self._similar()
        elif word == "s":
            self._prompt.say("This call asks every time: no class of calls like it can be allowed.")
        elif word == "a" and self._all_offered:
            return await self._everything()
        return None

    async def _no(self, reason: str) -> Answer:
        if not reason:
            reason = (await self._ask("Why? The agent is told. Enter for no reason: ")).strip()
        return Answer(allow=False, reason=reason[:MAX_REASON_CHARACTERS] or None)

    async def _once(self) -> Answer | None:
        if self._event.risk_level is RiskLevel.HIGH:
            line = await self._ask("This is HIGH. Type yes to run it all the same, anything else goes back: ")
            if line.strip() != "yes":
                return None
        return Answer(allow=True)

    async def _everything(self) -> Answer | None:
        usual = span_words(DEFAULT_EVERYTHING_SECONDS)
        line = await self._ask(
            f"\n{EVERYTHING_WARNING}\n"
            f"Type everything to allow it for {usual} (or everything 30m), anything else goes back: "
        )
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
        """Choose a rule, edit it, limit it, review it, confirm."""
        self._prompt.say("\nAllow similar calls in this session without asking:")
        for number, suggestion in enumerate(self._event.suggestions, start=1):
            self._prompt.show(suggestion_lines(number, suggestion))
        chosen = (await self._ask("Type the number of one, anything else goes back: ")).strip()
        if chosen not in {str(number + 1) for number in range(len(self._event.suggestions))}:
            return None
        rule = await self._edited(self._event.suggestions[int(chosen) - 1].rule)
        usual = span_words(DEFAULT_GRANT_SECONDS)
        seconds = await self._number(f"For how long? 30m, 2h; Enter for {usual}: ", read_span) or DEFAULT_GRANT_SECONDS
        uses = await self._number("How many times at most? Enter for no limit: ", read_uses)
        self._prompt.say("\nThis would be allowed without asking:")
        self._prompt.show(rule_lines(rule, text_of(rule), widest_of(rule)))
        self._prompt.show([Text(f"  for {span_words(seconds)}, {uses_words(uses)}, in this session only")])
        if (await self._ask("Type yes to allow this, anything else goes back: ")).strip() != "yes":
            return None
        terms = GrantTerms(rule=rule, expires_in_seconds=seconds, max_uses=uses)
        return Answer(allow=True, scope=ApprovalScope.CLASS, terms=terms)

    async def _edited(self, rule: GrantRule) -> GrantRule:
        """Let the person edit the rule until it may be saved."""
        problem = await self._preview_rule(rule)
        line = rule_line(rule)
        if line is None:
            return rule
        syntax = (
            "words, ... at the end for anything after them" if rule.tool == "execute_command" else "patterns of paths"
        )
        while True:
            typed = (await self._ask(f"Enter keeps the rule, or type it anew ({syntax}): ")).strip()
            if not typed and problem is None:
                return rule
            try:
                rule = read_rule(typed, rule)
            except CallerError as error:
                self._prompt.say(str(error))
                continue
            problem = await self._preview_rule(rule)

    async def _preview_rule(self, rule: GrantRule) -> str | None:
        """Show a rule with its preview; return the reason it may not be saved, if any."""
        self._prompt.show(rule_lines(rule, text_of(rule), widest_of(rule)))
        problem = problem_with(rule)
        if problem is None and self._question.preview is not None:
            try:
                preview = await self._prompt.unless_closed(self._question, self._question.preview(rule))
                problem = preview.problem
                self._prompt.show(preview_lines(preview))
            except ByleaveError as error:
                self._prompt.say(f"  The server cannot say what it would have covered: {error.message}")
        if problem is not None:
            self._prompt.say(f"  This may not be saved: {problem}")
        return problem

    async def _number(self, text: str, read: Callable[[str], int]) -> int | None:
        while True:
            typed = (await self._ask(text)).strip()
            if not typed:
                return None
            try:
                return read(typed)
            except CallerError as error:
                self._prompt.say(str(error))

    async def _show_all(self, *, reveal: bool) -> None:
        """Show the whole call, a screen at a time; with `reveal`, unmasked."""
        known = () if self._event.inspection is None else self._event.inspection.files
        whole = "\n".join([self._event.description, *file_lines(known)])
        try:
            if self._question.whole is not None:
                whole = await self._prompt.unless_closed(self._question, self._question.whole(reveal))
        except ByleaveError as error:
            self._prompt.say(f"The server cannot show more: {error.message}")
        self._masked = self._masked or MASK_PREFIX in whole
        width, height = self._prompt.size
        screens = max(5, height - 2)
        # Content may be 100 MB: rendered in a thread.
        laying_out = asyncio.to_thread(rows, whole, width)
        lines = await self._prompt.unless_closed(self._question, laying_out)
        for start in range(0, len(lines), screens):
            self._prompt.show([Text(line) for line in lines[start : start + screens]])
            left = len(lines) - start - screens
            if left > 0 and (await self._ask(f"{left} more rows. Enter goes on, q stops: ")).strip() == "q":
                return

    async def _ask(self, text: str) -> str:
        return await self._prompt.line(self._question, text)
