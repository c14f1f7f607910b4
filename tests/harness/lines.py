"""What the gate makes of a line, for tests that start it themselves."""

import os
from collections.abc import Sequence

from byleave.gate import UnderstoodCommand, understand


def understood(argv: Sequence[str]) -> UnderstoodCommand:
    """The understanding of an argv whose program may be given by its path."""
    return understand(os.path.basename(argv[0]), argv[1:])
