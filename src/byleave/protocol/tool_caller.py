"""How an agent has tools executed, wherever it runs: the one interface that adapters are written against.

`byleave.sdk.Agent` is one over HTTP, `byleave.agents.LocalCaller` one inside the server. Nothing here asks for an
approval or carries one: whoever calls is told how the call ended, and has no way to say that it was allowed.
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
"""How the id of a session begins that is one agent's own: no other agent may name it."""


def own_session_id(user_id: str, project_id: str, agent_id: str) -> str:
    """The session of an agent that runs elsewhere, in one project."""
    return OWN_SESSION + uuid.uuid5(CALLS, f"{user_id}/{project_id}/{agent_id}").hex


def agent_name(agent_id: str | None) -> str:
    """What the tokens of one agent that runs elsewhere have in common; empty for a person's own programs."""
    return (agent_id or "").rpartition("-")[0]


def key_scope(user_id: str, project_id: str, session_id: str, agent_id: str | None) -> str:
    """Where a key names one call: among those of the agents of one name, in their session. In an agent's own, in the
    project: a renewed token begins another session, and another number behind the name."""
    where = f"{user_id}/{project_id}" if session_id.startswith(OWN_SESSION) else session_id
    # What no agent can be called, for those that are none.
    return f"{where}/{agent_name(agent_id) or f'-{agent_id}'}"


def id_of_call(scope: str, key: str) -> str:
    """The execution of the call that has this key in this run, or else in this `key_scope`."""
    return f"exec_{uuid.uuid5(CALLS, f'{scope}/{key}').hex}"


def has_ended(response: ToolResponse) -> bool:
    """Whether there is nothing more to wait for."""
    return response.status in ENDED


class ToolCaller(Protocol):
    """Has tools executed on the machine of one project's user.

    None of these raises for what an agent may send or a person may decide: that is in the response.
    """

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call. Comes back with its end, or as soon as a person has to be asked.

        `key` names this very call: the same key again finds the same execution instead of beginning another.
        """
        ...

    async def wait(self, tool_id: str, seconds: float | None = None) -> ToolResponse:
        """Wait for the end of a call; with `seconds`, come back after them with how it then stands."""
        ...

    async def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call and wait for its end, however long a person takes. Cancelled, it calls off the call."""
        ...

    async def cancel(self, tool_id: str) -> bool:
        """Call off a call; False when it had ended already."""
        ...
