"""What every test gets: a clean environment without the developer's own settings, and a home of its own.

Given around a test and not by fixtures: thousands of tests take a few milliseconds each, and a fixture costs as much.
"""

import contextlib
import gc
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Generator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from harness import postgres, traced
from harness.postgres import PostgresServer

TRACING = traced.started()
"""Started here, before anything of Byleave is loaded: one worker traces that, too."""
# A shell that starts us in the background has Ctrl-C ignored, and so would be all that we start: tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
HOMES = tempfile.mkdtemp(prefix="byleave-homes-")
"""Where each test's home would be: most never make theirs."""
_numbers = itertools.count()
DATABASES = ("sqlite", "postgres")

# A loaded machine is slow; that says nothing about what is tested.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")


@pytest.fixture(scope="session")
def postgres_server() -> Generator[PostgresServer]:
    """PostgreSQL for this worker's tests."""
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield server


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> Generator[str | None]:
    """Where the record is: a new database in PostgreSQL, or None for SQLite in the state directory.

    Tests that ask for it run on both, but for those marked `sqlite` or `postgres`.
    """
    if request.param == "sqlite":
        yield None
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.database() as url:
        yield url


@pytest.fixture
def record_url(request: pytest.FixtureRequest) -> str | None:
    """`database_url` for tests that use that fixture, else None: for fixtures that most need on one database alone."""
    return request.getfixturevalue("database_url") if "database_url" in request.fixturenames else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    elsewhere = [item for item in items if _is_about_another_database(item)]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = [item for item in items if not _is_about_another_database(item)]
    traced.sort_out(items)


def _is_about_another_database(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    if call is None or "database_url" not in call.params:
        return False
    only = [name for name in DATABASES if item.get_closest_marker(name)]
    return bool(only) and call.params["database_url"] not in only


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is loaded now stays: to look through it for garbage again and again is a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if TRACING is not None:
        TRACING.switch(on=traced.is_traced(item))
    with _clean_environment(traced.is_traced(item)):
        try:
            return (yield)
        finally:
            # A command that was run in this process has set up its log; the next test starts without.
            structlog.reset_defaults()


def pytest_sessionfinish() -> None:
    if TRACING is not None:
        TRACING.save()
    shutil.rmtree(HOMES, ignore_errors=True)


@contextlib.contextmanager
def _clean_environment(is_traced: bool) -> Generator[None]:
    """No BYLEAVE_* variable leaks into a test, and none of its state into the developer's home."""
    # What a test starts is traced only if the test is.
    unwanted = ("BYLEAVE_", "XDG_CONFIG_HOME") if is_traced else ("BYLEAVE_", "XDG_CONFIG_HOME", "COVERAGE_")
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(unwanted)}
    home = os.path.join(HOMES, str(next(_numbers)))
    given = {"BYLEAVE_HOME": f"{home}/byleave-home", "XDG_CONFIG_HOME": f"{home}/config-home"}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)
        os.environ.update(taken)
