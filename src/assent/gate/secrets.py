"""Masks secrets in text and JSON before they reach the model, the record, a log or a screen.

Three kinds of rule: formats of known providers, places where a secret stands (a URL, a header, a key block), and
names (`API_TOKEN=…`). Every pattern is bounded or anchored on a literal, so that hostile text costs linear time,
and runs only when its needle occurs. If masking itself fails the text is withheld, never passed on raw.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

MASK_PREFIX = "[masked:"
WITHHELD = f"{MASK_PREFIX}withheld] This text could not be checked for secrets."
MAX_DEPTH = 200

_B = r"(?<![A-Za-z0-9_-])"


@dataclass(frozen=True, slots=True)
class Format:
    """A secret that is known by its form; group 1, if any, is the part that is masked."""

    kind: str
    needles: tuple[str, ...]
    """Lower-case; the pattern is tried only when one of them occurs."""
    pattern: re.Pattern[str]


def _format(kind: str, needles: str, pattern: str, flags: int = 0) -> Format:
    return Format(kind, tuple(needles.split(" ")), re.compile(pattern, flags))


_FORMATS = (
    _format("aws-key", "akia asia abia acca", _B + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _format("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", _B + r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    _format("github-token", "github_pat_", _B + r"github_pat_[A-Za-z0-9_]{22,255}"),
    _format("gitlab-token", "gl", _B + r"gl(?:pat|dt|rt|ptt|ft|soat|imt|agent|cbt|oas)-[A-Za-z0-9_.-]{20,255}"),
    _format("slack-token", "xox xapp-", _B + r"(?:xox[abceoprs]-[A-Za-z0-9-]{10,255}|xapp-\d-[A-Za-z0-9-]{10,255})"),
    _format("slack-webhook", "hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9_/-]{20,255})"),
    _format("stripe-key", "k_live_ k_test_ whsec_", _B + r"(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9+/=]{10,255}"),
    _format("anthropic-key", "sk-ant-", _B + r"sk-ant-[A-Za-z0-9_-]{20,255}"),
    _format("openai-key", "sk-", _B + r"sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,255}|[A-Za-z0-9]{32,255})"),
    _format("google-key", "aiza", _B + r"AIza[0-9A-Za-z_-]{35}"),
    _format("google-token", "ya29. gocspx-", _B + r"(?:ya29\.[A-Za-z0-9_-]{20,1024}|GOCSPX-[A-Za-z0-9_-]{20,64})"),
    _format("npm-token", "npm_", _B + r"npm_[A-Za-z0-9]{36,64}"),
    _format("pypi-token", "pypi-", _B + r"pypi-[A-Za-z0-9_-]{50,512}"),
    _format("huggingface-token", "hf_", _B + r"hf_[A-Za-z0-9]{30,64}"),
    _format("sendgrid-key", "sg.", _B + r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    _format("digitalocean-token", "do", _B + r"do[opr]_v1_[a-f0-9]{64}"),
    _format("shopify-token", "shp", _B + r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _format("vault-token", "hvs. hvb.", _B + r"hv[sb]\.[A-Za-z0-9_-]{24,255}"),
    _format("telegram-token", ":aa", r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    _format("age-key", "age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    _format("linear-key", "lin_api_", _B + r"lin_api_[A-Za-z0-9]{40,64}"),
    _format("jwt", "eyj", _B + r"eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+"),
    _format(
        "private-key",
        "private key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"((?:\\[rn]|[\s\"'+,])*+(?:(?:[A-Za-z0-9+/=_]{16,}+|(?:Proc-Type|DEK-Info|Version|Comment)[^\n]{0,200}\n)"
        r"(?:\\[rn]|[\s\"'+,])*+)++[A-Za-z0-9+/=]*+)",
    ),
    _format("url-password", "://", r"://[^\s/:@\"'<>]{0,128}:([^\s/@\"'<>]{1,256})@"),
    _format(
        "netrc-password",
        "password",
        r"\b(?:login|machine|default)\s{1,20}(?:\S{1,256}\s{1,20}){0,3}?password\s{1,20}([^\s=:]{3,256})",
    ),
    _format(
        "authorization",
        "authorization",
        r"authorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?(?:basic|bearer|token|digest|apikey)\s{1,8}([A-Za-z0-9._~+/=-]{8,4096})",
        re.IGNORECASE,
    ),
    _format("bearer", "bearer", r"\bbearer\s{1,8}(?=[A-Za-z._~+/-]{0,200}[0-9])([A-Za-z0-9._~+/-]{20,4096}=*)", re.IGNORECASE),
    _format("npm-auth", "_auth", r"_auth\s{0,8}=\s{0,8}[\"']?([A-Za-z0-9+/=]{8,1024})"),
)

# Names. The regex finds a telling word and an assignment behind it; `_named` looks at what stands around it.
_NAME_NEEDLES = ("key", "token", "secret", "passw", "pwd", "passphrase", "credential")
_ASSIGNMENT = re.compile(
    r"(?i:key|token|secret|password|passwd|pwd|passphrase|credential)"
    r"(?P<suffix>s|[0-9_]{1,4}|_[A-Z][A-Z0-9_]{0,30})?"
    r"(?P<close>[\"'\]]{0,2})(?P<left>[ \t]{0,8})(?P<sign>=>|:=|=(?!=)|:(?![:/]))(?P<right>[ \t]{0,8})"
)
_VALUE = re.compile(
    r"\"(?P<double>[^\"\\\n]{1,2048})\"|'(?P<single>[^'\\\n]{1,2048})'|(?P<bare>[^\s\"'`,;<>(){}\[\]|&]{4,2048})"
)
_NAME_LEFT = re.compile(r"[A-Za-z0-9_.-]*\Z")
_STRONG = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|pwd|secrets?|credentials?|(?:^|[_.-])tokens?|"
    r"(?:auth|access|refresh|api|bot|id|session|bearer|client|deploy|github|gitlab|npm|slack|csrf|private|user|app|"
    r"personal)[_-]?token|"
    r"(?:api|secret|access|private|encryption|signing|auth|account|master|service|client|ssh|gpg|license|shared|"
    r"storage|admin|app|consumer|deploy|webhook|jwt|session)[_-]?keys?)[0-9_]*$"
)
_UPPER = re.compile(r"[A-Z][A-Z0-9_]*")
_ABOUT = re.compile(r"(?i)_?(?:name|id|url|uri|file|path|dir|type|length|size|len|count|ttl|expiry|expires|alg|format)$")
_PASSWORD = re.compile(r"(?i)passw(?:or)?d|passphrase|pwd|secret|credential")
_REFERENCE = re.compile(r"[A-Za-z_$][A-Za-z_$]*(?:\.[A-Za-z_$][\w$]*)*[?!]?")
_PLAIN_VALUE = re.compile(r"[0-9_.,:%-]+|(?:true|false|null|none|undefined|nil|yes|no)|[.~]{0,2}/.*", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"[<${%#*]|\[masked:|x{3,}|\*{3,}|\.{3}|your[-_ ]|my[-_]|example|placeholder|change[-_]?me|dummy|redacted|todo|"
    r"process\.env|os\.environ|env\.|https?://",
    re.IGNORECASE,
)


def mask_text(text: str) -> str:
    """The text with what looks like a secret replaced by `[masked:…]`; the same object when there is nothing."""
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
        return [_mask_value(item, depth + 1) for item in cast("list[Any]", value)]
    return value


def _mask_field(key: str, value: Any, depth: int) -> Any:
    if isinstance(value, str) and value and _STRONG.search(key) and not _PLACEHOLDER.match(value):
        return f"{MASK_PREFIX}{key.lower()[:40]}]"
    return _mask_value(value, depth)


def _mask(text: str) -> str:
    lower = text.lower()
    for form in _FORMATS:
        for needle in form.needles:
            if needle in lower:
                text = form.pattern.sub(_replacer(form.kind), text)
                break
    for needle in _NAME_NEEDLES:
        if needle in lower:
            return _mask_named(text)
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
    for match in _ASSIGNMENT.finditer(text):
        if match.start() < done:
            continue
        value = _VALUE.match(text, match.end())
        if value is None:
            continue
        group = value.lastgroup or "bare"
        if _is_secret(text, match, value.group(group), value, quoted=group != "bare"):
            pieces += [text[done : value.start(group)], f"{MASK_PREFIX}{_kind(match.group())}]"]
            done = value.end(group)
    if not pieces:
        return text
    return "".join((*pieces, text[done:]))


def _kind(matched: str) -> str:
    lower = matched.lower()
    return next(word for word in ("password", "token", "secret", "key", "credential", "") if word in lower) or "password"


def _is_secret(text: str, match: re.Match[str], value: str, found: re.Match[str], *, quoted: bool) -> bool:
    """Whether a value behind a telling name is a secret, rather than code about one."""
    left = _NAME_LEFT.search(text[max(0, match.start() - 64) : match.start()])
    word = match.group()[: match.start("close") - match.start()]
    name = (left.group() if left else "") + word
    if len(value) < 4 or _PLACEHOLDER.match(value) or _PLAIN_VALUE.fullmatch(value) or _ABOUT.search(name):
        return False
    upper = _UPPER.fullmatch(name.lstrip(".-_")) is not None
    if not upper and not _STRONG.search(name):
        return False
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
    if reference:
        return False
    return len(value) >= 6 and _has_variety(value)


def _has_variety(value: str) -> bool:
    """Digits among letters, or letters of both cases and some length: not an ordinary word."""
    letters = any(character.isalpha() for character in value)
    if letters and any(character.isdigit() for character in value):
        return True
    return len(value) >= 16 and letters and value.lower() != value and value.upper() != value
