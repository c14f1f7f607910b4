"""NoticeTask: tells people elsewhere of questions that nobody has answered for a while.

It looks at the record every few seconds and claims what is due, so of several servers one tells, and none after a
restart. No call waits for it: a question is there, and can be answered, whether anybody was told or not. A try that
failed is made again a few times, and not after the question was answered.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable

import structlog

from byleave.protocol.notices import NoticeOutcome
from byleave.server.errors import TooMany
from byleave.settings import ServerSettings
from byleave.store import STORAGE_ERRORS, Store
from byleave.store.notices import Device, Waiting

from .outcomes import Outcome
from .push import Push
from .webhook import Webhook
from .words import TEST, Detail, Notice, notice_of

log = structlog.stdlib.get_logger(__name__)

LOOK_SECONDS = 5.0
SOONEST_SECONDS = 0.1
PAUSES: tuple[float, ...] = (1.0, 5.0)
"""Before each further try."""
MOST_AT_ONCE = 16
TEST_SECONDS = 5.0
"""A user may ask for a test this often."""
WEBHOOK = "webhook"


class NoticeTask:
    """Sends notices at the right times."""

    def __init__(self, store: Store, settings: ServerSettings) -> None:
        self._store = store.notices
        self._after = settings.notify_after_seconds
        self._detail: Detail = settings.notify_detail
        self.push = Push(settings)
        url = settings.notify_url
        self._webhook = (
            None if url is None else Webhook(url.get_secret_value(), settings.notify_format, settings.public_url)
        )
        self._sending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._tested: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def has_webhook(self) -> bool:
        return self._webhook is not None

    def start(self) -> None:
        self._task = asyncio.create_task(self._work(), name="byleave-notices")

    async def stop(self) -> None:
        """Stop; another server, or the next start, sends what was not sent. May be called twice."""
        tasks = [*self._sending, *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None
        await self.push.close()
        if self._webhook is not None:
            await self._webhook.close()

    async def test(self, user_id: str) -> list[NoticeOutcome]:
        """Send a test to all of a user's devices, and to the webhook; once each."""
        now = time.monotonic()
        self._tested = {user: at for user, at in self._tested.items() if at > now - TEST_SECONDS}
        if user_id in self._tested:
            raise TooMany("A test was sent just now.", hint="Wait a few seconds.", retry_after=int(TEST_SECONDS))
        self._tested[user_id] = now
        ways = await self._ways(TEST, user_id)
        outcomes = await asyncio.gather(*(send() for _, send in ways))
        return [
            NoticeOutcome(to=to, delivered=outcome.delivered, detail=outcome.detail)
            for (to, _), outcome in zip(ways, outcomes, strict=True)
        ]

    async def _work(self) -> None:
        while True:
            nap = LOOK_SECONDS
            try:
                nap = await self._look()
            except STORAGE_ERRORS as error:
                log.error("people could not be notified", error=str(error), again_in_seconds=nap)
            await asyncio.sleep(nap)

    async def _look(self) -> float:
        """Tell about what is due; return the seconds until the next look."""
        due = await self._store.next_due(self._after, everybody=self.has_webhook)
        if due == 0:
            people: defaultdict[str, list[Waiting]] = defaultdict(list)
            for each in await self._store.claim(self._after, everybody=self.has_webhook):
                people[each.user_id].append(each)
            if not people:  # who was told just now is not told again so soon
                return LOOK_SECONDS
            for user_id, waiting in people.items():
                task = asyncio.create_task(self._tell(user_id, waiting), name="byleave-notice")
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
            due = None
        # A question that comes just after this look is seen at the next one, and must not be late by it.
        return max(SOONEST_SECONDS, min(LOOK_SECONDS, self._after, LOOK_SECONDS if due is None else due))

    async def _tell(self, user_id: str, waiting: list[Waiting]) -> None:
        ids = [each.approval_id for each in waiting]
        try:
            async with self._slots:
                notice = notice_of(waiting, self._detail)
                ways = await self._ways(notice, user_id)
                outcomes = await asyncio.gather(*(self._insist(ids, send) for _, send in ways))
                await self._store.finish(ids)
        except STORAGE_ERRORS as error:
            log.error("a person may not have been notified", user=user_id, error=str(error))
            return
        for (to, _), outcome in zip(ways, outcomes, strict=True):
            if outcome.delivered:
                log.info("notified", user=user_id, to=to, questions=len(ids))
            else:
                log.warning("not notified", user=user_id, to=to, reason=outcome.detail)

    async def _ways(self, notice: Notice, user_id: str) -> list[tuple[str, Callable[[], Awaitable[Outcome]]]]:
        """All ways to this person, each with its name."""
        devices = await self._store.devices(user_id)
        ways: list[tuple[str, Callable[[], Awaitable[Outcome]]]] = [
            (device.name, lambda device=device: self._to_device(notice, device)) for device in devices
        ]
        webhook = self._webhook
        if webhook is not None:
            ways.append((WEBHOOK, lambda: webhook.send(notice, user_id)))
        return ways

    async def _to_device(self, notice: Notice, device: Device) -> Outcome:
        outcome = await self.push.send(notice, device)
        if outcome.delivered or outcome.gone:
            await self._store.sent_to(device, gone=outcome.gone)
        return outcome

    async def _insist(self, ids: list[str], send: Callable[[], Awaitable[Outcome]]) -> Outcome:
        outcome = await send()
        for pause in PAUSES:
            if not outcome.again:
                break
            await asyncio.sleep(pause)
            if not await self._store.still_wait(ids):
                break
            outcome = await send()
        return outcome
