"""The client's log: structlog on the standard logger `byleave.client`, so that its level is set like any other.

Values are written as `repr`, which makes control and bidi characters visible: what an agent or a file says can never
move the cursor of whoever reads the log. Bodies, headers, tokens and output never go in. Where the command writes JSON
lines (`BYLEAVE_LOG=json`), they are left as they are, for it to write.

structlog is loaded with the first line that is written, not with the client: it takes a fifth of a second, because it
brings along what it needs to draw tracebacks in colour.
"""

import logging
import os
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

LOGGER_NAME = "byleave.client"

_LOGGER = logging.getLogger(LOGGER_NAME)
_IDS: ContextVar[dict[str, str] | None] = ContextVar("byleave_client_ids", default=None)


def on_every_line(**ids: str) -> None:
    """What every line of this task says besides, and of the tasks that it starts."""
    _IDS.set({**(_IDS.get() or {}), **ids})


class ClientLog:
    """Asks the level first: a line nobody wants costs next to nothing."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as the standard loggers call it
        return _LOGGER.isEnabledFor(level)

    def debug(self, event: str, **values: Any) -> None:
        if _LOGGER.isEnabledFor(logging.DEBUG):
            _lines().debug(event, **{**(_IDS.get() or {}), **values})

    def info(self, event: str, **values: Any) -> None:
        if _LOGGER.isEnabledFor(logging.INFO):
            _lines().info(event, **{**(_IDS.get() or {}), **values})

    def warning(self, event: str, **values: Any) -> None:
        if _LOGGER.isEnabledFor(logging.WARNING):
            _lines().warning(event, **{**(_IDS.get() or {}), **values})

    def error(self, event: str, **values: Any) -> None:
        if _LOGGER.isEnabledFor(logging.ERROR):
            _lines().error(event, **{**(_IDS.get() or {}), **values})


log = ClientLog()


@cache
def _lines() -> "BoundLogger":
    import structlog
    from structlog.typing import EventDict, Processor, WrappedLogger

    plain = structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True)
    added: tuple[Processor, ...] = (
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    )

    def written(logger: WrappedLogger, method: str, event: EventDict) -> Any:
        if os.environ.get("BYLEAVE_LOG", "").lower() != "json" or not structlog.is_configured():
            return plain(logger, method, event)
        said: Any = event
        for add in added:
            said = add(logger, method, said)
        return said

    wrapped = structlog.wrap_logger(
        _LOGGER,
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.format_exc_info, written],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("BoundLogger", wrapped.bind())  # bound once, or every line would build its logger anew
