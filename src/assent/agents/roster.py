"""The roster: one chat agent for each role, made when the server starts.

Every model is looked up here, so that a missing key or package stops the server with the agent's name and not a run
later on. A run whose agent is no longer in the file ends with words. Nothing here decides what a call may do.
"""

import asyncio
import contextlib

from pydantic_ai.models import Model

from assent.executor import ToolExecutor
from assent.protocol.chat import AgentInfo
from assent.protocol.errors import ConfigurationError
from assent.settings import ServerSettings
from assent.store import RunRow, Store

from .chat import ChatAgent
from .limits import RunLimits
from .models import resolve_model
from .roles import Role, load_roles


class Roster:
    """The agents of this server, ready to work."""

    def __init__(
        self,
        store: Store,
        executor: ToolExecutor,
        settings: ServerSettings,
        *,
        model: Model | str | None = None,
        model_calls_at_once: int,
    ) -> None:
        """`model`: for the roles that name none; left out, the one of the settings."""
        self._store = store
        self._roles = load_roles(settings.agents)
        chosen = settings.model if model is None else model
        default = resolve_model(chosen) if isinstance(chosen, str) else chosen
        self._model_name = chosen if isinstance(chosen, str) else chosen.model_name
        # Only talking to a model takes a slot, and all agents share them.
        slots = asyncio.Semaphore(model_calls_at_once)
        self._models = {role.name: _model_of(role, default) for role in self._roles.all()}
        self._connections = contextlib.AsyncExitStack()
        self._agents = {
            role.name: ChatAgent(
                store,
                executor,
                self._models[role.name],
                role=role,
                slots=slots,
                limits=RunLimits(settings.run_steps, settings.run_seconds, settings.run_tokens),
                park_seconds=settings.park_seconds,
            )
            for role in self._roles.all()
        }

    async def open(self) -> None:
        """Hold the connections to the providers until `close`."""
        for model in self._models.values():
            await self._connections.enter_async_context(model)

    async def close(self) -> None:
        await self._connections.aclose()

    def of(self, project_id: str) -> list[AgentInfo]:
        """The agents a project has, as the API tells them."""
        return [role.to_wire(self._model_name) for role in self._roles.of(project_id)]

    async def work(self, run: RunRow) -> None:
        """Take a run to its end, or to where it has to wait."""
        agent = self._agents.get(run.agent)
        if agent is None:
            await self._store.runs.fail(
                run,
                error=f"This server no longer has the agent {run.agent!r}.",
                hint="Send the message again to another agent.",
            )
            return
        await agent.work(run)


def _model_of(role: Role, default: Model) -> Model:
    if role.model is None:
        return default
    try:
        return resolve_model(role.model)
    except ConfigurationError as error:
        raise ConfigurationError(f"The agent {role.name!r}: {error.message}", hint=error.hint) from error
