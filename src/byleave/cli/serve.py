"""`byleave serve`: the server as a process, with one line when it is ready and an orderly end.

Signals are handled here and not by uvicorn: it would raise them again once it has stopped, and the record would not
be closed. A second signal does not wait for requests that still run.
"""

import asyncio
import os
from collections.abc import Callable

from byleave.client.loopback import is_loopback
from byleave.protocol.errors import ConfigurationError
from byleave.server import Listening, serve
from byleave.settings import ServerSettings
from byleave.telemetry import configured

from .looping import run_long
from .preferences import read_settings
from .screen import put, put_json
from .stopping import on_stop


def serve_here(host: str, port: int, *, as_json: bool) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    settings = read_settings(ServerSettings)
    if not is_loopback(host) and "allowed_hosts" not in settings.model_fields_set:
        raise ConfigurationError(
            f"Listening on {host!r} lets other machines in, so it must be said which names this server answers to.",
            hint="set BYLEAVE_ALLOWED_HOSTS=byleave.example.com, or listen on 127.0.0.1",
        )
    with configured(settings.telemetry, "byleave-server"):
        run_long(_serve(settings, host, port, as_json=as_json))


async def _serve(settings: ServerSettings, host: str, port: int, *, as_json: bool) -> None:
    def ready(listening: Listening) -> None:
        stops.append(listening.stop)
        if as_json:
            put_json({"ready": True, "url": listening.url, "pid": os.getpid()})
        else:
            put(f"Byleave is ready at {listening.url}")

    def stop() -> None:
        # Before it is ready there is nothing to finish: it is cancelled, as by every further signal.
        if stops:
            stops.pop()()
        else:
            serving.cancel()

    stops: list[Callable[[], None]] = []
    serving = asyncio.ensure_future(serve(settings, host, port, ready=ready))
    with on_stop(stop):
        await asyncio.wait({serving})
    if not serving.cancelled():
        serving.result()
