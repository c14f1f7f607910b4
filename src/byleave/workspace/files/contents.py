"""Decoding of a file's bytes: text in some encoding, or a picture or PDF as base64.

Pure: bytes in, a value out. It never guesses silently: the result names the encoding, and bytes that are neither text
nor picture are refused rather than replaced.
"""

import base64
from dataclasses import dataclass

from byleave.protocol.errors import ToolFailure

# Recognised by their first bytes, so that a renamed program does not pass as a picture.
_SIGNATURES = (
    b"%PDF-",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"GIF87a",
    b"GIF89a",
    b"\x00\x00\x01\x00",
    b"II*\x00",
    b"MM\x00*",
)
_BOMS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_PIECE = 1 << 16
# Bytes that no text in an 8-bit encoding holds.
_NOT_TEXT = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")) + b"\x7f"


@dataclass(frozen=True, slots=True)
class Content:
    """A file's content as text, and the encoding of its bytes."""

    text: str
    encoding: str


def read_content(data: bytes, path: str) -> Content:
    """Decode text, or encode PDFs and pictures as base64. Raises ToolFailure for other bytes."""
    if b"\x00" not in data and not data.startswith(b"\xef\xbb\xbf"):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            if data.startswith(b"%PDF-"):
                return _as_base64(data)
            return Content(text, "utf-8")
    if _is_picture(data):
        return _as_base64(data)
    content = _by_bom(data) or _eight_bit(data)
    if content is None:
        raise ToolFailure(
            f"{path!r} is a binary file.",
            hint="Only text, PDFs and pictures can be read; a command may look at others.",
        )
    return content


def _as_base64(data: bytes) -> Content:
    return Content(base64.b64encode(data).decode("ascii"), "base64")


def _is_picture(data: bytes) -> bool:
    # "BM" alone may begin a text; in a bitmap four NULs follow the size.
    is_bitmap = data[:2] == b"BM" and data[6:10] == bytes(4)
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    return data.startswith(_SIGNATURES) or is_bitmap or is_webp or data[4:8] == b"ftyp"


def is_wide(head: bytes) -> bool:
    """True if a file starts with the mark of UTF-16 or UTF-32."""
    return head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff"))


def _by_bom(data: bytes) -> Content | None:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            try:
                return Content(data.decode(encoding), encoding)
            except UnicodeDecodeError:
                return None
    return None


def _eight_bit(data: bytes) -> Content | None:
    if data.translate(None, _NOT_TEXT) != data:
        return None
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return Content(data.decode("latin-1"), "latin-1")
    plain = data.decode("latin-1")
    return Content(plain, "latin-1") if plain == text else Content(text, "cp1252")


@dataclass(frozen=True, slots=True)
class LineRange:
    """Some lines of a text, counted from 1; `last` is the last line returned, not the one requested."""

    text: str
    first: int
    last: int
    total: int


def count_lines(text: str) -> int:
    """Count lines as an editor does: a last line without a newline counts too."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def cut_lines(text: str, first: int, last: int | None) -> LineRange:
    """Return lines `first` to `last`. Only a newline ends a line; U+2028 and form feeds do not."""
    total = count_lines(text)
    last = total if last is None else min(last, total)
    if first > max(total, 1):
        return LineRange("", first, last, total)
    start = _behind_lines(text, first - 1, 0)
    return LineRange(text[start : _behind_lines(text, max(last - first + 1, 0), start)], first, last, total)


def _behind_lines(text: str, count: int, at: int) -> int:
    """Offset of the line `count` lines after `at`; the end of the text if there is none."""
    # Count in whole pieces: a search for each newline would take seconds in a large file.
    while count and (found := text.count("\n", at, at + _PIECE)) < count and at < len(text):
        count -= found
        at += _PIECE
    for _ in range(count):
        at = text.find("\n", at) + 1
        if at == 0:
            return len(text)
    return min(at, len(text))
