"""Request bodies: strict JSON, then the protocol's model.

Stricter than JSON libraries are by default: no NaN or infinity, no key twice (which of the two would have been
approved?), no endless nesting, no half characters. Every refusal says what is wrong and where; none quotes the body.
"""

import json
import math
from typing import Any, NoReturn, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request

from .problems import WrongForm, wrong_form

MAX_DEPTH = 64

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, model: type[Model], *, printable: bool = False) -> Model:
    """The body as one of the protocol's words. With `printable`, no string in it may hold a NUL."""
    body = await request.body()
    value = parse_json(body)
    if printable and b"\\u0000" in body:
        _each_string(value, _refuse_nul)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise wrong_form(error, "The body") from None


async def read_union(request: Request, adapter: "TypeAdapter[Any]") -> Any:
    """A body that may be one of several words; half characters are mended, since a result must not get lost."""
    value = parse_json(await request.body(), mend=True)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise wrong_form(error, "The body") from None


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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
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
