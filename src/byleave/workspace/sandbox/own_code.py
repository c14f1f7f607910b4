"""The code that runs this client, as far as it lies in the workspace: a virtual environment of the project, a checkout.

Whoever changes it is no longer held by any sandbox: the client imports from it, and is started from it again. So
commands get it read-only, like the names that other programs trust. Here it is only found; `protection` mounts it.
"""

import os
import sys
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
# Where the workspace itself is the environment.
_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")


def own_code(root: Path) -> tuple[str, ...]:
    """Paths from the workspace of what this client runs from; none leads through a link."""
    found: set[str] = set()
    for place in (sys.prefix, sys.base_prefix, _PACKAGE):
        real = Path(os.path.realpath(place))
        if real == root:
            found.update(name for name in _PARTS if (root / name).exists() and not (root / name).is_symlink())
        elif real.is_relative_to(root):
            found.add(str(real.relative_to(root)))
    return tuple(sorted(found))
