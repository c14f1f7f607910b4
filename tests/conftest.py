"""What every test gets: a clean environment without the developer's own settings, and a home of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

UNTRACED = (
    "tests/bench/",
    "tests/faults/",
    "tests/gate/test_gate_fuzz.py",
    "tests/gate/test_gate_properties.py",
    "tests/gate/test_gate_secrets.py::test_hostile_text",
    "tests/protocol/test_digests.py",
)
"""Tests that cover nothing others do not, and that tracing makes twice as slow: CI has fifteen minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(UNTRACED):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    """No ASSENT_* variable leaks into a test, and none of its state into the developer's home."""
    for name in list(os.environ):
        if name.startswith("ASSENT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ASSENT_HOME", str(tmp_path / "assent-home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config-home"))


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """A command that was run in this process has set up its log; the next test starts without."""
    yield
    structlog.reset_defaults()
