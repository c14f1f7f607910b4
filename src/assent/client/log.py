"""The client's log: structlog on the standard logger `assent.client`, so that its level is set like any other.

Values are written as `repr`, which makes control and bidi characters visible: what an agent or a file says can never
move the cursor of whoever reads the log. Bodies, headers, tokens and output never go in.
"""

import logging
from typing import cast

import structlog
from structlog.stdlib import BoundLogger

LOGGER_NAME = "assent.client"

log = cast(
    BoundLogger,
    structlog.wrap_logger(
        logging.getLogger(LOGGER_NAME),
        # The level is asked first: a line nobody wants costs next to nothing.
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True),
        ],
        wrapper_class=BoundLogger,
    ).bind(),  # bound once, or every line would build its logger anew
)
