"""A model that does exactly what a test says, behind a real HTTP server that speaks OpenAI's two APIs.

    with open_model_server([call("read_file", {"path": "a.txt"}), say("It holds x.")]) as server:
        client = OpenAI(base_url=server.url, api_key="test")        # or AsyncOpenAI, pydantic-ai, langchain, …
        ...
        server.requests[1].results == [("call_1_0", "x")]

The script is a list (the n-th request gets the n-th turn; the last one stays) or a function from the request to a turn;
`by_step(...)` is such a function, which goes by how many responses the conversation already has, so that a request that
is repeated after a crash gets the same turn. Turns: `say`, `call`, `calls`, `nothing`, `refuse_with` (401, 429, 500 …);
options of them: `hang_up` (disconnect in the middle), `endless`, `held` (silent until `server.let_go()`), `usage`.
Arguments that are a string are sent as they are, broken or not. The server lives in a thread of its own, so sync and
async tests, and other processes, can use it alike. It must never be used outside tests: it accepts any key.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict, Unpack, cast

from aiohttp import web

from harness.json_values import JsonObject

MODEL = "scripted"
WAIT_SECONDS = 20
CHUNK = 7
"""Characters of one streamed piece: small, so that words and JSON are really cut apart."""


@dataclass(frozen=True)
class Call:
    """One tool call of the model."""

    name: str
    arguments: JsonObject | str
    id: str | None = None
    """Left out: `call_N_I`, for the I-th call of the N-th request."""


@dataclass(frozen=True)
class Turn:
    """What the model does with one request."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: tuple[int, int] = (10, 5)
    """Tokens in, tokens out."""
    finish: Literal["stop", "length", "content_filter"] = "stop"
    status: int = 200
    """Anything else: an error, with `text` as its message."""
    headers: tuple[tuple[str, str], ...] = ()
    hang_up: bool = False
    """Close the connection after text and calls were sent, without an end."""
    endless: bool = False
    """Repeat the text until the other side goes away."""
    held: bool = False
    """Send nothing but the headers until `server.let_go()`."""


class TurnOptions(TypedDict, total=False):
    """Fields of `Turn` that may be given beside its words and calls."""

    usage: tuple[int, int]
    finish: Literal["stop", "length", "content_filter"]
    status: int
    headers: tuple[tuple[str, str], ...]
    hang_up: bool
    endless: bool
    held: bool


def say(text: str, **options: Unpack[TurnOptions]) -> Turn:
    """An answer in words."""
    return Turn(text=text, **options)


def call(
    name: str,
    arguments: JsonObject | str,
    id: str | None = None,  # noqa: A002
    *,
    text: str = "",
    **options: Unpack[TurnOptions],
) -> Turn:
    """One tool call."""
    return Turn(calls=(Call(name, arguments, id),), text=text, **options)


def calls(
    *wanted: Call | tuple[str, JsonObject | str, str] | tuple[str, JsonObject | str],
    text: str = "",
    **options: Unpack[TurnOptions],
) -> Turn:
    """Several tool calls at once: `Call`s, or tuples of the same."""
    return Turn(text=text, calls=tuple(one if isinstance(one, Call) else _call(one) for one in wanted), **options)


def _call(one: tuple[str, JsonObject | str, str] | tuple[str, JsonObject | str]) -> Call:
    return Call(one[0], one[1], one[2] if len(one) == 3 else None)


def nothing(**options: Unpack[TurnOptions]) -> Turn:
    """An empty answer."""
    return Turn(**options)


def refuse_with(status: int, message: str = "The server says no.", *, retry_after: float | None = None) -> Turn:
    """An HTTP error."""
    headers = () if retry_after is None else (("Retry-After", f"{retry_after:g}"),)
    return Turn(text=message, status=status, headers=headers)


@dataclass(frozen=True)
class Asked:
    """A request, as it was received and as both APIs mean it."""

    number: int
    """Counted from 0."""
    api: Literal["chat", "responses"]
    body: JsonObject
    headers: dict[str, str]
    instructions: str = ""
    """The system prompt."""
    prompts: tuple[str, ...] = ()
    """What the user said, in order."""
    results: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Tool results of the whole conversation: call id, text."""
    called: list[Call] = field(default_factory=list[Call])
    """Tool calls of the whole conversation."""
    steps: int = 0
    """How many responses of the model came after the user's last message."""

    @property
    def model(self) -> str:
        return str(self.body.get("model"))

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def tools(self) -> list[str]:
        """Names of the tools that are offered."""
        offered = cast(list[JsonObject], self.body.get("tools") or [])
        return [tool.get("name") or tool.get("function", {}).get("name") for tool in offered]


Script = Sequence[Turn] | Callable[[Asked], Turn]


def by_step(*turns: Turn) -> Callable[[Asked], Turn]:
    """Go by how far the conversation got since the user's last message; stay at the last turn."""
    return lambda asked: turns[min(asked.steps, len(turns) - 1)]


class ModelServer:
    """The running server. `script` may be set anew between requests."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Asked] = []
        self.gone = threading.Event()
        """Set when the other side left an endless or held answer."""
        self.url = ""
        self._news = threading.Condition()
        self._let_go = asyncio.Event()
        self._loop = asyncio.new_event_loop()

    def let_go(self) -> None:
        """Let held answers, and all later ones, go on."""
        self._loop.call_soon_threadsafe(self._let_go.set)

    def wait_for_requests(self, count: int) -> None:
        """Block until so many requests came."""
        with self._news:
            if not self._news.wait_for(lambda: len(self.requests) >= count, WAIT_SECONDS):
                raise TimeoutError(f"{len(self.requests)} of {count} requests came")

    async def received(self, count: int) -> None:
        """Wait until so many requests came."""
        await asyncio.to_thread(self.wait_for_requests, count)

    async def left(self) -> None:
        """Wait until the other side left an endless or held answer."""
        if not await asyncio.to_thread(self.gone.wait, WAIT_SECONDS):
            raise TimeoutError("nobody left")

    # --- below: the thread's side -----------------------------------------------------------------------------------

    def serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/responses", self._responses)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

        async def start() -> None:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

        self._loop.run_until_complete(start())
        ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._let_go.set)
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "tests"}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "chat", _read_chat)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "responses", _read_responses)

    async def _answer(
        self, request: web.Request, api: Literal["chat", "responses"], read: Callable[[Asked], Asked]
    ) -> web.StreamResponse:
        body = await request.json()
        with self._news:
            asked = read(Asked(len(self.requests), api, body, dict(request.headers)))
            self.requests.append(asked)
            self._news.notify_all()
        turn = self.script(asked) if callable(self.script) else self.script[min(asked.number, len(self.script) - 1)]
        named = (replace(one, id=one.id or f"call_{asked.number}_{index}") for index, one in enumerate(turn.calls))
        turn = replace(turn, calls=tuple(named))
        try:
            if turn.status != 200:
                error = {"error": {"message": turn.text, "type": "error", "code": str(turn.status), "param": None}}
                return web.json_response(error, status=turn.status, headers=dict(turn.headers))
            if asked.streams:
                return await self._stream(request, asked, turn)
            if turn.held:
                await self._let_go.wait()
            if turn.hang_up:
                _close(request)
            made = _chat_answer(asked, turn) if api == "chat" else _response(asked, turn, "completed")
            return web.json_response(made)
        except (asyncio.CancelledError, ConnectionError):
            self.gone.set()
            raise

    async def _stream(self, request: web.Request, asked: Asked, turn: Turn) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await answer.prepare(request)
        if turn.held:
            await self._let_go.wait()
        write = _chat_stream if asked.api == "chat" else _response_stream
        for event in write(asked, turn):
            await answer.write(event)
            while turn.endless and b'"delta"' in event and _pieces(turn.text)[0].encode() in event:
                await answer.write(event)
                await asyncio.sleep(0)
        if turn.hang_up:
            _close(request)
            return answer
        await answer.write_eof()
        return answer


@contextmanager
def open_model_server(script: Script = ()) -> Generator[ModelServer]:
    """The server, in a thread of its own; stopped at the end, whatever it was doing."""
    server = ModelServer(script or [say("Hello.")])
    ready = threading.Event()
    thread = threading.Thread(target=server.serve, args=(ready,), name="model-server", daemon=True)
    thread.start()
    if not ready.wait(WAIT_SECONDS):
        raise TimeoutError("the model server did not start")
    try:
        yield server
    finally:
        server.stop()
        thread.join(WAIT_SECONDS)


def _close(request: web.Request) -> None:
    """Cut the connection as a process that died would."""
    if request.transport is not None:
        request.transport.abort()


def _pieces(text: str) -> list[str]:
    return [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]


def _arguments(one: Call) -> str:
    return one.arguments if isinstance(one.arguments, str) else json.dumps(one.arguments)


def _text(content: object) -> str:
    """Text of a message, which may be a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in cast(list[JsonObject], content))
    return "" if content is None else str(content)


# --- chat completions -----------------------------------------------------------------------------------------------


def _read_chat(asked: Asked) -> Asked:
    instructions: list[str] = []
    prompts: list[str] = []
    steps = 0
    for message in asked.body.get("messages", []):
        match message.get("role"):
            case "system" | "developer":
                instructions.append(_text(message.get("content")))
            case "user":
                prompts.append(_text(message.get("content")))
                steps = 0
            case "assistant":
                steps += 1
                for one in message.get("tool_calls") or []:
                    asked.called.append(Call(one["function"]["name"], one["function"]["arguments"], one["id"]))
            case "tool":
                asked.results.append((message["tool_call_id"], _text(message.get("content"))))
            case _:
                pass
    return replace(asked, instructions="\n".join(instructions), prompts=tuple(prompts), steps=steps)


def _chat_usage(turn: Turn) -> dict[str, int]:
    tokens_in, tokens_out = turn.usage
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def _chat_finish(turn: Turn) -> str:
    return "tool_calls" if turn.calls and turn.finish == "stop" else turn.finish


def _chat_call(one: Call) -> JsonObject:
    return {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": _arguments(one)}}


def _chat_answer(asked: Asked, turn: Turn) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": turn.text or None, "refusal": None}
    if turn.calls:
        message["tool_calls"] = [_chat_call(one) for one in turn.calls]
    choice = {"index": 0, "message": message, "finish_reason": _chat_finish(turn), "logprobs": None}
    return {
        "id": f"chatcmpl-{asked.number}",
        "object": "chat.completion",
        "created": 1,
        "model": asked.model,
        "choices": [choice],
        "usage": _chat_usage(turn),
    }


def _chat_stream(asked: Asked, turn: Turn) -> Generator[bytes]:
    def chunk(delta: JsonObject, finish: str | None = None, **more: object) -> bytes:
        data = {
            "id": f"chatcmpl-{asked.number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": asked.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
            **more,
        }
        return f"data: {json.dumps(data)}\n\n".encode()

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(turn.text):
        yield chunk({"content": piece})
    for index, one in enumerate(turn.calls):
        begin = {"index": index, "id": one.id, "type": "function", "function": {"name": one.name, "arguments": ""}}
        yield chunk({"tool_calls": [begin]})
        for piece in _pieces(_arguments(one)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if turn.hang_up:
        return
    yield chunk({}, _chat_finish(turn))
    if (asked.body.get("stream_options") or {}).get("include_usage"):
        yield chunk({}, choices=[], usage=_chat_usage(turn))
    yield b"data: [DONE]\n\n"


# --- responses ------------------------------------------------------------------------------------------------------


def _read_responses(asked: Asked) -> Asked:
    given: str | list[JsonObject] = asked.body.get("input", [])
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    instructions = [_text(asked.body.get("instructions"))]
    prompts: list[str] = []
    steps, speaking = 0, False
    for item in items:
        mine = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
        # Items of the model in a row are one response.
        steps += mine and not speaking
        speaking = mine
        if item.get("role") in ("system", "developer"):
            instructions.append(_text(item.get("content")))
        elif item.get("role") == "user":
            prompts.append(_text(item.get("content")))
            steps = 0
        elif item.get("type") == "function_call":
            asked.called.append(Call(item["name"], item["arguments"], item["call_id"]))
        elif item.get("type") == "function_call_output":
            asked.results.append((item["call_id"], _text(item.get("output"))))
    told = "\n".join(part for part in instructions if part)
    return replace(asked, instructions=told, prompts=tuple(prompts), steps=steps)


def _response_items(asked: Asked, turn: Turn) -> list[JsonObject]:
    items: list[JsonObject] = []
    if turn.text:
        content = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        items.append(
            {
                "id": f"msg_{asked.number}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [content],
            }
        )
    for index, one in enumerate(turn.calls):
        items.append(
            {
                "id": f"fc_{asked.number}_{index}",
                "type": "function_call",
                "call_id": one.id,
                "name": one.name,
                "arguments": _arguments(one),
                "status": "completed",
            }
        )
    return items


def _response(asked: Asked, turn: Turn, status: str) -> JsonObject:
    done = status == "completed"
    if done and turn.finish != "stop":
        status = "incomplete"
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(turn.finish)
    tokens_in, tokens_out = turn.usage
    usage = {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens_in + tokens_out,
    }
    return {
        "id": f"resp_{asked.number}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if done and reason else None,
        "instructions": asked.body.get("instructions"),
        "metadata": {},
        "model": asked.model,
        "output": _response_items(asked, turn) if done else [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": asked.body.get("tools") or [],
        "top_p": 1.0,
        "usage": usage if done else None,
    }


def _response_stream(asked: Asked, turn: Turn) -> Generator[bytes]:
    sequence = -1

    def event(kind: str, **data: object) -> bytes:
        nonlocal sequence
        sequence += 1
        return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': sequence, **data})}\n\n".encode()

    yield event("response.created", response=_response(asked, turn, "in_progress"))
    yield event("response.in_progress", response=_response(asked, turn, "in_progress"))
    for index, item in enumerate(_response_items(asked, turn)):
        at = {"item_id": item["id"], "output_index": index}
        begun = {**item, "status": "in_progress"}
        if item["type"] == "message":
            part = item["content"][0]
            yield event("response.output_item.added", output_index=index, item={**begun, "content": []})
            yield event("response.content_part.added", **at, content_index=0, part={**part, "text": ""})
            for piece in _pieces(part["text"]):
                yield event("response.output_text.delta", **at, content_index=0, delta=piece, logprobs=[])
            if turn.hang_up and not turn.calls:
                return
            yield event("response.output_text.done", **at, content_index=0, text=part["text"], logprobs=[])
            yield event("response.content_part.done", **at, content_index=0, part=part)
        else:
            yield event("response.output_item.added", output_index=index, item={**begun, "arguments": ""})
            for piece in _pieces(item["arguments"]):
                yield event("response.function_call_arguments.delta", **at, delta=piece)
            yield event("response.function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])
        yield event("response.output_item.done", output_index=index, item=item)
    if turn.hang_up:
        return
    ended = _response(asked, turn, "completed")
    yield event(f"response.{ended['status']}", response=ended)
