"""The roster: one chat agent for each role, made when the server starts.

Every model is looked up here, so that a missing key or package stops the server with the agent's name and not a run
later on. Where all are `offline` nothing can be missing: the agents are then made with the first run, because what they
are made of takes longer to load than the rest of the server. A run whose agent is no longer in the file ends with
words. Nothing here decides what a call may do.
"""

import asyncio
import contextlib
import importlib
from typing import TYPE_CHECKING

from byleave.calls.executor import ToolExecutor
from byleave.protocol.chat import AgentInfo
from byleave.protocol.errors import ConfigurationError
from byleave.settings import ServerSettings
from byleave.store import RunRow, Store

from .roles import OFFLINE, Role, load_roles

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from .chat import ChatAgent


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
        """`model`: for the roles that name none; left out, the one of the settings."""
        self._store = store
        self._executor = executor
        self._settings = settings
        self._roles = load_roles(settings.agents)
        self._model = settings.model if model is None else model
        self._model_name = self._model if isinstance(self._model, str) else self._model.model_name
        # Only talking to a model takes a slot, and all agents share them.
        self._slots = asyncio.Semaphore(model_calls_at_once)
        self._models: dict[str, Model] = {}
        self._agents: dict[str, ChatAgent] = {}
        self._making = asyncio.Lock()
        self._connections = contextlib.AsyncExitStack()
        named = [role.model for role in self._roles.all() if role.model is not None]
        if any(name != OFFLINE for name in (self._model, *named)):
            self._make()

    def _make(self) -> None:
        from .chat import ChatAgent
        from .limits import RunLimits
        from .models import resolve_model

        default = resolve_model(self._model) if isinstance(self._model, str) else self._model
        settings = self._settings
        self._models = {role.name: _model_of(role, default) for role in self._roles.all()}
        self._agents = {
            role.name: ChatAgent(
                self._store,
                self._executor,
                self._models[role.name],
                role=role,
                slots=self._slots,
                limits=RunLimits(settings.run_steps, settings.run_seconds, settings.run_tokens),
                park_seconds=settings.park_seconds,
            )
            for role in self._roles.all()
        }

    async def open(self) -> None:
        """Hold the connections to the providers until `close`."""
        for model in self._models.values():
            await self._connections.enter_async_context(model)

    async def _made(self) -> "dict[str, ChatAgent]":
        async with self._making:
            if not self._agents:
                # On a thread: the server goes on answering meanwhile.
                await asyncio.to_thread(importlib.import_module, ".chat", __package__)
                self._make()
                await self.open()
        return self._agents

    async def close(self) -> None:
        await self._connections.aclose()

    def of(self, project_id: str) -> list[AgentInfo]:
        """The agents a project has, as the API tells them."""
        return [role.to_wire(self._model_name) for role in self._roles.of(project_id)]

    async def work(self, run: RunRow) -> None:
        """Take a run to its end, or to where it has to wait."""
        agent = (self._agents or await self._made()).get(run.agent)
        here = any(role.name == run.agent for role in self._roles.of(run.project_id))
        if agent is None or not here:
            # The file may have changed since the message was sent, or while the run was parked.
            who = "server" if agent is None else "project"
            await self._store.runs.fail(
                run,
                error=f"This {who} no longer has the agent {run.agent!r}.",
                hint="Send the message again to another agent.",
            )
            return
        await agent.work(run)


def _model_of(role: Role, default: "Model") -> "Model":
    if role.model is None:
        return default
    from .models import resolve_model

    try:
        return resolve_model(role.model)
    except ConfigurationError as error:
        raise ConfigurationError(f"The agent {role.name!r}: {error.message}", hint=error.hint) from error
