"""How an execution ended, in the two forms it is needed: the report for the server, and the line of the history (C7).

Every ending has a report: a result that cannot be written as JSON becomes a failure that says so. The history keeps
small results only; the server has the rest.
"""

import time
from dataclasses import dataclass, replace

from pydantic_core import PydanticSerializationError, to_json

from byleave.protocol.errors import ByleaveError
from byleave.protocol.executions import MAX_ERROR_CHARACTERS, ClientResult, FailedReport
from byleave.protocol.states import ClientResultStatus, ErrorType
from byleave.protocol.tools import ToolResult
from byleave.protocol.wire import now
from byleave.workspace import Unfinished

KEPT_RESULT_BYTES = 4096

_STATUS = {
    ErrorType.EXECUTION_TIMEOUT: ClientResultStatus.TIMEOUT,
    ErrorType.CANCELLED: ClientResultStatus.CANCELLED,
}


@dataclass(frozen=True)
class Ending:
    """One execution's end: its result, or the error that stands for one; what an unfinished command printed is both."""

    tool_id: str
    tool_name: str
    result: ToolResult | None
    error: ByleaveError | None
    duration_ms: int
    timestamp: str

    def report(self) -> bytes:
        """The report as it is posted."""
        if self.error is None:
            try:
                return to_json(
                    {
                        "status": "completed",
                        "result": self.result,
                        "duration_ms": self.duration_ms,
                        "timestamp": self.timestamp,
                    }
                )
            except (PydanticSerializationError, UnicodeError):
                # Half a surrogate pair in a file's name, for one.
                lost = ByleaveError("It ran, but its result cannot be written as JSON.")
                return replace(self, result=None)._failed(lost)
        return self._failed(self.error)

    def summary(self, size: int) -> ClientResult:
        """The line of the history; `size` is that of the report."""
        error, result = self.error, self.result
        if error is not None:
            status = _STATUS.get(error.error_type, ClientResultStatus.ERROR)
        else:
            status = ClientResultStatus.SUCCESS if result is None or result.success else ClientResultStatus.ERROR
        return ClientResult(
            tool_id=self.tool_id,
            tool_name=self.tool_name,
            status=status,
            result=result.model_dump() if result is not None and size <= KEPT_RESULT_BYTES else None,
            error=_sentence(error) if error is not None else result.error if result is not None else None,
            error_type=error.error_type if error is not None else None,
            duration_ms=self.duration_ms,
            timestamp=self.timestamp,
        )

    def _failed(self, error: ByleaveError) -> bytes:
        report = FailedReport(
            status="failed",
            error=_sentence(error),
            error_type=error.error_type,
            result=None if self.result is None else self.result.model_dump(),
            duration_ms=self.duration_ms,
            timestamp=self.timestamp,
        )
        return report.model_dump_json().encode()


def ending(tool_id: str, tool_name: str, outcome: ToolResult | ByleaveError, began: float | None = None) -> Ending:
    """How it ended just now; `began` on the performance counter, None for what never ran."""
    duration_ms = 0 if began is None else round((time.perf_counter() - began) * 1000)
    if isinstance(outcome, ByleaveError):
        partial = outcome.partial if isinstance(outcome, Unfinished) else None
        return Ending(tool_id, tool_name, partial, outcome, duration_ms, now())
    return Ending(tool_id, tool_name, outcome, None, duration_ms, now())


def _sentence(error: ByleaveError) -> str:
    return str(error).encode("utf-8", "replace").decode()[:MAX_ERROR_CHARACTERS]
