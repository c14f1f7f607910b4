"""A workspace with a sibling that holds a secret, on a real disk."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from byleave.settings import ClientSettings
from byleave.workspace.workspace import Workspace
from harness.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    root, outside = tmp_path / "ws", tmp_path / "out"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text("SECRET")
    return Place(root, outside)


@pytest.fixture
def root_fd(place: Place) -> Iterator[int]:
    fd = os.open(place.root, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.fixture
def settings(tmp_path: Path) -> ClientSettings:
    return ClientSettings(home=tmp_path / "home")


@pytest.fixture
async def workspace(place: Place, settings: ClientSettings) -> AsyncIterator[Workspace]:
    workspace = Workspace(place.root, settings)
    yield workspace
    await workspace.close()
