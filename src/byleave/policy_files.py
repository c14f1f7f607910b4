"""Policy files: the organisation's, read by the server, and a machine's layers, read by its client.

A file that somebody else could have written is refused; so is one that cannot be read or parsed. A broken policy stops
the program that needs it: nothing runs without its rules. A project's file comes with a repository, so it is opened
without following a link. It tightens at once, and loosens only while its content is what the owner trusted; that trust
is kept with the client's state, never in the workspace. If a workspace holds Byleave's own files (state, keys, rules),
a layer of its own denies them.
"""

import contextlib
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import platformdirs

from byleave.gate import (
    DEFAULT_COMMANDS,
    Action,
    Gate,
    GateRules,
    LayerPolicy,
    Policy,
    PolicyError,
    Rule,
    declared_layers,
    parse_policy,
)
from byleave.gate.paths import names_of
from byleave.gate.policy.rules import Pattern
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.overview import MAX_POLICY_CHARACTERS, Layer, PolicyText
from byleave.settings import ClientSettings, default_home

DEVICE_POLICY = Path("/etc/byleave/policy.toml")
PROJECT_POLICY = ".byleave/policy.toml"
MAX_TRUSTED_BYTES = 4 * 1024 * 1024
MAX_SOURCE_CHARACTERS = 400


def load_organisation(path: Path) -> LayerPolicy:
    """Return the organisation's rules; the server reads them at its start."""
    text = organisation_text(path)
    return parse_policy(text.text, text.layer, source=text.source)


def organisation_text(path: Path) -> PolicyText:
    """Return the text of the organisation's rules."""
    text = read_policy_file(path, Layer.ORGANISATION)
    if text is None:
        raise PolicyError(f"There is no policy file {str(path)!r}.", hint="correct BYLEAVE_POLICY or leave it out")
    return text


def read_policy_file(path: Path, layer: Layer) -> PolicyText | None:
    """Return a file that only its owner can change; None if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PolicyError(
            f"The policy file {str(path)!r} cannot be read: {error.strerror}.",
            hint="nothing runs without it: make it readable for you, or remove it",
        ) from error
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and (found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022):
            raise PolicyError(
                f"The policy file {str(path)!r} can be changed by others, so it is not used.",
                hint=f"chown it to yourself or root, and: chmod go-w {path}",
            )
        data = policy_bytes(descriptor, str(path))
    finally:
        os.close(descriptor)
    return policy_text(data, layer, str(path))


def policy_bytes(descriptor: int, name: str) -> bytes:
    """Read an open policy file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise PolicyError(f"The policy file {name!r} is not a regular file.", hint="replace it by one")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        data = file.read(MAX_POLICY_CHARACTERS + 1)
    if len(data) > MAX_POLICY_CHARACTERS:
        raise PolicyError(f"The policy file {name!r} is longer than {MAX_POLICY_CHARACTERS // 1024} kB.")
    return data


def policy_text(data: bytes, layer: Layer, name: str, *, trusted: bool = True) -> PolicyText:
    """Return one layer as sent to the server."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise PolicyError(f"The policy file {name!r} is not UTF-8 text.") from None
    source = name.encode("utf-8", "replace").decode()
    source = source if len(source) <= MAX_SOURCE_CHARACTERS else f"…{source[1 - MAX_SOURCE_CHARACTERS :]}"
    return PolicyText(layer=layer, source=source, text=text, trusted=trusted)


# Layers of a machine


@dataclass(frozen=True)
class LoadedPolicy:
    """Rules in force, and their text for the server."""

    policy: Policy
    texts: list[PolicyText]
    notes: list[str]
    """Notes for a person: rules held back, and why."""

    @property
    def summary(self) -> str | None:
        """Describe the layers in force in one line; None if there are none."""
        parts = [_counted(layer) for layer in self.policy.layers]
        return f"rules: {', '.join(parts)}" if parts else None


def _counted(layer: LayerPolicy) -> str:
    held_back = len(layer.held_back)
    note = f" ({held_back} held back: run `byleave trust`)" if held_back else ""
    return f"{layer.layer.value} {len(layer.in_force)}{note}"


def user_policy_path(settings: ClientSettings) -> Path:
    """Return the path of the user's own rules."""
    return settings.user_policy or _user_directory() / "policy.toml"


def _user_directory() -> Path:
    return Path(platformdirs.user_config_dir("byleave", appauthor=False))


def own_directories(settings: ClientSettings) -> tuple[Path, ...]:
    """Return Byleave's own directories: its state, also of clients with another home, and its rules."""
    return (settings.home, default_home(), _user_directory(), DEVICE_POLICY.parent)


def own_layer(settings: ClientSettings, workspace: str | Path) -> LayerPolicy | None:
    """Return a layer that denies Byleave's own files in a workspace to every tool, or None.

    It covers files that do not exist yet: an agent that could create them would write its own rules, or trust itself.
    """
    root = os.path.realpath(workspace)
    files = (settings.user_policy, settings.device_policy, os.environ.get("BYLEAVE_CONFIG"))
    own = [*own_directories(settings), *(Path(path) for path in files if path)]
    inside: dict[str, None] = {}
    for path in own:
        for spelled in (os.path.abspath(path), os.path.realpath(path)):
            relative = os.path.relpath(spelled, root)
            if relative.partition("/")[0] != "..":
                inside[relative] = None
    home = Path(os.path.realpath(settings.home))
    if "." in inside or any(Path(root).is_relative_to(home / name) for name in ("clients", "undo")):
        raise ConfigurationError(
            f"{root!r} cannot be a workspace: it is where Byleave keeps its own files.",
            hint="name a project's directory",
        )
    rules = tuple(_own_rule(number, relative) for number, relative in enumerate(inside, 1))
    return LayerPolicy(Layer.BUILT_IN, "Byleave itself", rules) if rules else None


def _own_rule(number: int, relative: str) -> Rule:
    # Normalized as patterns are compared, so that the names match whatever they hold.
    pattern = Pattern(paths=(f"/{'/'.join(names_of(relative))}",))
    because = "These are Byleave's own files: its state, its keys and your rules."
    return Rule(Layer.BUILT_IN, number, Action.DENY, pattern, f"deny in {relative}", because)


def load_policy(settings: ClientSettings, workspace: str | Path) -> LoadedPolicy:
    """Read all layers of this machine for a workspace. Raise PolicyError for an unusable file."""
    root = os.path.realpath(workspace)
    named = ((Layer.DEVICE, settings.device_policy), (Layer.USER, settings.user_policy))
    usual = {Layer.DEVICE: DEVICE_POLICY, Layer.USER: user_policy_path(settings)}
    texts: list[PolicyText] = []
    for layer, path in named:
        text = read_policy_file(path or usual[layer], layer)
        if text is None and path is not None:
            raise PolicyError(
                f"There is no policy file {str(path)!r}.",
                hint=f"correct BYLEAVE_{layer.value.upper()}_POLICY or leave it out",
            )
        if text is not None and _is_inside(path or usual[layer], root):
            raise PolicyError(
                f"The policy file {text.source!r} lies in the workspace, where an agent could change it.",
                hint="move it, or choose a workspace that does not hold it",
            )
        texts += [text] if text is not None else []
    notes: list[str] = []
    data = read_project_policy(root)
    if data is not None:
        trusted = is_trusted(settings.home, root, data)
        texts.append(policy_text(data, Layer.PROJECT, PROJECT_POLICY, trusted=trusted))
    own = own_layer(settings, root)
    policy = Policy((*([] if own is None else [own]), *declared_layers(texts)))
    for layer in policy.layers:
        notes += [f"held back until you run `byleave trust`: {line}" for line in layer.held_back]
    return LoadedPolicy(policy, texts, notes)


def machine_gate(settings: ClientSettings, loaded: LoadedPolicy) -> Gate:
    """Return the gate with this machine's rules."""
    commands = DEFAULT_COMMANDS if settings.allowed_commands is None else frozenset(settings.allowed_commands)
    return Gate(GateRules(allowed_commands=commands, policy=loaded.policy))


def read_project_policy(root: str) -> bytes | None:
    """Read the project's file; None if there is none."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        with contextlib.ExitStack() as ends:
            top = os.open(root, flags | os.O_DIRECTORY)
            ends.callback(os.close, top)
            directory = os.open(".byleave", flags | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            ends.callback(os.close, directory)
            file = os.open("policy.toml", flags | os.O_NOFOLLOW, dir_fd=directory)
            ends.callback(os.close, file)
            return policy_bytes(file, PROJECT_POLICY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PolicyError(
            f"The project's policy {PROJECT_POLICY!r} cannot be read: {error.strerror}.",
            hint="it must be a plain file in a plain directory, not a link, and you must be able to read both",
        ) from error


def is_trusted(home: Path, root: str, data: bytes) -> bool:
    """Return True if the owner trusted exactly this content for this workspace."""
    if _is_inside(home, root):
        return False  # an agent could have written it
    return _trusted(home).get(root) == hashlib.sha256(data).hexdigest()


def trust(home: Path, root: str, data: bytes) -> None:
    """Let this content loosen rules in this workspace."""
    if _is_inside(home, root):
        raise ConfigurationError(
            f"Trust cannot be kept in {str(home)!r}: it lies in the workspace, open to agents.",
            hint="set BYLEAVE_HOME to a directory outside",
        )
    _keep(home, {**_trusted(home), root: hashlib.sha256(data).hexdigest()})


def revoke_trust(home: Path, root: str) -> bool:
    """Revoke the trust; return False if there was none."""
    known = _trusted(home)
    if known.pop(root, None) is None:
        return False
    _keep(home, known)
    return True


def _is_inside(path: Path, root: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _trusted(home: Path) -> dict[str, str]:
    """Return the trusted digests; none if the list is missing, broken or another's."""
    try:
        descriptor = os.open(home / "trusted.json", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return {}
        with os.fdopen(os.dup(descriptor), "rb") as file:
            value: Any = json.loads(file.read(MAX_TRUSTED_BYTES))
    except (ValueError, RecursionError):
        return {}
    finally:
        os.close(descriptor)
    items = cast("dict[Any, Any]", value).items() if isinstance(value, dict) else ()
    return {str(key): str(item) for key, item in items}


def _keep(home: Path, known: dict[str, str]) -> None:
    draft = home / f".trusted.{os.getpid()}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump(known, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(home / "trusted.json")
    except OSError as error:
        raise ConfigurationError(
            f"Trust cannot be kept in {str(home)!r}: {error.strerror}.", hint="set BYLEAVE_HOME to another"
        ) from error
