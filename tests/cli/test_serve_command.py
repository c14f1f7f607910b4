"""`byleave serve` and `byleave token`, as processes."""

import base64
import json
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from harness.json_values import Json, JsonObject

from .conftest import Program


def claims(token: str) -> JsonObject:
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def fetch(url: str, token: str | None = None) -> tuple[int, Json]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.promise("L2", "L3")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_server_says_when_it_is_ready_takes_its_tokens_and_stops_in_order(byleave: Program, number: int) -> None:
    serving = byleave.start("serve", "--port", "0")
    url = serving.line().strip().removeprefix("Byleave is ready at ")
    token = byleave.here("token", "--user", "alice").stdout.strip()
    assert fetch(f"{url}/my/projects", token)[0] == 200
    assert fetch(f"{url}/my/projects", "x" + token)[0] == 401
    code, out, err = serving.stop(number)
    assert (code, out, "Traceback" in err) == (0, "", False)
    assert not list(byleave.home.glob("*.db-wal")), "the record was not closed"


@pytest.mark.promise("L2")
def test_settings_come_from_variables(byleave: Program, tmp_path: Path) -> None:
    database = tmp_path / "elsewhere" / "record.db"
    serving = byleave.start(
        "serve", "--port", "0", "--json", BYLEAVE_DATABASE_URL=f"sqlite:///{database}", BYLEAVE_SECRET="s" * 40
    )
    ready = json.loads(serving.line())
    assert ready["ready"] is True
    assert ready["pid"] == serving.process.pid
    assert database.exists()
    token = byleave.here("token", "--user", "alice", BYLEAVE_SECRET="s" * 40).stdout.strip()
    assert fetch(f"{ready['url']}/my/projects", token)[0] == 200
    assert fetch(f"{ready['url']}/my/projects", byleave.here("token", "--user", "alice").stdout.strip())[0] == 401


@pytest.mark.promise("L2")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.com"])
def test_open_address_without_names_is_refused(byleave: Program, host: str) -> None:
    done = byleave.here("serve", "--host", host, "--port", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("error: Listening on ")
    assert "hint: set BYLEAVE_ALLOWED_HOSTS=" in done.stderr
    assert done.stdout == ""


@pytest.mark.promise("L2")
def test_open_address_with_names_serves(byleave: Program) -> None:
    serving = byleave.start("serve", "--host", "0.0.0.0", "--port", "0", "--json", BYLEAVE_ALLOWED_HOSTS="127.0.0.1")
    port = json.loads(serving.line())["url"].rsplit(":", 1)[1]
    assert fetch(f"http://127.0.0.1:{port}/healthz")[0] == 200


def test_taken_port_is_said(byleave: Program) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = byleave.run("serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "Cannot listen" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_second_server_on_the_same_record_is_refused(byleave: Program) -> None:
    byleave.start("serve", "--port", "0").line()
    done = byleave.run("serve", "--port", "0")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2].startswith("error: ")


def test_log_can_be_json(byleave: Program) -> None:
    serving = byleave.start("serve", "--port", "0", "--verbose", BYLEAVE_LOG="json")
    serving.line()
    _, _, err = serving.stop()
    records = [json.loads(line) for line in err.splitlines()]
    assert {"event", "level", "time", "logger"} <= set(records[0])


@pytest.mark.promise("L3")
def test_token_has_a_persons_scopes_and_a_month_by_default(byleave: Program) -> None:
    done = byleave.here("token", "--user", "alice")
    assert done.stderr == ""
    told = claims(done.stdout.strip())
    assert (told["sub"], told["scope"]) == ("alice", "chat approve execute")
    assert told["exp"] - told["iat"] == 30 * 24 * 3600


@pytest.mark.promise("L3")
def test_token_has_the_asked_scopes_and_lifetime(byleave: Program) -> None:
    told = claims(byleave.here("token", "--user", "bot", "--scope", "agent", "--days", "2").stdout.strip())
    assert (told["scope"], told["exp"] - told["iat"]) == ("agent", 2 * 24 * 3600)
    made = byleave.json("token", "--user", "bot", "--scope", "execute", "--scope", "chat", "--seconds", "60", "--json")
    told = claims(made["token"])
    assert (told["scope"], told["exp"] - told["iat"], made["scopes"]) == ("execute chat", 60, ["execute", "chat"])


@pytest.mark.promise("L3", "S")
def test_agents_token_that_approves_is_never_made(byleave: Program) -> None:
    done = byleave.here("token", "--user", "bot", "--scope", "agent", "--scope", "approve")
    assert (done.returncode, done.stdout) == (2, "")
    assert "an agent never approves its own requests" in done.stderr


@pytest.mark.parametrize(
    "wrong", [["--days", "1", "--seconds", "5"], ["--scope", "root"], ["--days", "0"], ["--seconds", "-1"]]
)
def test_wrong_token_options_are_usage(byleave: Program, wrong: list[str]) -> None:
    done = byleave.here("token", "--user", "alice", *wrong)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    ("user", "env", "words"),
    [("", {}, "user"), ("alice", {"BYLEAVE_SECRET": "short"}, "too short"), ("a\nb", {}, "user")],
)
def test_impossible_token_is_a_sentence(byleave: Program, user: str, env: dict[str, str], words: str) -> None:
    done = byleave.here("token", "--user", user, **env)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.promise("L3")
def test_saved_token_is_private(byleave: Program) -> None:
    done = byleave.here("token", "--user", "alice", "--save")
    kept = byleave.home / "token"
    assert kept.read_text(encoding="ascii").strip() == done.stdout.strip()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "Saved in" in done.stderr
