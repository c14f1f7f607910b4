"""Drift: what is there is not what was shown when somebody said yes.

One error and its words, for commands that would run files (`pins`) and for writes that would replace one (`writing`).
Nothing here looks at anything.
"""

from byleave.protocol.errors import RefusedError
from byleave.protocol.states import ErrorType

MISSING = "missing"
"""In the place of a digest, where there is no file."""


class DriftedError(RefusedError):
    """What would run, or be replaced, is not what was approved."""

    error_type = ErrorType.DRIFTED


def drifted(path: str, what: str = "nothing was run") -> DriftedError:
    return DriftedError(
        f"{path!r} changed after it was shown; {what}.", hint="Ask again: what it holds now is then shown."
    )
