"""One turn of an editor's session: a message posted, its run followed on the feed, everything told to the editor.

The feed is opened before the message is posted, and gone on with where it broke off. Questions are put in the editor's
dialog, each in a task of its own: what is decided elsewhere meanwhile counts, and a late answer is told so. The answer
carries the digest of what was shown. This module decides nothing and never reads a file itself.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from acp import RequestError
from acp.helpers import text_block, tool_content, tool_diff_content, update_agent_message_text, update_tool_call
from acp.interfaces import Client as Editor
from acp.schema import (
    AllowedOutcome,
    ContentToolCallContent,
    FileEditToolCallContent,
    PermissionOption,
    StopReason,
    TerminalToolCallContent,
    ToolCallUpdate,
)

from byleave.protocol.approvals import ApproveBody, DecisionAnswer, RejectBody
from byleave.protocol.chat import Cancelled, MessageAccepted, MessageBody, MessageList, SessionList
from byleave.protocol.errors import ByleaveError, ConflictError, UnreachableError
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
from byleave.protocol.grants import GrantTerms
from byleave.protocol.states import ApprovalScope, ApprovalStatus, RunState

from .acp_calls import absolute, begun, ended, output_tail, written

TRIES = 8
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
NOT_FOUND = -32002
ALLOW, REJECT, CLASS = "allow", "reject", "class:"
MOST_SUGGESTIONS = 3
Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent


class Chat(Protocol):
    """What the bridge needs of a server; the client's `ServerApi` is one."""

    async def post_message(self, project_id: str, body: MessageBody) -> MessageAccepted: ...

    async def list_messages(self, project_id: str, session_id: str) -> MessageList: ...

    async def list_sessions(self, project_id: str) -> SessionList: ...

    async def cancel_run(self, project_id: str, run_id: str) -> Cancelled: ...

    async def approve(self, project_id: str, approval_id: str, body: ApproveBody) -> DecisionAnswer: ...

    async def reject(self, project_id: str, approval_id: str, body: RejectBody) -> DecisionAnswer: ...

    def stream(
        self, project_id: str, last_event_id: int | None = None
    ) -> "AbstractAsyncContextManager[Feed, None]": ...


class Feed(Protocol):
    def __aiter__(self) -> AsyncIterator[tuple[int, FeedEvent]]: ...


@dataclass
class Place:
    """Where an editor's session works, and the chat session behind it once there is one."""

    project_id: str
    directory: Path
    session_id: str | None = None


@dataclass
class _Question:
    """One dialog of the editor."""

    asked: ApprovalRequested
    decided: ApprovalDecided | None = None
    answered: bool = False
    """Whether the editor's user has answered."""


@dataclass
class Turn:
    """Follows one message to the end of its run."""

    chat: Chat
    editor: Editor
    editor_session: str
    place: Place
    reads_files: bool = False
    agent: str | None = None
    _run_id: str | None = None
    _cancelled: bool = False
    _failed: bool = False
    _said: str = ""
    _output: dict[str, str] = field(default_factory=dict[str, str])
    _questions: dict[str, _Question] = field(default_factory=dict[str, _Question])
    _dialogs: "set[asyncio.Task[None]]" = field(default_factory=set["asyncio.Task[None]"])

    async def run(self, message: str) -> StopReason:
        """Post the message and tell the editor everything until its run has ended."""
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
        """Call off the run, also when it is only just being posted."""
        self._cancelled = True
        if self._run_id is not None:
            with suppress(ConflictError):  # it has ended by itself
                await self.chat.cancel_run(self.place.project_id, self._run_id)

    async def _follow(self, message: str) -> RunState:
        seen: int | None = None
        failures = 0
        while True:
            try:
                # A feed that broke before it said anything is read from its beginning: nothing may be missed.
                start = seen if self._run_id is None else seen or 0
                async with self.chat.stream(self.place.project_id, start) as feed:
                    if self._run_id is None:
                        await self._post(message)
                    async for number, event in feed:
                        failures, seen = 0, number
                        state = await self._hear(event)
                        if state is not None:
                            return state
            except UnreachableError:
                if self._run_id is None or failures >= TRIES:
                    raise
            failures += 1
            await asyncio.sleep(min(FIRST_PAUSE_SECONDS * 2**failures, LONGEST_PAUSE_SECONDS))

    async def _post(self, message: str) -> None:
        body = MessageBody(content=message, session_id=self.place.session_id, agent=self.agent)
        accepted = await self.chat.post_message(self.place.project_id, body)
        self.place.session_id, self._run_id = accepted.session_id, accepted.run_id
        if self._cancelled:
            await self.cancel()

    async def _hear(self, event: FeedEvent) -> RunState | None:
        """Tell the editor of an event of this run; the run's last state when it has ended."""
        if getattr(event, "session_id", None) != self.place.session_id:
            return None
        if getattr(event, "run_id", None) not in (None, self._run_id):
            return None
        match event:
            case ChatText():
                await self._say(event.text)
            case ChatMessage(role="agent") if event.content.strip() not in self._said:
                await self._say(event.content)
            case ChatError():
                self._failed = True
                await self._say(f"\n\n{event.message}" + (f"\n{event.hint}" if event.hint else ""))
            case RunChanged(state=RunState.DONE | RunState.FAILED as state):
                return state
            case _:
                await self._hear_of_call(event)
        return None

    async def _hear_of_call(self, event: FeedEvent) -> None:
        match event:
            case ToolStarted():
                await self._tell(begun(event, self.place.directory))
            case ToolOutput():
                self._output[event.tool_id] = tail = output_tail(self._output.get(event.tool_id, ""), event.text)
                await self._tell(update_tool_call(event.tool_id, content=[tool_content(text_block(tail))]))
            case ApprovalRequested():
                self._ask(event)
            case ApprovalDecided():
                await self._decided(event)
            case ToolFinished():
                await self._tell(ended(event))
            case _:
                pass

    async def _say(self, text: str) -> None:
        self._said += text
        await self._tell(update_agent_message_text(text))

    async def _tell(self, update: Any) -> None:
        await self.editor.session_update(self.editor_session, update)

    # Questions

    def _ask(self, asked: ApprovalRequested) -> None:
        if asked.approval_id in self._questions:
            return
        question = self._questions[asked.approval_id] = _Question(asked)
        dialog = asyncio.create_task(self._dialog(question))
        self._dialogs.add(dialog)
        dialog.add_done_callback(self._dialogs.discard)

    async def _dialog(self, question: _Question) -> None:
        asked = question.asked
        call = ToolCallUpdate(
            tool_call_id=asked.tool_id, title=asked.description, status="pending", content=await self._shown(asked)
        )
        try:
            response = await self.editor.request_permission(self.editor_session, call, _options(asked))
            outcome = response.outcome
            if not isinstance(outcome, AllowedOutcome):
                return  # the dialog was closed without an answer: others may still give one
            if question.decided is not None:
                await self._say(_already(question.decided))
                return
            question.answered = True
            await self._answer(asked, outcome.option_id)
        except ConflictError as error:
            await self._say(f"\n\nAlready decided ({error.state}): {error.message}\n")
        except ByleaveError as error:
            question.answered = False
            await self._say(f"\n\nThe answer was not taken: {error.message}" + (f" {error.hint}" if error.hint else ""))
        except (RequestError, ConnectionError):
            return  # an editor without such a dialog: the question waits for who answers elsewhere

    async def _answer(self, asked: ApprovalRequested, option: str) -> None:
        project_id = self.place.project_id
        if option == ALLOW:
            await self.chat.approve(
                project_id, asked.approval_id, ApproveBody(decision="approved", digest=asked.digest)
            )
        elif option.startswith(CLASS):
            suggestion = asked.suggestions[int(option.removeprefix(CLASS))]
            body = ApproveBody(
                decision="approved",
                scope=ApprovalScope.CLASS,
                terms=GrantTerms(rule=suggestion.rule),
                digest=asked.digest,
            )
            await self.chat.approve(project_id, asked.approval_id, body)
        else:
            await self.chat.reject(project_id, asked.approval_id, RejectBody())

    async def _decided(self, event: ApprovalDecided) -> None:
        question = self._questions.get(event.approval_id)
        if question is not None:
            question.decided = event
        if event.status is ApprovalStatus.APPROVED:
            for tool_id in event.tool_ids:
                await self._tell(update_tool_call(tool_id, status="in_progress"))
        elif question is not None and not question.answered:
            note = tool_content(text_block(_ended_without(event)))
            await self._tell(update_tool_call(question.asked.tool_id, status="failed", content=[note]))

    async def _shown(self, asked: ApprovalRequested) -> list[Content]:
        """What the person sees before they answer."""
        lines = [asked.description, *(finding.reason for finding in asked.findings)]
        content: list[Content] = [tool_content(text_block("\n".join(lines)))]
        path = absolute(asked.tool_params, self.place.directory)
        if asked.tool_name == "write_file" and path is not None and self.reads_files:
            before, known = await self._before(str(path))
            after = written(asked.tool_params, before or "") if known else None
            if after is not None:
                content.append(tool_diff_content(str(path), after, before))
        return content

    async def _before(self, path: str) -> tuple[str | None, bool]:
        """The file as the editor has it, None for a new one; and whether that is known at all."""
        try:
            return (await self.editor.read_text_file(self.editor_session, path)).content, True
        except RequestError as error:
            return None, error.code == NOT_FOUND


def _options(asked: ApprovalRequested) -> list[PermissionOption]:
    return [
        PermissionOption(option_id=ALLOW, name="Allow once", kind="allow_once"),
        *(
            PermissionOption(option_id=f"{CLASS}{place}", name=f"In this session: {one.text}", kind="allow_always")
            for place, one in enumerate(asked.suggestions[:MOST_SUGGESTIONS])
        ),
        PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"),
    ]


def _ended_without(decided: ApprovalDecided) -> str:
    """Why a call was not run that the editor's user did not answer for."""
    match decided.status:
        case ApprovalStatus.TIMEOUT:
            return "nobody answered in time, so nothing was run"
        case ApprovalStatus.CANCELLED:
            return "called off, so nothing was run"
        case status:
            return f"{status.value} elsewhere" + (f": {decided.reason}" if decided.reason else "")


def _already(decided: ApprovalDecided) -> str:
    if decided.status is ApprovalStatus.TIMEOUT:
        return "\n\nThe time to answer was over. Your answer came later and changed nothing.\n"
    by = f" by {decided.decided_by}" if decided.decided_by else ""
    return f"\n\nAlready decided: {decided.status.value}{by}. Your answer came later and changed nothing.\n"
