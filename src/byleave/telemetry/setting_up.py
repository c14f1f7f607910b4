"""Switching it on: by `BYLEAVE_TELEMETRY`, or by the variables OpenTelemetry itself defines.

Left to itself (`auto`) it is on exactly when a variable names a collector; what then cannot be done is said in one
line of the log and nothing is recorded, because such variables are often meant for another program. Asked for by our
own setting, what cannot be done stops the command.
"""

import contextlib
import os
from collections.abc import Generator
from typing import Literal

from byleave.protocol.errors import ConfigurationError

from .spans import on, switch_off, switch_on

Choice = Literal["auto", "off", "otlp", "console"]

ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
PROTOCOLS = tuple(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL" for signal in ("", "TRACES_", "METRICS_"))
SPOKEN = "http/protobuf"


def configure(choice: Choice, service: str) -> None:
    """Switch it on where it is wanted; a second time changes nothing."""
    if not on() and _wanted(choice):
        try:
            _start(choice, service)
        except ConfigurationError as error:
            if choice != "auto":
                raise
            import structlog  # here: see `spans.about`

            structlog.stdlib.get_logger(__name__).warning("no telemetry", reason=error.message, hint=error.hint)


@contextlib.contextmanager
def configured(choice: Choice, service: str) -> Generator[None]:
    """Around a command that stays: switched on at its start where wanted; at its end what is left is sent."""
    configure(choice, service)
    try:
        yield
    finally:
        switch_off()


def _wanted(choice: Choice) -> bool:
    if choice == "off" or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return choice != "auto" or any(os.environ.get(name) for name in ENDPOINTS)


def _start(choice: Choice, service: str) -> None:
    for name in PROTOCOLS:
        protocol = os.environ.get(name) or SPOKEN
        if protocol != SPOKEN and choice != "console":
            raise ConfigurationError(f"Byleave does not send telemetry by {protocol!r}.", hint=f"set {name}={SPOKEN}")
    try:
        # Here and not at the top: a client without telemetry loads nothing of it.
        from .otel import console_sdk, otlp_sdk
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigurationError(
            "Telemetry needs OpenTelemetry, which is not installed.",
            hint="in a checkout: pip install '.[telemetry]'",
        ) from error
    switch_on(console_sdk(service) if choice == "console" else otlp_sdk(service))
