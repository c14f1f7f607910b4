"""Writes that ask: seen by the machine first, shown as a difference, and bound to what was seen."""

import asyncio
import json

import pytest

from byleave.calls import machines
from byleave.calls.executor import Caller
from byleave.gate import Gate, GateRules, Policy, parse_policy
from byleave.gate.text.render import NOT_LOOKED
from byleave.protocol.approvals import Inspection, SeenFile, SeenRole, call_digest
from byleave.protocol.changes import MAX_SHOWN_TEXT, ChangeKind
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.grants import GrantRule, GrantTerms
from byleave.protocol.overview import Layer
from byleave.protocol.states import AgentMode, ApprovalScope, RiskLevel
from byleave.protocol.tools import MAX_FILE_BYTES
from byleave.settings import ServerSettings
from byleave.store import approvals as replaced_module
from byleave.store.database import Row, Transaction
from harness.desk import Desk, completed, open_desk
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("A", "X18")

WRITE = ("write_file", {"path": "a.txt", "content": "one\nthree\n"})
DIGEST, OTHER = "a" * 64, "b" * 64
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3


def there(digest: str = DIGEST, text: str | None = "one\ntwo\n", path: str = "a.txt", **more: object) -> Inspection:
    known: dict[str, object] = {
        "path": path,
        "role": SeenRole.REPLACES,
        "sha256": digest,
        "text": text,
        "size": len(text or "?"),
        "modified_at": "2026-01-01T00:00:00.000Z",
    }
    return Inspection(files=[SeenFile.model_validate(known | more)])


async def rows(desk: Desk) -> list[Row]:
    def work(transaction: Transaction) -> list[Row]:
        return list(transaction.execute("SELECT * FROM tool_executions ORDER BY created_at, id").fetchall())

    return await desk.store.database.read(work)


async def kept(desk: Desk) -> int:
    def work(transaction: Transaction) -> int:
        found = transaction.execute("SELECT count(*) AS n FROM replaced_texts").fetchone()
        assert found is not None
        return found["n"]

    return await desk.store.database.read(work)


async def test_the_question_is_bound_to_what_the_machine_saw_and_the_signal_says_it(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), replaces=lambda request: there()) as signals:
        call = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
        approval = await desk.next_approval()
        assert approval.inspection == there()
        assert approval.description == "Write a.txt: 10 bytes, 2 lines"
        change = await desk.approvals.change(approval.id, "alice")
        assert (change.digest, change.before_sha256, change.before_size) == (approval.digest, DIGEST, 8)
        assert change.seen_at == approval.created_at
        shown = change.change
        assert (shown.kind, shown.path, shown.note) == (ChangeKind.CHANGE, "a.txt", None)
        assert (shown.before, shown.after) == ("one\ntwo\n", "one\nthree\n")
        await desk.approvals.approve_tool(approval.id, "alice")
        assert (await call).status == "completed"
    assert signals[0]["bound"] == {"a.txt": DIGEST}
    params = json.loads(json.dumps(signals[0]["tool_params"]))
    assert signals[0]["digest"] == call_digest("write_file", params, desk.project.id, {"a.txt": DIGEST})
    # The question is over, and the record still shows what it was about.
    again = await desk.approvals.change(approval.id, "alice")
    assert again.change == shown


async def test_the_look_is_asked_for_without_the_content(desk: Desk) -> None:
    requests: list[JsonObject] = []

    def look(request: JsonObject) -> None:
        requests.append(request)

    async with desk.client(lambda signal: completed(), replaces=look):
        call = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
        async with asyncio.timeout(10):
            while not requests:
                await asyncio.sleep(0)
        assert (requests[0]["tool_params"]["path"], requests[0]["tool_params"]["content"]) == ("a.txt", "")
        events, *_ = await desk.store.feed.after(desk.project.id, 0, client_id="c1", limit=1000)
        [stored] = [json.loads(event.payload) for event in events if event.kind == "tool.inspection_request"]
        assert stored["tool_params"] == requests[0]["tool_params"]
        tool_id = requests[0]["tool_id"]
        await desk.executor.inspected(tool_id, there(), user_id="alice", project_id=desk.project.id, client_id="c1")
        await desk.approvals.reject_tool((await desk.next_approval()).id, "alice")
        await call


async def test_an_append_shows_the_whole_file_as_it_would_be(desk: Desk) -> None:
    append = ("write_file", {"path": "a.txt", "content": "three\n", "mode": "append"})
    async with desk.client(lambda signal: completed(), replaces=lambda request: there()):
        await desk.executor.call(*append, desk.session, until_asked=True)
        approval = await desk.next_approval()
        shown = (await desk.approvals.change(approval.id, "alice")).change
    assert (shown.before, shown.after) == ("one\ntwo\n", "one\ntwo\nthree\n")


async def test_the_question_names_the_file_behind_a_link_whatever_it_is_called(desk: Desk) -> None:
    path = "API_TOKEN=x1y2z3"
    async with desk.client(lambda signal: completed(), replaces=lambda request: there(path=path)):
        await desk.executor.call(*WRITE, desk.session, until_asked=True)
        approval = await desk.next_approval()
    assert f"Behind a link: what is written is '{path}'." in approval.description


async def test_a_new_file_is_told_as_new(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        await desk.executor.call(*WRITE, desk.session, until_asked=True)
        approval = await desk.next_approval()
        change = await desk.approvals.change(approval.id, "alice")
    assert (change.before_sha256, change.change.kind) == ("missing", ChangeKind.CREATE)
    assert (change.change.before, change.change.after) == (None, "one\nthree\n")


async def test_the_real_file_behind_a_link_is_named(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), replaces=lambda request: there(path="deep/real.txt")) as signals:
        call = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
        approval = await desk.next_approval()
        assert "Behind a link: what is written is 'deep/real.txt'." in approval.description
        await desk.approvals.approve_tool(approval.id, "alice")
        await call
    assert signals[0]["bound"] == {"deep/real.txt": DIGEST}


@pytest.mark.promise("S")
@pytest.mark.parametrize(("real", "is_shown"), [("Makefile", True), (".env.local", False)])
async def test_a_write_is_masked_as_what_the_file_behind_the_link_is(desk: Desk, real: str, is_shown: bool) -> None:
    line = "DEPLOY_KEY=evil1cmd\n"
    write = ("write_file", {"path": ".env", "content": f"{line}new:\n"})
    async with desk.client(lambda signal: completed(), replaces=lambda request: there(path=real, text=line)):
        await desk.executor.call(*write, desk.session, until_asked=True)
        approval = await desk.next_approval()
        change = (await desk.approvals.change(approval.id, "alice")).change
        whole = await desk.approvals.whole_call(approval.id, "alice")
    for shown in (approval.tool_params["content"], change.before, change.after, whole.text):
        assert ("evil1cmd" in (shown or "")) is is_shown


@pytest.mark.parametrize("looks", [False, None])
async def test_without_a_machine_that_looks_the_question_is_asked_and_says_so(desk: Desk, looks: bool | None) -> None:
    async def ask() -> None:
        async with asyncio.timeout(10):
            row = await desk.executor.call(*WRITE, desk.session, until_asked=True)
        assert row.status == "awaiting_approval"
        approval = await desk.next_approval()
        assert NOT_LOOKED in approval.description
        change = await desk.approvals.change(approval.id, "alice")
        assert (change.before_sha256, change.before_size, change.seen_at) == (None, None, None)
        assert (change.change.before, change.change.after) == (None, "one\nthree\n")
        assert change.change.note is None

    if looks is None:
        await ask()
        return
    async with desk.client(lambda signal: completed(), looks=looks) as signals:
        await ask()
        await desk.approvals.approve_tool((await desk.next_approval()).id, "alice")
        await desk.executor.wait(await desk.store.executions.get((await rows(desk))[0]["id"], user_id="alice"))
    assert signals[0]["bound"] == {}


async def test_a_machine_that_does_not_look_in_time_ends_the_call(settings: ServerSettings) -> None:
    short = settings.model_copy(update={"client_wait_seconds": 0.2})
    async with open_desk(short) as desk, desk.client(lambda signal: completed(), replaces=lambda request: None):
        response = await desk.executor.execute_tool(*WRITE, desk.session.id)
    assert (response.status, response.error_type) == ("failed", "no_client")
    assert "did not say in time what this would replace" in (response.error or "")


@pytest.mark.parametrize(
    ("look", "error"),
    [
        (Inspection(files=[], problem="'a.txt' is not a regular file."), "'a.txt' is not a regular file."),
        (Inspection(files=[]), "The machine did not say what this would replace."),
        (Inspection(files=[SeenFile(path="a.txt", sha256=DIGEST)]), "The machine did not say what this would replace."),
        (
            Inspection(files=[*there().files, *there().files]),
            "The machine did not say what this would replace.",
        ),
    ],
)
async def test_what_cannot_be_seen_is_not_asked_about(desk: Desk, look: Inspection, error: str) -> None:
    async with desk.client(lambda signal: completed(), replaces=lambda request: look) as signals:
        response = await desk.executor.execute_tool(*WRITE, desk.session.id)
    assert (response.status, response.error, signals) == ("failed", error, [])


async def test_a_script_may_not_be_told_as_a_file_that_is_replaced(desk: Desk) -> None:
    run = ("execute_command", {"command": "python", "args": ["x.py"]})
    async with desk.client(lambda signal: completed(), sees=lambda request: there(path="x.py")) as signals:
        response = await desk.executor.execute_tool(*run, desk.session.id)
    assert (response.status, signals) == ("failed", [])


@pytest.mark.promise("G8")
async def test_what_answers_in_a_persons_place_needs_no_look(desk: Desk) -> None:
    looks: list[str] = []

    def look(request: JsonObject) -> Inspection:
        looks.append(request["tool_id"])
        return there()

    async with desk.client(lambda signal: completed(), replaces=look) as signals:
        full = Caller(mode=AgentMode.FULL)
        assert (await desk.executor.execute_tool(*WRITE, desk.session.id, caller=full)).status == "completed"
        assert looks == []
        call = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
        approval = await desk.next_approval()
        rule = GrantRule(tool="write_file", paths=("a.txt",))
        await desk.approvals.decide(
            approval.id, "alice", approve=True, scope=ApprovalScope.CLASS, terms=GrantTerms(rule=rule)
        )
        await call
        assert (await desk.executor.execute_tool(*WRITE, desk.session.id)).status == "completed"
        assert len(looks) == 1
    assert [signal["bound"] for signal in signals] == [{}, {"a.txt": DIGEST}, {}]


async def test_equal_writes_join_one_question_only_while_the_file_is_the_same(desk: Desk) -> None:
    content = [DIGEST]
    async with desk.client(lambda signal: completed(), replaces=lambda request: there(content[0])):
        first = await desk.executor.call(*WRITE, desk.session, until_asked=True)
        second = await desk.executor.call(*WRITE, desk.session, until_asked=True)
        content[0] = OTHER
        third = await desk.executor.call(*WRITE, desk.session, until_asked=True)
    assert first.approval_id == second.approval_id
    assert third.approval_id not in (None, first.approval_id)
    waiting = await desk.approvals.get_pending_approvals("alice")
    assert [one.inspection.bound for one in waiting if one.inspection] == [{"a.txt": DIGEST}, {"a.txt": OTHER}]
    # A yes with the digest of the older look decides nothing about the newer one.
    with pytest.raises(ConflictError):
        await desk.approvals.decide(waiting[1].id, "alice", approve=True, digest=waiting[0].digest)


async def test_nobody_is_asked_about_text_that_does_not_fit_behind_the_file(desk: Desk) -> None:
    append = ("write_file", {"path": "a.txt", "content": "x" * 10, "mode": "append"})
    for size, status in ((MAX_FILE_BYTES - 10, "awaiting_approval"), (MAX_FILE_BYTES - 9, "failed")):
        full = there(text=None, size=size, shortened=True)
        async with desk.client(lambda signal: completed(), replaces=lambda request, full=full: full):
            row = await desk.executor.call(*append, desk.session, until_asked=True)
            assert row.status == status
    assert "larger than" in (row.error or "")


async def test_a_write_refused_three_times_is_refused_whatever_it_would_replace(desk: Desk) -> None:
    digests = iter("abcdef0123")
    async with desk.client(lambda signal: completed(), replaces=lambda request: there(next(digests) * 64)):
        for _ in range(3):
            call = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
            await desk.approvals.reject_tool((await desk.next_approval()).id, "alice")
            await call
        response = await desk.executor.execute_tool(*WRITE, desk.session.id)
    assert (response.status, response.error_type) == ("failed", "refused")
    assert "three times" in (response.error or "")


async def test_long_texts_stay_out_of_the_question_and_the_feed(desk: Desk) -> None:
    text = "a line of the file\n" * 5000
    async with desk.client(lambda signal: completed(), replaces=lambda request: there(text=text)):
        await desk.executor.call(*WRITE, desk.session, until_asked=True)
    approval = await desk.next_approval()
    assert approval.inspection is not None
    assert (approval.inspection.files[0].text, approval.inspection.files[0].shortened) == (None, True)
    events, *_ = await desk.store.feed.after(desk.project.id, 0, client_id=None, limit=1000)
    assert max(len(event.payload) for event in events) < 8 * 1024
    assert (await desk.approvals.change(approval.id, "alice")).change.before == text


async def test_what_is_kept_of_long_texts_is_bounded_and_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaced_module, "MAX_TEXT_CHARACTERS", 50_000)
    text = "x" * 20_000

    async def ask(name: str) -> str:
        row = await desk.executor.call("write_file", {"path": name, "content": "y"}, desk.session, until_asked=True)
        return row.approval_id or ""

    async with desk.client(
        lambda signal: completed(), replaces=lambda request: there(text=text, path=request["tool_params"]["path"])
    ):
        one, two, three = [await ask(name) for name in ("1", "2", "3")]
        assert await kept(desk) == 2
        assert (await desk.approvals.change(one, "alice")).change.before == text
        lost = await desk.approvals.change(three, "alice")
        assert (lost.change.before, lost.before_sha256) == (None, DIGEST)
        assert "What it holds now is not kept." in (lost.change.note or "")
        await desk.approvals.reject_tool(one, "alice")
        four = await ask("4")  # the decided one makes room
        assert (await desk.approvals.change(four, "alice")).change.before == text
        assert (await desk.approvals.change(two, "alice")).change.before == text
        assert (await desk.approvals.change(one, "alice")).change.before is None
        monkeypatch.setattr(replaced_module, "TEXT_SECONDS", -1)
        assert (await desk.approvals.change(two, "alice")).change.before is None, "also before it is cleared away"
        await ask("5")
        assert await kept(desk) == 1


async def test_secrets_show_on_neither_side(desk: Desk) -> None:
    other = "ghp_" + "Z9y8" * 9
    write = ("write_file", {"path": "a.txt", "content": f"token = {other}\n"})
    async with desk.client(
        lambda signal: completed(), replaces=lambda request: there(text=f"token = {SECRET}\n", size=48)
    ):
        await desk.executor.call(*write, desk.session, until_asked=True)
    approval = await desk.next_approval()
    change = await desk.approvals.change(approval.id, "alice")
    told = approval.model_dump_json() + change.model_dump_json()
    assert SECRET not in told
    assert other not in told
    assert change.change.before == change.change.after
    assert "What changes is masked" in (change.change.note or "")


@pytest.mark.promise("G9", "S")
@pytest.mark.parametrize("path", ["a.txt", "hr/pay.txt"], ids=["behind-a-link", "by-name"])
async def test_what_the_organisation_lets_nobody_read_is_not_shown(settings: ServerSettings, path: str) -> None:
    rules = '[[rule]]\naction = "deny"\ntool = "read_file"\npaths = ["hr/**"]\n'
    layer = parse_policy(rules, Layer.ORGANISATION, source="policy.toml")
    look = there(path="hr/pay.txt", text="the pay of everybody")
    async with open_desk(settings, Gate(GateRules(policy=Policy((layer,))))) as desk:
        async with desk.client(lambda signal: completed(), replaces=lambda request: look):
            await desk.executor.call("write_file", {"path": path, "content": "x"}, desk.session, until_asked=True)
        approval = await desk.next_approval()
        change = await desk.approvals.change(approval.id, "alice")
        assert (change.before_sha256, change.change.before) == (DIGEST, None)
        assert change.change.note == "What it holds now: A rule denies reading it."
        events, *_ = await desk.store.feed.after(desk.project.id, 0, client_id=None, limit=1000)
        assert not [event for event in events if "everybody" in event.payload]


async def test_a_long_write_shows_its_end_only_while_it_waits(desk: Desk) -> None:
    long = ("write_file", {"path": "a.txt", "content": "x" * 30_000})
    async with desk.client(lambda signal: completed(), replaces=lambda request: there()):
        await desk.executor.call(*long, desk.session, until_asked=True)
        approval = await desk.next_approval()
        assert (await desk.approvals.change(approval.id, "alice")).change.after == "x" * 30_000
        await desk.approvals.reject_tool(approval.id, "alice")
        shown = (await desk.approvals.change(approval.id, "alice")).change
        assert (shown.after, shown.before) == (None, "one\ntwo\n")
        assert "too long" in (shown.note or "")
        huge = ("write_file", {"path": "a.txt", "content": "x" * (5 * MAX_SHOWN_TEXT)})
        await desk.executor.call(*huge, desk.session, until_asked=True)
        shown = (await desk.approvals.change((await desk.next_approval()).id, "alice")).change
        assert shown.after is None


async def test_what_is_no_write_and_what_is_anothers_has_no_change(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()):
        row = await desk.executor.call(*WRITE, desk.session, until_asked=True)
        with pytest.raises(NotFound):
            await desk.approvals.change(row.approval_id or "", "bob")
        search = await desk.executor.call("search_web", {"query": "x"}, desk.session, until_asked=True)
        with pytest.raises(NotFound):
            await desk.approvals.change(search.approval_id or "", "alice")
    alone = {"path": "a.txt", "content": "x"}
    standing = await desk.approvals.request_tool_approval("alice", "write_file", alone, RiskLevel.MEDIUM, 60)
    assert (await desk.approvals.change(standing.id, "alice")).before_sha256 is None
    empty = await desk.approvals.request_tool_approval("alice", "make_tea", {}, RiskLevel.MEDIUM, 60)
    with pytest.raises(NotFound):
        await desk.approvals.change(empty.id, "alice")


async def test_a_machine_that_changes_servers_is_waited_for_before_a_question(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), replaces=lambda request: there()):
        pass
    writing = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
    async with asyncio.timeout(10):
        while desk.project.id not in desk.presence._returning:
            await asyncio.sleep(0)
    assert not await desk.approvals.get_pending_approvals("alice")
    async with desk.client(lambda signal: completed(), replaces=lambda request: there()):
        approval = await desk.next_approval()
        assert approval.inspection is not None
        await desk.approvals.approve_tool(approval.id, "alice")
        assert (await writing).status == "completed"


async def test_a_machine_that_does_not_come_back_keeps_no_question(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "RETURN_SECONDS", 0.05)
    async with desk.client(lambda signal: completed(), replaces=lambda request: there()):
        pass
    writing = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
    approval = await desk.next_approval()
    assert approval.inspection is None
    await desk.approvals.reject_tool(approval.id, "alice")
    await writing
