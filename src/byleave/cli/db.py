"""`byleave db`: work on the record, in the database itself.

`prune` removes old calls, approvals and events, `migrate` brings the tables up to date, `copy` moves the record into
another database.
"""

import asyncio
import logging
import re
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from byleave.protocol.errors import ConfigurationError
from byleave.server.auth.secret import has_secret, seal_keys
from byleave.settings import ServerSettings
from byleave.store import STORAGE_ERRORS, InUseError, Store
from byleave.store.retention import Outlook, Removed
from byleave.store.transfer import Copied, copy_record

from .options import AsJson, ExitCode, new_app
from .process import in_loop, read_settings, set_up_logging
from .screen import agreed, put, put_json, say, wall_time

app = new_app()

UNITS = {"d": 24 * 3600.0, "h": 3600.0}
AGE = re.compile(r"([1-9][0-9]{0,5})([dh])")
MEGABYTE = 1024 * 1024
MUCH_FREE_BYTES = 1 * MEGABYTE
"""Free space of the file that is given back even if nothing was removed."""
PROGRESS_SECONDS = 2.0
WHERE_HINT = "Run this with the server's BYLEAVE_HOME, or set BYLEAVE_SECRET to the server's."
IN_USE_HINT = "Stop the server first, or set BYLEAVE_RETENTION_DAYS and let it remove old calls itself."


def age_in_seconds(text: str) -> float:
    """Read an age such as `90d` or `36h`."""
    found = AGE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not an age; write 90d or 36h")
    return int(found[1]) * UNITS[found[2]]


async def _tell_outlook(seconds: float, *, as_json: bool) -> ExitCode:
    """Say what would go. Only reads, also while a server runs."""
    store = await Store.inspect(read_settings(ServerSettings), seal_keys=())
    try:
        before = await store.retention.moment(seconds)
        outlook = await store.retention.outlook(before)
    finally:
        await store.close()
    if as_json:
        span = {"oldest": outlook.oldest, "newest": outlook.newest, "bytes": outlook.bytes}
        put_json({"dry_run": True, "before": before, **asdict(outlook.removed), **span})
    elif outlook.removed == Removed():
        say(f"Nothing to remove before {wall_time(before)}.")
    else:
        put(_outlook_line(outlook))
    return ExitCode.OK


async def _prune(seconds: float, *, yes: bool, as_json: bool) -> ExitCode:
    """Say what will go, ask, remove it and give back its room."""
    store = await _open(read_settings(ServerSettings))
    try:
        before = await store.retention.moment(seconds)
        outlook = await store.retention.outlook(before)
        if outlook.removed != Removed() and not yes:
            say(f"Before {wall_time(before)}: {_outlook_line(outlook)}")
            refusal = "Nobody can be asked here; nothing was removed."
            if not agreed("Remove this for good?", refusal=refusal, hint="--yes removes without asking"):
                say("Nothing was removed.")
                return ExitCode.FAILED
        held = await store.retention.space()
        removed = await _remove(store, before, outlook.removed)
        if removed != Removed() or held.free >= MUCH_FREE_BYTES:  # also of a run that was killed before it did
            await _give_back(store)
        now = await store.retention.space()
    finally:
        await store.close()
    freed = max(0, held.used + held.free - now.used - now.free)
    if as_json:
        put_json({"dry_run": False, "before": before, **asdict(removed), "freed_bytes": freed})
    elif removed == Removed():
        given = f" {freed / MEGABYTE:,.1f} MB of free space given back." if freed else ""
        say(f"Nothing to remove before {wall_time(before)}.{given}")
    else:
        room = f"{freed / MEGABYTE:,.1f} MB given back" if freed else "new rows use their room"
        put(f"Removed {_counted(removed)}; {room}.")
    return ExitCode.OK


async def _open(settings: ServerSettings) -> Store:
    """Open the record for writing, if it is this server's and nobody else has it open."""
    await (await Store.inspect(settings, seal_keys=())).close()  # raises if there is none, or an older one
    try:
        store = await Store.open(settings, seal_keys=_keys(settings, "what is removed is told in the sealed record"))
    except InUseError as error:
        raise ConfigurationError(error.message, hint=IN_USE_HINT) from None
    if not await store.is_own():
        await store.close()
        raise ConfigurationError("The record was sealed with another secret; nothing was removed.", hint=WHERE_HINT)
    return store


def _keys(settings: ServerSettings, why: str) -> tuple[bytes, ...]:
    """The keys of the server's secret; a new one would be of no use."""
    if not has_secret(settings):
        raise ConfigurationError(f"There is no secret here, and {why}.", hint=WHERE_HINT)
    return seal_keys(settings)


async def _remove(store: Store, before: str, expected: Removed) -> Removed:
    removed, shown_at = Removed(), monotonic()
    try:
        async for step in store.retention.prune(before, actor="operator"):
            removed += step
            if monotonic() - shown_at > PROGRESS_SECONDS:
                shown_at = monotonic()
                say(f"Removed {removed.calls:,} of {expected.calls:,} calls …")
    except asyncio.CancelledError:
        say(f"Stopped after {_counted(removed)}. The record is whole; run this again to go on.")
        raise
    return removed


async def _give_back(store: Store) -> None:
    if (await store.retention.space()).shrinks:
        while await store.retention.give_back():
            pass
        return
    say("Writing the file anew, without the free space …")
    try:
        await store.retention.rewrite()
    except STORAGE_ERRORS as error:
        say(f"note: the file keeps its size ({error}); its free space is used for new calls.")


async def _copy(source: str, target: str, *, as_json: bool) -> ExitCode:
    settings = read_settings(ServerSettings)
    keys = _keys(settings, "only with the server's can a copy be verified")
    shown_at = 0.0

    def progress(table: str, done: int, total: int) -> None:
        nonlocal shown_at
        if not table:
            say(f"Copied {done:,} rows. Verifying …")
        elif monotonic() - shown_at > PROGRESS_SECONDS:
            shown_at = monotonic()
            say(f"Copied {done:,} of {total:,} rows ({table}) …")

    try:
        copied = await copy_record(settings, _url(source), _url(target), seal_keys=keys, progress=progress)
    except asyncio.CancelledError:
        say("Stopped. Nothing was kept; run this again to begin anew.")
        raise
    if as_json:
        put_json(
            {"rows": copied.rows, "projects": [asdict(check) for check in copied.checks], "changed": copied.changed}
        )
    else:
        put(_copied_line(copied))
        if copied.changed:
            say(f"note: PostgreSQL stores no NUL: {copied.changed:,} rows have ␀ for it. The audit chain says which.")
        say(
            "hint: start the server with BYLEAVE_DATABASE_URL naming the copy, and the same secret; keep the old record"
        )
        say("until you have seen it work.")
    return ExitCode.OK


def _url(name: str) -> str:
    """The URL of a database, which may be given as the path of a file."""
    return name if "://" in name or name.startswith("sqlite:") else f"sqlite:///{Path(name).expanduser().absolute()}"


# Display


def _copied_line(copied: Copied) -> str:
    links = sum(check.records for check in copied.checks)
    return (
        f"Copied {sum(copied.rows.values()):,} rows of {len(copied.checks):,} projects, with {links:,} entries of the "
        "audit chain; the record is whole."
    )


def _counted(removed: Removed) -> str:
    return f"{removed.calls:,} calls, {removed.approvals:,} approvals, {removed.events:,} events"


def _outlook_line(outlook: Outlook) -> str:
    size = f"about {outlook.bytes / MEGABYTE:,.1f} MB"
    return (
        f"{_counted(outlook.removed)}; {wall_time(outlook.oldest or '')} to {wall_time(outlook.newest or '')}; {size}"
    )


@app.callback(invoke_without_command=True)
def db(context: typer.Context) -> None:
    """Remove old calls, bring the tables up to date, or copy the record into another database."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@in_loop(app)
async def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Age of what goes: 90d for days, 36h for hours.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go; works while a server runs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Remove calls that ended long ago, their approvals, and old events.

    Open calls, pending questions, conversations, grants and the audit chain stay, and `byleave audit verify` still
    proves the rest. Stop the server first, or set BYLEAVE_RETENTION_DAYS and let it do this itself. Safe to interrupt:
    run it again to go on.

    \b
    Example:
      byleave db prune --older-than 90d --dry-run
      BYLEAVE_HOME=/srv/byleave byleave db prune --older-than 90d
    """
    set_up_logging(logging.WARNING)
    seconds = age_in_seconds(older_than)
    if dry_run:
        return await _tell_outlook(seconds, as_json=as_json)
    return await _prune(seconds, yes=yes, as_json=as_json)


@in_loop(app)
async def migrate(as_json: AsJson = False) -> ExitCode:
    """Bring the record up to date, or make an empty one.

    The start of a server does the same. One transaction: if it fails, the record is as it was. Back up first: there is
    no way back.

    \b
    Example:
      BYLEAVE_HOME=/srv/byleave byleave db migrate
    """
    set_up_logging(logging.WARNING)
    settings = read_settings(ServerSettings)
    keys = _keys(settings, "the record is sealed with the server's")
    was = await Store.revision(settings)
    await (await Store.open(settings, seal_keys=keys)).close()
    now = await Store.revision(settings)
    if as_json:
        put_json({"was": was, "now": now})
    elif was == now:
        put(f"The record is up to date ({now}).")
    else:
        put(f"The record was made ({now})." if was is None else f"The record was brought from {was} to {now}.")
    return ExitCode.OK


@in_loop(app)
async def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The record: a file, or the URL of a database.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The new one: empty, or a file that does not exist.")],
    as_json: AsJson = False,
) -> ExitCode:
    """Copy the record into another database, from SQLite to PostgreSQL or back, and verify it there.

    Stop the server first. Either all is copied and verified, or the new database is empty as before; the record itself
    is only read. Leave passwords to ~/.pgpass: others on this machine see the arguments of a command.

    \b
    Example:
      BYLEAVE_HOME=/srv/byleave byleave db copy /srv/byleave/byleave.db postgresql://byleave@db.example.com/byleave
    """
    set_up_logging(logging.WARNING)
    return await _copy(source, target, as_json=as_json)
