"""Masks secrets in text and JSON before they reach the model, the record, a log or a screen.

Three kinds of rule: formats of known providers, places where a secret stands (a URL, a header, a key block), and
names (`API_TOKEN=…`). Every pattern is bounded or anchored on a literal, so that hostile text costs linear time,
and runs only when its needle occurs. If masking itself fails the text is withheld, never passed on raw.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from .characters import whole_characters

MASK_PREFIX = "[masked:"
WITHHELD = f"{MASK_PREFIX}withheld] This text could not be checked for secrets."
MAX_DEPTH = 200

_B = r"(?<![A-Za-z0-9_-])"


@dataclass(frozen=True, slots=True)
class Format:
    """A secret that is known by its form; group 1, if any, is the part that is masked."""

    kind: str
    pattern: re.Pattern[str]


def _format(kind: str, pattern: str, flags: int = 0) -> Format:
    return Format(kind, re.compile(pattern, flags))


# Behind an underscore or a dash come at least 16 characters: one cheap look rules all of these out at once.
_UNDERSCORE = re.compile(r"_[A-Za-z0-9+/]{16}")
_UNDERSCORE_FORMATS = (
    _format("github-token", _B + r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    _format("github-token", _B + r"github_pat_[A-Za-z0-9_]{22,255}"),
    _format("stripe-key", _B + r"(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9+/=]{16,255}"),
    _format("npm-token", _B + r"npm_[A-Za-z0-9]{36,64}"),
    _format("huggingface-token", _B + r"hf_[A-Za-z0-9]{30,64}"),
    _format("digitalocean-token", _B + r"do[opr]_v1_[a-f0-9]{64}"),
    _format("shopify-token", _B + r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _format("linear-key", _B + r"lin_api_[A-Za-z0-9]{40,64}"),
)
_DASH = re.compile(r"-[A-Za-z0-9_.-]{16}")
_DASH_FORMATS = (
    _format("gitlab-token", _B + r"gl(?:pat|dt|rt|ptt|ft|soat|imt|agent|cbt|oas)-[A-Za-z0-9_.-]{20,255}"),
    _format("slack-token", _B + r"(?:xox[abceoprs]-[A-Za-z0-9-]{10,255}|xapp-\d-[A-Za-z0-9-]{10,255})"),
    _format("anthropic-key", _B + r"sk-ant-[A-Za-z0-9_-]{20,255}"),
    _format("openai-key", _B + r"sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,255}|[A-Za-z0-9]{32,255})"),
    _format("google-token", _B + r"GOCSPX-[A-Za-z0-9_-]{20,64}"),
    _format("pypi-token", _B + r"pypi-[A-Za-z0-9_-]{50,512}"),
    _format("age-key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
)
# What stands between the lines of a key: line ends, quotes, and what `cat -n` and `grep -n` put before each line.
_BETWEEN = r"(?:(?<=\n)(?:[\w./-]{0,120}[:-])?\ {0,8}[0-9]{1,7}[:\t-]|\\[rn]|[\s\"'+,])*+"
# Tried only when the literal occurs, as it is written here.
_LITERAL_FORMATS = (
    ("AKIA", _format("aws-key", _B + r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])")),
    ("ASIA", _format("aws-key", _B + r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])")),
    ("AIza", _format("google-key", _B + r"AIza[0-9A-Za-z_-]{35}")),
    ("ya29.", _format("google-token", _B + r"ya29\.[A-Za-z0-9_-]{20,1024}")),
    ("SG.", _format("sendgrid-key", _B + r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}")),
    ("hvs.", _format("vault-token", _B + r"hvs\.[A-Za-z0-9_-]{24,255}")),
    (":AA", _format("telegram-token", r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])")),
    ("eyJ", _format("jwt", _B + r"eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+")),
    ("slack.com/", _format("slack-webhook", r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9_/-]{20,255})")),
    ("://", _format("url-password", r"://[^\s/:@\"'<>]{0,128}:([^\s/@\"'<>]{1,256})@")),
    ("://", _format("url-token", r"://(?=[A-Za-z_-]{0,64}[0-9])([A-Za-z0-9_-]{20,256})@")),
    (
        "PRIVATE KEY",
        _format(
            "private-key",
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            rf"({_BETWEEN}(?:(?:[A-Za-z0-9+/=_]{{16,}}+|(?:Proc-Type|DEK-Info|Version|Comment)[^\n]{{0,200}}\n)"
            rf"{_BETWEEN})++[A-Za-z0-9+/=]*+)",
        ),
    ),
)
# As above, but the literal is looked for in the lower-case text.
_OPTION = r"--[a-z0-9-]{0,40}?(?:password|passwd|passphrase|token|secret|api-?key)"
_LOWER_FORMATS = (
    ("--", _format("option", _OPTION + r"\s{1,4}[\"']?(?=[A-Za-z_.+/=-]{0,64}[0-9])([^\s\"'<>\[-][^\s\"']{5,512})")),
    (
        "auth",
        _format(
            "authorization",
            r"authorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?(?:basic|bearer|token|digest|apikey)\s{1,8}"
            r"([A-Za-z0-9._~+/=-]{8,4096})",
            re.IGNORECASE,
        ),
    ),
    ("auth", _format("npm-auth", r"_auth\s{0,8}=\s{0,8}[\"']?([A-Za-z0-9+/=]{8,1024})")),
    (
        "bearer",
        _format(
            "bearer",
            r"\bbearer\s{1,8}(?=[A-Za-z._~+/-]{0,200}[0-9])([A-Za-z0-9._~+/-]{20,4096}=*)",
            re.IGNORECASE,
        ),
    ),
    (
        "password",
        _format(
            "netrc-password",
            r"\b(?:login|machine|default)\s{1,20}(?:\S{1,256}\s{1,20}){0,3}?password\s{1,20}([^\s=:\[][^\s=:]{2,255})",
        ),
    ),
)

# Names. The regex finds a telling word and an assignment behind it; `_named` looks at what stands around it.
_NAME_WORDS = ("key", "token", "secret", "pass", "pwd", "credential")
_ASSIGNMENT = re.compile(
    r"(?i:key|token|secret|password|passwd|pwd|passphrase|pass(?![a-z])|credential)"
    r"(?P<suffix>s|[0-9_]{1,4}|_[A-Z][A-Z0-9_]{0,30})?"
    r"(?P<close>[\\\"'\]]{0,3})(?P<left>[ \t]{0,8})(?P<sign>=>|:=|=(?!=)|:(?![:/]))(?P<right>[ \t]{0,8})"
)
_VALUE = re.compile(
    r"\\\"(?P<escaped>[^\"\\\n]{1,1024})\\\"|\"(?P<double>[^\"\\\n]{1,1024})\"|'(?P<single>[^'\\\n]{1,1024})'|(?P<bare>[^\s\"'`,;<>(){}\[\]|&]{4,1024})"
)
_NAME_BACKWARDS = re.compile(r"[A-Za-z0-9_.-]*+")
_STRONG = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|pwd|[_.-]pass|secrets?|credentials?|(?:^|[_.-])tokens?|"
    r"(?:auth|access|refresh|api|bot|id|session|bearer|client|deploy|github|gitlab|npm|slack|csrf|private|user|app|"
    r"personal)[_-]?token|"
    r"(?:api|secret|access|private|encryption|signing|auth|account|master|service|client|ssh|gpg|license|shared|"
    r"storage|admin|app|consumer|deploy|webhook|jwt|session)[_-]?keys?)[0-9_]*$"
)
_UPPER = re.compile(r"[A-Z][A-Z0-9_]*")
_ABOUT = re.compile(
    r"(?i)_?(?:name|id|url|uri|file|path|dir|type|length|size|len|count|ttl|expiry|expires|alg|format)$"
)
_PASSWORD = re.compile(r"(?i)passw(?:or)?d|passphrase|pwd|[_.-]pass$|secret|credential")
_OPTION_NAME = re.compile(rf"{_OPTION}|--?pass", re.IGNORECASE)
_VARIETY = re.compile(r"[^\W\d_]")
_REFERENCE = re.compile(r"[A-Za-z_$][A-Za-z_$]*(?:\.[A-Za-z_$][\w$]*)*[?!]?")
_TYPE = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*[0-9]?[?]?")
_PLAIN_VALUE = re.compile(r"[0-9_.,:%-]+|(?:true|false|null|none|undefined|nil|yes|no)|[.~]{0,2}/.*", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"[<${%#*]|\[masked:|x{3,}|\*{3,}|\.{3}|your[-_ ]|my[-_]|example|placeholder|change[-_]?me|dummy|redacted|todo|"
    r"process\.env|os\.environ|env\.|https?://",
    re.IGNORECASE,
)


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


def _mask_list(values: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
    """Items of a list; one behind an option such as `--token` is what the option says it is."""
    masked: list[Any] = []
    before: Any = None
    for item in values:
        named = isinstance(before, str) and isinstance(item, str) and _OPTION_NAME.fullmatch(before) is not None
        masked.append(f"{MASK_PREFIX}option]" if named and item[:1] not in ("", "-") else _mask_value(item, depth))
        before = item
    return masked


def mask_arguments(args: list[str]) -> list[str]:
    """The arguments of a command, masked one by one and by what stands before each."""
    masked = mask_value(args)
    return cast("list[str]", masked) if isinstance(masked, list) else [WITHHELD]


def _mask_field(key: str, value: Any, depth: int) -> Any:
    if isinstance(value, str) and value and _STRONG.search(key) and not _PLACEHOLDER.match(value):
        return f"{MASK_PREFIX}{whole_characters(key.lower()[:40])}]"
    return _mask_value(value, depth)


def _mask(text: str) -> str:
    text = whole_characters(text)
    if len(text) < 8:
        return text
    masked = text
    if _UNDERSCORE.search(text):
        masked = _apply(_UNDERSCORE_FORMATS, masked)
    if _DASH.search(text):
        masked = _apply(_DASH_FORMATS, masked)
    for literal, form in _LITERAL_FORMATS:
        if literal in text:
            masked = form.pattern.sub(_replacer(form.kind), masked)
    lower = text.lower()
    for literal, form in _LOWER_FORMATS:
        if literal in lower:
            masked = form.pattern.sub(_replacer(form.kind), masked)
    if any(word in lower for word in _NAME_WORDS):
        masked = _mask_named(masked)
    return masked


def _apply(formats: tuple[Format, ...], text: str) -> str:
    for form in formats:
        text = form.pattern.sub(_replacer(form.kind), text)
    return text


def _replacer(kind: str) -> Callable[[re.Match[str]], str]:
    found = _REPLACERS.get(kind)
    if found is None:
        found = _REPLACERS[kind] = _make_replacer(kind)
    return found


_REPLACERS: dict[str, Callable[[re.Match[str]], str]] = {}


def _make_replacer(kind: str) -> Callable[[re.Match[str]], str]:
    mask = f"{MASK_PREFIX}{kind}]"

    def replace(match: re.Match[str]) -> str:
        if not match.re.groups:
            return mask
        whole, part = match.group(), match.group(1)
        if kind == "url-password" and _PLACEHOLDER.match(part):
            return whole
        start, end = match.span(1)
        return f"{whole[: start - match.start()]}{mask}{whole[end - match.start() :]}"

    return replace


def _mask_named(text: str) -> str:
    """Mask values that stand behind a telling name."""
    pieces: list[str] = []
    done = 0
    for match in _assignments(text):
        if match.start() < done or (name := _name(text, match)) is None or _PLACEHOLDER.match(text, match.end()):
            continue
        value = _VALUE.match(text, match.end())
        if value is None:
            continue
        group = value.lastgroup or "bare"
        if _is_secret(text, match, name, value, quoted=group != "bare"):
            pieces += [text[done : value.start(group)], f"{MASK_PREFIX}{_kind(match.group())}]"]
            done = value.end(group)
    if not pieces:
        return text
    return "".join((*pieces, text[done:]))


def _assignments(text: str) -> Iterator[re.Match[str]]:
    """Assignments in order. Words are found by plain search, which is faster than any pattern."""
    lower = text.lower()
    if len(lower) != len(text):  # some letters change their length with their case
        yield from _ASSIGNMENT.finditer(text)
        return
    upcoming = {word: lower.find(word) for word in _NAME_WORDS}
    upcoming = {word: at for word, at in upcoming.items() if at >= 0}
    while upcoming:
        word = min(upcoming, key=upcoming.__getitem__)
        at = upcoming[word]
        match = _ASSIGNMENT.match(text, at)
        if match is not None:
            yield match
        following = lower.find(word, at + 1)
        if following < 0:
            del upcoming[word]
        else:
            upcoming[word] = following


def _kind(matched: str) -> str:
    lower = matched.lower()
    return (
        next(word for word in ("password", "token", "secret", "key", "credential", "") if word in lower) or "password"
    )


def _name(text: str, match: re.Match[str]) -> str | None:
    """The whole name before an assignment; None when nothing behind it would be taken for a secret."""
    start = match.start()
    name = text[start : match.start("close")]
    if start and (text[start - 1].isalnum() or text[start - 1] in "_.-"):
        backwards = _NAME_BACKWARDS.match(text[max(0, start - 64) : start][::-1])
        name = (backwards.group()[::-1] if backwards else "") + name
    return name if _is_telling(name) else None


@lru_cache(maxsize=4096)
def _is_telling(name: str) -> bool:
    return not _ABOUT.search(name) and (_is_upper(name) or _STRONG.search(name) is not None)


def _is_upper(name: str) -> bool:
    return _UPPER.fullmatch(name.lstrip(".-_")) is not None


def _is_secret(text: str, match: re.Match[str], name: str, found: re.Match[str], *, quoted: bool) -> bool:
    """Whether a value behind a telling name is a secret, rather than code about one."""
    value = found.group(found.lastgroup or 0)
    upper = _is_upper(name)
    if len(value) < 4 or _PLACEHOLDER.match(value):
        return False
    if upper and match.group("sign") == "=" and not match.group("right") and _PASSWORD.search(name) and quoted:
        return True  # a setting: what looks like prose or a number there is a password all the same
    if _PLAIN_VALUE.fullmatch(value):
        return upper and len(value) >= 6 and value.isdigit() and _PASSWORD.search(name) is not None
    if quoted:
        return _quoted_secret(name, value)
    after = text[found.end() : found.end() + 1]
    return _bare_secret(name, value, after, match, upper=upper)


def _quoted_secret(name: str, value: str) -> bool:
    if any(character.isspace() for character in value):
        return False
    if _PASSWORD.search(name):
        return value.lower() not in ("password", "passwd", "secret", "text", "hidden", "string", "token", "required")
    return len(value) >= 8 and _has_variety(value)


def _bare_secret(name: str, value: str, after: str, match: re.Match[str], *, upper: bool) -> bool:
    if after and after in "([{":
        return False  # a call or an index: code
    spaced = bool(match.group("left"))
    reference = _REFERENCE.fullmatch(value) is not None
    if match.group("sign") == "=" and not spaced and not match.group("right"):
        # NAME=value: settings and command lines; `name=name,` is a keyword argument
        if reference and (after in (",", ")") if after else False):
            return False
        return (upper and len(value) >= 6) or not reference or (bool(_PASSWORD.search(name)) and "." not in value)
    if reference or _TYPE.fullmatch(value):
        return False
    return len(value) >= 6 and _has_variety(value)


def _has_variety(value: str) -> bool:
    """Digits among letters, or letters of both cases and some length: not an ordinary word."""
    letters = _VARIETY.search(value) is not None
    if letters and re.search(r"\d", value):
        return True
    return len(value) >= 16 and letters and value.lower() != value and value.upper() != value
