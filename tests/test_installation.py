"""Hints that name an extra: whoever types them as they stand gets it."""

import importlib.util
import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from byleave import installation
from byleave.installation import add_command, install_command, missing_extra

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("docs", "deploy", "examples", "vscode")
PUBLISHED = re.compile(r"(?:install|add|inject|uvx|--from|run) ['\"]?byleave(?:\[|['\"\s]|$)")
"""What would look for Byleave on a registry."""


class Installed:
    """A distribution that pip installed from somewhere."""

    def __init__(self, direct_url: str | None) -> None:
        self._direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._direct_url


def installed_from(monkeypatch: pytest.MonkeyPatch, url: str | None, text: str | None = None) -> None:
    known = Installed(text if url is None else json.dumps({"url": url}))
    monkeypatch.setattr(installation, "distribution", lambda name: known)  # pyright: ignore[reportUnknownLambdaType]


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("file:///srv/a%20b/byleave-0.1.0-py3-none-any.whl", "'/srv/a b/byleave-0.1.0-py3-none-any.whl[mcp]'"),
        ("file:///home/me/byleave", "'/home/me/byleave[mcp]'"),
        (
            "https://example.com/byleave-0.1.0-py3-none-any.whl",
            "'https://example.com/byleave-0.1.0-py3-none-any.whl[mcp]'",
        ),
        (None, "'byleave[mcp]'"),
    ],
)
def test_a_hint_names_what_was_installed(monkeypatch: pytest.MonkeyPatch, url: str | None, source: str) -> None:
    installed_from(monkeypatch, url)
    assert install_command("mcp").endswith(f" {source}")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url"'])
def test_a_note_of_pip_that_cannot_be_read_leaves_the_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    installed_from(monkeypatch, None, text)
    assert install_command("mcp").endswith("'byleave[mcp]'")


def test_a_tree_that_was_never_installed_has_the_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "distribution", unknown)
    assert install_command("mcp").endswith("'byleave[mcp]'")


def test_the_installer_is_the_one_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prefix = tmp_path / "byleave"
    prefix.mkdir()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())  # pyright: ignore[reportUnknownLambdaType]
    assert add_command("x[y]") == f"{sys.executable} -m pip install 'x[y]'"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]
    assert add_command("x[y]") == f"uv pip install --python {sys.executable} 'x[y]'"
    (prefix / "pipx_metadata.json").touch()
    assert add_command("x[y]") == "pipx runpip byleave install 'x[y]'"


def test_an_environment_of_uvx_is_made_anew_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, "file:///srv/byleave-0.1.0-py3-none-any.whl")
    monkeypatch.setattr(sys, "prefix", "/home/me/.cache/uv/archive-v0/v5QFYXl")
    assert install_command("mcp") == "uvx --from '/srv/byleave-0.1.0-py3-none-any.whl[mcp]' byleave …"


def test_the_command_of_this_tree_installs_as_it_stands() -> None:
    command = install_command("mcp")
    assert str(ROOT) in command
    done = subprocess.run(
        f"{command} --dry-run --no-deps --offline", shell=True, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_another_machine_is_told_no_path() -> None:
    assert missing_extra("mcp") == "Whoever runs the server installs Byleave's extra 'mcp' there."


def test_nothing_names_a_package_that_is_not_published() -> None:
    assert PUBLISHED.search("pip install 'byleave[nats]'")
    assert PUBLISHED.search("uvx byleave up")
    source = [path for path in (ROOT / "src" / "byleave").rglob("*.py") if path.name != "installation.py"]
    pages = [*ROOT.glob("*.md"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.md"))]
    written = [*source, *(path for path in pages if "node_modules" not in path.parts)]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in written
        for line in path.read_text(encoding="utf-8").splitlines()
        if PUBLISHED.search(line) or (path in source and re.search(r"pip install .{0,3}\.\[", line))
    ]
    assert found == []
