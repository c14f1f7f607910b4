"""Mask secrets in text and JSON before they reach the model, the record, a log or a screen.

Secrets are known by their form (`secret_formats`), by the name before them, or as the data of a Kubernetes Secret. The
cost is linear whatever the text. If masking fails, the functions here withhold the text and never pass it on raw, so
no caller has to handle that.

Calls that a person decides about are masked with `cover_inert`: a mask never hides anything that could act, and says
how many characters it hides.

`MaskedStream` masks text that arrives in pieces, so a secret across two of them does not leak in halves. It holds a
line back until its end and a private key until its last line; longer ones leave in parts, cut where no known secret
stands. It remembers the text before, which may explain the next line (`machine`, `login`, then `password`). Its memory
is bounded.
"""

import re
from functools import partial
from typing import Any, cast

from .characters import whole_characters
from .secret_formats import (
    MASK_PREFIX,
    NO_NAME,
    OPTION_NAME,
    PLACEHOLDER,
    Cover,
    cover,
    cover_inert,
    cover_nothing,
    cover_word,
    mask_formats,
    mask_named,
    telling_field,
)

__all__ = [
    "MASK_PREFIX",
    "WITHHELD",
    "Cover",
    "cover",
    "cover_inert",
    "cover_nothing",
    "mask_arguments",
    "mask_start",
    "mask_text",
    "mask_value",
]

WITHHELD = f"{MASK_PREFIX}withheld] This text could not be checked for secrets."
MAX_DEPTH = 200
SHORTEST = 8
SHORT = 256
_FOR_PEOPLE = (cover_inert, cover_word)
_SUSPECT = re.compile(r"[:=$~>,{]|\s-|--|[A-Za-z0-9_+-]{16}|password|_auth|\x1b|\x9b")
"""No rule fits a short text without any of these: a shortcut for names and paths, which are many."""

_CONTROL_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}+[ -/]{0,8}+[@-~]|\x1b\][^\x07\x1b\n]{0,2048}+(?:\x07|\x1b\\)"
)

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

# Command options whose value is a secret: glued to the option, or the next argument.
_GLUED = {"mysql": "-p", "mysqldump": "-p", "mysqladmin": "-p", "mariadb": "-p", "sshpass": "-p"}
_APART = {
    "sshpass": ("-p",),
    "redis-cli": ("-a",),
    "docker": ("-p",),
    "podman": ("-p",),
    "az": ("-p",),
    "curl": ("-u", "-U", "--user", "--proxy-user"),
}
_HAND_ON = frozenset({"python", "python3", "node"})
"""They know all their options and pass others to a script: they never look up the value of such a one by name."""
_HAND_OVER = frozenset({"cargo", "npm"})
"""They pass what follows `--` to another program; for other commands it is a path."""
_ASSIGN = frozenset({"env", "make"})
"""They read `TOKEN=x` as an assignment, unless it is the value of an option."""
_NAME_NO_FILE = frozenset({"curl", "echo", "wget"})
_TAKES_NEXT = re.compile(r"-[A-Za-z]+")
_PYTHON_TAKES_NEXT = re.compile(r"-[A-Za-z]*[WX]")
_BLANK = re.compile(r"\s")
_USER_AND_PASSWORD = re.compile(r"(?![0-9]+:[0-9]+$)([^\s:/]*:)(\S.*)", re.DOTALL)


def mask_text(text: str, cover: Cover = cover) -> str:
    """Replace what looks like a secret by `[masked:…]`; return the same object if there is none.

    A lone surrogate becomes U+FFFD, so the masked text is the text that gets written and sent.
    """
    try:
        return _mask(text, cover)
    except Exception:  # noqa: BLE001 - the boundary: whatever went wrong, the raw text must not pass
        return WITHHELD


def mask_value(value: Any, cover: Cover = cover) -> Any:
    """Mask every text in a JSON value; values under names such as `password` are masked whole."""
    try:
        return _mask_value(value, 0, cover)
    except Exception:  # noqa: BLE001 - the boundary: whatever went wrong, the raw value must not pass
        return WITHHELD


def mask_arguments(args: list[str], cover: Cover = cover) -> list[str]:
    """Mask a command and its arguments one by one, by the command and the option before each."""
    try:
        return _mask_command(args, cover)
    except Exception:  # noqa: BLE001 - the boundary: whatever went wrong, the raw arguments must not pass
        return [WITHHELD]


def _mask(text: str, cover: Cover) -> str:
    if not text.isascii():
        text = whole_characters(text)
    if len(text) < SHORTEST or (len(text) < SHORT and not _SUSPECT.search(text)):
        return text
    if ("\x1b" in text or "\x9b" in text) and cover not in _FOR_PEOPLE:
        # Colours split a name from its value and touch the key they highlight. People who decide see them all.
        plain = _CONTROL_SEQUENCE.sub("", text)
        masked = _mask_plain(plain, cover)
        if masked != plain:
            return masked
    return _mask_plain(text, cover)


def _mask_plain(text: str, cover: Cover) -> str:
    lower = _lower(text)
    masked = mask_formats(text, lower, cover)
    if masked is not text:
        lower = _lower(masked)
    masked = mask_named(masked, lower, cover)
    return _mask_manifest(masked, cover) if "kind" in lower and "Secret" in masked else masked


def _lower(text: str) -> str:
    """Lower case of the same length: the dotted capital I would become two characters."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text.replace("\u0130", "I").lower()


def _mask_manifest(text: str, cover: Cover) -> str:
    """Mask all entries of a Kubernetes Secret, whatever their names."""
    if _MANIFEST.search(text):
        parts = text.split("\n---")
        block = partial(_mask_block, cover)
        text = "\n---".join(_MANIFEST_DATA.sub(block, part) if _MANIFEST.search(part) else part for part in parts)
    if _MANIFEST_JSON.search(text):
        entry = partial(_mask_entry, cover)
        text = _MANIFEST_JSON_DATA.sub(lambda data: _JSON_ENTRY.sub(entry, data.group()), text)
    return text


def _mask_block(cover: Cover, data: re.Match[str]) -> str:
    start = data.start("block") - data.start()
    return data.group()[:start] + _MANIFEST_ENTRY.sub(partial(_mask_entry, cover), data.group("block"))


def _mask_entry(cover: Cover, entry: re.Match[str]) -> str:
    name, value = [part for part in entry.groups() if part is not None]
    bare = value.strip("\"'")
    if len(bare) < 3 or PLACEHOLDER.match(bare):
        return entry.group()
    covered = cover("secret", bare)
    return name + value.replace(bare, covered, 1)  # keep the quotes: they may close an earlier one


def _mask_value(value: Any, depth: int, cover: Cover) -> Any:
    if isinstance(value, str):
        return _mask(value, cover)
    if depth > MAX_DEPTH:
        return WITHHELD
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_mask(str(key), cover): _mask_field(str(key), item, depth + 1, cover) for key, item in items}
    if isinstance(value, (list, tuple)):
        return _mask_list(cast("list[Any]", value), depth + 1, cover)
    return value


def _mask_field(key: str, value: Any, depth: int, cover: Cover) -> Any:
    if isinstance(value, str) and value and telling_field(key) and not PLACEHOLDER.match(value):
        return cover(whole_characters(key.lower()[:40]), value)
    return _mask_value(value, depth, cover)


def _mask_list(values: list[Any] | tuple[Any, ...], depth: int, cover: Cover) -> list[Any]:
    """Mask the items of a list; one after an option such as `--token` is its value."""
    masked: list[Any] = []
    before: Any = None
    for item in values:
        named = isinstance(before, str) and isinstance(item, str) and OPTION_NAME.fullmatch(before) is not None
        hides = named and item[:1] not in ("", "-")
        masked.append(cover("option", item) if hides else _mask_value(item, depth, cover))
        before = item
    return masked


def _mask_command(args: list[str], cover: Cover) -> list[str]:
    if not args:
        return []
    command = args[0].rpartition("/")[2]
    masked = _mask_asked(command, args) if cover is cover_inert else cast("list[str]", _mask_list(args, 1, cover))
    glued, apart = _GLUED.get(command), _APART.get(command, ())
    for at, argument in enumerate(args):
        if at and args[at - 1] in apart:
            masked[at] = _mask_login(argument, cover) if command == "curl" else cover("option", argument)
        elif at and glued and argument.startswith(glued) and len(argument) > len(glued):
            masked[at] = glued + cover("option", argument.removeprefix(glued))
    return masked


def _mask_asked(command: str, args: list[str]) -> list[str]:
    """Mask arguments for a person who decides: they must see what runs, so words that may name it are shown."""
    end = args.index("--") if "--" in args and command not in _HAND_OVER else len(args)
    masked = [_mask_argument(command, args, at) for at in range(end)]
    return masked + [_mask(word, cover_word) for word in args[end:]]


def _mask_argument(command: str, args: list[str], at: int) -> str:
    """Mask one argument; a word that may name a file or package is masked only if its form is a key's."""
    word, before = args[at], args[at - 1] if at else ""
    if _told_by_option(command, args, at):
        return cover_inert("option", word)
    masked = _mask(word, cover_inert)
    holds_value = word.startswith("-") and masked.startswith(f"{word.partition('=')[0]}={MASK_PREFIX}")
    assigns = command in _NAME_NO_FILE or (command in _ASSIGN and not before.startswith("-"))
    return masked if holds_value or assigns or _BLANK.search(word) else _mask(word, cover_word)


def _told_by_option(command: str, args: list[str], at: int) -> bool:
    """True if the option before an argument makes it a secret for certain.

    A program that does not know the option takes the argument for a package; in `-W --token x.py` it is a value.
    """
    if at < 2 or not OPTION_NAME.fullmatch(args[at - 1]) or args[at][:1] in ("", "-"):
        return False
    takes_next = _PYTHON_TAKES_NEXT if command in _HAND_ON else _TAKES_NEXT
    if takes_next.fullmatch(args[at - 2]):
        return False
    return command in _HAND_ON or NO_NAME.fullmatch(args[at]) is not None


def _mask_login(argument: str, cover: Cover) -> str:
    found = _USER_AND_PASSWORD.fullmatch(argument)
    return _mask(argument, cover) if found is None else found.group(1) + cover("option", found.group(2))


MAX_HELD = 64 * 1024
"""A line or key longer than this leaves in parts."""
REMEMBERED = 4096
_LONGEST_SECRET = 4096
_TRIES = 16
_KEY_BEGINS, _KEY_ENDS = "-----BEGIN ", "-----END "


class MaskedStream:
    """Mask one stream of text: `feed` returns what may leave, `end` the rest."""

    def __init__(self) -> None:
        self._held = ""
        self._before = ""

    @property
    def held(self) -> int:
        """Number of characters that wait for the end of their line."""
        return len(self._held)

    def feed(self, text: str) -> str:
        """Add a piece; return, masked, the text that can no longer be part of a later secret."""
        text = self._held + text
        at = _end_of_lines(text)
        if len(text) - at > MAX_HELD:
            at = _safe_cut(text)
        self._held = text[at:]
        return self._pass_on(text[:at])

    def end(self) -> str:
        """Return the rest, masked: no more text comes."""
        text, self._held = self._held, ""
        return self._pass_on(text)

    def drop(self) -> None:
        """Forget the held text: its end will never be known."""
        self._held = ""

    def _pass_on(self, text: str) -> str:
        if not text:
            return ""
        before, self._before = self._before, (self._before + text)[-REMEMBERED:]
        whole = mask_text(before + text)
        known = mask_text(before)
        if WITHHELD in (whole, known):
            return f"{WITHHELD}\n"
        # The text before gives context only. If it is masked differently now, mask the new text alone.
        return whole[len(known) :] if whole.startswith(known) else mask_text(text)


def mask_start(text: str, most: int, cover: Cover = cover) -> str:
    """The first `most` characters of the masked text, at a cost that does not grow with its length.

    The text is cut where no secret stands, and to `most` after masking: half a secret no longer looks like one.
    """
    start = text[: most + 4 * _LONGEST_SECRET]
    if len(start) < len(text):
        start = start[: _safe_cut(start)]
    return mask_text(start, cover)[:most]


def _end_of_lines(text: str) -> int:
    """The end of the last whole line; a private key counts as one line, from its first to its last."""
    at = text.rfind("\n") + 1
    key = text.rfind(_KEY_BEGINS, 0, at)
    while key >= 0 and text.find(_KEY_ENDS, key, at) < 0:
        at = text.rfind("\n", 0, key) + 1
        key = text.rfind(_KEY_BEGINS, 0, at)
    return at


def _safe_cut(text: str) -> int:
    """The position of a blank where cutting an endless line does not change what is masked."""
    at = len(text) - _LONGEST_SECRET
    for _ in range(_TRIES):
        at = max(text.rfind(blank, 0, at) for blank in " \t\n,;")
        if at <= len(text) - 2 * _LONGEST_SECRET:
            break
        left, right = text[at - _LONGEST_SECRET : at], text[at : at + _LONGEST_SECRET]
        if mask_text(left) + mask_text(right) == mask_text(left + right):
            return at
    # Only one long word: no known secret is that long.
    return len(text) - _LONGEST_SECRET
