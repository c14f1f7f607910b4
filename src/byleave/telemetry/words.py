"""Attributes and metrics that telemetry may use, and no others.

An attribute that is not in the table cannot be set, so parameters, results and prompts have no way in. Tool names that
an agent makes up become `other`: a metric has a series per tool, never as many as an agent likes.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from byleave.gate import mask_text
from byleave.protocol.tools import TOOLS

Value = str | int | float | bool
MAX_CHARACTERS = 100
OTHER = "other"

ATTRIBUTES = {
    "tool": "gen_ai.tool.name",
    "operation": "gen_ai.operation.name",
    "model": "gen_ai.request.model",
    "error_type": "error.type",
    **{
        name: f"byleave.{name}"
        for name in (
            "agent_id",
            "approval_id",
            "approved_by",
            "attempts",
            "decision",
            "isolation",
            "kind",
            "mode",
            "outcome",
            "project_id",
            "risk",
            "run_id",
            "session_id",
            "state",
            "tool_id",
            "verdict",
            "waiting_for",
        )
    },
}

FOREIGN = frozenset({"agent_id"})
"""Chosen by somebody else (an agent names itself): secrets are masked."""

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
LONG = (1, 2.5, 5, 10, 20, 30, 60, 120, 180, 300, 450, 600, 1800, 3600)


class Metric(NamedTuple):
    """Declaration of a metric."""

    kind: str
    unit: str
    description: str
    buckets: tuple[float, ...] = ()


METRICS = {
    "byleave.calls": Metric("counter", "{call}", "Calls that ended, by tool, risk, outcome and error type."),
    "byleave.approval.wait": Metric("histogram", "s", "From the question to its end, by decision.", LONG),
    "byleave.execution.duration": Metric("histogram", "s", "From the signal to the result, by tool.", SHORT),
    "byleave.queue.depth": Metric("gauge", "{call}", "Waiting calls, by what they wait for: client or approval."),
    "byleave.runs": Metric("gauge", "{run}", "Runs that are not over, by state."),
    "byleave.runs.ended": Metric("counter", "{run}", "Runs that ended, by state."),
    "byleave.clients": Metric("gauge", "{client}", "Clients connected to this server."),
    "byleave.client.queue": Metric("gauge", "{call}", "Calls on this machine, by state: active or queued."),
}


class CallIds(Protocol):
    """Ids of a call: an execution's row, or a call that will become one."""

    @property
    def id(self) -> str: ...
    @property
    def project_id(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def run_id(self) -> str | None: ...


def ids_of(call: CallIds) -> dict[str, str]:
    """Return the ids for log lines about a call."""
    ids = {"tool_id": call.id, "session_id": call.session_id, "project_id": call.project_id}
    return ids if call.run_id is None else {**ids, "run_id": call.run_id}


def known_tool(name: str) -> str:
    """Return the tool's name, or `other` if it does not exist."""
    return name if name in TOOLS else OTHER


def named(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    """Return attributes under their public names. Raise for an unknown one."""
    return {ATTRIBUTES[key]: _safe(key, value) for key, value in attributes.items() if value is not None}


def _safe(key: str, value: Value) -> Value:
    return mask_text(value)[:MAX_CHARACTERS] if key in FOREIGN and isinstance(value, str) else value
