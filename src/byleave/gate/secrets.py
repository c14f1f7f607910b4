"""Masks secrets in text and JSON before they reach the model, the record, a log or a screen.

Secrets are known by their form (`secret_formats`), by the name before them (`secret_names`), or as the data of a
Kubernetes Secret. The cost is linear whatever the text. If masking itself fails, the text is withheld, never passed on
raw: that is a property of the functions here, so that no caller has to think of it.
"""

import re
from typing import Any, cast

from .characters import whole_characters
from .secret_formats import MASK_PREFIX, OPTION_NAME, PLACEHOLDER, mask_formats
from .secret_names import mask_named, telling_field

__all__ = ["MASK_PREFIX", "WITHHELD", "mask_arguments", "mask_text", "mask_value"]

WITHHELD = f"{MASK_PREFIX}withheld] This text could not be checked for secrets."
MAX_DEPTH = 200
SHORTEST = 8
SHORT = 256
_SUSPECT = re.compile(r"[:=$~>,{]|\s-|--|[A-Za-z0-9_+-]{16}|password|_auth|\x1b|\x9b")
"""Without any of this no rule fits: for names and paths, which are many and short."""

_CONTROL_SEQUENCE = re.compile(r"(?:\x1b\[|\x9b)[0-?]{0,64}+[ -/]{0,8}+[@-~]|\x1b\][^\x07\x1b]{0,2048}+(?:\x07|\x1b\\)")

_MANIFEST = re.compile(r"^[ \t]*[\"']?kind[\"']?:[ \t]*[\"']?Secret[\"']?[ \t]*,?\r?$", re.MULTILINE)
_MANIFEST_DATA = re.compile(
    r"^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*\r?\n(?P<block>(?:(?P=indent)[ \t]+[^\n]*\n?|[ \t]*\r?\n)++)",
    re.MULTILINE,
)
_MANIFEST_ENTRY = re.compile(
    r"^([ \t]*[\w.\"'-]{1,253}:[ \t]*)(?![|>][-+]?[ \t]*$)(\S[^\n]{2,}+)$|^([ \t]+)([A-Za-z0-9+/=]{16,}+)$",
    re.MULTILINE,
)
_MANIFEST_JSON = re.compile(r"\"kind\"\s{0,8}:\s{0,8}\"Secret\"")
_MANIFEST_JSON_DATA = re.compile(r"\"(?:data|stringData)\"\s{0,8}:\s{0,8}\{[^{}]{1,100000}+\}")
_JSON_ENTRY = re.compile(r"(:\s{0,8}\")([^\"\n]{3,}+)(?=\")")

# Options of commands whose value is a secret: glued to the option, or the argument behind it.
_GLUED = {"mysql": "-p", "mysqldump": "-p", "mysqladmin": "-p", "mariadb": "-p", "sshpass": "-p"}
_APART = {
    "sshpass": ("-p",),
    "redis-cli": ("-a",),
    "docker": ("-p",),
    "podman": ("-p",),
    "az": ("-p",),
    "curl": ("-u", "-U", "--user", "--proxy-user"),
}
_USER_AND_PASSWORD = re.compile(r"(?![0-9]+:[0-9]+$)([^\s:/]*:)(\S.*)", re.DOTALL)


def mask_text(text: str) -> str:
    """The text with what looks like a secret replaced by `[masked:…]`; the same object when there is nothing.

    Half a character (a lone surrogate) becomes U+FFFD: what is masked is what gets written and sent.
    """
    try:
        return _mask(text)
    except Exception:  # noqa: BLE001 - the boundary: whatever went wrong, the raw text must not pass
        return WITHHELD


def mask_value(value: Any) -> Any:
    """As `mask_text` for every text in a JSON value; values under names such as `password` are masked whole."""
    try:
        return _mask_value(value, 0)
    except Exception:  # noqa: BLE001 - the boundary: whatever went wrong, the raw value must not pass
        return WITHHELD


def mask_arguments(args: list[str]) -> list[str]:
    """A command and its arguments, masked one by one, by what stands before each and by what the command is."""
    try:
        return _mask_command(args)
    except Exception:  # noqa: BLE001 - the boundary: whatever went wrong, the raw arguments must not pass
        return [WITHHELD]


def _mask(text: str) -> str:
    text = whole_characters(text)
    if len(text) < SHORTEST or (len(text) < SHORT and not _SUSPECT.search(text)):
        return text
    if "\x1b" in text or "\x9b" in text:
        # Colours stand between a name and its value, and touch the key they highlight.
        plain = _CONTROL_SEQUENCE.sub("", text)
        masked = _mask_plain(plain)
        if masked != plain:
            return masked
    return _mask_plain(text)


def _mask_plain(text: str) -> str:
    lower = _lower(text)
    masked = mask_formats(text, lower)
    if masked is not text:
        lower = _lower(masked)
    masked = mask_named(masked, lower)
    return _mask_manifest(masked) if "kind" in lower and "Secret" in masked else masked


def _lower(text: str) -> str:
    """In lower case and of the same length; one letter, the dotted capital I, would become two."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text.replace("\u0130", "I").lower()


def _mask_manifest(text: str) -> str:
    """A Kubernetes Secret: whatever its entries are called, all of them are secret."""
    if _MANIFEST.search(text):
        parts = text.split("\n---")
        text = "\n---".join(_MANIFEST_DATA.sub(_mask_block, part) if _MANIFEST.search(part) else part for part in parts)
    if _MANIFEST_JSON.search(text):
        text = _MANIFEST_JSON_DATA.sub(lambda data: _JSON_ENTRY.sub(_mask_entry, data.group()), text)
    return text


def _mask_block(data: re.Match[str]) -> str:
    start = data.start("block") - data.start()
    return data.group()[:start] + _MANIFEST_ENTRY.sub(_mask_entry, data.group("block"))


def _mask_entry(entry: re.Match[str]) -> str:
    name, value = [part for part in entry.groups() if part is not None]
    bare = value.strip("\"'")
    if len(bare) < 3 or PLACEHOLDER.match(bare):
        return entry.group()
    return f"{name}{MASK_PREFIX}secret]"


def _mask_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _mask(value)
    if depth > MAX_DEPTH:
        return WITHHELD
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_mask(str(key)): _mask_field(str(key), item, depth + 1) for key, item in items}
    if isinstance(value, (list, tuple)):
        return _mask_list(cast("list[Any]", value), depth + 1)
    return value


def _mask_field(key: str, value: Any, depth: int) -> Any:
    if isinstance(value, str) and value and telling_field(key) and not PLACEHOLDER.match(value):
        return f"{MASK_PREFIX}{whole_characters(key.lower()[:40])}]"
    return _mask_value(value, depth)


def _mask_list(values: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
    """Items of a list; one behind an option such as `--token` is what the option says it is."""
    masked: list[Any] = []
    before: Any = None
    for item in values:
        named = isinstance(before, str) and isinstance(item, str) and OPTION_NAME.fullmatch(before) is not None
        masked.append(f"{MASK_PREFIX}option]" if named and item[:1] not in ("", "-") else _mask_value(item, depth))
        before = item
    return masked


def _mask_command(args: list[str]) -> list[str]:
    masked = cast("list[str]", _mask_list(args, 1))
    if not args:
        return masked
    command = args[0].rpartition("/")[2]
    glued, apart = _GLUED.get(command), _APART.get(command, ())
    for at, argument in enumerate(args):
        if at and args[at - 1] in apart:
            masked[at] = _mask_login(argument) if command == "curl" else f"{MASK_PREFIX}option]"
        elif at and glued and argument.startswith(glued) and len(argument) > len(glued):
            masked[at] = f"{glued}{MASK_PREFIX}option]"
    return masked


def _mask_login(argument: str) -> str:
    found = _USER_AND_PASSWORD.fullmatch(argument)
    return _mask(argument) if found is None else f"{found.group(1)}{MASK_PREFIX}option]"
