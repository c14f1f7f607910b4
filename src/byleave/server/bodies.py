"""Request bodies: strict JSON, then the protocol's model.

Stricter than JSON libraries are by default: no NaN or infinity, no key twice (which of the two would have been
approved?), no endless nesting, no half characters. Every refusal says what is wrong and where; none quotes the body.
A large body may be one long text, not millions of values, and is read beside the event loop. What all bodies of one
user, and of one user's agents, may take together is bounded (`BodyRoom`); how long one may take is in `serving`.
"""

import asyncio
import ctypes
import json
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request

from .problems import TooLarge, TooMany, WrongForm, wrong_form

MAX_DEPTH = 64
LARGE_BYTES = 256 * 1024
MAX_MARKS = 200_000
"""Most of `[`, `{`, `,` and `:` in a large body: each stands for a value, which takes many times its own byte."""

SMALL_BYTES = 64 * 1024
"""A body up to this size never waits for room, and is all that is taken from somebody we do not know."""
MUCH_BYTES = 32 * 1024 * 1024
QUIET_SECONDS = 1.0
"""After so much of large bodies, and so long after the last of them, their memory is given back."""
ROOM_SECONDS = 30
"""How long a body waits for room."""

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")


class BodyRoom:
    """How much memory the bodies of each sender's requests may take, until they are answered: a user, a user's agents.

    Reserved as a whole before a byte is read: a body that does not fit stays with its sender meanwhile.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[Hashable] = Counter()
        self._freed = asyncio.Condition()
        self._passed = 0

    @asynccontextmanager
    async def take(self, sender: Hashable, size: int) -> AsyncGenerator[None]:
        """Room for one body, as soon as there is some; alone, any body has room."""
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
                self._taken -= Counter({sender: size})  # one who takes none is forgotten
                self._freed.notify_all()
            self._passed += size
            if not self._taken and self._passed > MUCH_BYTES:
                self._passed = 0
                asyncio.get_running_loop().call_later(QUIET_SECONDS, _give_back)


def _give_back() -> None:
    """Return freed memory to the system: left to itself, the C library keeps it for the next large body."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


async def read_body(request: Request, model: type[Model], *, printable: bool = False) -> Model:
    """The body as one of the protocol's words. With `printable`, no string in it may hold a NUL."""

    def read(body: bytes) -> Model:
        value = parse_json(body)
        if printable and b"\\u0000" in body:
            _each_string(value, _refuse_nul)
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise wrong_form(error, "The body") from None

    return await _off_the_loop(read, await request.body())


async def read_union(request: Request, adapter: "TypeAdapter[Any]") -> Any:
    """A body that may be one of several words; half characters are mended, since a result must not get lost."""

    def read(body: bytes) -> Any:
        value = parse_json(body, mend=True)
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            raise wrong_form(error, "The body") from None

    return await _off_the_loop(read, await request.body())


def read_query(request: Request, model: type[Model]) -> Model:
    """The query as a model; a parameter given twice or not known is an error."""
    pairs = request.query_params.multi_items()
    values = dict(pairs)
    if len(values) != len(pairs):
        raise WrongForm("A query parameter is given twice.", hint="Give each parameter once.")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise wrong_form(error, "The query") from None


def parse_json(body: bytes, *, mend: bool = False) -> Any:
    """Strict JSON. `mend` replaces half of a surrogate pair by U+FFFD instead of refusing it."""
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
    # Counting is quick and almost always proves there is nothing to walk through.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _too_deep()
    if b"\\ud" in body or b"\\uD" in body:
        if mend:
            return _mended(value)
        _each_string(value, _refuse_half_characters)
    return value


async def _off_the_loop(read: Callable[[bytes], Result], body: bytes) -> Result:
    return await asyncio.to_thread(read, body) if len(body) > LARGE_BYTES else read(body)


def _refuse_too_many(body: bytes) -> None:
    """Count what parsing would make a value of, in a few linear passes that make none."""
    if _marks(body) <= MAX_MARKS:  # also counting those in texts
        return
    # Without what is escaped, every quote begins or ends a text: what is outside is every other piece.
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
