"""`byleave serve`: the server as a process, with one line when it is ready and an orderly stop.

Signals are handled here and not by uvicorn: it would raise them again once it has stopped, and the record would not be
closed. A second signal does not wait for running requests.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Annotated

import typer

from byleave.addresses import is_loopback
from byleave.protocol.errors import ConfigurationError
from byleave.server import Listening
from byleave.server.serving import serve as serve_until_stopped
from byleave.settings import ServerSettings
from byleave.telemetry import configured

from .options import AsJson, Verbose, new_app
from .process import in_loop, on_stop, read_settings, run_long, set_up_logging
from .screen import put, put_json

app = new_app()


async def _serve(settings: ServerSettings, host: str, port: int, *, as_json: bool) -> None:
    def ready(listening: Listening) -> None:
        stops.append(listening.stop)
        if as_json:
            put_json({"ready": True, "url": listening.url, "pid": os.getpid()})
        else:
            put(f"Byleave is ready at {listening.url}")

    def stop() -> None:
        # Before it is ready there is nothing to finish: cancel, as for every further signal.
        if stops:
            stops.pop()()
        else:
            serving.cancel()

    stops: list[Callable[[], None]] = []
    serving = asyncio.ensure_future(serve_until_stopped(settings, host, port, ready=ready))
    with on_stop(stop):
        await asyncio.wait({serving})
    if not serving.cancelled():
        serving.result()


@in_loop(app, run_long)
async def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8477,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run the server.

    One line on stdout says when it is ready; logs go to stderr. SIGTERM, SIGHUP and Ctrl-C stop it in order. An
    address that others can reach needs BYLEAVE_ALLOWED_HOSTS: the names this server answers to.

    \b
    Example:
      BYLEAVE_HOME=/srv/byleave byleave serve --port 8477
      BYLEAVE_ALLOWED_HOSTS=byleave.example.com byleave serve --host 0.0.0.0
    """
    set_up_logging(logging.INFO, verbose=verbose)
    settings = read_settings(ServerSettings)
    if not is_loopback(host) and not settings.model_fields_set & {"allowed_hosts", "public_url"}:
        raise ConfigurationError(
            f"Listening on {host!r} lets other machines in, so it must be said which names this server answers to.",
            hint="set BYLEAVE_ALLOWED_HOSTS=byleave.example.com, or listen on 127.0.0.1",
        )
    with configured(settings.telemetry, "byleave-server"):
        await _serve(settings, host, port, as_json=as_json)
