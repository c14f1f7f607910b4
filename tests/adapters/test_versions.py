"""A framework in a version that is not tested is told when its adapter is imported, by every adapter the same way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.promise("I")
ADAPTERS = {
    "deepagents": "deepagents",
    "langchain": "langchain-core",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai-slim",
}


def import_with(adapter: str, installed: str | None, path: Path) -> subprocess.CompletedProcess[str]:
    """Import an adapter where the framework's own metadata says that it has this version."""
    distribution = ADAPTERS[adapter]
    if installed is not None:
        info = path / f"{distribution.replace('-', '_')}-{installed}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {installed}\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    return subprocess.run(
        [sys.executable, "-W", "always::UserWarning", "-c", f"import byleave.adapters.{adapter}"],
        env=environment | {"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.parametrize(
    ("adapter", "installed"), [*((adapter, "99.0rc1") for adapter in ADAPTERS), ("langchain", "0.0.9")]
)
def test_a_version_outside_the_tested_range_is_told_with_the_range(
    adapter: str, installed: str, tmp_path: Path
) -> None:
    said = import_with(adapter, installed, tmp_path).stderr
    assert f"UntestedVersion: Byleave is tested with {ADAPTERS[adapter]} " in said
    assert f"; {installed} is installed. hint: pip install '{ADAPTERS[adapter]}" in said
    assert ">=" in said


def test_the_version_that_is_tested_here_is_imported_without_a_word(tmp_path: Path) -> None:
    assert "UntestedVersion" not in import_with("langchain", None, tmp_path).stderr
