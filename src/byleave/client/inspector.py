"""Inspections of files that a call would run or replace, before the server asks a person.

The owner's gate judges the call first, under its real name too: files of a refused call are not read. A few run at
once, beside the executions and without their slots. A repeated request is answered again, but never twice at the same
time. An answer that cannot be posted is dropped: the server asks again on the next connection. Nothing is run here.
"""

import asyncio

from byleave.gate import Gate, Judgement, mask_text
from byleave.protocol.errors import ByleaveError, CallerError, NotFound, UnreachableError
from byleave.protocol.events import InspectionRequested
from byleave.protocol.inspections import Inspection, SeenFile, SeenRole
from byleave.protocol.wire import JsonObject
from byleave.workspace import Workspace

from .log import log
from .outbox import Link, pause

AT_ONCE = 8
WAITING = 1000
"""Further requests are dropped; the server asks again."""


class Inspector:
    """Inspects files for one project and workspace."""

    def __init__(self, *, project_id: str, workspace: Workspace, gate: Gate, link: Link, tries: int) -> None:
        self._project_id = project_id
        self._workspace = workspace
        self._gate = gate
        self._link = link
        self._tries = tries
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def request(self, event: InspectionRequested) -> None:
        """Answer in the background, unless the same request is being answered."""
        if event.tool_id in self._tasks:
            return
        if len(self._tasks) >= WAITING:
            log.warning("inspection dropped", tool_id=event.tool_id)
            return
        log.info("inspection requested", tool_id=event.tool_id, tool=event.tool_name)
        task = asyncio.get_running_loop().create_task(self._answer(event))
        self._tasks[event.tool_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(event.tool_id))

    async def close(self) -> None:
        """Stop inspecting; nobody waits for a missing answer."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, event: InspectionRequested) -> None:
        async with self._places:
            inspection = await self._look(event)
            await self._post(event.tool_id, inspection)

    async def _look(self, event: InspectionRequested) -> Inspection:
        judgement = await self._judge(event.tool_name, event.tool_params)
        verdict, params = judgement.verdict, judgement.params
        if not verdict.refused and params is not None and judgement.tool_name == "write_file":
            if self._gate.rules.policy.has_rules:
                # Rules match names only: a link must also pass the rules of its target.
                real = await self._workspace.under_real_names(params)
                verdict = verdict if real == params else (await self._judge(event.tool_name, real)).verdict
            if not verdict.refused:
                return await self._workspace.inspect_write(params["path"])
        if verdict.refused or judgement.command is None:
            return Inspection(files=[], problem=f"Refused on this machine: {mask_text(verdict.message)}"[:400])
        return await self._workspace.inspect(judgement.command)

    async def _judge(self, tool_name: str, params: JsonObject) -> Judgement:
        isolation = await asyncio.to_thread(lambda: self._workspace.isolation)
        root = str(self._workspace.root)
        return self._gate.judge(tool_name, params, workspace=root, isolated=isolation.isolated)

    async def _post(self, tool_id: str, inspection: Inspection) -> None:
        for attempt in range(self._tries):
            try:
                await self._link.post_inspection(self._project_id, tool_id, inspection)
            except UnreachableError as error:
                log.warning("inspection not delivered", tool_id=tool_id, attempt=attempt + 1, error=error.message)
                if attempt + 1 < self._tries:
                    await asyncio.sleep(pause(attempt))
            except ByleaveError as error:
                log.warning("inspection not accepted", tool_id=tool_id, error=error.message)
                lean = _without_texts(inspection)
                if isinstance(error, CallerError) and not isinstance(error, NotFound) and lean != inspection:
                    await self._post(tool_id, lean)  # perhaps larger than this server accepts
                return
            else:
                log.info("inspected", tool_id=tool_id, files=len(inspection.files), problem=inspection.problem)
                return


def _without_texts(inspection: Inspection) -> Inspection:
    """Return a copy with digests only for files to be replaced. Text that would run is never left out."""
    return Inspection(files=[_by_digest(file) for file in inspection.files], problem=inspection.problem)


def _by_digest(file: SeenFile) -> SeenFile:
    if file.role is not SeenRole.REPLACES or not file.text:
        return file
    return file.model_copy(update={"text": None, "shortened": True, "note": "It is too long for this server."})
