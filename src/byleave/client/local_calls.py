"""Tools run at the request of the person at this machine: `byleave tool`, and the editor.

The owner's gate judges first and its REFUSE holds; nobody is asked, because the person requested the call. The
workspace's limits and its sandbox apply. Changes can be undone. The result is always one object with `success`.
"""

from byleave.gate import Gate
from byleave.protocol.errors import ByleaveError
from byleave.protocol.states import ErrorType
from byleave.protocol.verdicts import VerdictLevel
from byleave.protocol.wire import JsonObject, new_id
from byleave.workspace.stopping import Unfinished
from byleave.workspace.workspace import Workspace


async def run_here(gate: Gate, workspace: Workspace, tool_name: str, params: JsonObject) -> JsonObject:
    """Run one tool; return its result as JSON."""
    judgement = gate.judge(tool_name, params, workspace=str(workspace.root))
    verdict = judgement.verdict
    if verdict.refused or judgement.params is None:
        return failure(verdict.message, verdict.error_type or ErrorType.REFUSED, verdict.findings[0].instead)
    record_as = None if verdict.level is VerdictLevel.LOW else new_id("tool")
    try:
        result = await workspace.run(
            judgement.tool_name,
            judgement.params,
            network=verdict.network,
            record_as=record_as,
            understood=judgement.command,
        )
    except ByleaveError as error:
        return failure_result(error)
    return result.model_dump(mode="json")


def failure_result(error: ByleaveError) -> JsonObject:
    """Return an error as a result."""
    result = failure(error.message, error.error_type, error.hint)
    if isinstance(error, Unfinished) and error.partial is not None:
        result["result"] = error.partial.model_dump(mode="json")
    return result


def failure(message: str, kind: ErrorType, hint: str | None) -> JsonObject:
    result: JsonObject = {"success": False, "error": message, "error_type": kind.value}
    return {**result, "hint": hint} if hint else result
