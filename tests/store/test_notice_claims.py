"""Devices and notices in the record: a question is told about once, whichever servers share it."""

import asyncio

import pytest

from byleave.protocol.approvals import call_digest
from byleave.protocol.errors import NotFound
from byleave.protocol.states import ApprovalStatus, RiskLevel
from byleave.store.approvals import NewApproval, close, own_approval
from byleave.store.database import Transaction
from byleave.store.ledger import Ledger
from byleave.store.notices import CLAIM_SECONDS, FORGET_SECONDS, GATHER_SECONDS, Device, Notices
from harness.records import Records, outside

pytestmark = pytest.mark.promise("A-elsewhere")

AFTER = 20.0


def _two_servers(records: Records) -> tuple[Notices, Notices]:
    """Two servers' views of one record, which share no memory."""
    return records.store.notices, Notices(records.store.database)


async def _asked(records: Records, text: str = "x", *, user: str = "alice", seconds: int = 300) -> str:
    params = {"path": text}
    asked = await records.store.approvals.create(
        NewApproval(
            user_id=user,
            project_id=records.project.id,
            session_id=records.session.id,
            agent_id=None,
            tool_name="write_file",
            tool_params=params,
            digest=call_digest("write_file", params, records.project.id),
            risk_level=RiskLevel.HIGH,
            description=f"Create {text}",
            timeout_seconds=seconds,
        )
    )
    return asked.id


async def _answered(records: Records, approval_id: str) -> None:
    def work(transaction: Transaction) -> None:
        with Ledger(transaction, records.project.id) as ledger:
            approval = own_approval(ledger.transaction, approval_id, "alice")
            close(ledger, approval, ApprovalStatus.REJECTED, waiting=[], decided_by="person:alice")

    await records.store.database.write(work)


async def _device(notices: Notices, name: str, *, user: str = "alice", sign_ins: tuple[str, ...] = ()) -> Device:
    endpoint = f"https://push.example.com/{name}"
    return await notices.add_device(user, endpoint, p256dh="p", auth="a", name=name, sign_ins=sign_ins, most=3)


async def test_question_is_claimed_by_one_of_many_once_it_has_waited(records: Records) -> None:
    first, second = _two_servers(records)
    asked = await _asked(records)
    assert await first.next_due(AFTER, everybody=True) == AFTER
    assert await first.claim(AFTER, everybody=True) == []
    records.clock.turn(AFTER)
    assert await second.next_due(AFTER, everybody=True) == 0
    claims = await asyncio.gather(*(each.claim(AFTER, everybody=True) for each in (first, second) * 5))
    [[waiting]] = [claim for claim in claims if claim]
    assert (waiting.approval_id, waiting.user_id, waiting.project) == (asked, "alice", "demo")
    assert (waiting.risk_level, waiting.description, waiting.seconds_left) == (RiskLevel.HIGH, "Create x", 300 - AFTER)
    assert await second.next_due(AFTER, everybody=True) is None


async def test_claim_of_a_server_that_died_is_taken_over_and_a_finished_one_never(records: Records) -> None:
    first, second = _two_servers(records)
    asked = await _asked(records, seconds=10_000)
    records.clock.turn(AFTER)
    await first.claim(AFTER, everybody=True)
    records.clock.turn(CLAIM_SECONDS + 1)
    assert [each.approval_id for each in await second.claim(AFTER, everybody=True)] == [asked]
    await second.finish([asked])
    records.clock.turn(CLAIM_SECONDS + 1)
    assert await first.claim(AFTER, everybody=True) == []
    records.clock.turn(FORGET_SECONDS)
    assert await first.claim(AFTER, everybody=True) == []
    assert await first.next_due(AFTER, everybody=True) is None


async def test_person_who_was_told_hears_of_further_questions_later_and_together(records: Records) -> None:
    notices, _ = _two_servers(records)
    await _asked(records, "first", seconds=10_000)
    records.clock.turn(AFTER)
    assert len(await notices.claim(AFTER, everybody=True)) == 1
    for name in ("second", "third"):
        records.clock.turn(1)
        await _asked(records, name, seconds=10_000)
    other = await _asked(records, "bobs", user="bob")
    records.clock.turn(AFTER)
    assert [each.approval_id for each in await notices.claim(AFTER, everybody=True)] == [other]
    records.clock.turn(GATHER_SECONDS - AFTER + 1)
    assert [each.description for each in await notices.claim(AFTER, everybody=True)] == [
        "Create second",
        "Create third",
    ]


async def test_question_that_was_answered_or_ran_out_is_told_to_nobody_and_its_claim_is_forgotten(
    records: Records,
) -> None:
    notices, _ = _two_servers(records)
    told, answered = await _asked(records, "told"), await _asked(records, "answered")
    await _asked(records, "late", seconds=5)
    await _answered(records, answered)
    records.clock.turn(AFTER)
    assert [each.approval_id for each in await notices.claim(AFTER, everybody=True)] == [told]
    assert await notices.still_wait([told, answered])
    await _answered(records, told)
    assert not await notices.still_wait([told, answered])
    records.clock.turn(FORGET_SECONDS + 1)
    await notices.claim(AFTER, everybody=True)
    with outside(records) as connection:
        assert connection.rows("SELECT * FROM notices") == []


async def test_without_a_webhook_only_people_with_a_device_are_told(records: Records) -> None:
    notices, _ = _two_servers(records)
    await _asked(records, "alices")
    bobs = await _asked(records, "bobs", user="bob")
    await _device(notices, "phone", user="bob")
    records.clock.turn(AFTER)
    assert await notices.next_due(AFTER, everybody=False) == 0
    assert [each.approval_id for each in await notices.claim(AFTER, everybody=False)] == [bobs]
    assert await notices.next_due(AFTER, everybody=False) is None
    assert await notices.next_due(AFTER, everybody=True) == 0, "for alice, once there is a way to tell her"


async def test_device_is_kept_once_and_belongs_to_who_added_it_last(records: Records) -> None:
    notices, _ = _two_servers(records)
    phone = await _device(notices, "phone")
    records.clock.turn(1)
    assert await _device(notices, "phone") == phone, "added again as it was"
    await notices.sent_to(phone, gone=False)
    [sent] = await notices.devices("alice")
    assert sent.sent_at is not None
    moved = await _device(notices, "phone", user="bob")
    assert moved.id != phone.id
    assert await notices.devices("alice") == []
    await notices.sent_to(phone, gone=True)
    assert await notices.devices("bob") == [moved], "what is gone is the device as it was"


async def test_devices_are_removed_by_their_owner_only_and_the_oldest_give_way(records: Records) -> None:
    notices, _ = _two_servers(records)
    kept: list[Device] = []
    for name in ("one", "two", "three", "four"):
        records.clock.turn(1)
        kept.insert(0, await _device(notices, name))
    assert await notices.devices("alice") == kept[:3]
    with pytest.raises(NotFound):
        await notices.remove_device(kept[0].id, "bob")
    assert await notices.remove_device(kept[0].id, "alice") == kept[0]
    with pytest.raises(NotFound):
        await notices.remove_device(kept[0].id, "alice")
    await notices.sent_to(kept[1], gone=True)
    assert await notices.devices("alice") == kept[2:3]


async def test_device_goes_with_the_sign_in_that_added_it_and_with_those_that_led_there(records: Records) -> None:
    notices, _ = _two_servers(records)
    for name, sign_ins in (("laptop", ("a",)), ("phone", ("b", "a")), ("tablet", ("c",))):
        await _device(notices, name, sign_ins=sign_ins)
    await records.store.sign_ins.end("b", "alice", seconds=60)
    assert {device.name for device in await notices.devices("alice")} == {"laptop", "tablet"}
    await _device(notices, "phone", sign_ins=("b", "a"))
    await records.store.sign_ins.end("a", "alice", seconds=60)
    assert {device.name for device in await notices.devices("alice")} == {"tablet"}
