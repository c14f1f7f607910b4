"""`byleave audit verify`: recompute the chain of every project from the database itself."""

from dataclasses import asdict

from byleave.settings import ServerSettings
from byleave.store import Store

from .exits import ExitCode
from .preferences import read_settings
from .screen import put, put_json, say, shown


async def verify(*, as_json: bool) -> ExitCode:
    """Check every chain; print its length and head, to be kept elsewhere."""
    settings = read_settings(ServerSettings)
    store = await Store.inspect(settings)
    try:
        checks = await store.audit.verify()
    finally:
        await store.close()
    whole = all(check.fault is None for check in checks)
    if as_json:
        put_json({"whole": whole, "projects": [asdict(check) for check in checks]})
    else:
        for check in checks:
            state = "whole " if check.fault is None else "BROKEN"
            put(f"{state}  {shown(check.project_id)}  {check.records} records  head {shown(check.head) or 'none'}")
            if check.fault is not None:
                say(f"error: {shown(check.project_id)}: {shown(check.fault)}.")
        say("The record is whole." if whole else "hint: keep the database as it is and compare it with a backup")
    return ExitCode.OK if whole else ExitCode.FAILED
