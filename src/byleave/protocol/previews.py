"""Long values made short for events: a preview says that it is one; the whole stays in the record."""

import json
from typing import Any

from .wire import JsonObject

PREVIEW_CHARACTERS = 16 * 1024
TEXT_CHARACTERS = 4 * 1024
LIST_ITEMS = 50


def preview(text: str | None) -> tuple[JsonObject | None, bool]:
    """A result's JSON text as an object small enough for the feed, and whether anything was left out."""
    if text is None:
        return None, False
    value = json.loads(text)
    if len(text) <= PREVIEW_CHARACTERS:
        return value, False
    return _shorten(value), True


def _shorten(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS:
        half = TEXT_CHARACTERS // 2
        return f"{value[:half]}\n… {len(value) - 2 * half} characters left out …\n{value[-half:]}"
    if isinstance(value, dict):
        items: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - parsed JSON
        return {key: _shorten(item) for key, item in items.items()}
    if isinstance(value, list):
        elements: list[Any] = value  # pyright: ignore[reportUnknownVariableType] - parsed JSON
        return [_shorten(item) for item in elements[:LIST_ITEMS]]
    return value
