"""The client's id and the token's store."""

from pathlib import Path

import pytest

from byleave.client import load_token, open_identity, save_token
from byleave.protocol.errors import ConfigurationError

pytestmark = pytest.mark.promise("L4")

URL = "http://127.0.0.1:8477"


def test_the_same_workspace_keeps_its_id(tmp_path: Path) -> None:
    first = open_identity(tmp_path, URL, "p", tmp_path / "ws")
    assert open_identity(tmp_path, URL + "/", "p", tmp_path / "ws") == first
    assert first.directory.stat().st_mode & 0o777 == 0o700
    assert (first.directory / "client_id").stat().st_mode & 0o777 == 0o600


def test_a_client_keeps_its_key_and_one_from_before_keys_gets_one(tmp_path: Path) -> None:
    first = open_identity(tmp_path, URL, "p", tmp_path)
    file = first.directory / "client_key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert first.key not in repr(first)
    file.unlink()
    second = open_identity(tmp_path, URL, "p", tmp_path)
    assert second.client_id == first.client_id
    assert second.key != first.key
    assert open_identity(tmp_path, URL, "p", tmp_path).key == second.key


def test_another_server_project_or_workspace_is_another_client(tmp_path: Path) -> None:
    ids = {
        open_identity(tmp_path, url, project, tmp_path / name).client_id
        for url in (URL, "http://other")
        for project in ("p", "q")
        for name in ("a", "b")
    }
    assert len(ids) == 8


def test_a_broken_id_is_replaced(tmp_path: Path) -> None:
    first = open_identity(tmp_path, URL, "p", tmp_path)
    (first.directory / "client_id").write_text("../../etc\n")
    second = open_identity(tmp_path, URL, "p", tmp_path)
    assert second.client_id != first.client_id
    assert second.client_id.startswith("client_")


def test_a_saved_token_comes_back(tmp_path: Path) -> None:
    assert load_token(tmp_path) is None
    save_token(tmp_path, " one ")
    path = save_token(tmp_path, "two")
    assert load_token(tmp_path) == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("")
    assert load_token(tmp_path) is None


def test_a_token_others_could_read_is_refused(tmp_path: Path) -> None:
    path = save_token(tmp_path, "secret-token")
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="by others") as caught:
        load_token(tmp_path)
    assert "chmod 600" in (caught.value.hint or "")
    assert "secret-token" not in str(caught.value)


def test_a_token_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "token").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_token(tmp_path)


def test_a_home_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used") as caught:
        save_token(tmp_path / "file" / "home", "x")
    assert "BYLEAVE_HOME" in (caught.value.hint or "")
