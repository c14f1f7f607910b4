"""Byleave for ACP: the chat agent inside Zed, JetBrains, Neovim and any other editor that speaks it.

    await serve_stdio(EditorAgent(chat, open_project, memory))      # what `byleave acp` does

An editor's session is a chat session of the project that belongs to its directory; a prompt is a message, and what
happens comes from the feed (`acp_turns`). The editor's user is the person: their answer in the editor's dialog is
posted with their own token, and the server decides whether it still counts. Nothing is executed here, and no file is
read but through the editor.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, run_agent
from acp.core import DEFAULT_STDIO_BUFFER_LIMIT_BYTES
from acp.helpers import update_agent_message_text, update_user_message_text
from acp.interfaces import Client as Editor
from acp.schema import (
    AgentCapabilities,
    AudioContentBlock,
    ClientCapabilities,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResourceContentBlock,
    SessionCapabilities,
    SessionInfo,
    SessionListCapabilities,
    TextContentBlock,
    TextResourceContents,
)

from byleave.protocol.chat import MAX_MESSAGE_CHARACTERS
from byleave.protocol.errors import ByleaveError, NotFound
from byleave.protocol.wire import new_id

from .acp_turns import Chat, Place, Turn

REFUSED = -32000
"""The code of errors that say themselves what is wrong."""
OpenProject = Callable[[Path], Awaitable[str]]
"""Gives the project of a directory, once a client executes there."""
Block = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock


async def serve_stdio(agent: "EditorAgent") -> None:
    """Speak ACP on stdin and stdout until the editor closes them. What else is printed meanwhile goes to stderr."""
    incoming = os.fdopen(os.dup(0), "rb", buffering=0)
    outgoing = os.fdopen(os.dup(1), "wb", buffering=0)
    wire = os.dup(1)
    os.dup2(2, 1)
    try:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=DEFAULT_STDIO_BUFFER_LIMIT_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), incoming)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, outgoing)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        await run_agent(agent, writer, reader)  # pyright: ignore[reportArgumentType] - optional methods are left out
    finally:
        os.dup2(wire, 1)
        os.close(wire)


class EditorAgent:
    """The agent an editor talks to."""

    def __init__(
        self, chat: Chat, open_project: OpenProject, memory: MutableMapping[str, str], *, agent: str | None = None
    ) -> None:
        """`memory` keeps which chat session is behind an editor's, so that the editor can open it again later."""
        self._chat = chat
        self._open_project = open_project
        self._memory = memory
        self._agent = agent
        self._places: dict[str, Place] = {}
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

    async def new_session(self, cwd: str, **kwargs: Any) -> NewSessionResponse:
        session_id = new_id("acp")
        self._places[session_id] = Place(await self._project(cwd), Path(cwd))
        return NewSessionResponse(session_id=session_id)

    async def load_session(self, cwd: str, session_id: str, **kwargs: Any) -> LoadSessionResponse:
        project_id = await self._project(cwd)
        chat_session = self._memory.get(session_id, session_id)
        try:
            messages = (await self._chat.list_messages(project_id, chat_session)).messages
        except NotFound:
            raise _refused(f"There is no session {session_id!r} in this directory.", "start a new one") from None
        except ByleaveError as error:
            raise _refused(error.message, error.hint) from error
        self._places[session_id] = Place(project_id, Path(cwd), chat_session)
        for message in messages:
            show = update_user_message_text if message.role == "user" else update_agent_message_text
            await self._connected().session_update(session_id, show(message.content))
        return LoadSessionResponse()

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
            raise _refused(error.message, error.hint) from error
        return ListSessionsResponse(
            sessions=[
                SessionInfo(
                    session_id=names.get(one.session_id, one.session_id),
                    cwd=cwd,
                    title=one.title,
                    updated_at=one.created_at,
                )
                for one in found
            ]
        )

    async def prompt(self, session_id: str, prompt: list[Block], **kwargs: Any) -> PromptResponse:
        place = self._places.get(session_id)
        if place is None:
            raise _refused(f"There is no session {session_id!r}.", "start a new one")
        if session_id in self._turns:
            raise _refused("This session is busy.", "wait for the answer, or cancel it")
        turn = Turn(self._chat, self._connected(), session_id, place, reads_files=self._reads_files, agent=self._agent)
        self._turns[session_id] = turn
        try:
            reason = await turn.run(_text(prompt))
        except ByleaveError as error:
            raise _refused(error.message, error.hint) from error
        finally:
            del self._turns[session_id]
            if place.session_id is not None:
                self._memory[session_id] = place.session_id
        return PromptResponse(stop_reason=reason)

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        turn = self._turns.get(session_id)
        if turn is not None:
            await turn.cancel()

    async def _project(self, cwd: str) -> str:
        try:
            return await self._open_project(Path(cwd))
        except ByleaveError as error:
            raise _refused(error.message, error.hint) from error

    def _connected(self) -> Editor:
        if self._editor is None:
            raise RuntimeError("no editor is connected")
        return self._editor


def _refused(message: str, hint: str | None) -> RequestError:
    return RequestError(REFUSED, f"{message} hint: {hint}" if hint else message)


def _text(prompt: list[Block]) -> str:
    """The message a prompt makes. What the user points at is named; what they put in is put in."""
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
                raise _refused("Only text can be sent.", "leave out pictures, sound and binary files")
    text = "".join(parts).strip()
    if not text:
        raise _refused("The prompt is empty.", "write what the agent should do")
    if len(text) > MAX_MESSAGE_CHARACTERS:
        raise _refused(
            f"The prompt has {len(text):,} characters; {MAX_MESSAGE_CHARACTERS:,} are possible.",
            "name files instead of putting them in",
        )
    return text
