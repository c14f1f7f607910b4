"""Mask secrets in text and JSON before they reach the model, the record, a log or a screen.

Secrets are known by their form (`secret_formats`), by the name before them (`secret_names`), or as the data of a
Kubernetes Secret. The cost is linear whatever the text. If masking fails, the functions here withhold the text and
never pass it on raw, so no caller has to handle that.

Calls that a person decides about are masked with `cover_inert`: a mask never hides anything that could act, and says
how many characters it hides. Text that runs is masked with `cover_key`: there no name or option makes a word a secret.

`MaskedStream` masks text that arrives in pieces, so a secret across two of them does not leak in halves. It holds a
line back until its end and a private key until its last line; longer ones leave in parts, cut where no known secret
stands. It remembers the text before, which may explain the next line (`machine`, `login`, then `password`). Its memory
is bounded.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Any, cast

from byleave.protocol.wire import JsonObject

from .characters import whole_characters
from .secret_formats import BY_FORM, KEY_ENDS, KEY_RUN, KEYS, OPTION_NAME, PLACES, SHORT_KEY_RUN, WORDS, Format
from .secret_names import (
    ENDS_TELLING,
    NAME_WORDS,
    PLACEHOLDER,
    TELLING_FIELD,
    Cover,
    is_telling,
    mask_named,
    says_little,
)

MASK_PREFIX = "[masked:"
WITHHELD = f"{MASK_PREFIX}withheld] This text could not be checked for secrets."
MAX_SHOWN_CONTENT = 16 * 1024
_EDGE = MAX_SHOWN_CONTENT // 2
_CONTEXT = 64 * 1024
"""Characters around a shown piece that are searched for secrets which cross its edge."""
_MASK_WHOLE = 2 * (_EDGE + _CONTEXT)
MAX_DEPTH = 200
SHORTEST = 8
SHORT = 256
_SUSPECT = re.compile(r"[:=$~>,{\"'`]|\s-|--|[A-Za-z0-9_+-]{16}|password|requirepass|_auth|ENV\s|\x1b|\x9b")
"""No rule fits a short text without any of these: a shortcut for names and paths, which are many."""

_CONTROL_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}+[ -/]{0,8}+[@-~]|\x1b\][^\x07\x1b\n]{0,2048}+(?:\x07|\x1b\\)"
)

_LINE_END = r"(?:\^M|[\r$])*"
"""Of a line as it is and as `cat -A` shows it."""
_MANIFEST = re.compile(rf"\bkind[\"']?:[ \t]*[\"']?Secret[\"']?[ \t]*,?{_LINE_END}$", re.MULTILINE)
_MANIFEST_DATA = re.compile(
    rf"^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*{_LINE_END}\n"
    rf"(?P<block>(?:(?P=indent)[ \t]+[^\n]*\n?|[ \t]*{_LINE_END}\n)++)",
    re.MULTILINE,
)
_MANIFEST_ENTRY = re.compile(
    rf"^([ \t]*[\w.\"'-]{{1,253}}:[ \t]*)(?![|>][-+]?[ \t]*{_LINE_END}$)(\S[^\n]{{2,}}+)$|"
    rf"^([ \t]+)([A-Za-z0-9+/=]{{16,}}+)(?={_LINE_END}$)",
    re.MULTILINE,
)
_ACROSS = tuple(
    (needle, re.compile(pattern))
    for needle, pattern in (
        ("PRIVATE KEY", "PRIVATE KEY"),
        ("Private-Lines: ", "Private-Lines: "),
        ("Secret", r"kind[\"']?\s{0,8}:\s{0,8}[\"']?Secret"),
        ("value", r"\n[ \t]*[\"']?value[\"']?[ \t]{0,4}[:=]"),
        ("machine", r"machine\s{1,20}\S{1,256}\s{1,20}login"),
        ("[imap", r"\[imap"),
        ("[sendemail", r"\[sendemail"),
    )
)
"""In texts where one line tells that another is secret."""
_PART = re.compile(
    r"[A-Za-z0-9+/=]{16}|^[ \t]*[\w.\"'-]+:|^\W*(?:value|(?:smtp)?pass(?:word)?)\b|^\W*[A-Za-z0-9+/=]+\W*$",
    re.MULTILINE,
)
"""In lines that others may tell are secret: a key's, a manifest's, and those behind a name of their own."""
_DECORATION = re.compile(r"[ \t]*[\w./~@^]+|[-+<>: \t]|.", re.DOTALL)
_LONGEST_DECORATION = 300
_MOST_DECORATIONS = 8
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
_USER_AND_PASSWORD = re.compile(r"(?![0-9]+:[0-9]+$)([^\s:/]*:)(\S.*)", re.DOTALL)

# Covers

_INERT = re.compile(r"(?![!*-])[A-Za-z0-9_.~+/=@:%^!,#*?-]+")
"""Characters that no shell, interpreter or template acts on. Anything else may be code, and so may a leading `!`; a
leading dash makes an option of it, a star in YAML another value."""
_INERT_BEFORE_HOST = re.compile(r"[A-Za-z0-9_.~+=:%^!,*-]+")
"""For addresses: also without the characters that decide which part is the host."""

_BY_PLACE = frozenset({"option", "password", "token", "secret", "key", "credential"})
_NO_NAME = re.compile(
    r"(?:[\w~-]+\.)*(?![Xx][Nn]--)(?=[^a-z.]*[a-z])(?=[^A-Z.]*[A-Z])(?=[^0-9.]*[0-9])[\w~-]{16,}={0,2}", re.ASCII
)
"""No host ends so, and no path: with small letters, capitals and digits in one long part."""
_NEAR = 160
"""Characters before a key in which its name must stand."""
_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[a-z0-9])|(?<=[0-9])(?=[A-Za-z])")
"""In words there are few of them, at random they are more than half of all places."""
_VARIABLE = re.compile(
    r"(?:[;&|][ \t]*|(?<![\w.-])(?:export|env|ENV)[ \t]+|(?<![^\s\"'])(?=--))([\w.-]+)=(?:\\?[\"'])?\Z", re.ASCII
)
_FIELD = re.compile(
    r"(?:(?:\A|(?<!\\)\n)[ \t]*(?:(?:export|set|const|let|var)[ \t]+|//[^\s=?#]{1,99}:)?|"
    r"(?P<within>[({,]\s{0,8}|(?<!\\)\n[ \t]*-[ \t]+))"
    r"(?:[\w.]+\[)?(?P<quote>\\?[\"'])?(?P<name>[\w.-]+)(?(quote)(?P=quote))\]?"
    r"[ \t]*(?(within)(?::|=>?(?=[ \t]*\\?[\"']))|(?::=|=>|[:=]))[ \t]*(?:\\?[\"'])?"
    r"(?:(?i:bearer|basic|token)[ \t]+)?\Z",
    re.ASCII,
)
_HEADER = re.compile(r"authorization:[ \t]*(?:bearer|basic|token|digest|apikey|ssws)[ \t]+\Z", re.IGNORECASE)
"""Before a key: it is the value of a variable or an option, of a field, or in a header. `--token x` is left out, since
a program that knows no such option takes x for a file, a script or a package."""
_AFTER_KEY = re.compile(r"(?:\\?[\"']){0,2}(?:[\s,;&|)\]}]|\Z)")
_NAMES_COMMANDS = re.compile(r"(?:scripts|tasks|dependencies)[\"']?\s*[.:=\]]|\\[uUx]")
"""Before a table whose fields are commands or packages, by whatever name; its own name may be spelled by escapes."""
_BEFORE_USER = re.compile(r"://(?:[\w.%+~-]{0,64}:)?\Z", re.ASCII)
_AFTER_USER = re.compile(r"(?::[\w-]{1,64})?@", re.ASCII)
"""Around the user or the password of an address, which name no host."""
_ADDRESS = re.compile(r"(?:git\+)?(?:https?|ssh)://\S+")

_NAMES_CODE = re.compile(r"[/:@]|^[A-Za-z_][\w-]*(?:\.[\w-]+)+$")
"""A path, address, package with its version, or module: `"reset-password": "tools/x1"` is a script that runs."""
_JOINED = frozenset("/`(:=")
_SETTING = re.compile(r"[ \t]*(?:export[ \t]+)?[\"']?([\w.-]{1,200})[\"']?[ \t]*[:=]", re.ASCII)
_REST_OF_MASK = re.compile(r"[a-z0-9-]{1,40}(?:, [0-9]{1,9} characters?)?\]")
"""`url-token]` of `https://[masked:url-token]@host`: its colon does not make it a user and a password."""


def cover(kind: str, value: str) -> str:
    """Cover all of a secret: for the model, recorded results and logs."""
    return f"{MASK_PREFIX}{kind}]"


def cover_inert(kind: str, value: str) -> str:
    """Cover only what could not be code, and say its length: for calls that people decide about."""
    inert = _INERT_BEFORE_HOST if kind == "url-password" else _INERT
    if not inert.fullmatch(value) or (kind in _BY_PLACE and _NAMES_CODE.search(value)):
        return value
    return f"{MASK_PREFIX}{kind}, {len(value)} character{'' if len(value) == 1 else 's'}]"


def cover_key(kind: str, value: str) -> str:
    """For text that runs: arguments, scripts, files that something obeys. A word after a name or an option may be a
    program, package or host there, so only keys known by their own form are covered (`_is_key`)."""
    return value


def cover_nothing(kind: str, value: str) -> str:
    """Cover nothing: for a person who asked to see what is masked in a call they decide about."""
    return value


_FOR_PEOPLE = (cover_inert, cover_key)


def mask_text(text: str, cover: Cover = cover) -> str:
    """Replace what looks like a secret by `[masked:…]`; return the same object if there is none.

    A lone surrogate becomes U+FFFD, so the masked text is the text that gets written and sent.
    """
    try:
        return _mask(text, cover)
    except Exception:  # noqa: BLE001 - the boundary: whatever went wrong, the raw text must not pass
        return WITHHELD


def mask_across_lines(text: str) -> str:
    """Mask a text before lines are cut out of it, if one may tell that another is secret; all line ends stay."""
    if not any(needle in text and pattern.search(text) for needle, pattern in _ACROSS):
        return text
    masked = mask_text(text)
    return WITHHELD + "\n" * text.count("\n") if masked == WITHHELD else masked


def may_be_part(line: str) -> bool:
    """False for a line that no other can tell is secret, as most are."""
    return _PART.search(line) is not None


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


def shown_params(tool_name: str, params: JsonObject, cover: Cover = cover) -> JsonObject:
    """Mask parameters for the record, or with `cover_inert` for a question; shorten long content and say so."""
    content = params.get("content")
    if tool_name != "write_file" or not isinstance(content, str) or len(content) <= MAX_SHOWN_CONTENT:
        return masked_params(tool_name, params, cover)
    raw = content.encode("utf-8", "surrogatepass")
    others = {key: value for key, value in params.items() if key != "content"}
    return {
        **shown_params(tool_name, others, cover),
        "content": _shortened(content, cover),
        "content_size": len(raw),
        "content_sha256": hashlib.sha256(raw).hexdigest(),
    }


def masked_params(tool_name: str, params: JsonObject, cover: Cover) -> JsonObject:
    """Mask parameters, each by its meaning."""
    masked = mask_value(params, cover)
    if not isinstance(masked, dict):
        return {"withheld": masked}
    shown = cast("JsonObject", masked)
    if cover in (cover_inert, cover_key, cover_nothing) and isinstance(params.get("path"), str):
        shown = {**shown, "path": whole_characters(params["path"])}  # never masked: it names the file
    command, args = params.get("command"), params.get("args")
    if tool_name == "execute_command" and isinstance(command, str) and _all_text(args):
        # The command decides what an argument means: `-p` of one is a port, of another a password.
        return {**shown, "args": mask_arguments([command, *args], cover)[1:]} if args else shown
    return shown


def _all_text(args: object) -> bool:
    return isinstance(args, list) and all(isinstance(item, str) for item in cast("list[Any]", args))


def _shortened(content: str, cover: Cover) -> str:
    left_out = f"\n[… {len(content) - MAX_SHOWN_CONTENT} characters left out …]\n"
    if len(content) <= _MASK_WHOLE:
        masked = mask_text(content, cover)
        return masked if len(masked) <= MAX_SHOWN_CONTENT else f"{masked[:_EDGE]}{left_out}{masked[-_EDGE:]}"
    head = mask_text(content[: _EDGE + _CONTEXT], cover)[:_EDGE]
    tail = mask_text(content[-_EDGE - _CONTEXT :], cover)[-_EDGE:]
    return f"{head}{left_out}{tail}"


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
    masked = _mask_formats(text, lower, cover)
    if "PRIVATE KEY-" in masked and cover not in _FOR_PEOPLE:
        masked = _mask_rest_of_keys(masked, cover)
    if masked is not text:
        lower = _lower(masked)
    if any(word in lower for word in NAME_WORDS):
        masked = mask_named(masked, lower, cover, spares_programs=cover is cover_inert)
    return _mask_manifest(masked, cover) if "kind" in lower and "Secret" in masked else masked


def _mask_rest_of_keys(text: str, cover: Cover) -> str:
    """Mask what is above the last line of a private key whose first line was cut off, as by `tail`."""
    pieces: list[str] = []
    done = 0
    for end in KEY_ENDS.finditer(text):
        last = top = text.rfind("\n", done, end.start()) + 1
        if not last:
            continue  # nothing is above it, or it belongs to the line of the one before
        lines: list[str] = []
        while top > done:
            above = max(text.rfind("\n", done, top - 1) + 1, done)
            line = text[above : top - 1]
            masked = KEY_RUN.sub(lambda run: cover("private-key", run.group()), line)
            if masked == line and lines:
                break
            lines.append(masked)
            top = above
        if len(lines) > 1:
            lines[0] = SHORT_KEY_RUN.sub(lambda run: cover("private-key", run.group()), lines[0])
        pieces += [text[done:top], *(f"{line}\n" for line in reversed(lines))]
        done = last
    return "".join((*pieces, text[done:])) if pieces else text


def _lower(text: str) -> str:
    """Lower case of the same length: the dotted capital I would become two characters."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text.replace("\u0130", "I").lower()


def _mask_manifest(text: str, cover: Cover) -> str:
    """Mask all entries of a Kubernetes Secret, whatever their names and whatever a command put before each line."""
    for decoration in _decorations(text):
        before = [found.group() if (found := decoration.match(line)) else "" for line in text.split("\n")]
        bare = "\n".join([line[len(part) :] for part, line in zip(before, text.split("\n"), strict=True)])
        parts = bare.split("\n---")
        block = partial(_mask_block, cover)
        bare = "\n---".join(_MANIFEST_DATA.sub(block, part) if _MANIFEST.search(part) else part for part in parts)
        text = "\n".join([part + line for part, line in zip(before, bare.split("\n"), strict=True)])
    if _MANIFEST_JSON.search(text):
        entry = partial(_mask_entry, cover)
        text = _MANIFEST_JSON_DATA.sub(lambda data: _JSON_ENTRY.sub(entry, data.group()), text)
    return text


def _decorations(text: str) -> list[re.Pattern[str]]:
    """Patterns for what stands before each line of a manifest, made from its `kind:` line: file names and numbers may
    differ there, and signs."""
    shapes: dict[str, None] = {}
    for found in islice(_MANIFEST.finditer(text), 1000):
        before = text[text.rfind("\n", 0, found.start()) + 1 : found.start()].rstrip("\"'")
        if len(before) <= _LONGEST_DECORATION:
            shapes["".join(_any_such(piece.group()) for piece in _DECORATION.finditer(before))] = None
    return [re.compile(shape) for shape in islice(shapes, _MOST_DECORATIONS)]


def _any_such(piece: str) -> str:
    if any(letter.isalnum() for letter in piece):
        return r"[ \t]*+[\w./~@^]++"
    return r"[-+<>: \t]" if piece in "-+<>: \t" else re.escape(piece)


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
    named = isinstance(value, str) and value and TELLING_FIELD.search(key)
    if named and not PLACEHOLDER.match(value) and not says_little(key, value):
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
    if cover in _FOR_PEOPLE:  # what a person sees is what runs, so a word that may name it is shown
        return [_mask(word, cover_key) for word in args]
    command = args[0].rpartition("/")[2]
    masked = cast("list[str]", _mask_list(args, 1, cover))
    glued, apart = _GLUED.get(command), _APART.get(command, ())
    for at, argument in enumerate(args):
        if at and args[at - 1] in apart:
            masked[at] = _mask_login(argument, cover) if command == "curl" else cover("option", argument)
        elif at and glued and argument.startswith(glued) and len(argument) > len(glued):
            masked[at] = glued + cover("option", argument.removeprefix(glued))
    return masked


def _mask_login(argument: str, cover: Cover) -> str:
    found = _USER_AND_PASSWORD.fullmatch(argument)
    return _mask(argument, cover) if found is None else found.group(1) + cover("option", found.group(2))


# Secrets known by their form

# Prefixes are searched for only around long runs after their last sign, not in the whole text: a hundred plain
# searches are faster in little text.
_RUNS = {
    "_": re.compile(r"_[A-Za-z0-9+/_-]{16}"),
    "-": re.compile(r"-[A-Za-z0-9_.-]{16}"),
    ".": re.compile(r"\.[A-Za-z0-9_-]{16}"),
}
_REACH = 20
"""At least the length of the longest prefix."""


def _last_sign(prefix: str) -> str:
    return next((sign for sign in reversed(prefix) if sign in _RUNS), "")


_KEYS_BY_SIGN = tuple((sign, tuple(form for form in KEYS if _last_sign(form.needle) == sign)) for sign in _RUNS)
_SHORTEST_KEY = 20
_ANYWHERE = (*(form for form in KEYS if not _last_sign(form.needle)), *PLACES)
"""Formats whose needle is searched for in the whole text as it is."""
_LETTERS = tuple(sorted({letter for form in (*_ANYWHERE, *WORDS) for letter in form.needle}))


def _mask_formats(text: str, lower: str, cover: Cover) -> str:
    """Mask secrets that are known by their form; `lower` is the text in lower case."""
    masked = text
    if len(text) >= _SHORTEST_KEY:
        for sign, forms in _KEYS_BY_SIGN:
            if sign in text and (around := _around(text, sign)):
                for form in forms:
                    if form.needle in around:
                        masked = _mask_format(form, masked, cover)
    # Searching for a letter takes a fiftieth of the time of a word, and most texts lack some letters.
    anywhere, words = _possible("".join([letter for letter in _LETTERS if letter in text or letter in lower]))
    for form in anywhere:
        if form.needle in text and form.also in lower:
            masked = _mask_format(form, masked, cover)
    for form in words:
        if form.needle in lower and form.also in lower:
            masked = _mask_format(form, masked, cover)
    return masked


@lru_cache(maxsize=1024)
def _possible(letters: str) -> tuple[tuple[Format, ...], tuple[Format, ...]]:
    """Formats whose needle has only these letters: for the text as it is, and for lower case."""
    there = set(letters)
    return (
        tuple(form for form in _ANYWHERE if there.issuperset(form.needle)),
        tuple(form for form in WORDS if there.issuperset(form.needle)),
    )


def _around(text: str, sign: str) -> str:
    """The parts of a text where prefixes with this sign may occur."""
    runs = _RUNS[sign].finditer(text)
    return "\n".join([text[max(0, run.start() - _REACH) : run.end() + 4] for run in runs])


def _mask_format(form: Format, text: str, cover: Cover) -> str:
    kind, runs = form.kind, cover is cover_key
    if runs and kind in BY_FORM:
        cover = cover_inert
    # Each is one search of the whole text, however many keys are found in it.
    is_address, names_commands = cache(_ADDRESS.fullmatch), cache(_NAMES_COMMANDS.search)

    def replace(match: re.Match[str]) -> str:
        if not _is_key(match, is_address, names_commands) if runs else cover is cover_inert and _is_other(match):
            return match.group()
        if not match.re.groups:
            return cover(kind, match.group())
        whole, part = match.group(), match.group(1)
        if PLACEHOLDER.match(part):
            return whole
        start, end = match.span(1)
        if form.each:
            part = part if cover in _FOR_PEOPLE else re.sub(form.each, lambda run: cover(kind, run.group()), part)
            return whole[: start - match.start()] + part
        if whole[: start - match.start()].endswith(MASK_PREFIX) and _REST_OF_MASK.fullmatch(part):
            return whole
        return f"{whole[: start - match.start()]}{cover(kind, part)}{whole[end - match.start() :]}"

    return form.pattern.sub(replace, text)


def _is_key(match: re.Match[str], is_address: Callable[[str], object], names_commands: Callable[[str], object]) -> bool:
    """True if what was found in text that runs is a key for certain: by what it is, and by a name that says so or its
    place in an address. Any other word may be a program, a package or a file, whatever it looks like."""
    value, (start, end) = match.group(match.re.groups), match.span(match.re.groups)
    text, near = match.string, max(0, start - _NEAR)
    is_user = _BEFORE_USER.search(text, near, start) is not None and _AFTER_USER.match(text, end) is not None
    if is_user and is_address(text):
        return True  # one argument: no shell takes it apart
    is_random = _NO_NAME.fullmatch(value) is not None and 3 * len(_BORDER.findall(value)) >= len(value)
    if not is_random or not (is_user or _AFTER_KEY.match(text, end)) or _holds_text(value):
        return False
    if is_user or _HEADER.search(text, near, start):
        return True
    variable, field = _VARIABLE.search(text, near, start), _FIELD.search(text, near, start)
    if variable is not None and _says_key(variable.group(1)):
        return True
    # `TOKEN=x` alone may be an argument, and so a file.
    is_field = field is not None and _says_key(field.group("name")) and (field.start("name") > 0 or "\n" in text)
    return is_field and not names_commands(text)


def _is_other(match: re.Match[str]) -> bool:
    """True if what looks like a key is set as something else, or is not all that is set: `BASH_ENV` names a program,
    and so may `./x`, `$(x)` or a word of `NODE_OPTIONS`."""
    text, (start, end) = match.string, match.span(match.re.groups)
    near = max(0, start - _NEAR)
    if _NO_NAME.fullmatch(match.group(match.re.groups)) is None:
        return False
    if _BEFORE_USER.search(text, near, start) and _AFTER_USER.match(text, end):
        return False
    field = _FIELD.search(text, near, start)
    if field is not None:
        return not _says_key(field.group("name"))
    setting = _SETTING.match(text, text.rfind("\n", 0, start) + 1, start)
    is_part = setting is not None and not _says_key(setting.group(1))
    return is_part or text[start - 1 : start] in _JOINED


def _says_key(name: str) -> bool:
    return name.lower() == "authorization" or (ENDS_TELLING.search(name) is not None and is_telling(name))


def _holds_text(value: str) -> bool:
    """True if a part of it is base64 of text: code could be hidden so. A signed token's objects are no code."""
    parts = [part for part in re.split(r"[^A-Za-z0-9+/_-]", value) if not _is_object(part)]
    parts += [re.sub("[-_]", "", part) for part in parts]  # decoders may skip what is not of their alphabet
    for part in parts:
        for start in range(4):  # behind a prefix of any length
            piece = part[start : start + (len(part) - start) // 4 * 4]
            found = base64.b64decode(piece, altchars=b"-_").replace(b"\0", b"")
            if len(found) >= 12 and sum(32 <= byte < 127 or byte in b"\t\n" for byte in found) > 0.8 * len(found):
                return True
    return False


def _is_object(part: str) -> bool:
    """True for base64 of a JSON object whose values are short, as in a signed token."""
    try:
        found = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_"))
    except ValueError:
        return False
    return isinstance(found, dict) and all(len(str(each)) <= 64 for each in cast("dict[str, object]", found).values())


# Streams

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
