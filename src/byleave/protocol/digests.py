"""The digest that ties an approval to exactly what was shown.

Server and client compute it independently from the parameters they hold. Canonical JSON: sorted keys, no
spaces, no NaN; what JSON cannot say the same way twice is refused rather than guessed.
"""

import hashlib
import json
from typing import Any

from pydantic_core import to_json

from .wire import JsonObject

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> str:
    """One spelling for one meaning."""
    return _CANONICAL.encode(value)


def plain_json(value: Any) -> str:
    """JSON for our own keeping, made quickly: keys in the order they have, text as it is."""
    return to_json(value).decode()


def call_digest(tool_name: str, tool_params: JsonObject, project_id: str, bound: JsonObject | None = None) -> str:
    """Digest of one call. `bound` holds what else was shown, such as the content of a script that would run."""
    value = {"tool": tool_name, "params": tool_params, "project": project_id, "bound": bound or {}}
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()
