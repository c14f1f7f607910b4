"""Callers of tools: their identity, their session, and the record of their call. Nothing here judges a call.

Sessions never change owner or project, so they are cached in memory.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from byleave.gate import Judgement, mask_value, shown_params
from byleave.protocol.approvals import call_digest
from byleave.protocol.chat import CHAT_AGENT as CHAT_AGENT_NAME
from byleave.protocol.errors import CallerError, NotFound
from byleave.protocol.executions import OWN_SESSION, id_of_call, key_scope, own_session_id
from byleave.protocol.states import AgentMode
from byleave.protocol.tools import TOOLS
from byleave.protocol.wire import Id, id_text, new_id, plain_json
from byleave.store import SessionRow, Store
from byleave.store.transitions import NewExecution

MALFORMED_LIMIT = 64 * 1024
REMEMBERED = 1000
"""Most sessions cached: enough for the active ones, not for those that wait."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The run or agent on whose behalf a tool is called."""

    run_id: str | None = None
    agent_id: str | None = None
    mode: AgentMode = AgentMode.SANDBOX
    fence: int | None = None
    """The run's claim; a call under an older one is refused."""
    key: str | None = None
    """Identifies a repeated call: a tool_call_id, an idempotency key."""
    tools: frozenset[str] | None = None
    """The tools this agent has; None for all."""


CHAT_AGENT = Caller()


class Sessions:
    """Finds the session of a call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, SessionRow] = {}

    async def get(self, session_id: Id) -> SessionRow:
        """A session by its id, or NotFound."""
        known = self._known.get(session_id) if isinstance(session_id, str) else None
        return known or self._remember(await self._store.chat.session(id_text("sess", session_id)))

    async def of_agent(
        self, user_id: str, project_id: str | None, session_id: str | None, agent_id: str = CHAT_AGENT_NAME
    ) -> SessionRow:
        """The session of a call from elsewhere; without a `session_id`, the agent's own in this project.

        The caller must have checked that the project is the user's.
        """
        if session_id is not None:
            session = await self.get(session_id)
            if session.user_id != user_id or project_id not in (None, session.project_id):
                raise NotFound(f"No session {session_id!r}.", hint="Leave session_id out.")
            own = own_session_id(user_id, session.project_id, agent_id)
            if session.id.startswith(OWN_SESSION) and session.id != own:
                raise NotFound(f"No session {session_id!r}.", hint="Leave session_id out: every agent has its own.")
            return session
        if project_id is None:
            raise CallerError("A call needs a project.", hint="Send `project_id`, or the `session_id` that tells it.")
        own = own_session_id(user_id, project_id, agent_id)
        return self._known.get(own) or self._remember(
            await self._store.chat.ensure_session(own, user_id, project_id, agent_id)
        )

    def _remember(self, session: SessionRow) -> SessionRow:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[session.id] = session
        return session


def new_execution(judgement: Judgement, sent: Mapping[str, Any], session: SessionRow, caller: Caller) -> NewExecution:
    """Make the record of a judged call."""
    tool_name, params, verdict = judgement.tool_name, judgement.params, judgement.verdict
    risk_level = verdict.risk_level
    tool = TOOLS.get(tool_name)
    timeout = tool.timeout_seconds if tool else 0
    if params is not None and tool_name == "execute_command":
        timeout = params["timeout"]
    execution_id = new_id("exec")
    if caller.key:
        scope = caller.run_id or key_scope(session.user_id, session.project_id, session.id, caller.agent_id)
        execution_id = id_of_call(scope, caller.key)
    return NewExecution(
        id=execution_id,
        user_id=session.user_id,
        project_id=session.project_id,
        session_id=session.id,
        run_id=caller.run_id,
        agent_id=caller.agent_id,
        mode=caller.mode,
        tool_name=tool_name[:100],
        tool_params=_malformed(sent) if params is None else plain_json(shown_params(tool_name, params)),
        true_params=None if params is None else plain_json(params),
        digest="malformed" if params is None else call_digest(tool_name, params, session.project_id),
        risk_level=risk_level,
        findings=plain_json(verdict.findings),
        network=verdict.network,
        timeout_seconds=timeout,
        fence=caller.fence,
        repeatable=caller.key is not None,
        changes_nothing=tool is not None and not tool.changes_things,
    )


def _malformed(sent: Mapping[str, Any]) -> str:
    """Malformed parameters for the record: masked, and left out if too long."""
    try:
        text = _compact(sent)
        if len(text) <= MALFORMED_LIMIT:  # measured first: masking takes seconds on what nobody would keep
            text = _compact(mask_value(dict(sent)))
    except (ValueError, TypeError, RecursionError):  # a lone surrogate is a ValueError, too
        return json.dumps({"left_out": "parameters that are not JSON"})
    if len(text) > MALFORMED_LIMIT:
        return json.dumps({"left_out": f"malformed parameters of {len(text)} characters"})
    return text


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
