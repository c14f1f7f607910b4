"""Reports on their way: tried, kept, sent again, never lost and never in the way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from byleave.client.journal import Journal
from byleave.client.outbox import LiveOutput, Outbox
from byleave.client.tasks import pause
from byleave.gate import MASK_PREFIX
from byleave.protocol.errors import CallerError, ConfigurationError, ConflictError, NotFound, UnreachableError
from byleave.protocol.executions import ResultAck
from byleave.protocol.states import ExecutionStatus

from .conftest import RecordingLink

REPORT = b'{"status":"completed","result":{}}'
PROJECT = "project_1"
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3
KEY_BEGIN = "-----BEGIN PRIVATE " + "KEY-----"


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path / "state")
    yield journal
    journal.close()


@pytest.fixture
async def outbox(link: RecordingLink, journal: Journal) -> AsyncIterator[Outbox]:
    outbox = Outbox(link, PROJECT, journal, 3)
    yield outbox
    await outbox.close()


@pytest.mark.promise("C5")
async def test_a_result_is_tried_three_times(link: RecordingLink, journal: Journal, outbox: Outbox) -> None:
    link.failures = [UnreachableError("down")] * 2
    await journal.done("exec_1", REPORT, durable=False)
    assert await outbox.send("exec_1")
    assert [tool_id for tool_id, _ in link.results] == ["exec_1"]
    assert journal.unsent == []


@pytest.mark.promise("C5")
async def test_what_fails_three_times_is_kept_and_sent_on_reconnection(
    link: RecordingLink, journal: Journal, outbox: Outbox
) -> None:
    link.failures = [UnreachableError("down")] * 3
    await journal.done("exec_1", REPORT, durable=False)
    await journal.done("exec_2", REPORT, durable=False)
    assert not await outbox.send("exec_1")
    assert (link.failures, link.results) == ([], [])
    await outbox.resend()
    assert [tool_id for tool_id, _ in link.results] == ["exec_1", "exec_2"]
    assert await outbox.send("exec_1")
    assert len(link.results) == 2


@pytest.mark.promise("C5")
async def test_sending_again_stops_where_the_server_is_still_away(
    link: RecordingLink, journal: Journal, outbox: Outbox
) -> None:
    link.failures = [UnreachableError("down")] * 3
    await journal.done("exec_1", REPORT, durable=False)
    await journal.done("exec_2", REPORT, durable=False)
    await outbox.resend()
    assert (link.failures, link.results) == ([], [])
    assert journal.unsent == ["exec_1", "exec_2"]


@pytest.mark.promise("C5")
async def test_what_is_kept_is_also_tried_while_the_stream_stays_up(
    link: RecordingLink, journal: Journal, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.client.outbox.TRY_AGAIN_SECONDS", 0.01)
    link.failures = [ConfigurationError("The token is not valid.")] * 2
    await journal.done("exec_1", REPORT, durable=False)
    assert not await outbox.send("exec_1")
    await link.report("exec_1")


@pytest.mark.parametrize("answer", [NotFound("unknown"), ConflictError("over", state="timeout")])
async def test_a_result_nobody_wants_any_more_is_dropped(
    link: RecordingLink, journal: Journal, outbox: Outbox, answer: Exception
) -> None:
    link.failures = [answer]
    await journal.done("exec_1", REPORT, durable=False)
    assert await outbox.send("exec_1")
    assert journal.unsent == []
    assert link.results == []


async def test_a_result_the_server_cannot_read_is_replaced_once_by_a_failure(
    link: RecordingLink, journal: Journal, outbox: Outbox
) -> None:
    link.failures = [CallerError("result: too large")]
    await journal.done("exec_1", REPORT, durable=False)
    assert await outbox.send("exec_1", REPORT)
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "internal")
    assert "too large" in report["error"]
    assert journal.unsent == []


@pytest.mark.promise("C5")
async def test_a_result_whose_replacement_is_refused_too_is_kept_and_holds_up_no_other(
    link: RecordingLink, journal: Journal, outbox: Outbox
) -> None:
    link.failures = [CallerError("no"), CallerError("no again")]
    await journal.done("exec_1", REPORT, durable=False)
    await journal.done("exec_2", REPORT, durable=False)
    await outbox.resend()
    assert [tool_id for tool_id, _ in link.results] == ["exec_2"]
    assert (journal.unsent, journal.report("exec_1")) == (["exec_1"], REPORT)
    await outbox.resend()
    assert (await link.report("exec_1"))["status"] == "completed"
    assert journal.unsent == []


async def test_a_result_whose_replacement_is_refused_too_is_tried_again_while_the_stream_stays_up(
    link: RecordingLink, journal: Journal, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.client.outbox.TRY_AGAIN_SECONDS", 0.01)
    link.failures = [CallerError("no"), CallerError("no again")]
    await journal.done("exec_1", REPORT, durable=False)
    assert await outbox.send("exec_1")
    assert (await link.report("exec_1"))["status"] == "completed"


async def send_five(link: RecordingLink, journal: Journal, outbox: Outbox, bodies: dict[str, bytes]) -> list[bool]:
    """Send five reports at once: the first is on its way while the others come."""
    names = [f"exec_{number}" for number in range(5)]
    for name in names:
        await journal.done(name, bodies.get(name, REPORT), durable=False)
    async with link.changed:  # nothing is answered meanwhile
        sending = [asyncio.create_task(outbox.send(name)) for name in names]
        await asyncio.sleep(0)
    return [await task for task in sending]


@pytest.mark.promise("C5")
async def test_reports_that_are_ready_while_one_is_on_its_way_leave_together(
    link: RecordingLink, journal: Journal, outbox: Outbox
) -> None:
    assert await send_five(link, journal, outbox, {}) == [True] * 5
    assert link.batches == [["exec_1", "exec_2", "exec_3", "exec_4"]]
    assert [tool_id for tool_id, _ in link.results] == [f"exec_{number}" for number in range(5)]
    assert journal.unsent == []
    await journal.done("exec_9", REPORT, durable=False)
    assert await outbox.send("exec_9")
    assert len(link.batches) == 1, "alone it does not wait for others"


@pytest.mark.promise("C5")
async def test_a_large_report_waits_for_no_other(link: RecordingLink, journal: Journal, outbox: Outbox) -> None:
    large = b'{"status":"completed","result":{"content":"%b"}}' % (b"x" * 20_000)
    assert await send_five(link, journal, outbox, {"exec_3": large}) == [True] * 5
    assert link.batches == [["exec_1", "exec_2", "exec_4"]]
    assert sorted(tool_id for tool_id, _ in link.results) == [f"exec_{number}" for number in range(5)]


@pytest.mark.promise("C5")
async def test_a_report_that_a_batch_does_not_take_is_sent_alone_and_hears_why(
    link: RecordingLink, journal: Journal, outbox: Outbox
) -> None:
    link.not_in_batch = {"exec_2"}
    assert await send_five(link, journal, outbox, {}) == [True] * 5
    assert link.results[-1][0] == "exec_2"
    assert journal.unsent == []


@pytest.mark.promise("C5")
@pytest.mark.parametrize("failure", [NotFound("no such route"), UnreachableError("down"), CallerError("too large")])
async def test_reports_of_a_batch_that_fails_are_sent_one_by_one(
    link: RecordingLink, journal: Journal, outbox: Outbox, failure: Exception
) -> None:
    link.batch_failure = failure
    assert await send_five(link, journal, outbox, {}) == [True] * 5
    assert sorted(tool_id for tool_id, _ in link.results) == [f"exec_{number}" for number in range(5)]
    assert journal.unsent == []


@pytest.mark.promise("C5")
async def test_a_post_that_hangs_holds_up_no_other(
    link: RecordingLink, journal: Journal, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.client.outbox.GATHER_SECONDS", 0.01)
    post, hangs = link.post_result, asyncio.Event()

    async def hanging(project_id: str, tool_id: str, report: bytes) -> ResultAck:
        if tool_id == "exec_0":
            await hangs.wait()
        return await post(project_id, tool_id, report)

    monkeypatch.setattr(link, "post_result", hanging)
    names = ["exec_0", "exec_1", "exec_2"]
    for name in names:
        await journal.done(name, REPORT, durable=False)
    sending = [asyncio.create_task(outbox.send(name)) for name in names]
    async with asyncio.timeout(5):
        assert [await task for task in sending[1:]] == [True, True]
    hangs.set()
    assert await sending[0]
    assert sorted(tool_id for tool_id, _ in link.results) == names


@pytest.mark.promise("C5")
async def test_reports_that_wait_when_the_client_ends_stay_in_the_journal(
    link: RecordingLink, journal: Journal
) -> None:
    outbox = Outbox(link, PROJECT, journal, 3)
    for name in ("exec_0", "exec_1"):
        await journal.done(name, REPORT, durable=False)
    async with link.changed:
        sending = [asyncio.create_task(outbox.send(name)) for name in ("exec_0", "exec_1")]
        await asyncio.sleep(0)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await outbox.close()
    assert (journal.unsent, link.results) == (["exec_0", "exec_1"], [])


async def test_one_report_is_not_sent_twice_at_once(link: RecordingLink, journal: Journal, outbox: Outbox) -> None:
    await journal.done("exec_1", REPORT, durable=False)
    async with link.changed:
        first = asyncio.create_task(outbox.send("exec_1"))
        await asyncio.sleep(0)
        assert not await outbox.send("exec_1")
        outbox.again("exec_1")
        outbox.settled("exec_1", ExecutionStatus.COMPLETED)  # the acknowledgement may come before the post's answer
        assert journal.unsent == []
        await outbox.resend()
    assert await first
    assert len(link.results) == 1


@pytest.mark.parametrize("attempt", range(12))
def test_pauses_grow_to_a_limit(attempt: int) -> None:
    assert 0.05 * min(2**attempt, 150) / 2 < pause(attempt, 0.1, 15) <= min(15, 0.1 * 2**attempt)


# Output while a command runs


async def test_output_is_gathered_and_keeps_its_order(link: RecordingLink) -> None:
    live = LiveOutput(link, PROJECT, "exec_1")
    for stream, text in (("stdout", "a"), ("stdout", "b\n"), ("stderr", "c\n"), ("stdout", "d\n"), ("stdout", "")):
        live(stream, text)  # pyright: ignore[reportArgumentType]
    await link.until(lambda: len(link.output) == 3)
    assert [(chunk.stream, chunk.text, chunk.sequence) for chunk in link.output] == [
        ("stdout", "ab\n", 0),
        ("stderr", "c\n", 1),
        ("stdout", "d\n", 2),
    ]
    live("stdout", "e\n")
    await link.until(lambda: len(link.output) == 4)
    assert link.output[-1].sequence == 3


async def test_output_leaves_in_whole_lines_and_the_rest_at_the_end(link: RecordingLink) -> None:
    live = LiveOutput(link, PROJECT, "exec_1")
    live("stdout", "one\ntw")
    live("stderr", "warn")
    await link.until(lambda: len(link.output) == 1)
    live("stdout", "o\nthr")
    await link.until(lambda: len(link.output) == 2)
    rest = live.stop()
    assert rest is not None
    await rest
    assert [(chunk.stream, chunk.text) for chunk in link.output] == [
        ("stdout", "one\n"),
        ("stdout", "two\n"),
        ("stderr", "warn"),
        ("stdout", "thr"),
    ]
    assert live.stop() is None


@pytest.mark.promise("S")
async def test_a_secret_in_live_output_is_masked_also_when_it_comes_in_two_halves(link: RecordingLink) -> None:
    live = LiveOutput(link, PROJECT, "exec_1")
    live("stdout", f"first\nexport GITHUB={SECRET[:12]}")
    await link.until(lambda: len(link.output) == 1)
    live("stdout", f"{SECRET[12:]}\n")
    await link.until(lambda: len(link.output) == 2)
    live("stdout", SECRET)
    rest = live.stop()
    assert rest is not None
    await rest
    assert [MASK_PREFIX in chunk.text for chunk in link.output] == [False, True, True]
    assert SECRET[4:12] not in "".join(chunk.text for chunk in link.output)


@pytest.mark.promise("S")
async def test_a_key_in_live_output_is_held_back_until_it_is_whole(link: RecordingLink) -> None:
    live = LiveOutput(link, PROJECT, "exec_1")
    live("stdout", f"first\n{KEY_BEGIN}\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n")
    await link.until(lambda: len(link.output) == 1)
    live("stdout", f"BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n{KEY_BEGIN.replace('BEGIN', 'END')}\nlast\n")
    await link.until(lambda: len(link.output) == 2)
    assert link.output[0].text == "first\n"
    assert link.output[1].text.endswith("last\n")
    assert "MIIE" not in link.output[1].text
    assert "BKcw" not in link.output[1].text


async def test_a_line_without_end_is_not_held_back_for_ever(link: RecordingLink) -> None:
    live = LiveOutput(link, PROJECT, "exec_1")
    live("stdout", "x" * 70_000)
    await link.until(lambda: sum(len(chunk.text) for chunk in link.output) > 60_000)
    rest = live.stop()
    assert rest is not None
    await rest
    assert sum(len(chunk.text) for chunk in link.output) == 70_000


@pytest.mark.promise("S")
async def test_a_secret_at_the_cut_of_a_line_without_end_is_masked(link: RecordingLink) -> None:
    live = LiveOutput(link, PROJECT, "exec_1")
    line = "word " * 14_000 + f"password: {SECRET} " + "word " * 500
    for at in range(0, len(line), 1024):
        live("stdout", line[at : at + 1024])
    live("stdout", "\nend\n")
    await link.until(lambda: any(chunk.text.endswith("end\n") for chunk in link.output))
    said = "".join(chunk.text for chunk in link.output)
    assert MASK_PREFIX in said
    assert not any(SECRET[at : at + 8] in said for at in range(len(SECRET) - 8))


async def test_a_line_cut_by_the_limit_is_not_sent(link: RecordingLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byleave.client.outbox.MAX_LIVE_CHARACTERS", 20)
    live = LiveOutput(link, PROJECT, "exec_1")
    live("stdout", f"first\n{SECRET}\n")
    await link.until(lambda: len(link.output) == 1)
    rest = live.stop()
    if rest is not None:
        await rest
    assert [chunk.text for chunk in link.output] == ["first\n"]


async def test_pieces_are_small_and_their_sum_is_bounded(link: RecordingLink) -> None:
    live = LiveOutput(link, PROJECT, "exec_1")
    live("stdout", "é" * 39_999 + "\n")
    live("stderr", "x" * 2_000_000)
    await link.until(lambda: sum(len(chunk.text) for chunk in link.output) >= 1020 * 1024)
    assert max(len(chunk.text.encode()) for chunk in link.output) <= 64 * 1024
    live("stdout", "more\n")
    assert live._waiting == []


async def test_lost_output_is_not_sent_again(link: RecordingLink) -> None:
    link.output_failure = UnreachableError("down")
    live = LiveOutput(link, PROJECT, "exec_1")
    live("stdout", "a\n")
    await link.until(lambda: len(link.output) == 1)
    link.output_failure = None
    live("stdout", "b\n")
    await link.until(lambda: len(link.output) == 2)
    assert [chunk.text for chunk in link.output] == ["a\n", "b\n"]


async def test_the_end_does_not_wait_long_for_a_server_that_is_away(link: RecordingLink) -> None:
    live = LiveOutput(link, PROJECT, "exec_1")
    live("stdout", "a\n")
    await link.until(lambda: len(link.output) == 1)
    link.output_failure = UnreachableError("down")
    live("stdout", "b")
    live("stderr", "c")
    rest = live.stop()
    assert rest is not None
    await rest
    assert [chunk.text for chunk in link.output] == ["a\n", "b"]


async def test_the_end_of_a_command_nobody_saw_output_of_ends_its_relay(link: RecordingLink) -> None:
    live = LiveOutput(link, PROJECT, "exec_1")
    live.stop()
    live("stdout", "late\n")
    other = LiveOutput(link, PROJECT, "exec_2")
    other("stdout", "never sent\n")
    task = other._task
    assert other.stop() is None
    assert task is not None
    with pytest.raises(asyncio.CancelledError):
        await task
    assert link.output == []
