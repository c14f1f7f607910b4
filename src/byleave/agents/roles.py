"""Roles: the agents a server has, each with its model, its widest mode, its tools and its instructions, from a file.

`chat` is built in and may be described anew in the file. The file is the operator's: it is read when the server starts,
and refused whole when anything in it is not understood, with the agent and the key. A role only ever narrows: what a
call may do is decided by the executor, and no instruction here is a permission.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from byleave.protocol.chat import CHAT_AGENT, AgentInfo
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.states import AgentMode
from byleave.protocol.tools import SCRIPT_NAMES, TOOLS

OFFLINE = "offline"
"""The model that is built in and needs nothing."""
MAX_AGENTS = 100
MAX_TEXT = 300
MAX_INSTRUCTIONS = 50_000
_KEYS = ("description", "model", "mode", "tools", "instructions", "projects")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_EXAMPLE = "begin each agent with a table such as [agents.reviewer]"


@dataclass(frozen=True, slots=True)
class Role:
    """What one agent is, and the most it may be."""

    name: str
    description: str
    model: str | None = None
    """None: the server's."""
    mode: AgentMode = AgentMode.SANDBOX
    """How much it must ask when a message does not say."""
    widest_mode: AgentMode = AgentMode.SANDBOX
    tools: tuple[str, ...] = tuple(TOOLS)
    instructions: str = ""
    projects: frozenset[str] | None = None
    """The only projects that have it; None: all."""

    def narrowed(self, mode: AgentMode) -> AgentMode:
        """A mode, or the widest this role may have where that is less."""
        return AgentMode.SANDBOX if self.widest_mode is AgentMode.SANDBOX else mode

    def to_wire(self, model: str) -> AgentInfo:
        return AgentInfo(
            name=self.name,
            description=self.description,
            model=self.model or model,
            mode=self.mode,
            widest_mode=self.widest_mode,
            tools=list(self.tools),
        )


CHAT = Role(CHAT_AGENT, "Works on your files with all tools.", widest_mode=AgentMode.FULL)


class Roles:
    """The agents of a server by name."""

    def __init__(self, roles: tuple[Role, ...] = ()) -> None:
        self._roles = {CHAT.name: CHAT, **{role.name: role for role in roles}}

    def all(self) -> tuple[Role, ...]:
        return tuple(self._roles.values())

    def of(self, project_id: str) -> tuple[Role, ...]:
        """Those a project has, `chat` first."""
        return tuple(role for role in self.all() if role.projects is None or project_id in role.projects)


def load_roles(path: Path | None) -> Roles:
    """The roles a file describes; without a file, `chat` alone. Raises ConfigurationError."""
    if path is None:
        return Roles()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(
            f"There is no file of agents {str(path)!r}.", hint="correct BYLEAVE_AGENTS or leave it out"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"The file of agents {str(path)!r} cannot be read: {told}.") from error
    return parse_roles(text, str(path))


def parse_roles(text: str, source: str) -> Roles:
    """Roles from their text; `source` is what errors call it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{source}: not TOML: {error}.", hint=_EXAMPLE) from None
    unknown = sorted(set(data) - {"agents"})
    if unknown:
        raise ConfigurationError(f"{source}: there is no key {unknown[0]!r}.", hint=_EXAMPLE)
    tables = data.get("agents", {})
    if not isinstance(tables, dict):
        raise ConfigurationError(f"{source}: `agents` is not a table.", hint=_EXAMPLE)
    tables = cast("dict[str, Any]", tables)
    if len(tables) > MAX_AGENTS:
        raise ConfigurationError(f"{source}: there are {len(tables)} agents; at most {MAX_AGENTS} are read.")
    return Roles(tuple(_Table(source, name, table).role() for name, table in tables.items()))


class _Table:
    """One agent's table; knows what to call it in errors."""

    def __init__(self, source: str, name: str, table: object) -> None:
        self._where = f"{source}, [agents.{name}]"
        self._name = name
        if not _NAME.fullmatch(name):
            raise self._wrong(
                f"{name!r} is no name for an agent.", "use small letters, digits, `-` and `_`, at most 40"
            )
        if not isinstance(table, dict):
            raise self._wrong("this is not a table.", _EXAMPLE)
        self._table = cast("dict[str, Any]", table)
        unknown = sorted(set(self._table) - set(_KEYS))
        if unknown:
            raise self._wrong(f"there is no key {unknown[0]!r}.", f"the keys are {', '.join(_KEYS)}")

    def role(self) -> Role:
        mode = self._mode()
        builtin = self._name == CHAT.name
        projects = self._list("projects")
        return Role(
            name=self._name,
            description=self._text("description", MAX_TEXT) or (CHAT.description if builtin else self._name),
            model=self._model(),
            mode=mode or AgentMode.SANDBOX,
            widest_mode=mode or (CHAT.widest_mode if builtin else AgentMode.SANDBOX),
            tools=self._tools(),
            instructions=self._text("instructions", MAX_INSTRUCTIONS),
            projects=None if projects is None else frozenset(projects),
        )

    def _mode(self) -> AgentMode | None:
        text = self._text("mode", MAX_TEXT)
        if not text:
            return None
        if text not in list(AgentMode):
            raise self._wrong(f"`mode` is {text!r}.", "it is `sandbox` or `full`")
        return AgentMode(text)

    def _model(self) -> str | None:
        text = self._text("model", MAX_TEXT).strip()
        if "model" in self._table and not text:
            raise self._wrong("`model` is empty.", "leave it out to use the server's model")
        return text or None

    def _tools(self) -> tuple[str, ...]:
        named = self._list("tools")
        if named is None:
            return tuple(TOOLS)
        names = [SCRIPT_NAMES.get(name, name) for name in named]
        for name in names:
            if name not in TOOLS:
                raise self._wrong(f"`tools` names {name!r}, which is no tool.", f"the tools are {', '.join(TOOLS)}")
        return tuple(name for name in TOOLS if name in names)

    def _text(self, key: str, longest: int) -> str:
        value = self._table.get(key, "")
        if not isinstance(value, str):
            raise self._wrong(f"`{key}` is not a text.", f'write {key} = "…"')
        if len(value) > longest:
            raise self._wrong(f"`{key}` has {len(value):,} characters; at most {longest:,} are read.", "shorten it")
        return value

    def _list(self, key: str) -> list[str] | None:
        if key not in self._table:
            return None
        value = self._table[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
            raise self._wrong(f"`{key}` is not a list of texts.", f'write {key} = ["…", "…"]')
        return cast("list[str]", value)

    def _wrong(self, what: str, hint: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: {what}", hint=hint)
