"""Bound request bodies in bytes and memory, and parse them as strict JSON.

Stricter than JSON libraries are by default: no NaN or infinity, no key twice (which of the two would have been
approved?), no endless nesting, no lone surrogates. Every refusal says what is wrong and where; none quotes the body.
A large body may be one long text, not millions of values. `serving` bounds the time a body may take to arrive.
"""

import asyncio
import ctypes
import json
import math
from collections import Counter
from collections.abc import AsyncGenerator, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, NamedTuple, NoReturn, cast

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from byleave.settings import ServerSettings

from .errors import TooLarge, TooMany, WrongForm, WrongMediaType

MAX_DEPTH = 64
LARGE_BYTES = 256 * 1024
MAX_KEYS = 1000
"""In one object: each that is not expected costs its complaint."""
MAX_MARKS = 40_000
"""Limit on `[`, `{`, `,` and `:` in a large body: each stands for a value, which takes many times its byte."""

SMALL_BYTES = 64 * 1024
"""A body up to this size never waits for room. An unknown sender may send no more."""
MUCH_BYTES = 32 * 1024 * 1024
QUIET_SECONDS = 1.0
"""After this many bytes of large bodies, and this long after the last, their memory is given back."""
ROOM_SECONDS = 30
"""Longest wait of a body for room."""

JSON_HINT = "Send Content-Type: application/json."
UNSAID = ("", "text/plain;charset=utf-8")
"""Content types of a request that names none: `fetch` sets the second by itself."""

Headers = Mapping[bytes, str]
"""A request's headers by name, in lower case."""


class BodyRoom:
    """Bounds the memory of each sender's bodies until they are answered; a sender is a user, or a user's agents.

    Room for the whole body is reserved before a byte is read: one that does not fit stays with its sender meanwhile.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[Hashable] = Counter()
        self._freed = asyncio.Condition()
        self._passed = 0

    @asynccontextmanager
    async def take(self, sender: Hashable, size: int) -> AsyncGenerator[None]:
        """Wait for room for one body; a sender's only body always has room."""
        async with self._freed:
            try:
                async with asyncio.timeout(ROOM_SECONDS):
                    await self._freed.wait_for(lambda: not 0 < self._taken[sender] > self._most - size)
            except TimeoutError:
                raise TooMany(
                    "Other large requests of yours are not finished.",
                    hint="Finish or end those, then send this one again.",
                    retry_after=ROOM_SECONDS,
                ) from None
            self._taken[sender] += size
        try:
            yield
        finally:
            async with self._freed:
                self._taken -= Counter({sender: size})  # drops senders at zero
                self._freed.notify_all()
            self._passed += size
            if not self._taken and self._passed > MUCH_BYTES:
                self._passed = 0
                asyncio.get_running_loop().call_later(QUIET_SECONDS, give_back)


def give_back() -> None:
    """Return freed memory to the system: the C library would keep it for the next large body."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


class BodyLimits:
    """Size limits of a server's request bodies, one by one and together."""

    def __init__(self, settings: ServerSettings) -> None:
        self.ordinary = settings.max_body_bytes
        self.file = settings.max_payload_bytes
        self.room = BodyRoom(settings.max_payload_bytes)


class Takes(NamedTuple):
    """The body that an endpoint takes."""

    file: bool = False
    """As large as a file."""
    mended: bool = False
    """Lone surrogates are repaired: a result must not get lost."""
    printable: bool = False
    """A NUL is refused."""


class RequestBody:
    """One request's body: replaces `receive` and counts the bytes as they come.

    It may be as large as an ordinary one, or as a file where the endpoint takes one; from an unknown sender (None) it
    is small.
    """

    __slots__ = ("_headers", "_limit", "_limits", "_read", "_receive", "_room", "_sender", "_takes")

    def __init__(self, limits: BodyLimits, receive: Receive, headers: Headers, sender: Hashable | None) -> None:
        self._limits = limits
        self._receive = receive
        self._headers = headers
        self._sender = sender
        self._limit = min(SMALL_BYTES, limits.ordinary) if sender is None else limits.ordinary
        self._read = 0
        self._takes = Takes()
        self._room: AbstractAsyncContextManager[None] | None = None

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._limit:
                raise self._too_large()
        return message

    async def admit(self, takes: Takes, *, needs_json: bool) -> None:
        """Reserve memory for the body until `free`; refuse one that is too large or not JSON before it is read."""
        self._takes = takes
        if takes.file and self._sender is not None:
            self._limit = self._limits.file
        length = self._headers.get(b"content-length", "")
        if length.isdigit() and int(length) > self._limit:
            raise self._too_large()
        self._check_type(length, needs_json=needs_json)
        if self._sender is None or (not length and not self._headers.get(b"transfer-encoding", "")):
            return
        size = int(length) if length.isdigit() else self._limit
        if size > SMALL_BYTES:
            room = self._limits.room.take(self._sender, size)
            await room.__aenter__()
            self._room = room

    async def free(self) -> None:
        """Give the memory back: the request is answered, or goes on without its body. May be called twice."""
        room, self._room = self._room, None
        if room is not None:
            await room.__aexit__(None, None, None)

    async def parse(self) -> tuple[bytes, Any]:
        """The whole body, and its value as strict JSON; parsed in a thread when it is large."""
        body, mend = await self._whole(), self._takes.mended
        large = len(body) > LARGE_BYTES
        value = await asyncio.to_thread(parse_json, body, mend=mend) if large else parse_json(body, mend=mend)
        if self._takes.printable and b"\\u0000" in body:
            _each_string(value, _refuse_nul)
        return body, value

    async def _whole(self) -> bytes:
        chunks: list[bytes] = []
        more = True
        while more:
            message = await self()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunks.append(message.get("body", b""))
            more = message.get("more_body", False)
        return b"".join(chunks)

    def _check_type(self, length: str, *, needs_json: bool) -> None:
        empty = length in ("", "0") and not self._headers.get(b"transfer-encoding", "")
        if media_type(self._headers) == "application/json" or not (needs_json or not empty):
            return
        # Only programs send a token, so they may leave the type out; a page's forms never carry one.
        unsaid = self._headers.get(b"content-type", "").replace(" ", "").lower() in UNSAID
        if empty or not (unsaid and self._sender is not None and self._headers.get(b"authorization", "")):
            raise WrongMediaType("The body must be JSON.", hint=JSON_HINT)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self._limit} bytes.", hint="Send less, or in several requests.")


def media_type(headers: Headers) -> str:
    return headers.get(b"content-type", "").partition(";")[0].strip().lower()


def parse_json(body: bytes, *, mend: bool = False) -> Any:
    """Parse strict JSON. `mend` replaces a lone surrogate by U+FFFD instead of refusing it."""
    if len(body) > LARGE_BYTES:
        _refuse_too_many(body)
    try:
        value = json.loads(
            body.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite
        )
    except UnicodeDecodeError as error:
        raise WrongForm(f"The body is not UTF-8 (byte {error.start}).", hint="Send JSON encoded as UTF-8.") from None
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise WrongForm(f"The body is not JSON: {error.msg} ({place}).", hint="Send one JSON value.") from None
    except ValueError as error:  # a number with too many digits
        raise WrongForm(f"The body is not JSON we read: {error}.") from None
    # Counting is quick and almost always makes the walk unnecessary.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _too_deep()
    if b"\\ud" in body or b"\\uD" in body:
        if mend:
            return _mended(value)
        _each_string(value, _refuse_half_characters)
    return value


def _refuse_too_many(body: bytes) -> None:
    """Count the values before parsing, in a few linear passes that create none."""
    if _marks(body) <= MAX_MARKS:  # includes those inside texts
        return
    # Without escapes, every quote begins or ends a text: every other piece is outside.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 2 * MAX_MARKS + 2 or _marks(b"".join(bare.split(b'"')[::2])) > MAX_MARKS:
        raise TooLarge(
            f"The body is larger than {LARGE_BYTES} bytes and holds more than {MAX_MARKS} values.",
            hint="Send fewer values; one text may be long.",
        )


def _marks(text: bytes) -> int:
    return sum(text.count(mark) for mark in (b"[", b"{", b",", b":"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(pairs) > MAX_KEYS:
        raise TooLarge(f"An object in the body has more than {MAX_KEYS} keys.", hint="Send fewer.")
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise WrongForm(f"The key {twice[:100]!r} is there twice in one object.", hint="Give each key once.")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise WrongForm(f"{name} is not JSON.", hint="Use null, or a number that is finite.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise WrongForm(f"The number {text[:40]!r} is too large.", hint="Use a number that is finite.")
    return number


def _too_deep() -> WrongForm:
    return WrongForm(f"The body is nested more than {MAX_DEPTH} levels deep.", hint="Send a flatter value.")


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level and deepest <= MAX_DEPTH:
        inside: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inside.extend(cast(dict[str, Any], item).values())
            elif isinstance(item, list):
                inside.extend(cast(list[Any], item))
        deepest += any(isinstance(item, dict | list) for item in level)
        level = inside
    return deepest


def _each_string(value: Any, check: Any) -> None:
    left: list[Any] = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            check(item)
        elif isinstance(item, dict):
            left.extend(cast(dict[str, Any], item))
            left.extend(cast(dict[str, Any], item).values())
        elif isinstance(item, list):
            left.extend(cast(list[Any], item))


def _refuse_nul(text: str) -> None:
    if "\0" in text:
        raise WrongForm("The text holds a NUL character.", hint="Send text without control character U+0000.")


def _refuse_half_characters(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise WrongForm("The text holds half of a character (a lone surrogate).", hint="Send valid Unicode.") from None


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if not _whole(value) else value
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_mended(item) for item in cast(list[Any], value)]
    return value


def _whole(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
