"""The client's log: structlog on the standard logger `byleave.client`, with its level.

Values are written as `repr`, which makes control and bidi characters visible: text of an agent or a file can never
move the reader's cursor. Bodies, headers, tokens and output are never logged. For `BYLEAVE_LOG=json` the values are
left as they are, and the command writes the lines. structlog is imported with the first line: it takes a fifth of a
second, because it loads what it needs for coloured tracebacks.
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


def bind_ids(**ids: str) -> None:
    """Add these ids to every log line of this task and its subtasks."""
    _IDS.set({**(_IDS.get() or {}), **ids})


class ClientLog:
    """Checks the level first: a line nobody wants costs next to nothing."""

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

    def render(logger: WrappedLogger, method: str, event: EventDict) -> Any:
        if os.environ.get("BYLEAVE_LOG", "").lower() != "json" or not structlog.is_configured():
            return plain(logger, method, event)
        entry: Any = event
        for add in added:
            entry = add(logger, method, entry)
        return entry

    wrapped = structlog.wrap_logger(
        _LOGGER,
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.format_exc_info, render],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("BoundLogger", wrapped.bind())  # bound once, or every line would build its logger again
