"""The rules of a machine: which files they come from, who may have written them, and what is trusted."""

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from byleave.client.connection import ClientConnection, connect_client
from byleave.gate import PolicyError
from byleave.policy_files import (
    is_trusted,
    load_organisation,
    load_policy,
    machine_gate,
    read_project_policy,
    revoke_trust,
    trust,
    user_policy_path,
)
from byleave.protocol.errors import ConfigurationError, RefusedError
from byleave.protocol.overview import Layer
from byleave.protocol.verdicts import VerdictLevel
from byleave.settings import ClientSettings

from .conftest import StubServer

DENY = '[[rule]]\naction = "deny"\ncommand = ["git", "push"]\n'
ALLOW = '[[rule]]\naction = "allow"\ncommand = ["npm", "test"]\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def files(tmp_path: Path, root: Path) -> dict[Layer, Path]:
    """Where each layer's file goes."""
    (root / ".byleave").mkdir()
    places = {Layer.USER: tmp_path / "user.toml", Layer.DEVICE: tmp_path / "device.toml"}
    for path in places.values():
        path.write_text("")
    return {**places, Layer.PROJECT: root / ".byleave" / "policy.toml"}


@pytest.fixture
def settings(home: Path, files: dict[Layer, Path]) -> ClientSettings:
    return ClientSettings(home=home, user_policy=files[Layer.USER], device_policy=files[Layer.DEVICE])


@pytest.mark.promise("G3")
def test_every_layer_counts_and_is_told(settings: ClientSettings, files: dict[Layer, Path], root: Path) -> None:
    files[Layer.USER].write_text(ALLOW + ALLOW)
    files[Layer.DEVICE].write_text(DENY)
    files[Layer.PROJECT].write_text(DENY + ALLOW)
    loaded = load_policy(settings, root)
    assert [text.layer for text in loaded.texts] == [Layer.DEVICE, Layer.USER, Layer.PROJECT]
    assert [text.trusted for text in loaded.texts] == [True, True, False]
    assert loaded.summary == "rules: device 1, user 2, project 1 (1 held back: run `byleave trust`)"
    assert loaded.notes == ["held back until you run `byleave trust`: rule 2: allow npm test"]
    gate = machine_gate(settings, loaded)
    push = gate.judge("execute_command", {"command": "git", "args": ["push"]}, workspace=str(root)).verdict
    assert push.level is VerdictLevel.REFUSE


def test_without_files_there_are_no_rules(home: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setattr("byleave.policy_files.DEVICE_POLICY", home / "none.toml")
    plain = ClientSettings(home=home)
    assert user_policy_path(plain) == home / "config" / "byleave" / "policy.toml"
    loaded = load_policy(plain, root)
    assert (loaded.texts, loaded.summary, loaded.notes) == ([], None, [])
    assert load_policy(plain, root / "missing").texts == []


def test_named_file_that_is_missing_is_an_error(home: Path, root: Path, files: dict[Layer, Path]) -> None:
    gone = ClientSettings(home=home, user_policy=home / "gone.toml", device_policy=files[Layer.DEVICE])
    with pytest.raises(PolicyError, match="There is no policy file") as caught:
        load_policy(gone, root)
    assert caught.value.hint == "correct BYLEAVE_USER_POLICY or leave it out"


@pytest.mark.parametrize("layer", [Layer.USER, Layer.DEVICE])
@pytest.mark.parametrize("mode", [0o664, 0o606, 0o777])
def test_file_others_can_change_is_refused(
    settings: ClientSettings, files: dict[Layer, Path], root: Path, layer: Layer, mode: int
) -> None:
    files[layer].chmod(mode)
    with pytest.raises(PolicyError, match="can be changed by others") as caught:
        load_policy(settings, root)
    assert "chmod go-w" in (caught.value.hint or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_file_of_another_user_is_refused(settings: ClientSettings, files: dict[Layer, Path], root: Path) -> None:
    os.chown(files[Layer.USER], 65534, 65534)
    with pytest.raises(PolicyError, match="can be changed by others"):
        load_policy(settings, root)


def test_what_is_no_plain_text_file_is_refused(
    settings: ClientSettings, files: dict[Layer, Path], root: Path, tmp_path: Path
) -> None:
    user = files[Layer.USER]
    user.write_bytes(b"\xff")
    with pytest.raises(PolicyError, match="not UTF-8"):
        load_policy(settings, root)
    user.write_bytes(b"#" * 70_000)
    with pytest.raises(PolicyError, match="longer than 64 kB"):
        load_policy(settings, root)
    user.write_text("what?")
    with pytest.raises(PolicyError, match="It is not TOML"):
        load_policy(settings, root)
    user.unlink()
    os.mkfifo(user, 0o600)
    with pytest.raises(PolicyError, match="not a regular file"):
        load_policy(settings, root)
    user.unlink()
    user.symlink_to(user)
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(settings, root)


def test_link_to_the_owners_own_file_is_followed(
    settings: ClientSettings, files: dict[Layer, Path], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "dotfiles.toml").write_text(DENY)
    files[Layer.USER].unlink()
    files[Layer.USER].symlink_to(tmp_path / "dotfiles.toml")
    assert load_policy(settings, root).summary == "rules: device 0, user 1"


@pytest.mark.promise("G1", "S")
@pytest.mark.parametrize("part", [".byleave", "policy.toml"])
def test_project_file_behind_a_link_is_refused(root: Path, tmp_path: Path, part: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "policy.toml").write_text(ALLOW)
    if part == ".byleave":
        (root / ".byleave").symlink_to(outside)
    else:
        (root / ".byleave").mkdir()
        (root / ".byleave" / "policy.toml").symlink_to(outside / "policy.toml")
    with pytest.raises(PolicyError, match="cannot be read") as caught:
        read_project_policy(str(root))
    assert "not a link" in (caught.value.hint or "")


def test_project_file_must_be_a_plain_one(root: Path) -> None:
    (root / ".byleave").mkdir()
    os.mkfifo(root / ".byleave" / "policy.toml")
    with pytest.raises(PolicyError, match="not a regular file"):
        read_project_policy(str(root))


@pytest.mark.promise("S")
def test_trust_is_for_the_content_that_was_trusted(
    settings: ClientSettings, home: Path, files: dict[Layer, Path], root: Path
) -> None:
    files[Layer.PROJECT].write_text('commands = ["make"]\n' + ALLOW)
    assert load_policy(settings, root).policy.commands == frozenset()
    data = read_project_policy(str(root))
    assert data is not None
    trust(home, str(root), data)
    loaded = load_policy(settings, root)
    assert (loaded.policy.commands, loaded.texts[-1].trusted, loaded.notes) == ({"make"}, True, [])
    assert (home / "trusted.json").stat().st_mode & 0o777 == 0o600
    assert not is_trusted(home, str(root.parent), data)
    files[Layer.PROJECT].write_text('commands = ["make", "cargo"]\n' + ALLOW)
    assert load_policy(settings, root).policy.commands == frozenset()
    files[Layer.PROJECT].write_bytes(data)
    assert load_policy(settings, root).policy.commands == {"make"}
    assert revoke_trust(home, str(root))
    assert not revoke_trust(home, str(root))
    assert load_policy(settings, root).policy.commands == frozenset()


@pytest.mark.promise("S")
@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, '{"a": 1}'])
def test_broken_list_of_trust_trusts_nothing(home: Path, root: Path, text: str) -> None:
    home.mkdir()
    (home / "trusted.json").write_text(text)
    (home / "trusted.json").chmod(0o600)
    assert not is_trusted(home, str(root), b"x")
    trust(home, str(root), b"x")
    assert is_trusted(home, str(root), b"x")


@pytest.mark.promise("S")
def test_list_of_trust_that_others_can_change_trusts_nothing(home: Path, root: Path, tmp_path: Path) -> None:
    trust(home, str(root), b"x")
    (home / "trusted.json").chmod(0o666)
    assert not is_trusted(home, str(root), b"x")
    (home / "trusted.json").rename(tmp_path / "elsewhere.json")
    (home / "trusted.json").symlink_to(tmp_path / "elsewhere.json")
    assert not is_trusted(home, str(root), b"x")


@pytest.mark.promise("G3", "S")
def test_trust_kept_in_the_workspace_is_no_trust(root: Path) -> None:
    inside = root / "state"
    with pytest.raises(ConfigurationError, match="lies in the workspace"):
        trust(inside, str(root), b"x")
    inside.mkdir()
    (inside / "trusted.json").write_text(json.dumps({str(root): hashlib.sha256(b"x").hexdigest()}))
    (inside / "trusted.json").chmod(0o600)
    assert not is_trusted(inside, str(root), b"x")


@pytest.mark.promise("G3", "S")
def test_file_of_the_owner_in_the_workspace_is_refused(home: Path, root: Path, files: dict[Layer, Path]) -> None:
    (root / "mine.toml").write_text(ALLOW)
    link = root.parent / "link.toml"
    link.symlink_to(root / "mine.toml")
    for path in (root / "mine.toml", link):
        named = ClientSettings(home=home, user_policy=path, device_policy=files[Layer.DEVICE])
        with pytest.raises(PolicyError, match="an agent could change it"):
            load_policy(named, root)


def test_trust_that_cannot_be_kept_is_said(tmp_path: Path, root: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "trusted.json").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        trust(home, str(root), b"x")


def test_organisation_file_is_read_for_the_server(tmp_path: Path) -> None:
    path = tmp_path / "organisation.toml"
    with pytest.raises(PolicyError, match="There is no policy file"):
        load_organisation(path)
    path.write_text(DENY)
    layer = load_organisation(path)
    assert (layer.layer, layer.rules[0].name) == (Layer.ORGANISATION, "organisation.1")
    path.write_text(ALLOW)
    with pytest.raises(PolicyError, match="only tighten"):
        load_organisation(path)


def test_very_long_name_of_a_file_is_shortened(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 100] * 5)
    deep.mkdir(parents=True)
    (deep / "policy.toml").write_text(DENY)
    assert len(load_organisation(deep / "policy.toml").source) == 400


# On the wire


class Declaring:
    """A client that runs against the stub server."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.task = asyncio.create_task(connection.run())

    async def __aenter__(self) -> "Declaring":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.connection.close()


def connecting(server: StubServer, settings: ClientSettings, root: Path) -> Declaring:
    chosen = settings.model_copy(update={"server_url": server.url, "token": SecretStr("a.b.c")})
    return Declaring(connect_client(chosen, "project_1", root))


async def connected(one: Declaring) -> None:
    async with asyncio.timeout(10):
        await one.connection.connected.wait()


@pytest.mark.promise("C2", "S")
async def test_rules_are_declared_before_each_stream(
    server: StubServer, settings: ClientSettings, files: dict[Layer, Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.client.connection.FIRST_PAUSE_SECONDS", 0.01)
    files[Layer.USER].write_text(DENY)
    server.answers["/policy"] = [(204, None)]
    async with connecting(server, settings, root) as one:
        await connected(one)
        declared = server.seen("/policy")[0]
        assert declared.method == "PUT"
        assert declared.path == "/my/projects/project_1/policy"
        assert declared.body["client_id"] == one.connection.client_id
        assert [(layer["layer"], layer["text"]) for layer in declared.body["layers"]] == [
            ("device", ""),
            ("user", DENY),
        ]
        order = [request.path.rpartition("/")[2] for request in server.requests]
        assert order.index("policy") < order.index("stream")
        server.feed.put_nowait("drop")
        await server.until(lambda: server.streams == 2)
        assert len(server.seen("/policy")) == 2


async def test_machine_without_rules_declares_that(
    server: StubServer, home: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setattr("byleave.policy_files.DEVICE_POLICY", home / "none.toml")
    server.answers["/policy"] = [(204, None)]
    async with connecting(server, ClientSettings(home=home), root) as one:
        await connected(one)
        assert server.seen("/policy")[0].body["layers"] == []


async def test_older_server_without_the_route_is_served_all_the_same(
    server: StubServer, settings: ClientSettings, root: Path
) -> None:
    server.answers["/policy"] = [(404, {"title": "", "status": 404, "detail": "There is nothing here."})]
    async with connecting(server, settings, root) as one:
        await connected(one)


@pytest.mark.promise("S")
async def test_server_that_refuses_the_rules_is_not_served(
    server: StubServer, settings: ClientSettings, root: Path
) -> None:
    server.answers["/policy"] = [(403, {"title": "no", "status": 403, "detail": "No."})]
    async with connecting(server, settings, root) as one:
        with pytest.raises(RefusedError):
            await one.task
        assert server.streams == 0


@pytest.mark.promise("S")
async def test_broken_rules_stop_the_client_before_it_connects(
    settings: ClientSettings, files: dict[Layer, Path], root: Path, home: Path
) -> None:
    files[Layer.PROJECT].write_text("[[rule]]\n")
    with pytest.raises(PolicyError, match="rule 1"):
        connect_client(settings.model_copy(update={"token": SecretStr("a.b.c")}), "project_1", root)
    assert not (home / "clients").exists()


def test_trusted_list_names_each_workspace(home: Path, tmp_path: Path) -> None:
    trust(home, str(tmp_path / "a"), b"1")
    trust(home, str(tmp_path / "b"), b"2")
    assert sorted(json.loads((home / "trusted.json").read_text())) == [str(tmp_path / "a"), str(tmp_path / "b")]
