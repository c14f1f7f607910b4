"""Logging setup of the process: structlog on the standard loggers, to stderr.

One line each: time, level, event, then `key=value` with values as `repr`, so that nothing in a log can move a cursor.
`BYLEAVE_LOG=json` writes JSON lines instead, for collectors. Secrets are masked, whoever logged them. Only this module
configures logging.
"""

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

if "structlog" not in sys.modules and "rich" not in sys.modules:
    # structlog loads Rich if it finds it, for coloured tracebacks that we never write, and Rich takes longer to load
    # than structlog. Hide it in this process, which is ours.
    sys.modules["rich"] = None  # type: ignore[assignment] - so an import is told that there is none
    try:
        import structlog
    finally:
        del sys.modules["rich"]
else:
    import structlog

from byleave.gate import mask_text, mask_value, safe_text

if TYPE_CHECKING:
    from structlog.typing import Processor

OURS = "byleave"


def set_up_logging(level: int, *, verbose: bool = False) -> None:
    """Send the log to stderr. Other libraries only log warnings, unless `verbose`."""
    as_json = os.environ.get("BYLEAVE_LOG", "").lower() == "json"
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    renderer: Processor = _json if as_json else _line
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger(OURS).setLevel(logging.DEBUG if verbose else level)


def _line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    moment = str(event.pop("time", ""))
    level = str(event.pop("level", "")).upper()
    event.pop("logger", None)
    text = str(event.pop("event", ""))
    trace = event.pop("exception", None)
    values = "".join(f" {key}={value!r}" for key, value in event.items())
    safe = text if text.isprintable() else repr(text)
    line = f"{moment} {level:<7} {safe}{values}" + (f"\n{trace}" if trace else "")
    # `repr` keeps some invisible characters, and a traceback may quote anything.
    return safe_text(mask_text(line), lines=True)


def _json(logger: Any, method: str, event: MutableMapping[str, Any]) -> str | bytes:
    return structlog.processors.JSONRenderer(default=repr)(logger, method, mask_value(dict(event)))
