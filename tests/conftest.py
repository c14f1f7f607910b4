"""What every test gets: a clean environment without the developer's own settings, and a home of its own."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    """No ASSENT_* variable leaks into a test, and none of its state into the developer's home."""
    for name in list(os.environ):
        if name.startswith("ASSENT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ASSENT_HOME", str(tmp_path / "assent-home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config-home"))
