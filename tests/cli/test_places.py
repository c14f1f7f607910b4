"""Which server, which token, which project."""

import os
from pathlib import Path

import pytest

from byleave.cli.places import (
    UP,
    KnownServer,
    Note,
    find_server,
    known_project,
    leave_note,
    remember_project,
    running_note,
)
from byleave.client.identity import save_token
from byleave.protocol.errors import ConfigurationError

NOTE = Note(server_url="http://127.0.0.1:1", token="up.to.ken")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BYLEAVE_HOME", str(tmp_path))
    return tmp_path


def test_note_is_believed_only_while_its_writer_runs(home: Path) -> None:
    assert running_note(home) is None
    with leave_note(home, NOTE):
        assert running_note(home) == NOTE
        assert (home / "up.json").stat().st_mode & 0o777 == 0o600
    assert running_note(home) is None
    (home / "up.json").write_text(NOTE.model_dump_json(), encoding="utf-8")
    assert running_note(home) is None, "nobody holds it"


def test_note_that_others_could_write_or_nobody_can_read_is_not_believed(home: Path) -> None:
    with leave_note(home, NOTE):
        os.chmod(home / "up.json", 0o644)
        assert running_note(home) is None
        os.chmod(home / "up.json", 0o600)
        (home / "up.json").write_text("{", encoding="utf-8")
        assert running_note(home) is None


@pytest.mark.parametrize("named", ["http://127.0.0.1:1", "http://127.0.0.1:1/", "http://localhost:1"])
def test_server_that_is_up_is_known_by_its_address_too(home: Path, named: str) -> None:
    save_token(home, "kept.to.ken")
    with leave_note(home, NOTE):
        assert find_server(named) == KnownServer("http://127.0.0.1:1", "up.to.ken", home, UP)
    assert find_server(named).token == "kept.to.ken"


@pytest.mark.parametrize("named", ["https://127.0.0.1:1", "http://127.0.0.1:1/x", "http://127.0.0.2:1", "http://[::1"])
def test_token_of_the_server_that_is_up_goes_to_no_other_address(home: Path, named: str) -> None:
    save_token(home, "kept.to.ken")
    with leave_note(home, NOTE):
        assert find_server(named).token == "kept.to.ken"


def test_named_server_goes_before_the_one_that_is_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_token(home, "kept.to.ken")
    with leave_note(home, NOTE):
        assert find_server() == KnownServer("http://127.0.0.1:1", "up.to.ken", home, UP)
        named = find_server("http://127.0.0.1:2")
        assert (named.server_url, named.token) == ("http://127.0.0.1:2", "kept.to.ken"), "its token goes nowhere else"
        monkeypatch.setenv("BYLEAVE_TOKEN", "given.to.ken")
        assert (find_server().server_url, find_server().token) == ("http://127.0.0.1:1", "given.to.ken")
        monkeypatch.setenv("BYLEAVE_SERVER_URL", "http://127.0.0.1:3")
        assert find_server() == KnownServer("http://127.0.0.1:3", "given.to.ken", home, "http://127.0.0.1:3")


def test_without_a_token_it_is_said_how_to_get_one(home: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no token for http://127\.0\.0\.1:8477, and") as caught:
        find_server()
    assert "byleave token" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["{", "[]", "\udcff"])
def test_broken_memory_of_projects_is_no_memory(home: Path, text: str) -> None:
    place = KnownServer("http://127.0.0.1:1", "t", home, UP)
    (home / "projects.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    assert known_project(place, Path("/a")) is None
    remember_project(place, Path("/a\udcff"), "proj_1")
    assert known_project(place, Path("/a\udcff")) == "proj_1"
    assert known_project(KnownServer("http://x", "t", home, "http://x"), Path("/a\udcff")) is None


def test_project_that_cannot_be_remembered_is_said_and_stops_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = KnownServer("http://127.0.0.1:1", "t", home, UP)
    remember_project(place, Path("/a"), "proj_1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        remember_project(place, Path("/a"), "proj_1")
        assert capsys.readouterr().err == "", "it is known already"
        remember_project(place, Path("/b"), "proj_2")
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert [path.name for path in home.iterdir()] == ["projects.json"]
    assert known_project(place, Path("/a")) == "proj_1"


def test_home_that_cannot_be_made_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    remember_project(KnownServer("http://127.0.0.1:1", "t", tmp_path / "file" / "home", UP), Path("/a"), "proj_1")
    assert "cannot be stored" in capsys.readouterr().err
