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

TRACING = traced.started()
"""Started here, before anything of Byleave is loaded: one worker traces that, too."""
# A shell that starts us in the background has Ctrl-C ignored, and so would be all that we start: tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
HOMES = tempfile.mkdtemp(prefix="byleave-homes-")
"""Where each test's home would be: most never make theirs."""
_numbers = itertools.count()

# A loaded machine is slow; that says nothing about what is tested.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")


@pytest.fixture(scope="session")
def postgres_server() -> Generator[postgres.PostgresServer]:
    """PostgreSQL for this worker's tests."""
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    traced.sort_out(items)


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
