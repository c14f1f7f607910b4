"""What to say when a part of Byleave is not installed."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def needs_server() -> Generator[None]:
    """Around the imports of a command that needs the server: a plain client install lacks its libraries."""
    with needs_extra("server", "the server"):
        yield


@contextmanager
def needs_extra(extra: str, what: str) -> Generator[None]:
    """Around imports that only an extra brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "byleave":
            raise  # our own module is missing: that is a fault of ours, not of the installation
        # Here: `byleave --help` and `byleave version` start without it.
        from byleave.protocol.errors import ConfigurationError

        raise ConfigurationError(f"This needs {what}.", hint=f"in a checkout: pip install '.[{extra}]'") from error
