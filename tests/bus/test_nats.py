"""Wake-ups through a real NATS server."""

import asyncio
from collections.abc import Iterable

import pytest
from nats.aio.client import Client

from byleave.bus.nats import NatsWakeUps
from harness import nats
from harness.ports import free_port

pytestmark = [
    pytest.mark.promise("D"),
    pytest.mark.timeout(60),
    pytest.mark.skipif(nats.program() is None, reason="NATS is not installed (scripts/setup-tests)"),
]
HELLO = "hello"


class Listener:
    """A server's end of the bus, and what it heard."""

    def __init__(self, url: str, key: bytes = b"key") -> None:
        self.wake_ups = NatsWakeUps(url, key)
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def start(self) -> None:
        await self.wake_ups.start(self._hear)

    async def hears(self, topic: str) -> None:
        """Wait until it hears a topic; fails if it hears another one first, unless it is one of many hellos."""
        async with asyncio.timeout(20):
            while (heard := await self._heard.get()) == HELLO and topic != HELLO:
                pass
        assert heard == topic

    def _hear(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._heard.put_nowait(topic)


async def _is_well(*listeners: Listener) -> None:
    async with asyncio.timeout(20):
        while any(listener.wake_ups.trouble for listener in listeners):
            await asyncio.sleep(0.01)


async def _is_away(listener: Listener) -> None:
    async with asyncio.timeout(20):
        while listener.wake_ups.trouble is None:
            await asyncio.sleep(0.01)


async def _until_heard(sender: Listener, hearer: Listener) -> None:
    """A topic that is told before the other has subscribed is lost, as it may be."""
    async with asyncio.timeout(20):
        while hearer._heard.empty():  # pyright: ignore[reportPrivateUsage]
            sender.wake_ups.tell(HELLO)
            await asyncio.sleep(0.01)
    await hearer.hears(HELLO)


async def test_only_servers_of_the_same_record_are_heard_and_nobody_hears_itself() -> None:
    async with nats.running() as url:
        one, other, stranger = Listener(url), Listener(url), Listener(url, b"another record's")
        for listener in (one, other, stranger):
            await listener.start()
        await _is_well(one, other, stranger)
        await _until_heard(one, other)
        intruder = Client()
        await intruder.connect(url)
        seen = await intruder.subscribe(">")  # pyright: ignore[reportUnknownMemberType]
        # Its library sends what `flush` waits for ahead of the subscription, which may begin later.
        async with asyncio.timeout(20):
            while not seen.pending_msgs:
                one.wake_ups.tell(HELLO)
                await asyncio.sleep(0.01)
        one.wake_ups.tell("feed:1")
        one.wake_ups.tell("feed:1")
        await other.hears("feed:1")
        message = await seen.next_msg()
        await intruder.publish(message.subject, b"connections/1 connections/2")
        await intruder.publish(message.subject, message.data[:-1] + b"2")
        await intruder.flush()
        one.wake_ups.tell("feed:3")
        await other.hears("feed:3")
        other.wake_ups.tell("back")
        await one.hears("back")
        assert stranger._heard.empty()  # pyright: ignore[reportPrivateUsage]
        await intruder.close()
        for listener in (one, other, stranger):
            await listener.wake_ups.stop()


async def test_a_server_that_is_away_at_first_or_for_a_while_is_heard_again() -> None:
    port = free_port()
    one, other = Listener(f"nats://127.0.0.1:{port}"), Listener(f"nats://127.0.0.1:{port}")
    await one.start()
    await other.start()
    one.wake_ups.tell("lost")
    await _is_away(one)
    for _ in range(2):
        async with nats.running(port):
            await _is_well(one, other)
            await _until_heard(one, other)
        await _is_away(one)
    for listener in (one, other):
        await listener.wake_ups.stop()
