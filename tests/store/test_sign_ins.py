"""Sign-in links in the record: used once, whichever server they are used at, and kept so that nobody can read them."""

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from byleave.protocol.errors import RefusedError
from byleave.protocol.wire import now
from byleave.server.auth.sign_ins import ASKING_SECONDS, CODE_SECONDS, MOST_ASKED, MOST_CODES_OF_ONE, MOST_LED, SignIn
from byleave.server.errors import TooMany
from byleave.settings import ServerSettings
from byleave.store import Store
from byleave.store.postgres.connections import Statements, connect
from byleave.store.sign_ins import SIGN_OUTS, LinkRow, use_link
from harness.postgres import PostgresServer
from harness.records import SEAL_KEYS, Records, outside

pytestmark = pytest.mark.promise("S")

KEY = b"a key that all servers have"


def _two_servers(records: Records) -> tuple[SignIn, SignIn]:
    """Two servers' views of one record, which share no memory."""
    return SignIn(records.store, KEY), SignIn(Store(records.store.database, records.settings), KEY)


async def test_link_made_at_one_server_is_used_at_another_and_only_once(records: Records) -> None:
    first, second = _two_servers(records)
    code = await first.asked_for("alice", until=None, led_by=("a", "b"))
    found = await second.look_up(code)
    assert found is not None
    assert (found.user, found.led_by, found.session_until) == ("alice", ("a", "b"), None)
    used = await asyncio.gather(*(server.use(code) for server in (first, second) * 5))
    assert [one for one in used if one is not None] == [found]
    assert (await first.look_up(code), await second.use(code)) == (None, None)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_two_servers_that_use_a_link_at_the_same_moment_do_not_both_get_it(
    postgres_server: PostgresServer, tmp_path: Path, *, is_kept: bool
) -> None:
    def use(connection: psycopg.Connection[object]) -> LinkRow | None:
        return use_link(Statements(connection).transaction(now(), SEAL_KEYS), "d")

    async with AsyncExitStack() as stack:
        url = stack.enter_context(postgres_server.database())
        store = await Store.open(ServerSettings(home=tmp_path, database_url=url), seal_keys=SEAL_KEYS)
        stack.push_async_callback(store.close)
        await store.sign_ins.add_link("d", LinkRow("alice", "chat", "[]", None), seconds=600, most=10)
        first, second = (stack.enter_context(connect(url)) for _ in range(2))
        found: list[LinkRow | None] = []
        first.execute("BEGIN")
        assert use(first) is not None
        late = threading.Thread(target=lambda: found.append(use(second)))
        late.start()
        async with asyncio.timeout(10):
            while not _waits_for_a_lock(first):
                await asyncio.sleep(0.01)
        assert not found
        first.execute(b"COMMIT" if is_kept else b"ROLLBACK")
        await asyncio.to_thread(late.join)
    assert (found[0] is None) is is_kept


def _waits_for_a_lock(connection: psycopg.Connection[object]) -> bool:
    row = connection.execute("SELECT count(*) AS n FROM pg_locks WHERE NOT granted").fetchone()
    return bool(row and row["n"])  # type: ignore[index] - by the rows of `connect`


async def test_record_holds_no_code_and_nothing_that_finds_one_without_the_key(records: Records) -> None:
    first, _ = _two_servers(records)
    code = await first.new_code("alice")
    with outside(records) as connection:
        [row] = connection.rows("SELECT * FROM sign_in_links")
    assert code not in str(row)
    assert await SignIn(records.store, b"another key").look_up(code) is None
    assert await first.look_up(row["digest"]) is None, "the digest is no code"
    assert await first.look_up(code) is not None


async def test_link_ends_by_the_databases_clock_and_its_row_goes(records: Records) -> None:
    first, second = _two_servers(records)
    old = await first.new_code("alice")
    records.clock.turn(CODE_SECONDS)
    assert (await first.look_up(old), await second.use(old)) == (None, None)
    await second.new_code("bob")
    with outside(records) as connection:
        assert [row["user_id"] for row in connection.rows("SELECT user_id FROM sign_in_links")] == ["bob"]


async def test_further_link_ends_the_oldest_of_the_same_user(records: Records) -> None:
    first, second = _two_servers(records)
    others = await first.new_code("bob")
    many: list[str] = []
    for number in range(MOST_CODES_OF_ONE + 1):
        records.clock.turn(1)
        many.append(await (first, second)[number % 2].new_code("carol"))
    assert await first.look_up(many[0]) is None
    assert all([await second.look_up(code) for code in [*many[1:], others]])


async def test_links_are_counted_over_all_servers_used_or_not(records: Records) -> None:
    first, second = _two_servers(records)
    for number in range(MOST_ASKED):
        assert await first.use(await (first, second)[number % 2].asked_for("alice", until=None))
    for server in (first, second):
        with pytest.raises(TooMany):
            await server.asked_for("alice", until=None)
    await first.asked_for("bob", until=None)
    records.clock.turn(ASKING_SECONDS)
    await first.asked_for("alice", until=None)


async def test_sign_ins_cannot_be_handed_on_without_end(records: Records) -> None:
    with pytest.raises(RefusedError, match="too many"):
        await SignIn(records.store, KEY).asked_for("alice", until=None, led_by=("x",) * MOST_LED)


async def test_sign_out_at_one_server_holds_at_another_at_once(records: Records) -> None:
    other = Store(records.store.database, records.settings)
    assert await other.sign_ins.ended(("one", "two")) == frozenset()
    await records.store.sign_ins.end("two", "alice", seconds=60)
    assert SIGN_OUTS in {hint.topic for hint in records.hints}
    assert await other.sign_ins.ended(("one", "two")) == {"two"}
    await other.sign_ins.end("two", "alice", seconds=60)
    records.clock.turn(61)
    await records.store.sign_ins.end("three", "alice", seconds=60)
    assert await other.sign_ins.ended(("one", "two", "three")) == {"three"}, "its cookies have expired"
