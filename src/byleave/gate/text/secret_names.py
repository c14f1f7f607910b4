"""Values behind telling names: `API_TOKEN=…`, `"password": "…"`, `<password>…</password>`, `name:`/`value:`.

A name alone does not make a secret: code about passwords is full of such names. The text after one is masked if it
looks like a value (a literal, a setting), and left alone if it looks like code, a type, prose or a placeholder.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

Cover = Callable[[str, str], str]
"""Returns the replacement for a secret, given its kind and value."""

PLACEHOLDER = re.compile(
    r"<|[{%]{2}|[$#]?\{|\$\(|\$[A-Za-z_]\w*(?![\w!@#%^&*?-])|%[sdvr(]|%\w+%|\[masked:|x{3,}|\*{3,}|\.{3}|…|"
    r"your[-_ ]|my[-_]|example|placeholder|change[-_]?(?:me|it)|dummy|redacted|todo|insert[-_]|"
    r"process\.env|os\.environ|env\.|ENV\[|https?://",
    re.IGNORECASE,
)
"""Text that people write in place of a secret."""

NAME_WORDS = ("key", "token", "secret", "pass", "pwd", "pw", "psk", "credential")
_AFTER = (
    r"(?:word|wd|phrase)?(?:_[a-z][a-z0-9_]{0,30}+|[0-9_]{1,4}+|s)?+[\\\"'\]]{0,3}[ \t]{0,8}"
    r"(?:=(?!=)|:(?![:/])|>(?=[^<>\n])|,[ \t]{0,4}[\"'{]|(?:,\s{0,40}|\s{1,40})[\"']?value[\"']?[ \t]{0,4}[:=]|"
    r"\?[:=?]|\|\||(?:\[[0-9]{0,4}\]|string)[ \t]{0,4}=)"
)


@cache
def _hits(word: str) -> re.Pattern[str]:
    """Pattern for lower-case text: a telling word followed by what may give it a value.

    Compiled on first use: it takes longer than everything else in loading the gate.
    """
    return re.compile(word + _AFTER)


_STAGE = "_(?:base|prod|production|dev|staging|test|live|old|new|admin|root)"
_NAME = (
    r"(?i:key|token|secret|password|passwd|pwd|passphrase|(?:pass|pw|psk)(?![a-z])|credential)"
    rf"(?P<suffix>s|[0-9_]{{1,4}}|_[A-Z][A-Z0-9_]{{0,30}}|{_STAGE})?"
)
ENDS_TELLING = re.compile(rf"{_NAME}\Z")
_ASSIGNMENT = re.compile(
    rf"{_NAME}(?P<close>[\\\"'\]]{{0,3}})(?P<left>[ \t]{{0,8}}\??)"
    r"(?P<sign>=>|:=|=(?!=)|:(?![:/])|(?:\|\||\?\?)(?=[ \t]{0,8}[\"'`]))(?P<right>[ \t]{0,8})"
)
_ONE_TYPE = r"&?(?:'\w{1,20} )?[A-Za-z_][\w.]{0,40}(?:\[[\w.| ]{0,60}\])?"
_TYPED = re.compile(
    rf"{_NAME}(?P<close>)(?P<left>(?:[?!]?[ \t]{{0,4}}:[ \t]{{0,4}}{_ONE_TYPE}(?:[ \t]?\|[ \t]?{_ONE_TYPE}){{0,3}}[?!]?"
    r"|\[[0-9]{0,4}\]|[ \t]{1,4}string)[ \t]{0,4})(?P<sign>=)(?P<right>[ \t]{0,4})(?=[\"'`])"
)
"""Declarations with a type: `password: str = "…"`, `var token string = "…"`, `char secret[] = "…"`."""
_PAIR = re.compile(
    rf"{_NAME}(?P<close>[\"']{{0,1}})(?P<left>)(?:,\s{{0,40}}|\s{{1,40}})[\"']?(?i:value)[\"']?[ \t]{{0,4}}"
    r"(?P<sign>[:=])(?P<right>[ \t]{0,4})"
)
_ARGUMENT = re.compile(rf"{_NAME}(?P<close>[\"'])(?P<left>)(?P<sign>,)(?P<right>[ \t]{{0,4}})(?=[\"'])")
_ELEMENT = re.compile(rf"{_NAME}(?P<close>)(?P<left>)(?P<sign>>)(?P<right>)(?=[^<>\n]{{3,1024}}</)")
_FORMS = (_TYPED, _ASSIGNMENT, _PAIR, _ARGUMENT, _ELEMENT)

_VALUE = re.compile(
    r"\\\"(?P<escaped>[^\"\\\n]{1,1024})\\\"|\"(?P<double>(?:[^\"\\\n]|\\[^\n]){1,1024}+)\"|"
    r"'(?P<single>(?:[^'\\\n]|\\[^\n]){1,1024}+)'|`(?P<back>[^`\\\n$]{1,1024})`|"
    r"(?P<bare>[^\s\"'`,;<>(){}\[\]|&]{4,1024})"
)
_ELEMENT_VALUE = re.compile(r"(?P<element>[^<>\n]{3,1024})")
_SETTING_VALUE = re.compile(r"(?P<setting>[^\s\"'`]\S{3,1023})")
_BACKWARDS = re.compile(r"[A-Za-z0-9_.-]*+")
_SHORT_NAME = "(?:^|[_.-]|smtp|imap|mail|ftp|db|sql|proxy|admin|root|bind|key|store|require|wifi|wpa)(?:pass|pw|psk)"
_BARE_NAME = re.compile(r"(?i)(?:pass|pw|psk)[0-9_]*")
TELLING_FIELD = re.compile(
    rf"(?i)(?:passw(?:or)?d|passphrase|pwd|{_SHORT_NAME}|secrets?|credentials?|(?:^|[_.-])tokens?|"
    r"(?:auth|access|refresh|api|bot|id|session|bearer|client|deploy|github|gitlab|npm|slack|csrf|private|user|app|"
    r"personal)[_-]?token|"
    r"(?:api|secret|access|private|encryption|signing|auth|account|master|service|client|ssh|gpg|license|shared|"
    r"storage|admin|app|consumer|deploy|webhook|jwt|session)[_-]?keys?)"
    rf"(?:[0-9_]*|{_STAGE})$"
)
"""In the name of a field that holds a secret, whatever its value looks like."""
_UPPER = re.compile(r"[A-Z][A-Z0-9_]*")
_ABOUT = re.compile(
    r"(?i)_?(?:name|id|url|uri|file|path|dir|type|length|size|len|count|ttl|expiry|expires|alg|format)$|"
    r"(?:public|primary|foreign|cache|sort|partition|hash|group|index|lookup|unique|row|pub|host|map|dict)_?keys?$"
)
_PASSWORD = re.compile(rf"(?i)passw(?:or)?d|passphrase|pwd|{_SHORT_NAME}$|secret|credential")
_FREE_FORM = re.compile(r"(?i)pass|pw|psk")
"""People choose passwords; secrets and credentials are long."""
_ANY_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[^\W\d_]")
_REFERENCE = re.compile(r"[A-Za-z_$][A-Za-z_$]*(?:\.[A-Za-z_$][\w$]*)*[?!]?")
_TYPE = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*[0-9]?[?]?|(?:[a-z_]\w*\.)+[A-Z]\w*")
_CALL = re.compile(r"[A-Za-z_$][\w.$]*[(\[{]")
_PLAIN_VALUE = re.compile(r"[0-9_.,:%-]+|(?:true|false|null|none|undefined|nil|yes|no)|[.~]{0,2}/.*", re.IGNORECASE)
_NOT_A_PASSWORD = re.compile(
    r"password|passwd|secret|text|hidden|string|token|required|optional|username|credentials?|plaintext|encrypted|"
    r"disabled|enabled|invalid|incorrect|undefined|database|keyring|external|internal|same-origin|include|omit"
)
_NAMES_PROGRAM = re.compile(
    r"(?:askpass|command|cmd|program|helper|process|provider|script|exec|hook|plugin)$", re.IGNORECASE
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


def mask_named(text: str, lower: str, cover: Cover, *, spares_programs: bool) -> str:
    """Mask values after telling names; `lower` is the text in lower case, of the same length.

    `spares_programs` leaves a value that may name a program: by its name, or between back-ticks.
    """
    pieces: list[str] = []
    done = 0
    for at in _places(lower):
        named = None if at < done else _named(text, at)
        value = None if named is None else _value(text, named)
        if named is None or value is None or not _is_secret(text, named, value):
            continue
        start, end = value.span(value.lastgroup or "bare")
        if spares_programs and (_NAMES_PROGRAM.search(named.name) or text[start - 1] == "`"):
            continue
        pieces += [text[done:start], cover(named.kind, text[start:end])]
        done = end
    return "".join((*pieces, text[done:])) if pieces else text


def _places(lower: str) -> list[int]:
    """Sorted positions of telling words that have a value."""
    return sorted({hit.start() for word in NAME_WORDS if word in lower for hit in _hits(word).finditer(lower)})


def _named(text: str, at: int) -> _Named | None:
    """The whole name at a telling word; None if nothing after it would count as a secret."""
    match = next((found for form in _FORMS if (found := form.match(text, at)) is not None), None)
    if match is None:
        return None
    begin = at
    if at and (text[at - 1].isalnum() or text[at - 1] in "_.-"):
        backwards = _BACKWARDS.match(text[max(0, at - 64) : at][::-1])
        begin = at - (backwards.end() if backwards else 0)
    named = _Named(text[begin : match.start("close")], begin, match)
    if not is_telling(named.name):
        return None
    before = text[max(0, begin - 12) : begin]
    if named.sign == ">" and before[-1:] not in ("<", ":"):
        return None
    if named.sign == "," and not before.rstrip("\"' ").endswith("("):
        return None
    return named


def _value(text: str, named: _Named) -> re.Match[str] | None:
    """The text after a name, if it may be a value at all."""
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


def says_little(name: str, value: str) -> bool:
    """True for a name that says little before a value without variety: `pass: "all"`."""
    return _BARE_NAME.fullmatch(name) is not None and not _has_variety(value)


@lru_cache(maxsize=4096)
def is_telling(name: str) -> bool:
    return not _ABOUT.search(name) and (_is_upper(name) or TELLING_FIELD.search(name) is not None)


def _is_upper(name: str) -> bool:
    return _UPPER.fullmatch(name.lstrip(".-_").rpartition(".")[2]) is not None


def _is_secret(text: str, named: _Named, found: re.Match[str]) -> bool:
    """True if a value behind a telling name is a secret, rather than code about one."""
    group = found.lastgroup or "bare"
    value = found.group(group)
    password = _PASSWORD.search(named.name) is not None and not _BARE_NAME.fullmatch(named.name)
    if says_little(named.name, value):
        return False
    if len(value) < 4 or PLACEHOLDER.match(value) or value in ("VALUE", "value"):
        return False
    if not TELLING_FIELD.search(named.name) and not _ANY_DIGIT.search(value):
        return False  # `META_KEY = "some/name"`
    quoted = group not in ("bare", "setting")
    if named.upper and named.glued and password and quoted:
        return True  # in a setting, even prose or a number is a password
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
    free = _FREE_FORM.search(name) is not None
    if password:
        return (len(value) >= 6 or free) and not _NOT_A_PASSWORD.fullmatch(value.lower())
    return len(value) >= (6 if free else 8) and _has_variety(value)


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
    ordinary = _NOT_A_PASSWORD.fullmatch(value) is not None or any(word in value for word in NAME_WORDS)
    return alone and named.sign == ":" and len(value) >= 8 and value.isalpha() and value.islower() and not ordinary


def _has_variety(value: str) -> bool:
    """Digits among letters, or letters of both cases and some length: not an ordinary word."""
    letters = _LETTER.search(value) is not None
    if letters and _ANY_DIGIT.search(value):
        return True
    return len(value) >= 16 and letters and value.lower() != value and value.upper() != value
