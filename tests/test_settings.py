"""Settings: variables win over the file, the file over the defaults, and nonsense is refused."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from byleave.settings import DEFAULT_PORT, ClientSettings, ServerSettings, default_home


@pytest.mark.promise("L2")
def test_defaults_are_the_agreed_numbers() -> None:
    server = ServerSettings()
    assert (server.medium_approval_seconds, server.high_approval_seconds) == (300, 600)
    assert server.durability == "full"
    assert server.model == "offline"
    assert server.allowed_hosts == ("127.0.0.1", "localhost", "::1")
    assert server.secret is None
    assert server.database == f"sqlite:///{server.home / 'byleave.db'}"


@pytest.mark.promise("C6")
def test_client_defaults_are_the_agreed_numbers() -> None:
    client = ClientSettings()
    assert client.command_timeout_seconds == 300
    assert client.max_file_bytes == 100 * 1024 * 1024
    assert client.concurrency == 3
    assert client.approval_timeout_seconds == 300
    assert client.cache_enabled is True
    assert client.cache_seconds == 300
    assert client.post_tries == 3
    assert client.server_url == f"http://127.0.0.1:{DEFAULT_PORT}"


@pytest.mark.promise("L2")
def test_variable_wins_over_file_and_file_over_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "byleave.toml"
    file.write_text('model = "from-file"\nlease_seconds = 7\nallowed_hosts = ["a.example"]\n')
    monkeypatch.setenv("BYLEAVE_CONFIG", str(file))
    monkeypatch.setenv("BYLEAVE_MODEL", "from-variable")
    server = ServerSettings()
    assert server.model == "from-variable"
    assert server.lease_seconds == 7
    assert server.allowed_hosts == ("a.example",)
    assert server.heartbeat_seconds == 15


@pytest.mark.promise("L2")
def test_lists_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLEAVE_ALLOWED_HOSTS", "byleave.example.com, localhost,")
    monkeypatch.setenv("BYLEAVE_ALLOWED_COMMANDS", "ls,cat")
    assert ServerSettings().allowed_hosts == ("byleave.example.com", "localhost")
    assert ServerSettings().allowed_commands == ("ls", "cat")
    assert ClientSettings().allowed_commands == ("ls", "cat")
    assert ClientSettings(allowed_commands=("git",)).allowed_commands == ("git",)


@pytest.mark.promise("L2")
def test_state_directory_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BYLEAVE_HOME", str(tmp_path))
    assert ServerSettings().home == tmp_path
    monkeypatch.setenv("BYLEAVE_DATABASE_URL", "sqlite:////elsewhere/record.db")
    assert ServerSettings().database == "sqlite:////elsewhere/record.db"
    monkeypatch.delenv("BYLEAVE_HOME")
    assert ServerSettings().home == default_home()


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLEAVE_SECRET", "correct-horse")
    monkeypatch.setenv("BYLEAVE_TOKEN", "correct-horse")
    monkeypatch.setenv("BYLEAVE_TAVILY_API_KEY", "correct-horse")
    for settings in (ServerSettings(), ClientSettings()):
        assert "correct-horse" not in f"{settings!r} {settings} {settings.model_dump_json()}"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BYLEAVE_DURABILITY", "maybe"),
        ("BYLEAVE_MEDIUM_APPROVAL_SECONDS", "0"),
        ("BYLEAVE_LEASE_SECONDS", "soon"),
        ("BYLEAVE_MAX_BODY_BYTES", "-1"),
    ],
)
def test_value_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValidationError):
        ServerSettings()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("BYLEAVE_COMMAND_TIMEOUT_SECONDS", "301"), ("BYLEAVE_CONCURRENCY", "0"), ("BYLEAVE_SEARCH_PROVIDER", "other")],
)
def test_client_value_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValidationError):
        ClientSettings()


def test_settings_cannot_be_changed_after_reading() -> None:
    with pytest.raises(ValidationError):
        ServerSettings().model = "other"  # pyright: ignore[reportAttributeAccessIssue]
