"""Sizes: how much one call may carry (G4).

The parameter models hold the simple limits; here are those that count bytes rather than characters. A limit that
is reached refuses, it never softens.
"""

from byleave.protocol.tools import MAX_FILE_BYTES

MAX_GLOB_BRACES = 8


def content_too_large(content: str) -> bool:
    """Whether a text takes more than 100 MB as UTF-8; counted only where characters alone do not tell."""
    if len(content) > MAX_FILE_BYTES:
        return True
    if content.isascii() or len(content) * 4 <= MAX_FILE_BYTES:
        return False
    return len(content.encode("utf-8", "surrogatepass")) > MAX_FILE_BYTES


def glob_too_wide(pattern: str) -> bool:
    """Whether a glob could be expanded into more alternatives than anyone means."""
    return pattern.count("{") > MAX_GLOB_BRACES or pattern.count("**") > MAX_GLOB_BRACES
