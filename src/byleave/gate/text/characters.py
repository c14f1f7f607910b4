r"""Hidden and deceptive characters: control, bidi, zero-width, tag and look-alike ones.

Paths may not contain them; text shown to a person has them as visible escapes. Both use this one list, so that what is
refused in a name and what is escaped in a prompt never drift apart.
"""

import re
import unicodedata

_RANGES = (
    ("\x00", "\x1f"),
    ("\x7f", "\x9f"),
    ("\xad", "\xad"),  # soft hyphen
    ("\u034f", "\u034f"),  # combining grapheme joiner
    ("\u061c", "\u061c"),  # Arabic letter mark
    ("\u115f", "\u1160"),  # Hangul fillers
    ("\u17b4", "\u17b5"),
    ("\u180b", "\u180f"),  # Mongolian selectors and vowel separator
    ("\u200b", "\u200f"),  # zero-width, direction marks
    ("\u2028", "\u202e"),  # line and paragraph separators, bidi embeddings
    ("\u2060", "\u206f"),  # word joiner, invisible operators, bidi isolates
    ("\u2800", "\u2800"),  # blank Braille cell
    ("\u3164", "\u3164"),
    ("\ud800", "\udfff"),  # lone surrogates
    ("\ufe00", "\ufe0f"),  # variation selectors
    ("\ufeff", "\ufeff"),
    ("\uffa0", "\uffa0"),
    ("\ufff0", "\ufffb"),
    ("\U0001bca0", "\U0001bca3"),
    ("\U0001d173", "\U0001d17a"),
    ("\U000e0000", "\U000e0fff"),  # tags, variation selectors supplement
)
HIDDEN_CLASS = "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in _RANGES)
HIDDEN = re.compile(f"[{HIDDEN_CLASS}]")
"""Any character that has no visible form of its own."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT_HIDDEN = re.compile(f"(?![\t\n])[{HIDDEN_CLASS}]")

_SEEN = rf"[^\x00-\x7f{HIDDEN_CLASS}]"
_BELONGS = (
    r"[\t\n]|\r(?=\n)",
    rf"(?<={_SEEN})[\ufe00-\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)",  # emoji
    "(?<=[\u3400-\u9fff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]",  # variants of Chinese characters
    rf"(?:(?<={_SEEN})|(?<=\ufe0f))[\u200c\u200d](?={_SEEN})",  # emoji, and scripts whose letters join
)
_DECEPTIVE = re.compile(f"(?!{'|'.join(_BELONGS)})[{HIDDEN_CLASS}]")

LOOKALIKE_SLASHES = re.compile("[\u2044\u2215\u2216\u29f5\u29f8\u29f9\ufe68\uff0f\uff3c\u2571\u2572]")


def hidden_in(text: str) -> str | None:
    """The first hidden character, or None. Printable ASCII, the usual case, needs no search."""
    if text.isascii() and text.isprintable():
        return None
    found = HIDDEN.search(text)
    return found.group() if found else None


def hidden_in_prose(text: str) -> str | None:
    """As `hidden_in`, for text that must be what it looks like, and in which tabs and line ends are ordinary."""
    if text.isascii() and text.isprintable():
        return None
    found = _TEXT_HIDDEN.search(text)
    return found.group() if found else None


def deceptive_in(text: str) -> str | None:
    """As `hidden_in`, for text in which line ends are ordinary, and joiners and variation selectors in their places."""
    if text.isascii() and text.isprintable():
        return None
    found = _DECEPTIVE.search(text)
    return found.group() if found else None


def half_character(text: str) -> bool:
    """True if it has a lone surrogate, which no encoding can write."""
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def whole_characters(text: str) -> str:
    """The text with U+FFFD for each lone surrogate; the same object if there is none."""
    return _SURROGATE.sub("\ufffd", text) if half_character(text) else text


def escaped(character: str) -> str:
    r"""The visible escape of a hidden character: `\x1b`, `\u{202e}`."""
    point = ord(character)
    if character in "\t\n\r":
        return {"\t": "\\t", "\n": "\\n", "\r": "\\r"}[character]
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{{{point:x}}}"


_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC")
# Letters of other alphabets that look like Latin ones in most fonts.
_LATIN_LOOKING = frozenset("асеорхуіјѕһԁԛԝѵӏАВЕЗКМНОРСТУХІЈЅοαινρυκΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")


def mixed_scripts(text: str) -> str | None:
    """The first non-ASCII letter of a disguised word, or None. Disguised: it mixes alphabets (a Cyrillic `a` among
    Latin letters), has only letters that look Latin, or has compatibility forms of ASCII letters."""
    if text.isascii():
        return None
    words = (word for word in re.split(r"[\W\d_]+", text) if not word.isascii())
    return next((next(letter for letter in word if not letter.isascii()) for word in words if _disguised(word)), None)


def _disguised(word: str) -> bool:
    if len(_scripts(word)) > 1 or (len(word) > 1 and _LATIN_LOOKING.issuperset(word)):
        return True
    return any(not letter.isascii() and unicodedata.normalize("NFKC", letter).isascii() for letter in word)


def _scripts(word: str) -> set[str]:
    names = (unicodedata.name(character, "") for character in word)
    return {script for name in names for script in _SCRIPTS if name.startswith(script)}
