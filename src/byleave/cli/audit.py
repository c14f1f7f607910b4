"""`byleave audit verify`: check every project's chain against its head and rows, in the database."""

from dataclasses import asdict

import typer

from byleave.protocol.errors import ConfigurationError
from byleave.server.auth.secret import has_secret, seal_keys
from byleave.settings import ServerSettings
from byleave.store import Store

from .options import AsJson, ExitCode, new_app
from .process import in_loop, read_settings
from .screen import put, put_json, say, shown

app = new_app()


@app.callback(invoke_without_command=True)
def audit(context: typer.Context) -> None:
    """Prove that the record is whole."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@in_loop(app)
async def verify(as_json: AsJson = False) -> ExitCode:
    """Check the audit chain of every project.

    Recomputes it from the local database, which is only read. Prints each project's number of records and head; keep
    the heads elsewhere to notice a chain that was rewritten whole. Exit 1 when a record was changed, removed, inserted
    or moved, and says which.

    \b
    Example:
      BYLEAVE_HOME=/srv/byleave byleave audit verify
    """
    return await verify_record(read_settings(ServerSettings), as_json=as_json)


async def verify_record(settings: ServerSettings, *, as_json: bool = False) -> ExitCode:
    """Check the record that these settings name, and print what was found."""
    keys = seal_keys(settings) if has_secret(settings) else ()
    store = await Store.inspect(settings, seal_keys=keys)
    try:
        if not keys:
            raise ConfigurationError(
                "There is no secret here, so nothing says which server wrote the record.",
                hint="Run this with the server's BYLEAVE_HOME, or set BYLEAVE_SECRET to the server's.",
            )
        checks = await store.audit.verify()
    finally:
        await store.close()
    whole = all(check.fault is None for check in checks)
    if as_json:
        put_json({"whole": whole, "projects": [asdict(check) for check in checks]})
    else:
        for check in checks:
            state = "whole " if check.fault is None else "BROKEN"
            name = shown(check.project_id) or "the record"
            put(f"{state}  {name}  {check.records} records  head {shown(check.head) or 'none'}")
            if check.fault is not None:
                say(f"error: {name}: {shown(check.fault)}.")
            if check.since is not None:
                say(f"note: {name}: an upgrade took older rows in at {shown(check.since)}; what they said before that")
                say("is not proven. If there was no such upgrade then, the record was made to look like an old one.")
        say("The record is whole." if whole else "hint: keep the database as it is and compare it with a backup")
    return ExitCode.OK if whole else ExitCode.FAILED
