"""`byleave chat`: a conversation in the terminal, over the same REST and SSE as every other chat.

One task reads the feed and reconnects when it breaks; another shows the events in order, and pauses while a question
is on the screen. A decision made elsewhere closes a question at once. Without a terminal it prints the pending
approvals and waits for an answer elsewhere: it never decides. The first Ctrl-C cancels the run, the second leaves;
SIGTERM leaves at once. Messages and questions share one input line: a question takes the terminal at once and returns
it when answered, and input for one is never read by the other.
"""

import asyncio
import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Generator, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer
from pydantic import ValidationError
from rich.text import Text

from byleave.client.api import ServerApi
from byleave.client.approvals import Answer, ApprovalDesk, ApprovalPrompt, Question, approved_by_text
from byleave.client.prompts import TerminalPrompt
from byleave.client.tasks import cancel, pause
from byleave.protocol.chat import MessageBody
from byleave.protocol.errors import ByleaveError, CallerError, NotFound, UnreachableError
from byleave.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    ChatError,
    ChatMessage,
    ChatText,
    FeedEvent,
    GrantChanged,
    RunChanged,
    RunUsage,
    ToolFinished,
    ToolOutput,
    ToolStarted,
)
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, RiskLevel, RunState
from byleave.protocol.wire import JsonObject, steady
from byleave.settings import ClientSettings

from .options import ExitCode, ProjectId, Server, Verbose, new_app
from .places import find_server, project_to_watch, unknown_project
from .process import in_loop, on_stop, read_settings, set_up_logging
from .screen import (
    RISK_STYLES,
    call_summary,
    changed_files,
    complain,
    counted,
    items_of,
    put_json,
    say,
    shortened,
    shown,
    warnings_of,
)

app = new_app()


Result = TypeVar("Result")


OUTPUT_LINES = 5


class JsonTranscript:
    """Prints each event as a line of JSON."""

    def show(self, event: FeedEvent) -> None:
        put_json(event.model_dump(mode="json"))

    def allowed(self, tool_id: str, by: str) -> None:
        """Do nothing: a program fetches the execution."""

    def end_turn(self) -> None: ...


class TerminalTranscript:
    """Shows events to people."""

    def __init__(self, *, can_ask: bool) -> None:
        self._can_ask = can_ask
        self._streamed = ""
        self._output_of: set[str] = set()
        self._allowed: dict[str, str] = {}
        self._usage: RunUsage | None = None

    def allowed(self, tool_id: str, by: str) -> None:
        """Note what let a call run without a question, as safe text, to be shown with its end."""
        self._allowed[tool_id] = by

    def show(self, event: FeedEvent) -> None:
        match event:
            case ChatText():
                self._stream(event.text)
            case ChatMessage(role="agent"):
                if "".join(event.content.split()) not in "".join(self._streamed.split()):  # lines were broken anew
                    self._break()
                    self._stream(event.content)
            case ToolStarted():
                self._note("→ ", call_summary(event.tool_name, event.tool_params), event.risk_level.value)
            case ToolOutput():
                self._output(event)
            case ToolFinished():
                self._finished(event)
            case ApprovalRequested() if not self._can_ask:
                self._waits(event)
            case RunUsage():
                self._usage = event
            case ChatError():
                self._break()
                complain(event.message, event.hint)
            case _:
                pass

    def end_turn(self) -> None:
        self._break()
        if self._usage is not None:
            tokens = f"{self._usage.input_tokens:,} tokens in, {self._usage.output_tokens:,} out"
            self._note("", f"{counted(self._usage.requests, 'request', 'requests')}, {tokens}")
            self._usage = None
        self._streamed = ""
        self._output_of.clear()
        self._allowed.clear()

    def _stream(self, text: str) -> None:
        self._streamed += text
        sys.stdout.write(shown(text))
        sys.stdout.flush()

    def _break(self) -> None:
        """Start a new line, unless at one."""
        if self._streamed and not self._streamed.endswith("\n"):
            self._stream("\n")

    def _note(self, mark: str, text: str, risk: str | None = None) -> None:
        self._break()
        level = ("", "") if risk is None else (f" [{risk}]", RISK_STYLES[risk])
        say(Text.assemble((f"{mark}{shortened(text, 300)}", "dim"), level))

    def _output(self, event: ToolOutput) -> None:
        self._break()
        self._output_of.add(event.tool_id)
        for line in event.text.splitlines():
            say(Text(f"  | {shown(line)}", style="dim"))

    def _finished(self, event: ToolFinished) -> None:
        if event.status is ExecutionStatus.COMPLETED:
            summary = result_summary(event.tool_name, event.result or {})
            by = self._allowed.get(event.tool_id)
            self._note("← ", f"{event.tool_name}: {summary}{f' ({by})' if by else ''}")
        else:
            self._note("← ", f"{event.tool_name}: {failure_summary(event)}")
        if event.tool_id not in self._output_of:
            for line in output_lines(event.result or {}):
                say(Text(f"  | {line}", style="dim"))
        for line in effect_lines(event.result or {}):
            say(line)

    def _waits(self, event: ApprovalRequested) -> None:
        self._break()
        say(f"Waits for approval ({event.risk_level.value}): {shortened(event.description, 300)}")
        say(f"hint: `byleave approvals approve {shown(event.approval_id)}` or `reject`, or answer on the chat page")


def failure_summary(event: ToolFinished) -> str:
    """Describe the outcome of a failed call in one line, not yet safe to print."""
    text = event.error or ""
    if event.status is ExecutionStatus.FAILED and event.error_type is not None:
        kind = "failed" if event.error_type is ErrorType.TOOL_ERROR else event.error_type.value.replace("_", " ")
    else:
        kind = event.status.value
    # Many sentences already begin with the word: "Rejected by the user: …".
    return text if text.lower().startswith(kind) else f"{kind}: {text}"


def result_summary(tool_name: str, result: JsonObject) -> str:
    """Describe a result in one line, not yet safe to print."""
    match tool_name:
        case "read_file":
            return counted(result.get("size"), "byte", "bytes")
        case "write_file":
            return f"{result.get('path')}, now {counted(result.get('size'), 'byte', 'bytes')}"
        case "execute_command":
            return f"exit code {result.get('exit_code')}"
        case "list_directory":
            least = "at least " if result.get("at_least") is True else ""
            return least + counted(result.get("total_count"), "entry", "entries")
        case "search_files":
            least = "at least " if result.get("truncated") is True else ""
            return least + counted(result.get("total_count"), "match", "matches")
        case "search_web":
            return counted(len(result.get("results") or []), "result", "results")
        case _:
            return str(result)


def output_lines(result: JsonObject) -> list[str]:
    """Return the last lines of a command's output, safe to print."""
    text = f"{result.get('stdout') or ''}{result.get('stderr') or ''}"
    lines = [shortened(line, 200) for line in text.splitlines()]
    left_out = len(lines) - OUTPUT_LINES
    return [f"… {left_out} lines before …", *lines[-OUTPUT_LINES:]] if left_out > 0 else lines


def effect_lines(result: JsonObject) -> Iterator[Text]:
    """Yield changed files, warnings, and weak isolation, safe to print."""
    changed = changed_files(result)
    if changed:
        yield Text(f"  {changed}")
    for warning in warnings_of(result):
        yield Text.assemble(("  warning: ", "bold red"), warning)
    weaker = weaker_isolation(result.get("isolation"))
    if weaker:
        yield Text(f"  {weaker}", style="yellow")


def weaker_isolation(isolation: object) -> str:
    """Describe missing isolation of a command, safe to print; empty if nothing is missing."""
    if not isinstance(isolation, dict) or not isolation:
        return ""
    applied = cast(JsonObject, isolation)
    gaps = [str(item) for item in items_of(applied.get("degraded"))]
    if applied.get("isolated") is False or applied.get("backend") == "none":
        return shortened(" ".join(["It ran without isolation.", *gaps]), 200)
    if applied.get("backend") != "bwrap":
        gaps.insert(0, f"It was held by {applied.get('backend')} alone.")
    if not gaps:
        return ""
    first = re.split(r": |\. |\.$", gaps[0])[0]
    more = f" ({len(gaps) - 1} more)" if len(gaps) > 1 else ""
    return f"isolation is weaker than it should be: {shortened(first, 120)}{more}"


MARK = "> "


class Terminal:
    """Reads lines, and asks questions in between."""

    def __init__(self, descriptor: int, prompt: ApprovalPrompt) -> None:
        self._descriptor = descriptor
        self._prompt = prompt
        self._turn = asyncio.Lock()
        self._typed = bytearray()
        self._ended = False
        self._news: asyncio.Future[None] | None = None
        self._questions = 0
        self._unasked = asyncio.Event()
        self._unasked.set()

    @classmethod
    def here(cls) -> "Terminal | None":
        """Return this process's terminal; None if it has none."""
        prompt = TerminalPrompt.here()
        return None if prompt is None else cls(sys.stdin.fileno(), prompt)

    async def ask(self, question: Question) -> Answer | None:
        """Ask a question; a line that is being read waits for it."""
        self._questions += 1
        self._unasked.clear()
        self._wake()
        try:
            async with self._turn:
                return await self._prompt.ask(question)
        finally:
            self._questions -= 1
            if self._questions == 0:
                self._unasked.set()

    async def unasked(self) -> None:
        """Wait until no question is on the screen."""
        await self._unasked.wait()

    def say(self, sentence: str) -> None:
        self._prompt.say(sentence)

    async def line(self) -> str | None:
        """Return the next line that is not blank; None at the end of input."""
        while True:
            async with self._turn:
                text = await self._read()
            if text is None and self._ended:
                return None
            if text is not None and text.strip():
                return text.strip()

    async def _read(self) -> str | None:
        """Return one line, or None if a question needs the terminal or the input ended."""
        sys.stderr.write(MARK)
        sys.stderr.flush()
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        loop.add_reader(self._descriptor, self._readable)
        try:
            if b"\n" not in self._typed:
                await self._news
        finally:
            loop.remove_reader(self._descriptor)
            self._news = None
        whole, found, rest = bytes(self._typed).partition(b"\n")
        if not found:
            return None
        self._typed = bytearray(rest)
        return whole.decode("utf-8", "replace")

    def _readable(self) -> None:
        try:
            data = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._typed += data
        self._ended = not data
        if self._ended or b"\n" in data:
            self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


RECONNECT_TRIES = 8


class Conversation:
    """A conversation with a project's agent. Enter it, then call `turn`."""

    def __init__(
        self,
        api: ServerApi,
        project_id: str,
        transcript: JsonTranscript | TerminalTranscript,
        *,
        settings: ClientSettings,
        terminal: Terminal | None = None,
        session_id: str | None = None,
        agent: str | None = None,
        mode: AgentMode | None = None,
        one_session: bool = False,
    ) -> None:
        """With `one_session`, questions of other sessions are not asked here."""
        self._api = api
        self._project_id = project_id
        self._transcript = transcript
        self._terminal = terminal
        self._desk = ApprovalDesk(
            api, project_id, terminal, timeout_seconds=settings.approval_timeout_seconds, tries=settings.post_tries
        )
        self.session_id = session_id
        self._agent = agent
        self._mode = mode
        self._one_session = one_session
        self._run_id: str | None = None
        self._cancelled = False
        self._ended: asyncio.Future[RunState] | None = None
        self._decided: set[str] = set()
        self._unasked: set[str] = set()
        """Calls above LOW that nobody has been asked about."""
        self._grants: dict[str, str] = {}
        """Texts of known grants, by id."""
        self._events: asyncio.Queue[FeedEvent] = asyncio.Queue()
        self._run_is_known = asyncio.Event()
        """Cleared while a message is being posted: events meanwhile may belong to its run."""
        self._run_is_known.set()
        self._last_event_id: int | None = None
        self._server_offset = time.time() - steady()
        """Seconds from `steady` to the server's clock, which deadlines use."""
        self._open = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Conversation":
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._show_events())]
        try:
            await self._while_feed_works(self._open.wait())
            if not self._one_session:
                known = self._desk.pending
                waiting = (await self._api.approvals()).approvals
                self._desk.settle(waiting, known=known, server_ahead=self._server_ahead())
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._desk.close()
        await cancel(*self._tasks)

    @property
    def can_cancel(self) -> bool:
        """True if a run is active and not yet cancelled."""
        return self._run_id is not None and not self._cancelled

    @property
    def cancelled(self) -> bool:
        """True if the last run was cancelled here."""
        return self._cancelled

    async def turn(self, message: str) -> RunState:
        """Send one message and follow its run to the end."""
        ended = self._ended = asyncio.get_running_loop().create_future()
        self._cancelled = False
        self._run_is_known.clear()
        try:
            accepted = await self._api.post_message(self._project_id, self._body(message))
            self.session_id, self._run_id = accepted.session_id, accepted.run_id
            self._run_is_known.set()
            return await self._while_feed_works(ended)
        finally:
            self._run_id = self._ended = None
            self._run_is_known.set()
            self._transcript.end_turn()

    def _body(self, message: str) -> MessageBody:
        try:
            return MessageBody(content=message, session_id=self.session_id, mode=self._mode, agent=self._agent)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            raise CallerError(f"This message cannot be sent: {wrong['loc'][0]}: {wrong['msg']}.") from None

    async def cancel(self) -> None:
        """Cancel the run."""
        if self._run_id is None:
            return
        self._cancelled = True
        try:
            await self._api.cancel_run(self._project_id, self._run_id)
        except ByleaveError as error:
            complain(error.message, error.hint)

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                stream = self._api.stream(self._project_id, self._resume_at())
                async with stream:
                    if stream.server_time is not None:
                        self._server_offset = stream.server_time.timestamp() - steady()
                    self._open.set()
                    async for number, event in stream:
                        failures, self._last_event_id = 0, number
                        if isinstance(event, ApprovalDecided):
                            self._decided.add(event.approval_id)
                            self._desk.decided(event)
                        self._events.put_nowait(event)
            except UnreachableError:
                if not self._open.is_set() or failures >= RECONNECT_TRIES:
                    raise
            failures += 1
            await asyncio.sleep(pause(failures, 0.2, 5.0))

    def _server_ahead(self) -> float:
        """Seconds the server's clock is ahead of ours, as ours is set now."""
        return steady() + self._server_offset - time.time()

    def _resume_at(self) -> int | None:
        """Return the event to resume after.

        A feed that broke in a turn before its first event is read from the beginning.
        """
        return 0 if self._last_event_id is None and self._ended is not None else self._last_event_id

    async def _show_events(self) -> None:
        while True:
            event = await self._events.get()
            await self._run_is_known.wait()
            if self._terminal is not None:
                await self._terminal.unasked()
            ours = self._is_ours(event)
            if isinstance(event, GrantChanged):
                self._grants[event.grant.id] = event.grant.text
            if ours:
                self._show_allowed_by(event)
                self._transcript.show(event)
                if isinstance(event, RunChanged) and event.state in (RunState.DONE, RunState.FAILED):
                    self._end(event.state)
            if isinstance(event, ApprovalRequested) and (ours or not self._one_session):
                if event.approval_id in self._decided:
                    continue  # decided while it was in the queue
                self._desk.request(event, server_ahead=self._server_ahead())
                # The desk asks in its own task: let it start first, so that the next event waits for the answer.
                await asyncio.sleep(0)

    def _show_allowed_by(self, event: FeedEvent) -> None:
        """Show what allowed a call that ran without a question: a grant, a rule, the mode."""
        match event:
            case ToolStarted() if event.risk_level is not RiskLevel.LOW:
                self._unasked.add(event.tool_id)
            case ApprovalDecided(decided_by=by) if by is not None and not by.startswith("grant:"):
                self._unasked.difference_update(event.tool_ids)
            case ToolFinished(status=ExecutionStatus.COMPLETED) if event.tool_id in self._unasked:
                self._unasked.discard(event.tool_id)
                by = approved_by_text(event.approved_by, user_id=None, grants=self._grants)
                if by is not None:
                    self._transcript.allowed(event.tool_id, by)
            case _:
                pass

    def _end(self, state: RunState) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(state)

    def _is_ours(self, event: FeedEvent) -> bool:
        if self._run_id is None or getattr(event, "session_id", None) != self.session_id:
            return False
        return getattr(event, "run_id", None) in (None, self._run_id)

    async def _while_feed_works(self, awaitable: Awaitable[Result]) -> Result:
        """Await something, but raise if the feed has failed, since it can no longer come."""
        waiting: asyncio.Future[Result] = asyncio.ensure_future(awaitable)
        everything: set[asyncio.Future[Any]] = {waiting, *self._tasks}
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                for task in self._tasks:
                    if task.done():
                        task.result()  # raises the error that ended it
            return await waiting
        finally:
            waiting.cancel()


async def one_message(conversation: Conversation, message: str) -> ExitCode:
    """Take one turn."""
    with _leaving(conversation) as leave:
        state = await _until_left(asyncio.create_task(conversation.turn(message)), leave)
    if state is None:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if state is RunState.DONE else ExitCode.FAILED


async def converse(conversation: Conversation, terminal: Terminal) -> None:
    """Take turns until the person leaves."""
    say("Type a message and Enter. Ctrl-C cancels what runs, Ctrl-D leaves.")
    with _leaving(conversation) as leave:
        while (line := await _until_left(asyncio.create_task(terminal.line()), leave)) is not None:
            try:
                state = await _until_left(asyncio.create_task(conversation.turn(line)), leave)
            except ByleaveError as error:
                complain(error.message, error.hint)
                continue
            if state is RunState.FAILED and conversation.cancelled:
                say("Cancelled.")
            say("")
    say("")


@contextlib.contextmanager
def _leaving(conversation: Conversation) -> Generator[asyncio.Event]:
    """Handle Ctrl-C: the first cancels the run, the next leaves."""
    leave = asyncio.Event()
    cancelling: set[asyncio.Task[None]] = set()

    def interrupted() -> None:
        if conversation.can_cancel:
            say("\nCancelling. Ctrl-C again leaves.")
            cancelling.add(asyncio.create_task(conversation.cancel()))
        else:
            leave.set()

    with on_stop(interrupted, leave.set):
        try:
            yield leave
        finally:
            for task in cancelling:
                task.cancel()


async def _until_left(task: "asyncio.Task[Result]", leave: asyncio.Event) -> Result | None:
    """Return the task's result; None if the person left first."""
    leaving = asyncio.create_task(leave.wait())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return None if leave.is_set() or not task.done() else task.result()
    finally:
        await cancel(task, leaving)


@in_loop(app)
async def chat(
    message: Annotated[
        str | None, typer.Argument(metavar="[MESSAGE]", help="One message; left out: a conversation.")
    ] = None,
    server: Server = None,
    project: ProjectId = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this session.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Which agent works on it; left out: chat.")] = None,
    mode: Annotated[AgentMode | None, typer.Option(help="How much the agent must ask; left out: its own mode.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write every event of the run as a line of JSON.")] = False,
    verbose: Verbose = False,
) -> ExitCode:
    """Chat with the agent in the terminal.

    What needs your approval is asked in between. With MESSAGE: one turn, then exit 0 when the agent is done and 1 when
    it failed. Without a terminal it says what waits for approval, and waits until it was decided elsewhere. Ctrl-C
    cancels the run first, then leaves.

    \b
    Example:
      byleave chat "read package.json and tell me the version"
      byleave chat --agent reviewer "look at src/app.py"
      byleave chat
    """
    set_up_logging(logging.ERROR, verbose=verbose)
    terminal = Terminal.here()
    if message is None and terminal is None:
        complain("There is no terminal to chat on.", "give the message: byleave chat 'list src'")
        return ExitCode.USAGE
    known = find_server(server)
    async with known.api() as api:
        if project is None:
            project = (await project_to_watch(api, known, Path.cwd())).project_id
        conversation = Conversation(
            api,
            project,
            JsonTranscript() if as_json else TerminalTranscript(can_ask=terminal is not None),
            settings=read_settings(ClientSettings),
            terminal=terminal,
            session_id=session,
            agent=agent,
            mode=mode,
            one_session=message is not None,
        )
        try:
            async with conversation:
                if message is not None:
                    return await one_message(conversation, message)
                assert terminal is not None  # noqa: S101 - checked above
                await converse(conversation, terminal)
                return ExitCode.OK
        except NotFound as error:
            # The feed fails first for an unknown project; an unknown session has its own message.
            if any(one.project_id == project for one in (await api.list_projects()).projects):
                raise
            raise await unknown_project(api, project) from error
