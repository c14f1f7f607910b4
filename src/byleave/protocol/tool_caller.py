"""`ToolCaller`: the interface of all adapters to execute tools for an agent.

`byleave.sdk.Agent` implements it over HTTP, `byleave.agents.LocalCaller` inside the server. Nothing here asks for an
approval or carries one: the caller learns how the call ended, and cannot say that it was allowed.
"""

import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from .executions import ToolResponse
from .states import ResponseStatus

ENDED = frozenset(
    {ResponseStatus.COMPLETED, ResponseStatus.REJECTED, ResponseStatus.TIMEOUT, ResponseStatus.FAILED},
)

CALLS = uuid.UUID("5a1d8a52-6f0e-4d3c-9a52-0d6f5a2f7c11")
"""Namespace of execution ids: the same call of the same run has the same id after a restart."""


OWN_SESSION = "sess_agent_"
"""Prefix of the ids of agents' own sessions: no other agent may name one."""


def own_session_id(user_id: str, project_id: str, agent_id: str) -> str:
    """Return the session id of an external agent in one project."""
    return OWN_SESSION + uuid.uuid5(CALLS, f"{user_id}/{project_id}/{agent_id}").hex


def agent_name(agent_id: str | None) -> str:
    """What the tokens of one agent that runs elsewhere have in common; empty for a person's own programs."""
    return (agent_id or "").rpartition("-")[0]


def key_scope(user_id: str, project_id: str, session_id: str, agent_id: str | None) -> str:
    """Return the scope in which a key is unique: agents of one name in a session, or in the project for their own.

    A renewed token begins another session with another number behind the name, and its keys must still match.
    """
    where = f"{user_id}/{project_id}" if session_id.startswith(OWN_SESSION) else session_id
    # What no agent can be called, for those that are none.
    return f"{where}/{agent_name(agent_id) or f'-{agent_id}'}"


def id_of_call(scope: str, key: str) -> str:
    """Return the id of the call with this key in this run or `key_scope`."""
    return f"exec_{uuid.uuid5(CALLS, f'{scope}/{key}').hex}"


def has_ended(response: ToolResponse) -> bool:
    """Return True if there is nothing more to wait for."""
    return response.status in ENDED


class ToolCaller(Protocol):
    """Executes tools on the machine of one project's user.

    No method raises for an agent's input or a person's decision: the response holds both.
    """

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call. Return at its end, or as soon as a person has to be asked.

        `key` identifies the call: the same key again finds the same execution instead of a new one.
        """
        ...

    async def wait(self, tool_id: str, seconds: float | None = None) -> ToolResponse:
        """Wait for the end of a call, or at most `seconds`; return its current state."""
        ...

    async def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call and wait for its end, however long a person takes. Cancelling this cancels the call."""
        ...

    async def cancel(self, tool_id: str) -> bool:
        """Cancel a call; return False if it had ended already."""
        ...
