"""One tool run because the person at this machine said so: `byleave tool`, and an editor's own hands.

The owner's gate judges first and its REFUSE holds; nobody is asked, because the person asked for it. Then the
workspace's own bounds and its sandbox hold. What it changes can be undone. Whatever happens, the answer is one object
with `success`.
"""

from byleave.gate import Gate
from byleave.protocol.errors import ByleaveError
from byleave.protocol.states import ErrorType
from byleave.protocol.verdicts import VerdictLevel
from byleave.protocol.wire import JsonObject, new_id
from byleave.workspace import Unfinished, Workspace


async def run_here(gate: Gate, workspace: Workspace, tool_name: str, params: JsonObject) -> JsonObject:
    """Run one tool and give its result as JSON."""
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
        return told(error)
    return result.model_dump(mode="json")


def told(error: ByleaveError) -> JsonObject:
    """What went wrong, as a result."""
    result = failure(error.message, error.error_type, error.hint)
    if isinstance(error, Unfinished) and error.partial is not None:
        result["result"] = error.partial.model_dump(mode="json")
    return result


def failure(message: str, kind: ErrorType, hint: str | None) -> JsonObject:
    result: JsonObject = {"success": False, "error": message, "error_type": kind.value}
    return {**result, "hint": hint} if hint else result
