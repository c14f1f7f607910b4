"""Byleave for ACP: the chat agent inside Zed, JetBrains, Neovim and other editors.

    await serve_stdio(EditorAgent(chat, open_project, memory))      # what `byleave acp` does

An editor's session is a chat session of its directory's project; a prompt is a message, and `Turn` follows its run on
the feed. The editor's dialog asks the user; the answer is posted with their own token and the digest that was shown,
and the server decides whether it still counts. Nothing is executed here, files are only read through the editor, and
no path outside the session's directory is shown to it.
"""

import asyncio
import json
import os
import posixpath
import shutil
import stat
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from acp import PROTOCOL_VERSION, RequestError, run_agent
from acp.core import DEFAULT_STDIO_BUFFER_LIMIT_BYTES
from acp.helpers import (
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_tool_call,
    update_user_message_text,
)
from acp.interfaces import Client as Editor
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AllowedOutcome,
    AudioContentBlock,
    ClientCapabilities,
    ContentToolCallContent,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    HttpMcpServer,
    ImageContentBlock,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpServerStdio,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptResponse,
    ResourceContentBlock,
    SessionCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SseMcpServer,
    StopReason,
    TerminalToolCallContent,
    TextContentBlock,
    TextResourceContents,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    ToolKind,
)

from byleave.gate import MASK_PREFIX, safe_text
from byleave.protocol.approvals import ApproveBody, DecisionAnswer, RejectBody, SeenRole, WholeCall
from byleave.protocol.chat import (
    CHAT_AGENT,
    MAX_MESSAGE_CHARACTERS,
    Cancelled,
    MessageAccepted,
    MessageBody,
    MessageList,
    SessionList,
)
from byleave.protocol.errors import ByleaveError, CallerError, ConflictError, NotFound, SignedOut, UnreachableError
from byleave.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    ChatError,
    ChatMessage,
    ChatText,
    FeedEvent,
    RunChanged,
    ToolFinished,
    ToolOutput,
    ToolStarted,
)
from byleave.protocol.executions import PROGRAM, PROGRAM_WORDS, Execution, ExecutionPage
from byleave.protocol.grants import GrantTerms
from byleave.protocol.states import ApprovalScope, ApprovalStatus, ExecutionStatus, RunState
from byleave.protocol.wire import new_id

KINDS: dict[str, ToolKind] = {
    "read_file": "read",
    "write_file": "edit",
    "execute_command": "execute",
    "list_directory": "read",
    "search_files": "search",
    "search_web": "fetch",
}
TITLE_CHARACTERS = 200
SHOWN_CHARACTERS = 4000
"""Limit of a call's output shown with it."""
DIFF_CHARACTERS = 200_000
LEFT_OUT = " characters left out …"
"""Mark of a text that the feed shortened."""


def begun(event: ToolStarted, directory: Path) -> ToolCallStart:
    path = absolute(event.tool_params, directory)
    return start_tool_call(
        event.tool_id,
        title(event.tool_name, event.tool_params),
        kind=KINDS.get(event.tool_name, "other"),
        status="in_progress" if event.approved_by is not None else "pending",
        locations=[ToolCallLocation(path=str(path))] if path is not None else None,
        raw_input=event.tool_params,
    )


def replayed(call: Execution, directory: Path) -> ToolCallStart:
    """A call of an earlier time, as an editor shows it that opens its session again."""
    path = absolute(call.tool_params, directory)
    text = "\n".join(part for part in (call.error, _result(call.tool_name, call.result) if call.result else "") if part)
    done, open_still = call.status is ExecutionStatus.COMPLETED, not call.status.ended
    return start_tool_call(
        call.tool_id,
        title(call.tool_name, call.tool_params),
        kind=KINDS.get(call.tool_name, "other"),
        status="completed" if done else "in_progress" if open_still else "failed",
        content=[tool_content(text_block(text))] if text else None,
        locations=[ToolCallLocation(path=str(path))] if path is not None else None,
        raw_input=call.tool_params,
    )


def ended(event: ToolFinished) -> ToolCallProgress:
    done = event.status is ExecutionStatus.COMPLETED
    text = "" if done else (event.error or event.status.value)
    if done or event.result:  # also what a command printed before it was stopped
        text = "\n".join(part for part in (text, _result(event.tool_name, event.result or {})) if part)
    return update_tool_call(
        event.tool_id,
        status="completed" if done else "failed",
        # A write keeps the diff that was shown with its question.
        content=None if done and event.tool_name == "write_file" else [tool_content(text_block(text))],
        raw_output=event.result,
    )


def title(tool_name: str, params: Mapping[str, Any]) -> str:
    match tool_name, params:
        case "execute_command", {"command": str(command)}:
            args = params.get("args")
            text = " ".join([command, *map(str, cast(list[Any], args) if isinstance(args, list) else ())])
        case _, {"path": str(path)}:
            text = f"{tool_name} {path}"
        case _, {"query": str(query)}:
            text = f"{tool_name} {query}"
        case _:
            text = tool_name
    return one_line(text)


def one_line(text: str) -> str:
    line = safe_text(" ".join(text.split()))
    return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1]}…"


def absolute(params: Mapping[str, Any], directory: Path) -> Path | None:
    """Return the absolute path of a call; None if it is outside the directory."""
    path = params.get("path")
    if not isinstance(path, str):
        return None
    root = str(directory)
    whole = posixpath.normpath(posixpath.join(root, path))
    return Path(whole) if whole.startswith(root.rstrip("/") + "/") else None


def written(params: Mapping[str, Any], before: str) -> str | None:
    """Return a file's content after a write; None if it is not fully known."""
    content = params.get("content")
    if not isinstance(content, str) or LEFT_OUT in content:
        return None
    after = before + content if params.get("mode") == "append" else content
    return after if len(after) + len(before) <= DIFF_CHARACTERS else None


def output_tail(before: str, more: str) -> str:
    return (before + more)[-SHOWN_CHARACTERS:]


def _result(tool_name: str, result: Mapping[str, Any]) -> str:
    match tool_name:
        case "read_file" if result.get("encoding") != "base64":
            text = str(result.get("content", ""))
        case "execute_command":
            parts = [str(result.get("stdout", "")), str(result.get("stderr", "")), f"exit {result.get('exit_code')}"]
            text = "\n".join(part.rstrip("\n") for part in parts if part)
        case _:
            text = json.dumps(result, ensure_ascii=False, indent=1)
    half = SHOWN_CHARACTERS // 2
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:half]}\n…\n{text[-half:]}"


TRIES = 8
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
NOT_FOUND = -32002
ALLOW, REJECT, CLASS = "allow", "reject", "class:"
MOST_SUGGESTIONS = 3
Answer = TypeVar("Answer")
Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent


class Chat(Protocol):
    """The part of a server that the bridge needs; `ServerApi` implements it."""

    async def post_message(self, project_id: str, body: MessageBody) -> MessageAccepted: ...
    async def list_messages(self, project_id: str, session_id: str) -> MessageList: ...
    async def list_sessions(self, project_id: str) -> SessionList: ...
    async def cancel_run(self, project_id: str, run_id: str) -> Cancelled: ...
    async def whole_call(self, approval_id: str) -> WholeCall: ...
    async def history(self, filters: Mapping[str, str | int] | None = None) -> ExecutionPage: ...
    async def approve(self, project_id: str, approval_id: str, body: ApproveBody) -> DecisionAnswer: ...
    async def reject(self, project_id: str, approval_id: str, body: RejectBody) -> DecisionAnswer: ...
    def stream(
        self, project_id: str, last_event_id: int | None = None
    ) -> "AbstractAsyncContextManager[Feed, None]": ...


class Feed(Protocol):
    def __aiter__(self) -> AsyncIterator[tuple[int, FeedEvent]]: ...


@dataclass
class EditorSession:
    """Project and directory of an editor's session, and its chat session, if any."""

    project_id: str
    directory: Path
    session_id: str | None = None
    notice: str | None = None
    """Told with the first answer."""


@dataclass
class _Question:
    """A dialog of the editor."""

    request: ApprovalRequested
    decided: ApprovalDecided | None = None
    answered: bool = False
    """True once the editor's user has answered."""


@dataclass
class Turn:
    """Follows one message to the end of its run, and updates the editor.

    The feed is opened before the message is posted, and resumed if it breaks. Each question is a task: a decision made
    elsewhere meanwhile counts, and a late answer is reported as late.
    """

    chat: Chat
    editor: Editor
    editor_session: str
    session: EditorSession
    reads_files: bool = False
    agent: str | None = None
    _run_id: str | None = None
    _cancelled: bool = False
    _failed: bool = False
    _sent: str = ""
    _output: dict[str, str] = field(default_factory=dict[str, str])
    _questions: dict[str, _Question] = field(default_factory=dict[str, _Question])
    _dialogs: "set[asyncio.Task[None]]" = field(default_factory=set["asyncio.Task[None]"])

    async def run(self, message: str) -> StopReason:
        """Post the message and update the editor until its run has ended."""
        try:
            state = await self._follow(message)
        finally:
            for dialog in self._dialogs:
                dialog.cancel()
            await asyncio.gather(*self._dialogs, return_exceptions=True)
        if state is RunState.DONE:
            return "end_turn"
        return "refusal" if self._failed else "cancelled"

    async def cancel(self) -> None:
        """Cancel the run, even if it is just being posted."""
        self._cancelled = True
        run_id = self._run_id
        if run_id is not None:
            with suppress(ConflictError):  # it had already ended
                await _persist(lambda: self.chat.cancel_run(self.session.project_id, run_id))

    async def _follow(self, message: str) -> RunState:
        # With its key a message whose answer was lost is posted again, and arrives once.
        body = MessageBody(
            content=message, session_id=self.session.session_id, agent=self.agent, client_key=new_id("acp")
        )
        posted = False
        seen: int | None = None
        failures = 0
        while True:
            try:
                # A feed that broke before its first event is read from the beginning: nothing may be missed.
                start = seen or 0 if posted else seen
                async with self.chat.stream(self.session.project_id, start) as feed:
                    posted = True
                    if self._run_id is None:
                        await self._post(body)
                    async for number, event in feed:
                        failures, seen = 0, number
                        state = await self._handle(event)
                        if state is not None:
                            return state
            except UnreachableError:
                if not posted or failures >= TRIES:
                    raise
            failures += 1
            await _pause(failures)

    async def _post(self, body: MessageBody) -> None:
        accepted = await self.chat.post_message(self.session.project_id, body)
        self.session.session_id, self._run_id = accepted.session_id, accepted.run_id
        if self._cancelled:
            await self.cancel()

    async def _handle(self, event: FeedEvent) -> RunState | None:
        """Update the editor for an event of this run; return the state when the run has ended."""
        if getattr(event, "session_id", None) != self.session.session_id:
            return None
        if getattr(event, "run_id", None) not in (None, self._run_id):
            return None
        match event:
            case ChatText():
                await self._say(event.text)
            case ChatMessage(role="agent") if event.content.strip() not in self._sent:
                await self._say(event.content)
            case ChatError():
                self._failed = True
                await self._say(f"\n\n{event.message}" + (f"\n{event.hint}" if event.hint else ""))
            case RunChanged(state=RunState.DONE | RunState.FAILED as state):
                return state
            case _:
                await self._handle_tool_event(event)
        return None

    async def _handle_tool_event(self, event: FeedEvent) -> None:
        match event:
            case ToolStarted():
                await self._update(begun(event, self.session.directory))
            case ToolOutput():
                self._output[event.tool_id] = tail = output_tail(self._output.get(event.tool_id, ""), event.text)
                await self._update(update_tool_call(event.tool_id, content=[tool_content(text_block(tail))]))
            case ApprovalRequested():
                self._ask(event)
            case ApprovalDecided():
                await self._decided(event)
            case ToolFinished():
                await self._update(ended(event))
            case _:
                pass

    async def _say(self, text: str) -> None:
        self._sent += text
        await self._update(update_agent_message_text(text))

    async def _update(self, update: Any) -> None:
        await self.editor.session_update(self.editor_session, update)

    # Questions

    def _ask(self, request: ApprovalRequested) -> None:
        known = self._questions.get(request.approval_id)
        if known is not None:
            if request.calls > known.request.calls:
                known.request = request  # an identical call joined: shown before the next answer
            return
        self._open(self._questions.setdefault(request.approval_id, _Question(request)))

    def _open(self, question: _Question) -> None:
        dialog = asyncio.create_task(self._dialog(question))
        self._dialogs.add(dialog)
        dialog.add_done_callback(self._dialogs.discard)

    async def _dialog(self, question: _Question) -> None:
        request = question.request
        call = ToolCallUpdate(
            tool_call_id=request.tool_id,
            title=one_line(self._asker(request) + request.description.partition("\n")[0]),
            status="pending",
            content=await self._dialog_content(request),
        )
        try:
            response = await self.editor.request_permission(self.editor_session, call, _options(request))
            outcome = response.outcome
            if not isinstance(outcome, AllowedOutcome):
                return  # the dialog was closed without an answer: others may still answer
            if question.decided is not None:
                await self._say(_late_answer(question.decided))
                return
            question.answered = True
            await self._answer(request, outcome.option_id)
        except ConflictError as error:
            if error.state == ApprovalStatus.PENDING:
                question.answered = False
                await self._say(f"\n\n{error.message}\n")
                self._open(question)
                return
            await self._say(f"\n\nAlready decided ({error.state}): {error.message}\n")
        except ByleaveError as error:
            question.answered = False
            await self._say(f"\n\nThe answer was not taken: {error.message}" + (f" {error.hint}" if error.hint else ""))
        except (RequestError, ConnectionError):
            return  # this editor has no such dialog: the question can be answered elsewhere

    async def _answer(self, request: ApprovalRequested, option: str) -> None:
        project_id = self.session.project_id
        if option == ALLOW:
            body = ApproveBody(decision="approved", digest=request.digest, calls=request.calls)
        elif option.startswith(CLASS):
            suggestion = request.suggestions[int(option.removeprefix(CLASS))]
            body = ApproveBody(
                decision="approved",
                scope=ApprovalScope.CLASS,
                terms=GrantTerms(rule=suggestion.rule),
                digest=request.digest,
                calls=request.calls,
            )
        else:
            await _persist(lambda: self.chat.reject(project_id, request.approval_id, RejectBody()))
            return
        await _persist(lambda: self.chat.approve(project_id, request.approval_id, body))

    async def _decided(self, event: ApprovalDecided) -> None:
        question = self._questions.get(event.approval_id)
        if question is not None:
            question.decided = event
        if event.status is ApprovalStatus.APPROVED:
            for tool_id in event.tool_ids:
                await self._update(update_tool_call(tool_id, status="in_progress"))
        elif question is not None and not question.answered:
            note = tool_content(text_block(_reason_not_run(event)))
            await self._update(update_tool_call(question.request.tool_id, status="failed", content=[note]))

    async def _dialog_content(self, request: ApprovalRequested) -> list[Content]:
        """Return the content of the dialog."""
        lines = [f"{self._asker(request)}{request.description}", *(finding.reason for finding in request.findings)]
        content: list[Content] = [tool_content(text_block("\n".join(lines)))]
        if request.tool_name == "write_file":
            content.append(await self._change(request) or tool_content(text_block(await self._whole(request))))
        for file in request.inspection.files if request.inspection is not None else ():
            if file.role is SeenRole.RUNS and file.text is not None:
                said = f"{safe_text(file.path)}, {'its beginning' if file.shortened else 'as it is now'}:\n"
                content.append(tool_content(text_block(said + safe_text(file.text, lines=True))))
        if request.calls > 1:
            content.append(tool_content(text_block(f"{request.calls} identical calls wait for this one answer.")))
        if MASK_PREFIX in f"{content}{request.tool_params}":
            how = f"`byleave approvals show {request.approval_id} --reveal`"
            content.append(tool_content(text_block(f"See what is masked on the page, or with {how}.")))
        return content

    def _asker(self, request: ApprovalRequested) -> str:
        """Name an agent that is not the one of this conversation: one that runs elsewhere may name it, too."""
        own = self.agent or CHAT_AGENT
        if request.agent_id in (None, own):
            return ""
        asker = PROGRAM_WORDS if request.agent_id == PROGRAM else f"the agent {safe_text(request.agent_id)}"
        return f"Asked by {asker}: "

    async def _change(self, request: ApprovalRequested) -> Content | None:
        """Return the diff of a write; None if the editor cannot compare all of it."""
        path = absolute(request.tool_params, self.session.directory)
        if path is None or not self.reads_files:
            return None
        before, known = await self._before(str(path))
        after = written(request.tool_params, before or "") if known else None
        return None if after is None else tool_diff_content(str(path), after, before)

    async def _whole(self, request: ApprovalRequested) -> str:
        if int(request.tool_params.get("content_size", 0)) > DIFF_CHARACTERS:
            return "What would be written is too long to be shown here: see all of it in the chat before you allow it."
        try:
            return (await _persist(lambda: self.chat.whole_call(request.approval_id))).text
        except ByleaveError as error:
            return f"What would be written cannot be shown here: {error.message}"

    async def _before(self, path: str) -> tuple[str | None, bool]:
        """Return the editor's version of a file (None if new), and whether it is known."""
        try:
            return (await self.editor.read_text_file(self.editor_session, path)).content, True
        except RequestError as error:
            return None, error.code == NOT_FOUND


async def _persist(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Retry while the server is unreachable, which may just be starting again. Only for what may be repeated."""
    for failures in range(1, TRIES + 1):
        with suppress(UnreachableError):
            return await ask()
        await _pause(failures)
    return await ask()


async def _pause(failures: int) -> None:
    await asyncio.sleep(min(FIRST_PAUSE_SECONDS * 2**failures, LONGEST_PAUSE_SECONDS))


def _options(request: ApprovalRequested) -> list[PermissionOption]:
    return [
        PermissionOption(option_id=ALLOW, name="Allow once", kind="allow_once"),
        *(
            PermissionOption(option_id=f"{CLASS}{number}", name=f"In this session: {one.text}", kind="allow_always")
            for number, one in enumerate(request.suggestions[:MOST_SUGGESTIONS])
        ),
        PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"),
    ]


def _reason_not_run(decided: ApprovalDecided) -> str:
    """Say why a call did not run that the editor's user did not answer."""
    match decided.status:
        case ApprovalStatus.TIMEOUT:
            return "nobody answered in time, so nothing was run"
        case ApprovalStatus.CANCELLED:
            return "withdrawn, so nothing was run"
        case status:
            return f"{status.value} elsewhere" + (f": {decided.reason}" if decided.reason else "")


def _late_answer(decided: ApprovalDecided) -> str:
    if decided.status is ApprovalStatus.TIMEOUT:
        return "\n\nThe time to answer was over. Your answer came later and changed nothing.\n"
    by = f" by {decided.decided_by}" if decided.decided_by else ""
    return f"\n\nAlready decided: {decided.status.value}{by}. Your answer came later and changed nothing.\n"


REFUSED = -32603
"""Code of errors that explain themselves."""
SIGN_IN = -32000
"""To an editor it says that its user has to sign in, and to no other error."""
MOST_REPLAYED = 500
"""Calls that are shown again when a session is opened; the history has them all."""
PAGE = 100
OpenProject = Callable[[Path], Awaitable[str]]
"""Returns the project of a directory, once a client executes there."""
EditorsServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
Block = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock


def _piped(descriptor: int, *, reads: bool) -> int:
    """The descriptor, or if it is a file a pipe from it or to it: an event loop waits for pipes only."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    source, target = os.pipe()
    kept, passed = (source, target) if reads else (target, source)
    ends = (descriptor, passed) if reads else (passed, descriptor)

    def copy() -> None:
        with os.fdopen(ends[0], "rb", buffering=0) as taken, os.fdopen(ends[1], "wb", buffering=0) as given:
            shutil.copyfileobj(taken, given)

    threading.Thread(target=copy, name="byleave-acp-file", daemon=reads).start()
    return kept


async def serve_stdio(agent: "EditorAgent") -> None:
    """Speak ACP on stdin and stdout until the editor closes them. Anything else printed goes to stderr."""
    incoming = os.fdopen(_piped(os.dup(0), reads=True), "rb", buffering=0)
    outgoing = os.fdopen(_piped(os.dup(1), reads=False), "wb", buffering=0)
    wire = os.dup(1)
    os.dup2(2, 1)
    try:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=DEFAULT_STDIO_BUFFER_LIMIT_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), incoming)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, outgoing)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        await run_agent(agent, writer, reader)  # pyright: ignore[reportArgumentType] - optional methods are left out
        transport.close()
    finally:
        os.dup2(wire, 1)
        os.close(wire)


class EditorAgent:
    """The agent an editor talks to."""

    def __init__(
        self, chat: Chat, open_project: OpenProject, memory: MutableMapping[str, str], *, agent: str | None = None
    ) -> None:
        """`memory` maps editor sessions to chat sessions, so that the editor can reopen them later."""
        self._chat = chat
        self._open_project = open_project
        self._memory = memory
        self._agent = agent
        self._places: dict[str, EditorSession] = {}
        self._turns: dict[str, Turn] = {}
        self._editor: Editor | None = None
        self._reads_files = False

    def on_connect(self, conn: Editor) -> None:
        self._editor = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        files = client_capabilities.fs if client_capabilities is not None else None
        self._reads_files = bool(files is not None and files.read_text_file)
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_info=Implementation(name="byleave", title="Byleave", version=version("byleave")),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=False, audio=False, embedded_context=True),
                session_capabilities=SessionCapabilities(list=SessionListCapabilities()),
            ),
        )

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[EditorsServer] | None = None, **kwargs: Any
    ) -> NewSessionResponse:
        session_id = new_id("acp")
        project_id = await self._project(cwd)
        self._places[session_id] = EditorSession(project_id, Path(cwd), notice=_unused(mcp_servers))
        return NewSessionResponse(session_id=session_id)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[EditorsServer] | None = None, **kwargs: Any
    ) -> LoadSessionResponse:
        project_id = await self._project(cwd)
        chat_session = self._memory.get(session_id, session_id)
        try:
            messages = (await self._chat.list_messages(project_id, chat_session)).messages
            calls = await self._calls(project_id, chat_session)
        except NotFound:
            told = f"There is no session {session_id!r} in this directory."
            raise _refused(NotFound(told, hint="start a new one")) from None
        except ByleaveError as error:
            raise _refused(error) from error
        self._places[session_id] = EditorSession(project_id, Path(cwd), chat_session, _unused(mcp_servers))
        shown: list[tuple[str, Any]] = [(call.created_at, replayed(call, Path(cwd))) for call in calls]
        for message in messages:
            show = update_user_message_text if message.role == "user" else update_agent_message_text
            shown.append((message.created_at, show(message.content)))
        for _, update in sorted(shown, key=lambda one: one[0]):
            await self._connected().session_update(session_id, update)
        return LoadSessionResponse()

    async def _calls(self, project_id: str, chat_session: str) -> list[Execution]:
        """The calls of a session, newest first."""
        found: list[Execution] = []
        wanted: dict[str, str | int] = {"project_id": project_id, "session_id": chat_session, "limit": PAGE}
        while len(found) < MOST_REPLAYED:
            page = await self._chat.history(wanted)
            found += page.executions
            if page.next_cursor is None:
                break
            wanted["cursor"] = page.next_cursor
        return found

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        if cwd is None:
            return ListSessionsResponse(sessions=[])
        project_id = await self._project(cwd)
        names = {chat_session: name for name, chat_session in self._memory.items()}
        try:
            found = (await self._chat.list_sessions(project_id)).sessions
        except ByleaveError as error:
            raise _refused(error) from error
        return ListSessionsResponse(
            sessions=[
                SessionInfo(
                    session_id=names.get(one.session_id, one.session_id),
                    cwd=cwd,
                    title=one_line(one.title),
                    updated_at=one.created_at,
                )
                for one in found
            ]
        )

    async def prompt(self, session_id: str, prompt: list[Block], **kwargs: Any) -> PromptResponse:
        session = self._places.get(session_id)
        if session is None:
            raise _refused(NotFound(f"There is no session {session_id!r}.", hint="start a new one"))
        if session_id in self._turns:
            raise _refused(CallerError("This session is busy.", hint="wait for the answer, or cancel it"))
        if session.notice is not None:
            await self._connected().session_update(session_id, update_agent_message_text(session.notice))
            session.notice = None
        turn = Turn(
            self._chat, self._connected(), session_id, session, reads_files=self._reads_files, agent=self._agent
        )
        self._turns[session_id] = turn
        try:
            reason = await turn.run(_text(prompt))
        except ByleaveError as error:
            raise _refused(error) from error
        finally:
            del self._turns[session_id]
            if session.session_id is not None:
                self._memory[session_id] = session.session_id
        return PromptResponse(stop_reason=reason)

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        turn = self._turns.get(session_id)
        if turn is not None:
            await turn.cancel()

    async def _project(self, cwd: str) -> str:
        try:
            return await self._open_project(Path(cwd))
        except ByleaveError as error:
            raise _refused(error) from error

    def _connected(self) -> Editor:
        if self._editor is None:
            raise RuntimeError("no editor is connected")
        return self._editor


def _refused(error: ByleaveError) -> RequestError:
    code = SIGN_IN if isinstance(error, SignedOut) else NOT_FOUND if isinstance(error, NotFound) else REFUSED
    return RequestError(code, f"{error.message} hint: {error.hint}" if error.hint else error.message)


def _unused(mcp_servers: Sequence[EditorsServer] | None) -> str | None:
    """The notice about an editor's MCP servers: what they offer would pass neither gate nor record."""
    if not mcp_servers:
        return None
    names = ", ".join(f"`{one_line(server.name)}`" for server in mcp_servers)
    return f"Byleave does not use the MCP servers of your editor ({names}); its tools are its own.\n\n"


def _text(prompt: list[Block]) -> str:
    """Build the message of a prompt: linked resources are named, embedded ones are included."""
    parts: list[str] = []
    for block in prompt:
        match block:
            case TextContentBlock():
                parts.append(block.text)
            case ResourceContentBlock():
                parts.append(f"[{block.name}]({block.uri})")
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                parts.append(f"\n{resource.uri}:\n```\n{resource.text}\n```\n")
            case _:
                raise _refused(CallerError("Only text can be sent.", hint="leave out pictures, sound and binary files"))
    text = "".join(parts).strip()
    if not text:
        raise _refused(CallerError("The prompt is empty.", hint="write what the agent should do"))
    if len(text) > MAX_MESSAGE_CHARACTERS:
        raise _refused(
            CallerError(
                f"The prompt has {len(text):,} characters; {MAX_MESSAGE_CHARACTERS:,} are possible.",
                hint="name files instead of putting them in",
            )
        )
    return text
