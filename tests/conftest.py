"""What every test gets: a clean environment without the developer's own settings, and a home of its own."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from harness import traced

TRACING = traced.started()
"""Started here, before anything of Assent is loaded."""

# A loaded machine is slow; that says nothing about what is tested.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    traced.sort_out(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if TRACING is not None:
        TRACING.switch(on=traced.is_traced(item))
    return (yield)


def pytest_sessionfinish() -> None:
    if TRACING is not None:
        TRACING.save()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    """No ASSENT_* variable leaks into a test, and none of its state into the developer's home."""
    # What a test starts is traced only if the test is.
    unwanted = "ASSENT_" if traced.is_traced(request.node) else ("ASSENT_", "COVERAGE_")
    for name in list(os.environ):
        if name.startswith(unwanted):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ASSENT_HOME", str(tmp_path / "assent-home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config-home"))


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """A command that was run in this process has set up its log; the next test starts without."""
    yield
    structlog.reset_defaults()
