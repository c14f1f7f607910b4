"""Secrets known by the name before them: `API_TOKEN=…`, `"password": "…"`, `<password>…</password>`, `name:`/`value:`.

A name alone does not make a secret: code about passwords is full of such names. What stands behind one is masked when
it looks like a value (a literal, a setting) and left alone when it looks like code, a type, prose or a placeholder.
Words are found by patterns that begin with a literal, so that text without them costs next to nothing.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from .secret_formats import PLACEHOLDER, Cover

_WORDS = ("key", "token", "secret", "pass", "pwd", "credential")
_AFTER = (
    r"(?:word|wd|phrase)?(?:_[a-z][a-z0-9_]{0,30}+|[0-9_]{1,4}+|s)?+[\\\"'\]]{0,3}[ \t]{0,8}"
    r"(?:=(?!=)|:(?![:/])|>(?=[^<>\n])|,[ \t]{0,4}[\"'{]|(?:,\s{0,40}|\s{1,40})[\"']?value[\"']?[ \t]{0,4}[:=])"
)


@cache
def _hits(word: str) -> re.Pattern[str]:
    """In lower-case text: a telling word with something behind it that may give it a value.

    Compiled when the word is first met: it takes longer than all else in loading the gate.
    """
    return re.compile(word + _AFTER)


_STAGE = "_(?:base|prod|production|dev|staging|test|live|old|new|admin|root)"
_NAME = (
    r"(?i:key|token|secret|password|passwd|pwd|passphrase|pass(?![a-z])|credential)"
    rf"(?P<suffix>s|[0-9_]{{1,4}}|_[A-Z][A-Z0-9_]{{0,30}}|{_STAGE})?"
)
_ASSIGNMENT = re.compile(
    rf"{_NAME}(?P<close>[\\\"'\]]{{0,3}})(?P<left>[ \t]{{0,8}})(?P<sign>=>|:=|=(?!=)|:(?![:/]))(?P<right>[ \t]{{0,8}})"
)
_PAIR = re.compile(
    rf"{_NAME}(?P<close>[\"']{{0,1}})(?P<left>)(?:,\s{{0,40}}|\s{{1,40}})[\"']?(?i:value)[\"']?[ \t]{{0,4}}"
    r"(?P<sign>[:=])(?P<right>[ \t]{0,4})"
)
_ARGUMENT = re.compile(rf"{_NAME}(?P<close>[\"'])(?P<left>)(?P<sign>,)(?P<right>[ \t]{{0,4}})(?=[\"'])")
_ELEMENT = re.compile(rf"{_NAME}(?P<close>)(?P<left>)(?P<sign>>)(?P<right>)(?=[^<>\n]{{3,1024}}</)")
_FORMS = (_ASSIGNMENT, _PAIR, _ARGUMENT, _ELEMENT)

_VALUE = re.compile(
    r"\\\"(?P<escaped>[^\"\\\n]{1,1024})\\\"|\"(?P<double>(?:[^\"\\\n]|\\[^\n]){1,1024}+)\"|"
    r"'(?P<single>(?:[^'\\\n]|\\[^\n]){1,1024}+)'|`(?P<back>[^`\\\n$]{1,1024})`|"
    r"(?P<bare>[^\s\"'`,;<>(){}\[\]|&]{4,1024})"
)
_ELEMENT_VALUE = re.compile(r"(?P<element>[^<>\n]{3,1024})")
_SETTING_VALUE = re.compile(r"(?P<setting>[^\s\"'`]\S{3,1023})")
_BACKWARDS = re.compile(r"[A-Za-z0-9_.-]*+")
_STRONG = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|pwd|[_.-]pass|secrets?|credentials?|(?:^|[_.-])tokens?|"
    r"(?:auth|access|refresh|api|bot|id|session|bearer|client|deploy|github|gitlab|npm|slack|csrf|private|user|app|"
    r"personal)[_-]?token|"
    r"(?:api|secret|access|private|encryption|signing|auth|account|master|service|client|ssh|gpg|license|shared|"
    r"storage|admin|app|consumer|deploy|webhook|jwt|session)[_-]?keys?)"
    rf"(?:[0-9_]*|{_STAGE})$"
)
_UPPER = re.compile(r"[A-Z][A-Z0-9_]*")
_ABOUT = re.compile(
    r"(?i)_?(?:name|id|url|uri|file|path|dir|type|length|size|len|count|ttl|expiry|expires|alg|format)$|"
    r"(?:public|primary|foreign|cache|sort|partition|hash|group|index|lookup|unique|row|pub|host|map|dict)_?keys?$"
)
_PASSWORD = re.compile(r"(?i)passw(?:or)?d|passphrase|pwd|[_.-]pass$|secret|credential")
_FREE_FORM = re.compile(r"(?i)pass|pwd")
"""People choose passwords; secrets and credentials are long."""
_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[^\W\d_]")
_REFERENCE = re.compile(r"[A-Za-z_$][A-Za-z_$]*(?:\.[A-Za-z_$][\w$]*)*[?!]?")
_TYPE = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*[0-9]?[?]?|(?:[a-z_]\w*\.)+[A-Z]\w*")
_CALL = re.compile(r"[A-Za-z_$][\w.$]*[(\[{]")
_PLAIN_VALUE = re.compile(r"[0-9_.,:%-]+|(?:true|false|null|none|undefined|nil|yes|no)|[.~]{0,2}/.*", re.IGNORECASE)
_NOT_A_PASSWORD = re.compile(
    r"password|passwd|secret|text|hidden|string|token|required|optional|username|credentials?|plaintext|encrypted|"
    r"disabled|enabled|invalid|incorrect|undefined|database|keyring|external|internal|same-origin|include|omit"
)
_LINE_START = re.compile(r"(?:^|\n)[ \t+-]{0,20}(?:export[ \t]{1,4}|-e[ \t]{1,4}|set[ \t]{1,4})?$")


@dataclass(frozen=True, slots=True)
class _Named:
    """A telling name and how it is given a value."""

    name: str
    begin: int
    match: re.Match[str]

    @property
    def sign(self) -> str:
        return self.match.group("sign")

    @property
    def glued(self) -> bool:
        """`NAME=value`: settings and command lines."""
        return self.sign == "=" and not self.match.group("left") and not self.match.group("right")

    @property
    def upper(self) -> bool:
        return _is_upper(self.name)

    @property
    def kind(self) -> str:
        lower = self.match.group().lower()
        return next(
            (word for word in ("password", "token", "secret", "key", "credential") if word in lower), "password"
        )


def mask_named(text: str, lower: str, cover: Cover) -> str:
    """The text with values behind telling names masked; `lower` is the text in lower case, of the same length."""
    pieces: list[str] = []
    done = 0
    for at in _places(lower):
        named = None if at < done else _named(text, at)
        value = None if named is None else _value(text, named)
        if named is None or value is None or not _is_secret(text, named, value):
            continue
        group = value.lastgroup or "bare"
        pieces += [text[done : value.start(group)], cover(named.kind, value.group(group))]
        done = value.end(group)
    if not pieces:
        return text
    return "".join((*pieces, text[done:]))


def telling_field(name: str) -> bool:
    """True if a field of this name holds a secret whatever its value looks like."""
    return _STRONG.search(name) is not None


def _places(lower: str) -> list[int]:
    """Where telling words with a value stand, in order."""
    return sorted({hit.start() for word in _WORDS if word in lower for hit in _hits(word).finditer(lower)})


def _named(text: str, at: int) -> _Named | None:
    """The whole name at a telling word; None when nothing behind it would be taken for a secret."""
    match = next((found for form in _FORMS if (found := form.match(text, at)) is not None), None)
    if match is None:
        return None
    begin = at
    if at and (text[at - 1].isalnum() or text[at - 1] in "_.-"):
        backwards = _BACKWARDS.match(text[max(0, at - 64) : at][::-1])
        begin = at - (backwards.end() if backwards else 0)
    named = _Named(text[begin : match.start("close")], begin, match)
    if not _is_telling(named.name):
        return None
    before = text[max(0, begin - 12) : begin]
    if named.sign == ">" and before[-1:] not in ("<", ":"):
        return None
    if named.sign == "," and not before.rstrip("\"' ").endswith("("):
        return None
    return named


def _value(text: str, named: _Named) -> re.Match[str] | None:
    """What stands behind a name, if it may be a value at all."""
    at = named.match.end()
    if PLACEHOLDER.match(text, at):
        return None
    if named.sign == ">":
        return _ELEMENT_VALUE.match(text, at)
    if named.glued and named.upper and not _CALL.match(text, at):
        # A line of settings: the value is all that follows, whatever characters it holds.
        before = text[max(0, named.begin - 40) : named.begin]
        setting = _SETTING_VALUE.match(text, at)
        if setting is not None and (_LINE_START.search(before) or not before):
            return setting
    return _VALUE.match(text, at)


@lru_cache(maxsize=4096)
def _is_telling(name: str) -> bool:
    return not _ABOUT.search(name) and (_is_upper(name) or _STRONG.search(name) is not None)


def _is_upper(name: str) -> bool:
    return _UPPER.fullmatch(name.lstrip(".-_").rpartition(".")[2]) is not None


def _is_secret(text: str, named: _Named, found: re.Match[str]) -> bool:
    """True if a value behind a telling name is a secret, rather than code about one."""
    group = found.lastgroup or "bare"
    value = found.group(group)
    password = _PASSWORD.search(named.name) is not None
    if len(value) < 4 or PLACEHOLDER.match(value) or value in ("VALUE", "value"):
        return False
    if not telling_field(named.name) and not _DIGIT.search(value):
        return False  # `META_KEY = "some/name"`
    quoted = group not in ("bare", "setting")
    if named.upper and named.glued and password and quoted:
        return True  # a setting: what looks like prose or a number there is a password all the same
    if _PLAIN_VALUE.fullmatch(value):
        return password and value.isdigit() and len(value) >= 6
    if group == "setting":
        return not _is_variable(value) and (len(value) >= 6 or not _REFERENCE.fullmatch(value))
    if quoted:
        return _quoted_secret(named.name, value, password=password)
    return _bare_secret(text, named, found, password=password)


def _quoted_secret(name: str, value: str, *, password: bool) -> bool:
    if any(character.isspace() for character in value):
        return False
    if password:
        return (len(value) >= 6 or _FREE_FORM.search(name) is not None) and not _NOT_A_PASSWORD.fullmatch(value.lower())
    return len(value) >= 8 and _has_variety(value)


def _bare_secret(text: str, named: _Named, found: re.Match[str], *, password: bool) -> bool:
    value = found.group("bare")
    after = text[found.end() : found.end() + 1]
    if after and after in "([{":
        return False  # a call or an index: code
    reference = _REFERENCE.fullmatch(value) is not None
    if named.glued:
        if reference and (after in (",", ")") or _is_variable(value)):
            return False  # `name=name,` is a keyword argument
        return (named.upper and len(value) >= 6) or not reference or (password and "." not in value)
    if password and after in ("", "\n", "\r") and _plain_password(text, named, value):
        return True
    if reference or _TYPE.fullmatch(value):
        return False
    return len(value) >= 6 and _has_variety(value)


def _is_variable(value: str) -> bool:
    """`self.token`, or `token,` on a line of arguments."""
    bare = value.rstrip(",)")
    return _REFERENCE.fullmatch(bare) is not None and ("." in bare or bare != value)


def _plain_password(text: str, named: _Named, value: str) -> bool:
    """`password: correcthorse` on a line of its own, as in YAML; a type or a variable is not one."""
    before = text[max(0, named.begin - 40) : named.begin]
    alone = not before.rpartition("\n")[2].strip(" -\t\"'") and (len(before) == named.begin or "\n" in before)
    ordinary = _NOT_A_PASSWORD.fullmatch(value) is not None or any(word in value for word in _WORDS)
    return alone and named.sign == ":" and len(value) >= 8 and value.isalpha() and value.islower() and not ordinary


def _has_variety(value: str) -> bool:
    """Digits among letters, or letters of both cases and some length: not an ordinary word."""
    letters = _LETTER.search(value) is not None
    if letters and _DIGIT.search(value):
        return True
    return len(value) >= 16 and letters and value.lower() != value and value.upper() != value
