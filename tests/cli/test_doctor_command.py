"""`byleave doctor`: what it finds, what it says to do, and how it ends."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from byleave.cli import doctor as doctor_module
from byleave.cli.doctor import (
    Check,
    _clock,
    _isolation,
    _probed,
    _program,
    _state,
    _system,
    _undo,
    _user_namespaces,
    _workspace,
)
from byleave.cli.main import run
from byleave.protocol.errors import ToolFailure
from byleave.settings import ClientSettings
from byleave.workspace.sandbox.backends import NoSandbox
from byleave.workspace.sandbox.conformance import KNOWN_GAPS, ROWS, Probe
from byleave.workspace.sandbox.sandbox import Isolation
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("L8-doctor")


def _told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, JsonObject]:
    code = run(["doctor", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def _levels(told: JsonObject) -> dict[str, str]:
    return {check["name"]: check["level"] for check in told["checks"]}


@pytest.fixture
def no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests about the rest: the probes have their own."""

    async def none(make: Callable[[Path], object], base: Path) -> list[Probe]:
        (base / "ws").mkdir()
        make(base / "ws")
        return []

    monkeypatch.setattr(doctor_module, "run_conformance", none)


def test_healthy_machine_passes_every_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    for title, _ in ROWS.values():
        assert any(line.startswith(f"ok   {title}: stopped") for line in said), title
    assert " 0 failed" in said[-1]
    assert list(tmp_path.iterdir()) == []


def test_json_has_every_check_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_probes: None
) -> None:
    code, told = _told(capsys, str(tmp_path))
    assert (code, told["ok"], told["failed"]) == (0, True, 0)
    levels = _levels(told)
    assert levels["system"] == levels["bwrap"] == levels["rules"] == levels["state directory"] == "ok"
    assert levels["server"] == "ok"
    assert all(set(check) == {"name", "level", "detail", "hint"} for check in told["checks"])


class _Handler(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def test_server_clock_and_token_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_probes: None, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = _told(capsys, str(tmp_path), "--server", server)
    assert (code, _levels(told)["server"], _levels(told)["clock"]) == (0, "ok", "ok")
    monkeypatch.setenv("BYLEAVE_TOKEN", "wrong")
    code, told = _told(capsys, str(tmp_path), "--server", server)
    assert (code, _levels(told)["token"]) == (1, "fail")
    assert "wrong" not in json.dumps(told).replace("is wrong", "")
    monkeypatch.setattr(_Handler, "status", 404)
    code, told = _told(capsys, str(tmp_path), "--server", server)
    assert (code, _levels(told)["server"]) == (1, "fail")


def test_named_server_that_is_gone_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str], no_probes: None) -> None:
    code, told = _told(capsys, str(tmp_path), "--server", "http://127.0.0.1:1")
    assert (code, _levels(told)["server"]) == (1, "fail")
    assert run(["doctor", str(tmp_path), "--server", "http://127.0.0.1:1"]) == 1
    assert "hint: is it running?" in capsys.readouterr().out
    code, told = _told(capsys, str(tmp_path), "--server", "nonsense")
    assert (code, _levels(told)["server"]) == (1, "fail")


def test_clock_that_is_off_is_told() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def at(seconds: int) -> str:
        return (now + timedelta(seconds=seconds)).strftime("%a, %d %b %Y %H:%M:%S GMT")

    assert [_clock(at(seconds), now).level for seconds in (0, -4, 30, -3600)] == ["ok", "ok", "warn", "fail"]
    assert _clock(None, now).level == "warn"
    assert _clock(at(30), now).hint


def test_wrong_rules_and_settings_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_probes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".byleave").mkdir()
    (tmp_path / ".byleave/policy.toml").write_text("nonsense =")
    code, told = _told(capsys, str(tmp_path))
    assert (code, _levels(told)["rules"]) == (1, "fail")
    monkeypatch.setenv("BYLEAVE_CONCURRENCY", "many")
    code, told = _told(capsys, str(tmp_path))
    assert (code, _levels(told)["settings"]) == (1, "fail")


def test_state_that_others_can_reach_is_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert [check.level for check in _state(home)] == ["ok"]
    home.mkdir(mode=0o755)
    (home / "token").write_text("x")
    (home / "token").chmod(0o644)
    found = list(_state(home))
    assert [(check.name, check.level) for check in found] == [("state directory", "warn"), ("token", "fail")]
    assert [check.hint for check in found] == [f"chmod 700 {home}", f"chmod 600 {home / 'token'}"]
    assert [check.level for check in _state(home / "token" / "x")] == ["fail"]
    if os.geteuid() == 0:
        os.chown(home, 12345, 12345)
        assert next(_state(home)).level == "fail"


def _only(checks: Iterable[Check]) -> Check:
    (check,) = checks
    return check


def test_state_directory_that_cannot_be_used_fails_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    found = _only(_state(file))
    assert (found.level, "not a directory" in found.detail) == ("fail", True)
    assert "chmod" not in (found.hint or ""), "nobody is told to change a file's mode for it"
    # Where nobody may write, whoever asks.
    sealed = _only(_state(Path("/proc/sys/byleave/home")))
    assert (sealed.level, "BYLEAVE_HOME" in (sealed.hint or "")) == ("fail", True)
    assert [check.level for check in _state(Path("/proc/sys")) if check.name == "state directory"] == ["fail"]


def test_state_that_cannot_even_be_looked_at_stops_no_other_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_probes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYLEAVE_HOME", str(tmp_path / ("x" * 300)))  # too long a name, for whoever asks
    code, told = _told(capsys, str(tmp_path))
    levels = _levels(told)
    assert (code, levels["state directory"], levels["sandbox"] != "fail") == (1, "fail", True)
    assert all(check["hint"] for check in told["checks"] if check["level"] == "fail")


def test_little_room_beside_the_state_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    assert [check.level for check in _state(home)] == ["ok"]
    monkeypatch.setattr(doctor_module, "_LITTLE_ROOM", 1 << 62)
    told = [check for check in _state(home) if check.level == "warn"]
    assert ["free some space" in (check.hint or "") for check in told] == [True]


def test_workspace_that_nobody_can_write_is_told(tmp_path: Path) -> None:
    assert _workspace(tmp_path).level == "ok"
    told = _workspace(Path("/proc/sys"))
    assert (told.level, "read" in told.detail, bool(told.hint)) == ("warn", True, True)


def test_what_undo_keeps_is_measured_and_what_it_cannot_use_is_told(tmp_path: Path) -> None:
    settings = ClientSettings(home=tmp_path / "home")
    assert (_undo(settings).level, "nothing" in _undo(settings).detail) == ("ok", True)
    bundles = settings.home / "undo" / "bundles"
    bundles.mkdir(parents=True)
    (bundles / "x").write_bytes(bytes(3 << 20))
    assert _undo(settings).detail.startswith("3 of 1024 MB")
    (bundles / "x").unlink()
    bundles.rmdir()
    bundles.symlink_to("/proc/sys")  # where nobody can write
    told = _undo(settings)
    assert (told.level, "chown -R" in (told.hint or "")) == ("fail", True)


def test_what_a_client_sweeps_away_meanwhile_is_no_fault_of_undos_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "undo" / "bundle"
    kept.parent.mkdir()
    kept.touch()

    def swept(path: Path, mode: int) -> bool:
        kept.unlink(missing_ok=True)
        return path.exists()

    monkeypatch.setattr(os, "access", swept)
    assert _undo(ClientSettings(home=tmp_path)).level == "ok"


def test_date_without_a_zone_is_read_as_utc() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert _clock("Thu, 01 Jan 2026 12:00:00 -0000", now).level == "ok"


def test_token_that_would_travel_unencrypted_is_a_line_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], no_probes: None
) -> None:
    assert run(["doctor", str(tmp_path), "--server", "http://byleave.invalid"]) == 1
    said = capfd.readouterr()
    assert "warn server: a token would travel unencrypted to http://byleave.invalid" in said.out
    assert "hint: use https" in said.out
    assert said.err == ""


def test_rules_are_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], no_probes: None) -> None:
    (tmp_path / ".byleave").mkdir()
    (tmp_path / ".byleave/policy.toml").write_text("")
    assert run(["doctor", str(tmp_path)]) == 0
    assert "ok   rules: project 0\n" in capsys.readouterr().out


def test_token_that_others_can_read_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_probes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "token").write_text("x")
    (home / "token").chmod(0o644)
    monkeypatch.setenv("BYLEAVE_HOME", str(home))
    code, told = _told(capsys, str(tmp_path))
    assert (code, _levels(told)["server"], _levels(told)["token"]) == (1, "fail", "fail")


def test_machine_without_a_sandbox_fails_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "choose_sandbox", lambda root, _: NoSandbox(root, reason="bwrap is broken."))

    def missing(name: str, root: Path) -> str:
        raise ToolFailure(f"{name} is not installed on this machine.")

    monkeypatch.setattr(doctor_module, "find_program", missing)
    code, told = _told(capsys, str(tmp_path))
    levels = _levels(told)
    assert code == 1
    assert (levels["sandbox"], levels["bwrap"], levels["rg"]) == ("fail", "fail", "warn")
    assert not any(title in levels for title, _ in ROWS.values())


def test_program_that_is_there_and_does_not_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "git version" in _program("git", tmp_path).detail
    for broken in ("/bin/false", "/nonexistent"):
        monkeypatch.setattr(doctor_module, "find_program", lambda name, root, path=broken: path)
        found = [_program(name, tmp_path) for name in ("bwrap", "rg")]
        assert [(check.level, check.detail) for check in found] == [
            ("fail", f"{broken} is there, but does not run."),
            ("warn", f"{broken} is there, but does not run."),
        ]
        assert all((check.hint or "").startswith("install") for check in found)


def test_bubblewrap_that_does_not_work_fails_like_one_that_is_missing() -> None:
    weaker = Isolation(
        isolated=True,
        backend="landlock",
        fs="allowlist",
        net="none",
        pidns=False,
        degraded=("bubblewrap does not work here: bwrap: setting up uid map: Permission denied", "It is weaker."),
    )
    found = list(_isolation(weaker))
    assert [check.level for check in found] == ["ok", "fail", "warn"]
    assert "user namespaces" in (found[1].hint or "")


@pytest.mark.parametrize(
    ("switch", "value", "words"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces="),
    ],
)
def test_switch_that_keeps_bubblewrap_from_working_is_named(
    tmp_path: Path, switch: str, value: str, words: str
) -> None:
    assert "container" in _user_namespaces(tmp_path)
    (tmp_path / switch).parent.mkdir()
    (tmp_path / switch).write_text(f"{value}\n")
    assert words in _user_namespaces(tmp_path)


def test_probe_that_was_not_stopped_fails_with_a_hint() -> None:
    assert _probed(Probe("tcp", "connect", stopped=False, detail="connected", hint="do")).level == "fail"
    assert _probed(Probe("tcp", "connect", stopped=None, detail="?", hint="do")).level == "warn"
    assert [check.level for check in _isolation(NoSandbox(Path("/"), reason="x").isolation())] == ["fail"]


def test_what_a_kind_of_sandbox_is_known_not_to_stop_is_a_warning() -> None:
    probe = Probe("git-hooks", "write .git/hooks", stopped=False, detail="written", hint="do")
    assert _probed(probe).level == "fail"
    known = _probed(probe, KNOWN_GAPS["landlock"]["git-hooks"])
    assert (known.level, "bubblewrap" in (known.hint or "")) == ("warn", True)


def test_sandbox_that_was_asked_for_and_does_not_work_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYLEAVE_SANDBOX", "seatbelt")
    code, told = _told(capsys, str(tmp_path))
    assert (code, _levels(told)["sandbox"]) == (1, "fail")


def test_other_systems_are_sent_to_linux(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _system().level == "ok"
    monkeypatch.setattr(doctor_module.sys, "platform", "darwin")
    assert _system().level == "fail"
    monkeypatch.setattr(doctor_module.sys, "platform", "win32")
    assert "WSL" in (_system().hint or "")
    assert run(["version"]) == 1
    assert "WSL 2" in capsys.readouterr().err
