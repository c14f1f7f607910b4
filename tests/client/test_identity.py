"""The client's id and the token's store."""

from pathlib import Path

import pytest

from byleave.client.identity import Identity, client_directory, load_token, open_identity, save_token
from byleave.client.journal import Journal
from byleave.protocol.errors import ConfigurationError

pytestmark = pytest.mark.promise("L4")

URL = "http://127.0.0.1:8477"


def opened(home: Path, workspace: str = "ws", *, url: str = URL, project: str = "p") -> Identity:
    """An identity, taken as a client takes it: the journal first."""
    directory = client_directory(home, url, project, home / workspace)
    Journal(directory).close()
    return open_identity(directory)


def test_the_same_workspace_keeps_its_id(tmp_path: Path) -> None:
    first = opened(tmp_path)
    assert opened(tmp_path, url=URL + "/") == first
    assert first.directory.stat().st_mode & 0o777 == 0o700
    assert (first.directory / "client_id").stat().st_mode & 0o777 == 0o600
    assert (first.directory / "client_key").stat().st_mode & 0o777 == 0o600
    assert first.key not in repr(first)


@pytest.mark.parametrize("content", [None, "", "half a ke"])
def test_client_that_lost_its_key_comes_as_a_new_one_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    first = opened(tmp_path)
    assert caplog.messages == []
    file = first.directory / "client_key"
    file.unlink() if content is None else file.write_text(content)
    second = opened(tmp_path)
    assert second.client_id != first.client_id
    assert second.key != first.key
    assert ["calls of the old one are given up" in message for message in caplog.messages] == [True]
    assert opened(tmp_path) == second


@pytest.mark.promise("C1")
@pytest.mark.parametrize("content", [None, b"", b'{"step":"seen","tool_', b'{"step":"accepted","tool_id":"exec_1"}\n'])
def test_client_that_lost_its_journal_comes_as_a_new_one_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    first = opened(tmp_path)
    file = first.directory / "journal.jsonl"
    file.unlink() if content is None else file.write_bytes(content)
    second = opened(tmp_path)
    assert second.client_id != first.client_id
    assert second.key != first.key
    assert ["calls of the old one are given up" in message for message in caplog.messages] == [True]
    assert opened(tmp_path) == second


def test_another_server_project_or_workspace_is_another_client(tmp_path: Path) -> None:
    ids = {
        opened(tmp_path, name, url=url, project=project).client_id
        for url in (URL, "http://other")
        for project in ("p", "q")
        for name in ("a", "b")
    }
    assert len(ids) == 8


def test_a_broken_id_is_replaced(tmp_path: Path) -> None:
    first = opened(tmp_path)
    (first.directory / "client_id").write_text("../../etc\n")
    second = opened(tmp_path)
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
