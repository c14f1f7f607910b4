"""What to say when a part of Assent is not installed."""

from collections.abc import Generator
from contextlib import contextmanager

from assent.protocol.errors import ConfigurationError


@contextmanager
def needs_server() -> Generator[None]:
    """Around the imports of a command that needs the server: a plain client install lacks its libraries."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "assent":
            raise  # our own module is missing: that is a fault of ours, not of the installation
        raise ConfigurationError("This needs the server.", hint="pip install 'assent[server]'") from error
