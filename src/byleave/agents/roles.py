"""Roles: the agents of a server, each with model, widest mode, tools and instructions, from a file.

`chat` is built in; the file may redefine it. The operator's file is read at the start, and rejected whole for any
unknown key. A role only narrows: the executor decides what a call may do, and no instruction is a permission. `Roster`
makes one chat agent per role. It resolves all models at the start, so that a missing key stops the server and not a
later run. If all are `offline`, the agents are made with the first run, because their imports take longer than the
rest of the server.
"""

import asyncio
import contextlib
import importlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from byleave.calls.executor import ToolExecutor
from byleave.protocol.chat import CHAT_AGENT, AgentInfo
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.executions import agent_name
from byleave.protocol.states import AgentMode
from byleave.protocol.tools import SCRIPT_NAMES, TOOLS
from byleave.settings import ServerSettings
from byleave.store import RunRow, Store

from .slots import ModelSlots

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from .chat import ChatAgent

OFFLINE = "offline"
"""The built-in model that needs nothing."""
DEMO = "demo"
"""The scripted model of `byleave demo`; no setting can name it."""
MAX_AGENTS = 100
MAX_TEXT = 300
MAX_INSTRUCTIONS = 50_000
_KEYS = ("description", "model", "mode", "tools", "instructions", "projects")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_EXAMPLE = "begin each agent with a table such as [agents.reviewer]"


@dataclass(frozen=True, slots=True)
class Role:
    """An agent and its limits."""

    name: str
    description: str
    model: str | None = None
    """None for the server's model."""
    mode: AgentMode = AgentMode.SANDBOX
    """Default approval mode of a message."""
    widest_mode: AgentMode = AgentMode.SANDBOX
    tools: tuple[str, ...] = tuple(TOOLS)
    instructions: str = ""
    projects: frozenset[str] | None = None
    """The only projects that have it; None for all."""

    def narrowed(self, mode: AgentMode) -> AgentMode:
        """Return the mode, or the role's widest if that is narrower."""
        return AgentMode.SANDBOX if self.widest_mode is AgentMode.SANDBOX else mode

    def models(self, usual: str, others: tuple[str, ...]) -> list[str]:
        """Return the models a message may choose, the usual one first; a role with one of its own has only that."""
        return [self.model] if self.model is not None else list(dict.fromkeys((usual, *others)))

    def to_wire(self, model: str, others: tuple[str, ...] = ()) -> AgentInfo:
        return AgentInfo(
            name=self.name,
            description=self.description,
            model=self.model or model,
            models=self.models(model, others),
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
        """Return the roles of a project, `chat` first."""
        return tuple(role for role in self.all() if role.projects is None or project_id in role.projects)


def load_roles(path: Path | None) -> Roles:
    """Read the roles from a file; without a file, `chat` alone. Raise ConfigurationError."""
    if path is None:
        return Roles()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(
            f"There is no file of agents {str(path)!r}.", hint="correct BYLEAVE_AGENTS or leave it out"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"The file of agents {str(path)!r} cannot be read: {reason}.") from error
    return parse_roles(text, str(path))


def parse_roles(text: str, source: str) -> Roles:
    """Parse roles; errors name `source`."""
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
    """An agent's table; knows its name for errors."""

    def __init__(self, source: str, name: str, table: object) -> None:
        self._where = f"{source}, [agents.{name}]"
        self._name = name
        if not _NAME.fullmatch(name):
            raise self._wrong(
                f"{name!r} is no name for an agent.", "use small letters, digits, `-` and `_`, at most 40"
            )
        if agent_name(name):
            raise self._wrong(f"{name!r} is a name like those of agents that run elsewhere.", "leave the number out")
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


class Roster:
    """The agents of this server, ready to work."""

    def __init__(
        self,
        store: Store,
        executor: ToolExecutor,
        settings: ServerSettings,
        *,
        model: "Model | str | None" = None,
        model_calls_at_once: int,
    ) -> None:
        """`model` is for roles that name none; defaults to the settings' model."""
        self._store = store
        self._executor = executor
        self._settings = settings
        self._roles = load_roles(settings.agents)
        self._model = settings.model if model is None else model
        self._model_name = self._model if isinstance(self._model, str) else self._model.model_name
        # Only model requests take a slot; all agents share them.
        self._slots = ModelSlots(model_calls_at_once)
        self._models: dict[str, Model] = {}
        """By role."""
        self._chosen: dict[str, Model] = {}
        """Those that a message may choose, by the names the settings give them."""
        self._agents: dict[tuple[str, str | None], ChatAgent] = {}
        """By role, and model if one was chosen."""
        self._loading = asyncio.Lock()
        self._connections = contextlib.AsyncExitStack()
        named = [role.model for role in self._roles.all() if role.model is not None]
        if any(name != OFFLINE for name in (self._model, *named, *settings.models)):
            self._make()

    def _make(self) -> None:
        from .models import resolve_model

        default = resolve_model(self._model) if isinstance(self._model, str) else self._model
        self._models = {role.name: _model_of(role, default) for role in self._roles.all()}
        self._chosen = {name: resolve_model(name) for name in self._settings.models if name != self._model_name}
        self._agents = {(role.name, None): self._agent(role, self._models[role.name]) for role in self._roles.all()}

    def _agent(self, role: Role, model: "Model") -> "ChatAgent":
        from .chat import ChatAgent
        from .failures import RunLimits

        settings = self._settings
        return ChatAgent(
            self._store,
            self._executor,
            model,
            role=role,
            slots=self._slots,
            limits=RunLimits(settings.run_steps, settings.run_seconds, settings.run_tokens),
            park_seconds=settings.park_seconds,
        )

    async def open(self) -> None:
        """Open the connections to the providers, until `close`."""
        for model in (*self._models.values(), *self._chosen.values()):
            await self._connections.enter_async_context(model)

    async def _load_agents(self) -> "dict[tuple[str, str | None], ChatAgent]":
        async with self._loading:
            if not self._agents:
                # In a thread: the server keeps answering meanwhile.
                await asyncio.to_thread(importlib.import_module, ".chat", __package__)
                self._make()
                await self.open()
        return self._agents

    async def close(self) -> None:
        await self._connections.aclose()

    def of(self, project_id: str) -> list[AgentInfo]:
        """Return the agents of a project, as the API shows them."""
        return [role.to_wire(self._model_name, self._settings.models) for role in self._roles.of(project_id)]

    async def work(self, run: RunRow) -> None:
        """Work on a run until it ends or has to wait."""
        agents = self._agents or await self._load_agents()
        role = next((role for role in self._roles.of(run.project_id) if role.name == run.agent), None)
        if role is None:
            # The file may have changed since the message was sent, or while the run was parked.
            owner = "project" if (run.agent, None) in agents else "server"
            await self._store.runs.fail(
                run,
                error=f"This {owner} no longer has the agent {run.agent!r}.",
                hint="Send the message again to another agent.",
            )
            return
        model = await self._store.runs.model_of(run.id)
        if model is not None and model not in role.models(self._model_name, self._settings.models):
            await self._store.runs.fail(
                run,
                error=f"This server no longer offers the model {model!r}.",
                hint="Choose another model and send the message again.",
            )
            return
        chosen = None if model is None else self._chosen.get(model)
        if chosen is None:
            await agents[role.name, None].work(run)
            return
        if (role.name, model) not in agents:
            agents[role.name, model] = self._agent(role, chosen)
        await agents[role.name, model].work(run)


def _model_of(role: Role, default: "Model") -> "Model":
    if role.model is None:
        return default
    from .models import resolve_model

    try:
        return resolve_model(role.model)
    except ConfigurationError as error:
        raise ConfigurationError(f"The agent {role.name!r}: {error.message}", hint=error.hint) from error
