"""A PostgreSQL server of the tests' own: in a temporary directory, on a socket, as an unprivileged user."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

PROGRAMS = sorted(glob("/usr/lib/postgresql/*/bin"))
"""Debian's place, which is not on the path; the newest version last."""
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # what is tested is what happens when statements fail, not when the power does
    "shared_buffers": "16MB",
    "max_connections": "200",
}


LOCKED_USER, PASSWORD = "locked", "not a secret"
"""A user who needs a password."""


def program(name: str) -> str | None:
    """Path of one of the server's programs; None if it is not installed."""
    places = [*reversed(PROGRAMS), os.environ.get("PATH", os.defpath), "/usr/sbin"]
    return shutil.which(name, path=os.pathsep.join(places))


def why_not() -> str | None:
    """The reason that no server can be started here."""
    return None if program("initdb") and program("pg_ctl") else "PostgreSQL is not installed (scripts/setup-tests)"


class PostgresServer:
    """A running server."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def pid(self) -> int:
        return int((self.directory / "data" / "postmaster.pid").read_text("ascii").split()[0])

    def url(self, database: str = "postgres", *, user: str = "byleave", directory: Path | None = None) -> str:
        place = quote(str(directory or self.directory), safe="")
        return f"postgresql://{user}@/{database}?host={place}"

    @contextmanager
    def database(self) -> Generator[str]:
        """The URL of a new, empty database."""
        name = f"byleave_{uuid4().hex}"
        self.do(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.do(f"DROP DATABASE {name} WITH (FORCE)")

    def do(self, statement: str) -> None:
        import psycopg  # not for tests that need no server

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def run(self, *command: str) -> None:
        """Run a program as the server's user."""
        subprocess.run(
            [*_as_nobody(), *command], check=True, capture_output=True, cwd=self.directory, stdin=subprocess.DEVNULL
        )

    def command(self, **settings: str) -> list[str]:
        """How its program is started in the foreground, as `OWNER`."""
        given = {**SETTINGS, **settings}
        options = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        return [_installed("postgres"), "-D", str(self.directory / "data"), "-k", str(self.directory), *options]

    def start(self, **changes: str) -> None:
        """Start it, with changes of `SETTINGS`."""
        settings = " ".join(f"-c {name}='{value}'" for name, value in (SETTINGS | changes).items())
        self.control("-o", f"-k '{self.directory}' {settings}", "start")

    def stop(self) -> None:
        self.control("-m", "immediate", "stop")

    def control(self, *args: str) -> None:
        """Start, stop or restart the server."""
        log = str(self.directory / "log")
        self.run(_installed("pg_ctl"), "-D", str(self.directory / "data"), "-w", "-l", log, *args)


def _installed(name: str) -> str:
    found = program(name)
    assert found is not None, f"{name} is not installed"
    return found


OWNER = "postgres" if os.geteuid() == 0 else None
"""The user who runs the server: PostgreSQL refuses root. None is ourselves."""


def _as_nobody() -> list[str]:
    return [] if OWNER is None else ["runuser", "-u", OWNER, "--"]


def _directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="byleave-pg-"))
    if _as_nobody():
        shutil.chown(directory, "postgres")
    return directory


@contextmanager
def created() -> Generator[PostgresServer]:
    """The files of a new server, which does not run yet."""
    directory = _directory()
    server, data = PostgresServer(directory), directory / "data"
    try:
        server.run(
            _installed("initdb"), "-D", str(data), "-A", "trust", "-U", "byleave", "--locale=C.UTF-8", "--no-sync"
        )
        hba = data / "pg_hba.conf"
        hba.write_text(f"local all {LOCKED_USER} scram-sha-256\n{hba.read_text()}")
        yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def running(**changes: str) -> Generator[PostgresServer]:
    """Start a server, with changes of `SETTINGS`, and stop it afterwards."""
    with created() as server:
        server.start(**changes)
        try:
            server.do(f"CREATE USER {LOCKED_USER} PASSWORD '{PASSWORD}'")
            yield server
        finally:
            server.stop()


@contextmanager
def pooling(server: PostgresServer) -> Generator[Path]:
    """Start PgBouncer before a server, in transaction mode; gives its socket's directory."""
    directory = _directory()
    lines = {
        "pool_mode": "transaction",
        "default_pool_size": "3",
        "listen_port": "5432",
        "unix_socket_dir": str(directory),
        "auth_type": "any",
        "admin_users": "byleave",
        "logfile": str(directory / "log"),
    }
    config = directory / "pgbouncer.ini"
    settings = "".join(f"{name} = {value}\n" for name, value in lines.items())
    config.write_text(f"[databases]\n* = host={server.directory} user=byleave\n[pgbouncer]\n{settings}")
    config.chmod(0o644)
    process = subprocess.Popen(
        [*_as_nobody(), _installed("pgbouncer"), "-q", str(config)], cwd=directory, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 60
        while not (directory / ".s.PGSQL.5432").exists():
            assert process.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.01)
        yield directory
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)
