"""docs/names.md says where things are: every name of ours in it is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "names.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(byleave(?:\.[A-Za-z_]+)+)`", TEXT))))
def test_a_python_name_of_the_page_can_be_imported(name: str) -> None:
    home, _, last = name.rpartition(".")
    if re.fullmatch(r"byleave\.[a-z]+[A-Z]\w+", name):
        return  # a setting of the editor
    try:
        assert hasattr(import_module(home), last)
    except ModuleNotFoundError:
        raise AssertionError(f"There is no {home}.") from None


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|vscode|ui|schema)/[\w/.]*)`", TEXT))))
def test_a_file_of_the_page_is_there(path: str) -> None:
    assert (PAGE.parents[1] / path).exists()
