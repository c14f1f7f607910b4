"""The client's log: structlog on the standard logger `assent.client`, so that its level is set like any other.

Values are written as `repr`, which makes control and bidi characters visible: what an agent or a file says can never
move the cursor of whoever reads the log. Bodies, headers, tokens and output never go in. Where the command writes JSON
lines (`ASSENT_LOG=json`), they are left as they are, for it to write.
"""

import logging
import os
from typing import Any, cast

import structlog
from structlog.stdlib import BoundLogger
from structlog.typing import EventDict, Processor, WrappedLogger

LOGGER_NAME = "assent.client"

_PLAIN = structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True)
_ADDED: tuple[Processor, ...] = (
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
)


def _written(logger: WrappedLogger, method: str, event: EventDict) -> Any:
    if os.environ.get("ASSENT_LOG", "").lower() != "json" or not structlog.is_configured():
        return _PLAIN(logger, method, event)
    said: Any = event
    for add in _ADDED:
        said = add(logger, method, said)
    return said


log = cast(
    BoundLogger,
    structlog.wrap_logger(
        logging.getLogger(LOGGER_NAME),
        # The level is asked first: a line nobody wants costs next to nothing.
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            _written,
        ],
        wrapper_class=BoundLogger,
    ).bind(),  # bound once, or every line would build its logger anew
)
