"""The server's routes as typed methods, over one pool of kept-alive connections, and its feed as a stream of events.

Every unsuccessful answer becomes a protocol error, so that callers decide by class: a caller's mistake, a refusal, a
conflict, or `UnreachableError` for a failure worth a retry. Once the server has answered, an answer that is not its own
(a maintenance page, a captive portal) is such a failure; before, it says that the address is wrong. The token is only
ever sent to the server it was given for: redirects are not followed, and a server on this machine must first prove its
identity.

A feed ends when the server ends it, and raises `UnreachableError` when it breaks or falls silent; the caller
reconnects. Unknown events of a newer server are skipped. A frame is dispatched only at its blank line, so a cut stream
never yields half an event. Parsing is linear in the bytes received, and an oversized frame is refused. Bodies, headers
and event contents are never logged.
"""

import asyncio
import io
import random
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Self, TypeVar, get_args
from urllib.parse import quote

import aiohttp
from pydantic import BaseModel, ValidationError
from yarl import URL

from byleave.protocol.approvals import (
    LOOKS_AT_WRITES,
    ApprovalList,
    ApproveBody,
    ConfirmBody,
    DecisionAnswer,
    EditableCall,
    EditAnswer,
    EditBody,
    Inspection,
    RejectBody,
    WholeCall,
)
from byleave.protocol.changes import (
    SessionUndoAnswer,
    SessionUndoPlan,
    SessionUndoReport,
    UndoAnswer,
    UndoBody,
    UndoPlan,
    UndoReport,
    WriteChange,
)
from byleave.protocol.chat import (
    Cancelled,
    MessageAccepted,
    MessageBody,
    MessageList,
    Project,
    ProjectBody,
    ProjectList,
    Session,
    SessionList,
)
from byleave.protocol.conversations import (
    FileOffers,
    SessionChanges,
    SessionDeleted,
    SessionExport,
    SessionSearch,
    SessionText,
    SessionTitle,
)
from byleave.protocol.errors import (
    ByleaveError,
    CallerError,
    ConfigurationError,
    ConflictError,
    NotFound,
    Problem,
    RefusedError,
    SignedOut,
    UnreachableError,
)
from byleave.protocol.events import FEED_EVENT, FeedEvent
from byleave.protocol.executions import (
    BatchAck,
    Begun,
    CompletedReport,
    ExecuteRequest,
    Execution,
    ExecutionPage,
    FailedReport,
    OutputChunk,
    QueueReport,
    ResultAck,
    ToolResponse,
)
from byleave.protocol.generation import GENERATION, Generation
from byleave.protocol.grants import Grant, GrantList, GrantPreview, GrantPreviewBody, GrantRule
from byleave.protocol.notices import NoticeTest, Notifications, PushDevice
from byleave.protocol.overview import PolicyDeclaration
from byleave.protocol.sign_in import PhoneLink, SignInLink
from byleave.protocol.tools import ToolCatalogue

from .identity import TOKEN_HINT
from .log import log
from .loopback import CONNECT_SECONDS, LoopbackAddress, ProvingConnector, loopback_numbers

MAX_FRAME_BYTES = 512 * 1024 * 1024


class Frame(NamedTuple):
    """A server-sent event, not parsed further."""

    id: str | None
    event: str
    data: bytes


class FrameReader:
    """Splits chunks into frames. `id` keeps its last value, as the standard demands."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._rest = bytearray()
        self._scanned = 0
        self._held = b""
        self._limit = max_frame_bytes
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames completed by this chunk."""
        if self._held or b"\r" in chunk:
            chunk = self._line_ends(chunk)
        rest = self._rest
        rest += chunk
        frames: list[Frame] = []
        start = 0
        while (end := rest.find(b"\n\n", max(start, self._scanned))) >= 0:
            frame = self._frame(bytes(rest[start:end]))
            if frame is not None:
                frames.append(frame)
            start = self._scanned = end + 2
        del rest[:start]
        self._scanned = max(len(rest) - 1, 0)
        if len(rest) > self._limit:
            raise UnreachableError(f"The server sent an event larger than {self._limit} bytes.")
        return frames

    def _line_ends(self, chunk: bytes) -> bytes:
        r"""Convert line ends to \n. Hold back a final \r: it may be half of a \r\n."""
        chunk = self._held + chunk
        self._held = b"\r" if chunk.endswith(b"\r") else b""
        return chunk.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _frame(self, block: bytes) -> Frame | None:
        event = "message"
        data: list[bytes] = []
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if name == b"data":
                data.append(value)
            elif name == b"event":
                event = value.decode("utf-8", "replace")
            elif name == b"id":
                self._id = value.decode("ascii", "replace")
        return Frame(self._id, event, b"\n".join(data)) if data else None


SILENCE_SECONDS = 45.0
"""The server sends a heartbeat every 15 s; a stream silent for this long counts as dead."""

BadFrame = Callable[[Frame], None]

_KINDS = frozenset(event.model_fields["kind"].default for event in get_args(get_args(FeedEvent)[0]))


class FeedStream:
    """A connection to a feed. Enter it, then iterate; or only iterate, and it opens and closes itself."""

    def __init__(
        self, api: "ServerApi", url: URL, headers: dict[str, str], on_bad_frame: BadFrame | None = None
    ) -> None:
        self._api = api
        self._url = url
        self._headers = headers
        self._on_bad_frame = on_bad_frame
        self._response: aiohttp.ClientResponse | None = None
        self.status = 0
        """Status of the response; 0 before there is one."""
        self.server_time: datetime | None = None
        """Server time of the response."""

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        try:
            url = await self._api.resolved(self._url)
            response = await self._api.session.get(url, headers=self._headers, timeout=timeout, allow_redirects=False)
            self.status = response.status
            if response.status >= 300:
                try:
                    raise await self._api.problem(response)
                finally:
                    response.close()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._api.unreachable(error) from error
        if response.status != 200 or response.content_type != "text/event-stream":
            response.close()
            no_feed = ConfigurationError(
                f"The program at {self._api.server_url} has no feed.", hint="is this the address of a Byleave server?"
            )
            raise self._api.foreign(response.status, no_feed)
        self._api.met = True
        self.server_time = server_date(response)
        self._response = response
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._response is not None:
            # Close instead of release: a stream has no end to read before the connection could be reused.
            self._response.close()
            self._response = None

    def __aiter__(self) -> AsyncIterator[tuple[int, FeedEvent]]:
        return self._events()

    async def _events(self) -> AsyncGenerator[tuple[int, FeedEvent]]:
        if self._response is None:
            async with self:
                async for pair in self._events():
                    yield pair
            return
        async for frame in self.frames():
            event = self._event(frame)
            if event is not None:
                yield event

    async def frames(self) -> AsyncGenerator[Frame]:
        """Yield frames as they arrive; the stream must be entered."""
        if self._response is None:
            raise RuntimeError("The feed is not open.")
        reader = FrameReader()
        content = self._response.content
        while True:
            try:
                chunk = await content.readany()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._api.unreachable(error) from error
            if not chunk:
                return
            for frame in reader.feed(chunk):
                yield frame

    def _event(self, frame: Frame) -> tuple[int, FeedEvent] | None:
        """Parse a frame. Skip kinds that we do not know: a newer server may send them."""
        if frame.event not in _KINDS:
            log.debug("unknown event skipped", kind=frame.event[:100])
            return None
        try:
            number = int(frame.id or "")
            return number, FEED_EVENT.validate_json(frame.data)
        except ValueError as error:
            # ValidationError is a ValueError; its text would quote the content, so only its type is logged.
            log.error("malformed event", kind=frame.event, error=type(error).__name__)
            if self._on_bad_frame is not None:
                self._on_bad_frame(frame)
            return None


def _pause_asked_for(response: aiohttp.ClientResponse) -> float | None:
    """Seconds to wait before a request that was one too many is sent again: nothing of it was done. None for others."""
    seconds = response.headers.get("Retry-After", "")
    # With jitter, so that those refused together do not come back together.
    return int(seconds) * random.uniform(1.0, 1.5) if response.status == 429 and SECONDS.fullmatch(seconds) else None  # noqa: S311 - no secret


def server_date(response: aiohttp.ClientResponse) -> datetime | None:
    """Return the server's time from the response's Date header."""
    header = response.headers.get("Date")
    try:
        return parsedate_to_datetime(header).astimezone(UTC) if header else None
    except (ValueError, OverflowError):
        return None


ANSWER_SECONDS = 60.0
TURN_SECONDS = 10.0
"""Longest time a request is held back because the server had too many (429); then the caller decides."""
SECONDS = re.compile(r"[0-9]{1,4}")
SLOWEST_LINE = 8 * 1024
"""Bytes a second of the slowest line that still delivers; the server waits as long."""
REPORT_SECONDS = 10.0
"""For the answer to a report: one that hangs is sent again, which does no harm, before the call's time is over."""
KEEP_ALIVE_SECONDS = 4.0
"""Below the 5 s after which servers close idle connections, so a post never meets one that is closing."""
MAX_PROBLEM_BYTES = 64 * 1024
LARGE_BYTES = 1 << 20
NEVER_TOO_LARGE_BYTES = 16 * 1024
"""Every proxy lets a body of this size pass; one that says 413 to it is misconfigured or out of order."""
MAX_RAW_BYTES = 32 << 20

Answer = TypeVar("Answer", bound=BaseModel)


class ServerApi:
    """A user's view of a server."""

    def __init__(
        self,
        server_url: str,
        token: str,
        *,
        client_id: str | None = None,
        key: str | None = None,
        generation: Generation | None = None,
    ) -> None:
        self.server_url = server_url.rstrip("/")
        url = URL(self.server_url)
        if url.scheme not in ("http", "https") or not url.host or url.user or url.query_string or url.fragment:
            raise ConfigurationError(
                f"{server_url!r} is not the address of a server.", hint="write it as http://HOST:PORT"
            )
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigurationError("The token is empty or holds characters no token has.", hint=TOKEN_HINT)
        self.client_id = client_id
        self._proxy = _proxy_for(url)
        self._base = url
        self._token = token
        self._loopback = LoopbackAddress(url, connect_seconds=CONNECT_SECONDS)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if client_id is not None:
            self._headers["Byleave-Client"] = client_id
        if key is not None:
            self._headers["Byleave-Client-Key"] = key
        if generation is not None:
            self._headers[GENERATION] = str(generation)
        self._session: aiohttp.ClientSession | None = None
        self.reached = False
        """True once anything has answered a request at this address."""
        self.met = False
        """True once a Byleave server has."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def sign_in_link(self) -> SignInLink:
        """Return a one-time link that signs a browser in."""
        return await self._post("/my/signin", None, SignInLink)

    async def phone_link(self) -> PhoneLink:
        """Return a one-time link that signs another device in, with its QR code."""
        return await self._post("/my/signin/phone", None, PhoneLink)

    # Notifications

    async def notices(self) -> Notifications:
        return await self._get("/my/notices", Notifications)

    async def test_notices(self) -> NoticeTest:
        return await self._post("/my/notices/test", None, NoticeTest)

    async def remove_device(self, device_id: str) -> PushDevice:
        return await self._post(f"/my/notices/devices/{quote(device_id, safe='')}/remove", None, PushDevice)

    # Projects and chat

    async def create_project(self, name: str) -> Project:
        # Defaults are left out: an older server knows only the name.
        body = ProjectBody(name=name).model_dump_json(exclude_defaults=True).encode()
        return await self._post("/my/projects", body, Project)

    async def list_projects(self) -> ProjectList:
        return await self._get("/my/projects", ProjectList)

    async def post_message(self, project_id: str, body: MessageBody) -> MessageAccepted:
        return await self._post(f"{_project(project_id)}/chat/messages", body, MessageAccepted)

    async def list_messages(self, project_id: str, session_id: str) -> MessageList:
        return await self._get(f"{_project(project_id)}/chat/messages", MessageList, {"session_id": session_id})

    async def list_sessions(self, project_id: str) -> SessionList:
        return await self._get(f"{_project(project_id)}/chat/sessions", SessionList)

    async def search_sessions(self, project_id: str, query: str) -> SessionSearch:
        """Find conversations by title or message."""
        return await self._get(f"{_project(project_id)}/chat/search", SessionSearch, {"query": query})

    async def offer_files(self, project_id: str, query: str) -> FileOffers:
        """Files of the workspace that a message could name."""
        return await self._get(f"{_project(project_id)}/files", FileOffers, {"query": query})

    async def rename_session(self, project_id: str, session_id: str, title: str) -> Session:
        return await self._post(f"{_session(project_id, session_id)}/rename", SessionTitle(title=title), Session)

    async def delete_session(self, project_id: str, session_id: str) -> SessionDeleted:
        return await self._post(f"{_session(project_id, session_id)}/delete", None, SessionDeleted)

    async def export_session(self, project_id: str, session_id: str) -> SessionExport:
        return await self._get(f"{_session(project_id, session_id)}/export", SessionExport)

    async def session_markdown(self, project_id: str, session_id: str) -> SessionText:
        return await self._get(f"{_session(project_id, session_id)}/markdown", SessionText)

    async def session_changes(self, project_id: str, session_id: str) -> SessionChanges:
        """What the calls of a conversation changed, as the record has it."""
        return await self._get(f"{_session(project_id, session_id)}/changes", SessionChanges)

    async def cancel_run(self, project_id: str, run_id: str) -> Cancelled:
        return await self._post(f"{_project(project_id)}/chat/runs/{_part(run_id)}/cancel", None, Cancelled)

    # Approvals

    async def approvals(self) -> ApprovalList:
        return await self._get("/my/approvals", ApprovalList)

    async def approve(self, project_id: str, approval_id: str, body: ApproveBody) -> DecisionAnswer:
        path = f"{_project(project_id)}/approvals/{_part(approval_id)}/approve"
        return await self._post(path, body, DecisionAnswer)

    async def reject(self, project_id: str, approval_id: str, body: RejectBody) -> DecisionAnswer:
        path = f"{_project(project_id)}/approvals/{_part(approval_id)}/reject"
        return await self._post(path, body, DecisionAnswer)

    async def confirm(self, approval_id: str, body: ConfirmBody) -> DecisionAnswer:
        return await self._post(f"/my/approvals/{_part(approval_id)}/confirm", body, DecisionAnswer)

    async def whole_call(self, approval_id: str, *, reveal: bool = False) -> WholeCall:
        query = {"reveal": "true"} if reveal else None
        return await self._get(f"/my/approvals/{_part(approval_id)}/whole", WholeCall, query)

    async def change(self, approval_id: str) -> WriteChange:
        """Return the effect of a pending write on its file."""
        return await self._get(f"/my/approvals/{_part(approval_id)}/change", WriteChange)

    async def editable(self, approval_id: str, *, reveal: bool = False) -> EditableCall:
        """Return what may be changed in a pending call."""
        query = {"reveal": "true"} if reveal else None
        return await self._get(f"/my/approvals/{_part(approval_id)}/editable", EditableCall, query)

    async def edit(self, project_id: str, approval_id: str, body: EditBody) -> EditAnswer:
        path = f"{_project(project_id)}/approvals/{_part(approval_id)}/edit"
        return await self._post(path, body, EditAnswer)

    # Grants

    async def grants(self, filters: Mapping[str, str] | None = None) -> GrantList:
        return await self._get("/my/grants", GrantList, dict(filters or {}))

    async def revoke_grant(self, grant_id: str) -> Grant:
        return await self._post(f"/my/grants/{_part(grant_id)}/revoke", None, Grant)

    async def preview_grant(self, project_id: str, rule: GrantRule) -> GrantPreview:
        path = f"{_project(project_id)}/grants/preview"
        return await self._post(path, GrantPreviewBody(rule=rule), GrantPreview)

    # Tools

    async def available_tools(self, project_id: str) -> ToolCatalogue:
        return await self._get(f"{_project(project_id)}/tools/available", ToolCatalogue)

    async def execute(self, request: ExecuteRequest, parent: str | None = None) -> ToolResponse:
        """Call a tool. `parent` is the traceparent of the span that calls."""
        return await self._post("/my/tools/execute", request, ToolResponse, parent=parent)

    async def get_tool(self, tool_id: str, wait: float | None = None) -> Execution:
        query = {} if wait is None else {"wait": f"{wait:g}"}
        return await self._get(f"/my/tools/{_part(tool_id)}", Execution, query, extra_seconds=wait or 0.0)

    async def history(self, filters: Mapping[str, str | int] | None = None) -> ExecutionPage:
        return await self._get("/my/tools/history", ExecutionPage, dict(filters or {}))

    async def undo_plan(self, tool_id: str) -> UndoPlan:
        """Return a preview of a call's undo, from the machine that ran it."""
        return await self._get(f"/my/tools/{_part(tool_id)}/undo", UndoPlan)

    async def undo(self, tool_id: str, body: UndoBody) -> UndoAnswer:
        return await self._post(f"/my/tools/{_part(tool_id)}/undo", body, UndoAnswer)

    async def session_undo_plan(self, project_id: str, session_id: str) -> SessionUndoPlan:
        """Preview of undoing a conversation, from the machine that ran its calls."""
        return await self._get(f"{_session(project_id, session_id)}/undo", SessionUndoPlan)

    async def undo_session(self, project_id: str, session_id: str, body: UndoBody) -> SessionUndoAnswer:
        return await self._post(f"{_session(project_id, session_id)}/undo", body, SessionUndoAnswer)

    async def cancel(self, project_id: str, tool_id: str) -> Cancelled:
        return await self._post(f"{_project(project_id)}/tools/{_part(tool_id)}/cancel", None, Cancelled)

    async def post_result(
        self, project_id: str, tool_id: str, report: CompletedReport | FailedReport | bytes
    ) -> ResultAck:
        path = f"{_project(project_id)}/tools/{_part(tool_id)}/result"
        return await self._post(path, report, ResultAck, REPORT_SECONDS)

    async def post_results(self, project_id: str, reports: Mapping[str, bytes]) -> BatchAck:
        """Post several reports at once."""
        # Each report is JSON already.
        results = [b'{"tool_id":"%b","report":%b}' % (_part(name).encode(), reports[name]) for name in reports]
        body = b'{"results":[%b]}' % b",".join(results)
        return await self._post(f"{_project(project_id)}/tools/results", body, BatchAck, REPORT_SECONDS)

    async def post_output(self, project_id: str, tool_id: str, chunk: OutputChunk) -> None:
        await self._tell(f"{_project(project_id)}/tools/{_part(tool_id)}/output", chunk)

    async def post_queued(self, project_id: str, report: QueueReport) -> None:
        """Report the calls that are queued here."""
        await self._tell(f"{_project(project_id)}/tools/queued", report)

    async def begin(self, project_id: str, tool_id: str) -> Begun:
        """Begin a call that was queued here."""
        return await self._post(f"{_project(project_id)}/tools/{_part(tool_id)}/begin", None, Begun)

    async def post_inspection(self, project_id: str, tool_id: str, inspection: Inspection) -> None:
        """Report the files that a call would run."""
        await self._tell(f"{_project(project_id)}/tools/{_part(tool_id)}/inspection", inspection)

    async def post_undo_report(self, project_id: str, tool_id: str, report: UndoReport) -> None:
        """Report the preview or the result of an undo."""
        await self._tell(f"{_project(project_id)}/tools/{_part(tool_id)}/undo-report", report)

    async def post_session_undo_report(self, project_id: str, session_id: str, report: SessionUndoReport) -> None:
        """Report the preview or the result of undoing a conversation."""
        await self._tell(f"{_session(project_id, session_id)}/undo-report", report)

    async def declare_policy(self, project_id: str, declaration: PolicyDeclaration) -> None:
        """Declare this machine's rules; they replace those declared before."""
        await self._tell(f"{_project(project_id)}/policy", declaration, method="PUT")

    # The feed

    def stream(
        self,
        project_id: str,
        last_event_id: int | None = None,
        *,
        executes: bool = False,
        workspace: str | None = None,
        isolation: str | None = None,
        on_bad_frame: BadFrame | None = None,
    ) -> FeedStream:
        """Return a project's feed. With `executes`, this machine offers to run its tools."""
        query: dict[str, str | int] = {"execute": "false"}
        if executes:
            if self.client_id is None:
                raise ConfigurationError("Only a client with an id can execute tools.")
            query = {"client": self.client_id}
            query |= {"workspace": workspace} if workspace is not None else {}
            query |= {"isolation": isolation} if isolation is not None else {}
        headers = {"Byleave-Looks": LOOKS_AT_WRITES} if executes else {}
        url = self._url(f"{_project(project_id)}/chat/stream", query)
        return FeedStream(self, url, headers | _feed_headers(last_event_id), on_bad_frame)

    def feed_at(self, path: str, last_event_id: str | None) -> FeedStream:
        """Return a feed by path and query, for a program that reads frames itself."""
        return FeedStream(self, self._url(path, {}), _feed_headers(last_event_id))

    def tool_stream(self, tool_id: str, last_event_id: int | None = None) -> FeedStream:
        """Return the feed of one call, from its beginning or after `last_event_id`."""
        url = self._url(f"/my/tools/{_part(tool_id)}/stream", {})
        return FeedStream(self, url, _feed_headers(last_event_id))

    # Requests

    async def _get(
        self,
        path: str,
        answer: type[Answer],
        query: Mapping[str, str | int] | None = None,
        *,
        extra_seconds: float = 0.0,
    ) -> Answer:
        return self._read(answer, await self._send("GET", path, query or {}, None, ANSWER_SECONDS + extra_seconds))

    async def _post(
        self,
        path: str,
        body: BaseModel | bytes | None,
        answer: type[Answer],
        seconds: float = ANSWER_SECONDS,
        *,
        parent: str | None = None,
    ) -> Answer:
        data = body.model_dump_json().encode() if isinstance(body, BaseModel) else body
        return self._read(answer, await self._send("POST", path, {}, data, seconds, parent))

    async def _tell(self, path: str, body: BaseModel, *, method: str = "POST") -> None:
        """Send a body that has no answer."""
        await self._send(method, path, {}, body.model_dump_json().encode(), ANSWER_SECONDS)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int],
        data: bytes | None,
        seconds: float,
        parent: str | None = None,
    ) -> bytes:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + TURN_SECONDS
        while True:
            async with self._open(method, path, query, data, seconds, parent) as response:
                if response.status < 300:
                    return await response.read()
                pause = _pause_asked_for(response)
                error = await self.problem(response, len(data or b""))
            if pause is None or loop.time() + pause > give_up:
                raise error
            await asyncio.sleep(pause)

    async def ask(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes, datetime | None]:
        """Send one raw request; return the status, the body and the server's time."""
        async with self._open(method, path, {}, data, ANSWER_SECONDS) as response:
            body = b""
            while piece := await response.content.read(MAX_RAW_BYTES + 1 - len(body)):
                body += piece
                if len(body) > MAX_RAW_BYTES:
                    response.close()
                    raise UnreachableError(f"The server at {self.server_url} answered more than can be shown.")
            return response.status, body, server_date(response)

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int],
        data: bytes | None,
        seconds: float,
        parent: str | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        headers = {} if data is None else {"Content-Type": "application/json"}
        if parent is not None:
            headers["traceparent"] = parent
        # Large bodies are sent in chunks: in one piece they would block the event loop.
        body = io.BytesIO(data) if data is not None and len(data) > LARGE_BYTES else data
        # A result may hold a whole file: large bodies get the time a slow line needs.
        total = seconds + len(data or b"") / SLOWEST_LINE
        timeout = aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_SECONDS)
        try:
            url = await self.resolved(self._url(path, query))
            async with self.session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                self.reached = True
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self.unreachable(error) from error

    async def resolved(self, url: URL) -> URL:
        """Return `url` with its loopback name resolved, because a name may resolve differently later."""
        return await self._loopback.at(url)

    def _read(self, answer: type[Answer], body: bytes) -> Answer:
        try:
            value = answer.model_validate_json(body)
        except ValidationError as error:
            raise UnreachableError(
                f"The server at {self.server_url} answered something that is not a {answer.__name__}.",
                hint="is it a Byleave server of the same version?",
                passing=self.met,
            ) from error
        self.met = True
        return value

    def _url(self, path: str, query: Mapping[str, str | int]) -> URL:
        url = URL(self.server_url + path, encoded=True)
        return url.with_query(query) if query else url

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=ProvingConnector(self._base, self._token, keepalive_timeout=KEEP_ALIVE_SECONDS),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=self._proxy,
                # Also off if a proxy is used: it would look for credentials in ~/.netrc.
                trust_env=False,
            )
        return self._session

    def unreachable(self, error: BaseException) -> UnreachableError:
        """Convert a failure below HTTP to an error that a person can act on."""
        self._loopback.lost()
        log.debug("no answer", server=self.server_url, error=type(error).__name__)
        if isinstance(error, aiohttp.ClientSSLError):
            return UnreachableError(
                f"The server at {self.server_url} has no certificate this machine trusts.", passing=self.met
            )
        return UnreachableError(
            f"Cannot reach the server at {self.server_url}.",
            hint="is it running? start it with `byleave serve`, or say where it is: --server, BYLEAVE_SERVER_URL",
            passing=self.met or not isinstance(error, aiohttp.ClientConnectorDNSError),
        )

    async def problem(self, response: aiohttp.ClientResponse, sent: int = 0) -> ByleaveError:
        """Convert an unsuccessful response to an error; `sent` is the size of the request's body."""
        body = b""
        while piece := await response.content.read(MAX_PROBLEM_BYTES - len(body)):
            body += piece
        status, location = response.status, response.headers.get("Location")
        try:
            return _error(status, Problem.model_validate_json(body), location)
        except ValidationError:
            problem = Problem(title="", status=status, detail=f"The server answered {status}.")
            return self.foreign(status, _error(status, problem, location), sent)

    def foreign(self, status: int, error: ByleaveError, sent: int = 0) -> ByleaveError:
        """Return the error for an answer that is not the server's own: `error` at first contact.

        Later a proxy answers in the server's place: what runs and what is to be sent must outlast it. But a body that
        is too large for it (413) stays so, unless few bytes were `sent`: then that is not the reason.
        """
        if (status == 413 and sent > NEVER_TOO_LARGE_BYTES) or (not self.met and status not in (404, 409)):
            return error
        return UnreachableError(
            f"A program in front of the server answered {status}.",
            hint="is the server running, and is this its address?",
            passing=self.met,
        )


def _error(status: int, problem: Problem, location: str | None) -> ByleaveError:
    detail, hint = problem.detail, problem.hint
    if status < 400:
        return ConfigurationError(
            f"The server answered with a redirect to {location!r}, which is not followed.",
            hint="give the server's final address with --server",
        )
    if status == 401:
        return SignedOut(detail, hint=hint or TOKEN_HINT)
    if status == 403:
        return RefusedError(detail, hint=hint or TOKEN_HINT + ", with the scopes this needs")
    if status == 404:
        return NotFound(detail, hint=hint)
    if status == 409:
        return ConflictError(detail, state=problem.state or "", hint=hint)
    if status >= 500 or status in (408, 425, 429):
        return UnreachableError(f"The server could not answer ({status}): {detail}", hint=hint)
    return CallerError(detail, hint=hint)


def _proxy_for(url: URL) -> str | None:
    """Return the proxy set in the environment; None for a loopback server."""
    host = url.host or ""
    if loopback_numbers(host):
        return None
    if url.scheme == "http":
        log.warning("the token is sent unencrypted", server=str(url.origin()), hint="use https")
    import urllib.request  # imported late: a whole second HTTP client, and most servers are on this machine

    proxy = None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(url.scheme)
    # Over https a proxy sees no token. Over http, resolve the name: any name can mean this machine.
    return None if proxy is not None and url.scheme == "http" and _is_this_machine(host) else proxy


def _is_this_machine(host: str) -> bool:
    try:
        return any(loopback_numbers(str(found[4][0])) for found in socket.getaddrinfo(host, None))
    except OSError:
        return False  # the proxy may be able to resolve it


def _feed_headers(last_event_id: int | str | None) -> dict[str, str]:
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-store"}
    return headers if last_event_id is None else {**headers, "Last-Event-ID": str(last_event_id)}


def _project(project_id: str) -> str:
    return f"/my/projects/{_part(project_id)}"


def _session(project_id: str, session_id: str) -> str:
    return f"{_project(project_id)}/chat/sessions/{_part(session_id)}"


def _part(text: str) -> str:
    """Quote one path segment, so that it can neither climb nor add a query."""
    if text in ("", ".", ".."):
        raise CallerError(f"{text!r} is not an id.")
    return quote(text, safe="")
