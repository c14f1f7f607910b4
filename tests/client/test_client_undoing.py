"""Undo asked for from elsewhere: what the machine shows, does, and never does. Real files, a real store."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from byleave.client import cache
from byleave.client import undo as undoing
from byleave.client.undo import Undoer, UndoIntents, UndoLink
from byleave.gate import Policy
from byleave.gate.policy.policy import parse_policy
from byleave.protocol.changes import (
    MAX_SHOWN_TEXT,
    ChangeKind,
    SessionUndoReport,
    ShownChange,
    UndoPlan,
    UndoReport,
)
from byleave.protocol.errors import ByleaveError, CallerError, NotFound, ToolFailure, UnreachableError
from byleave.protocol.events import SessionUndoRequested, UndoRequested
from byleave.protocol.overview import Layer
from byleave.protocol.wire import now, timestamp
from byleave.settings import ClientSettings
from byleave.workspace.paths import PathValidator
from byleave.workspace.undo import desk as undo_plans
from byleave.workspace.undo.desk import UndoDesk, UndoRefused
from byleave.workspace.undo.restoring import Plan, UndoHistory
from byleave.workspace.undo.store import Entry
from byleave.workspace.workspace import Workspace

from .conftest import MakeApproved, MakeHandler, MakeSignal, RecordingLink

pytestmark = pytest.mark.promise("L8-undo")

PROJECT, CLIENT = "project_1", "client_1"


class Reports:
    """Stands where the server's API stands."""

    def __init__(self) -> None:
        self.got: list[UndoReport] = []
        self.together: list[SessionUndoReport] = []
        self.failures: list[ByleaveError] = []
        self.news = asyncio.Condition()

    async def post_undo_report(self, project_id: str, tool_id: str, report: UndoReport) -> None:
        assert (project_id, tool_id) == (PROJECT, "exec_1")
        async with self.news:
            self.news.notify_all()
            if self.failures:
                raise self.failures.pop(0)
            self.got.append(report)

    async def post_session_undo_report(self, project_id: str, session_id: str, report: SessionUndoReport) -> None:
        assert (project_id, session_id) == (PROJECT, "session_1")
        async with self.news:
            self.news.notify_all()
            if self.failures:
                raise self.failures.pop(0)
            self.together.append(report)

    async def of(self, request_id: str) -> UndoReport:
        async with asyncio.timeout(10), self.news:
            await self.news.wait_for(lambda: any(report.request_id == request_id for report in self.got))
        return next(report for report in self.got if report.request_id == request_id)

    async def of_session(self, request_id: str) -> SessionUndoReport:
        async with asyncio.timeout(10), self.news:
            await self.news.wait_for(lambda: any(report.request_id == request_id for report in self.together))
        return next(report for report in self.together if report.request_id == request_id)


def asked(request_id: str, plan: str | None = None, **changes: object) -> UndoRequested:
    known: dict[str, object] = {
        "timestamp": now(),
        "request_id": request_id,
        "tool_id": "exec_1",
        "client_id": CLIENT,
        "session_id": "session_1",
        "plan": plan,
        "partial": False,
        "deadline": timestamp(datetime.now(UTC) + timedelta(seconds=10)),
    }
    return UndoRequested.model_validate(known | changes)


@pytest.fixture
def settings(tmp_path: Path) -> ClientSettings:
    return ClientSettings(home=tmp_path / "home")


@pytest.fixture
async def workspace(root: Path, settings: ClientSettings) -> AsyncIterator[Workspace]:
    workspace = Workspace(root, settings)
    yield workspace
    await workspace.close()


@pytest.fixture
def desk(workspace: Workspace) -> UndoDesk:
    return workspace.undoing


@pytest.fixture
async def reports() -> Reports:
    return Reports()


@pytest.fixture
def forgotten() -> list[bool]:
    return []


@pytest.fixture
def intents(tmp_path: Path) -> UndoIntents:
    return UndoIntents(tmp_path / "client")


@pytest.fixture
async def undoer(
    desk: UndoDesk, reports: Reports, forgotten: list[bool], intents: UndoIntents
) -> AsyncIterator[Undoer]:
    undoer = made(desk, reports, intents, forget=lambda: forgotten.append(True))
    yield undoer
    await undoer.close()


def made(desk: object, link: UndoLink, intents: UndoIntents, forget: Callable[[], None] = lambda: None) -> Undoer:
    # A stand-in for the desk has only the method that its test reaches.
    return Undoer(
        project_id=PROJECT, client_id=CLIENT, desk=cast(UndoDesk, desk), link=link, forget=forget, intents=intents
    )


async def write(workspace: Workspace, path: str, content: str, tool_id: str = "exec_1") -> None:
    result = await workspace.run("write_file", {"path": path, "content": content}, record_as=tool_id)
    assert result.success


async def python(workspace: Workspace, code: str, tool_id: str = "exec_1") -> None:
    params = {"command": "python3", "args": ["-c", code]}
    result = await workspace.run("execute_command", params, record_as=tool_id)
    assert result.success, result


def by_path(plan: UndoPlan) -> dict[str, ShownChange]:
    return {change.path: change for change in plan.files}


def carry_out(desk: UndoDesk, digest: str, *, partial: bool = False) -> tuple[UndoPlan, str | None]:
    return desk.carry_out("exec_1", digest, partial=partial, wanted=lambda: True)


# What is shown


async def test_plan_shows_what_the_undo_will_do_and_the_undo_does_it(
    workspace: Workspace, desk: UndoDesk, root: Path
) -> None:
    (root / "gone.txt").write_text("kept\n")
    code = "import os; os.unlink('gone.txt'); os.mkdir('d'); open('d/new.txt','w').write('n'); open('a.txt','w')"
    await python(workspace, code)
    plan = desk.look("exec_1")
    shown = by_path(plan)
    assert shown["a.txt"] == ShownChange(path="a.txt", kind=ChangeKind.CHANGE, before="", after="hello\n")
    assert shown["gone.txt"] == ShownChange(path="gone.txt", kind=ChangeKind.CREATE, after="kept\n")
    assert shown["d/new.txt"] == ShownChange(path="d/new.txt", kind=ChangeKind.DELETE, before="n")
    assert shown["d"] == ShownChange(path="d", kind=ChangeKind.DELETE, note="a directory")
    assert (plan.total_files, plan.conflicts, plan.lost, plan.left) == (4, [], {}, [])
    told, undo_id = carry_out(desk, plan.plan)
    assert undo_id is not None
    assert (told.plan, told.total_files) == (plan.plan, 4)
    assert all(change.before is None and change.after is None for change in told.files)
    assert sorted(os.listdir(root)) == ["a.txt", "gone.txt"]
    assert (root / "a.txt").read_text() == "hello\n"
    with pytest.raises(CallerError, match="already undone"):
        desk.look("exec_1")
    with pytest.raises(CallerError, match="already undone"):
        carry_out(desk, plan.plan)


async def test_secrets_are_masked_and_files_that_may_hold_some_are_not_shown(
    workspace: Workspace, desk: UndoDesk, root: Path
) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    (root / "a.txt").write_text(f"token = {token}\n")
    (root / ".env").write_text("PASSWORD=hunter2\n")
    await python(workspace, "open('.env','w').write('PASSWORD=x'); open('a.txt','w').write('no more\\n')")
    plan = desk.look("exec_1")
    assert "masked" in (by_path(plan)["a.txt"].after or "")
    assert by_path(plan)[".env"].unshown == "not shown: it may hold secrets"
    assert token not in plan.model_dump_json()
    assert "hunter2" not in plan.model_dump_json()
    other = "ghp_" + "c3D4" * 9
    (root / "b.txt").write_text(f"token = {token}\n")
    await write(workspace, "b.txt", f"token = {other}\n", "exec_2")
    assert by_path(desk.look("exec_2"))["b.txt"].unshown == "it differs only in what is masked here"


async def test_binary_large_and_too_many_texts_are_noted(
    workspace: Workspace, desk: UndoDesk, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "large.txt").write_text("x" * (MAX_SHOWN_TEXT + 1))
    code = (
        "import os; open('binary','wb').write(b'a\\0b'); open('latin','wb').write(b'\\xe9'); os.unlink('large.txt')\n"
        "for n in range(4): open(f't{n}','w').write('y' * 40)\n"
        "os.symlink('a.txt', 'link'); os.chmod('a.txt', 0o755)"
    )
    await python(workspace, code)
    monkeypatch.setattr(undo_plans, "MAX_PLAN_TEXT", 100)
    shown = by_path(desk.look("exec_1"))
    assert {shown[name].unshown for name in ("binary", "latin", "large.txt")} == {"not shown: large, or no text"}
    assert [shown[f"t{n}"].unshown is None for n in range(4)] == [True, True, False, False]
    assert shown["t3"].unshown == "not shown: there is too much in all"
    assert shown["link"].note == "a link to 'a.txt'"
    assert shown["a.txt"] == ShownChange(path="a.txt", kind=ChangeKind.CHANGE, note="mode 755 becomes 644")
    monkeypatch.setattr(undo_plans, "MAX_PLAN_TEXT", 40)
    assert by_path(desk.look("exec_1"))["t1"].unshown == "not shown: there is too much in all"


async def test_texts_that_take_long_to_mask_hold_up_no_call(
    workspace: Workspace, desk: UndoDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Masking 100 such files took more than two minutes, in which no call could begin.
    await python(workspace, "for n in range(3): open(f't{n}','w').write('token: ' * 100)")
    masked: list[str] = []
    monkeypatch.setattr(undo_plans, "TEXT_SECONDS", 0.0)
    monkeypatch.setattr(undo_plans, "mask_text", lambda text: masked.append(text) or text)
    plan = desk.look("exec_1")
    assert {change.unshown for change in plan.files} == {"not shown: there is too much in all"}
    assert masked == []


async def test_many_paths_are_counted_and_those_shown_bounded(workspace: Workspace, desk: UndoDesk, root: Path) -> None:
    await python(workspace, "for n in range(250): open(f'f{n:03}\\n','w').write('x')")
    plan = desk.look("exec_1")
    assert (len(plan.files), plan.total_files) == (200, 250)
    assert plan.files[0].path == "f000\\x0a"
    assert plan.notes[0] == "Not all paths are listed: 250 would change."
    carry_out(desk, plan.plan)
    assert os.listdir(root) == ["a.txt"]


async def test_what_is_left_and_who_ran_at_the_same_time_is_told(workspace: Workspace, desk: UndoDesk) -> None:
    both = [python(workspace, "import os; os.mkfifo('pipe')"), python(workspace, "open('b','w')", "exec_2")]
    await asyncio.gather(*both)
    plans = [desk.look(one) for one in ("exec_1", "exec_2") if _known(desk, one)]
    assert any(plan.left == ["pipe"] and "Left where it is: pipe (" in plan.notes[-1] for plan in plans)


def _known(desk: UndoDesk, tool_id: str) -> bool:
    try:
        desk.look(tool_id)
    except NotFound:
        return False
    return True


async def test_gits_own_state_is_said_to_stay(workspace: Workspace, desk: UndoDesk, root: Path) -> None:
    await workspace.run("execute_command", {"command": "git", "args": ["init", "sub"]}, record_as="exec_1")
    assert any(note.startswith("git's own state") for note in desk.look("exec_1").notes)


# What stops it


async def test_conflict_is_shown_and_nothing_is_undone(workspace: Workspace, desk: UndoDesk, root: Path) -> None:
    await python(workspace, "open('a.txt','w').write('theirs'); open('b.txt','w')")
    (root / "a.txt").write_text("mine")
    plan = desk.look("exec_1")
    assert plan.conflicts == ["a.txt"]
    with pytest.raises(UndoRefused, match=r"Changed since this call: a\.txt\. So nothing was undone\.") as refused:
        carry_out(desk, plan.plan, partial=True)
    assert refused.value.plan.conflicts == ["a.txt"]
    assert (root / "a.txt").read_text() == "mine"
    assert (root / "b.txt").exists()


async def test_what_changed_while_a_person_decided_is_not_undone(
    workspace: Workspace, desk: UndoDesk, root: Path
) -> None:
    await python(workspace, "open('a.txt','w').write('theirs'); open('b.txt','w')")
    plan = desk.look("exec_1")
    (root / "b.txt").unlink()
    with pytest.raises(UndoRefused, match="Something changed while you decided; nothing was undone"):
        carry_out(desk, plan.plan)
    assert (root / "a.txt").read_text() == "theirs"
    os.utime(root / "a.txt")  # touched, and the same all the same
    again = desk.look("exec_1")
    os.utime(root / "a.txt", (1, 1))
    assert carry_out(desk, again.plan)[1] is not None
    assert (root / "a.txt").read_text() == "hello\n"


async def test_what_is_lost_stays_and_the_rest_is_undone_only_when_asked(
    root: Path, settings: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "big").write_text("x" * 300_000)
    workspace = Workspace(root, settings.model_copy(update={"undo_bytes": 200_000}))
    try:
        await python(workspace, "open('big','w').write('y'); open('a.txt','w').write('theirs')")
        desk = workspace.undoing
        plan = desk.look("exec_1")
        assert list(plan.lost) == ["big"]
        with pytest.raises(UndoRefused, match="This cannot be brought back: big"):
            carry_out(desk, plan.plan)
        assert (root / "a.txt").read_text() == "theirs"
        assert carry_out(desk, plan.plan, partial=True)[1] is not None
        assert (root / "a.txt").read_text() == "hello\n"
        assert (root / "big").read_text() == "y"
    finally:
        await workspace.close()


@pytest.mark.promise("G9", "S")
async def test_what_the_owner_denies_is_neither_written_nor_shown(
    workspace: Workspace, desk: UndoDesk, root: Path
) -> None:
    (root / "private").mkdir()
    (root / "private" / "key.txt").write_text("the owner's own")
    (root / "log.txt").write_text("a log")
    code = "open('private/key.txt','w').write('theirs'); open('a.txt','w').write('x'); open('log.txt','w').write('y')"
    await python(workspace, code)
    rules = (
        '[[rule]]\naction = "deny"\npaths = ["private/**"]\n'
        '[[rule]]\naction = "deny"\ntool = "read_file"\npaths = ["log.txt"]\n'
    )
    workspace.obey(Policy((parse_policy(rules, Layer.USER, source="policy.toml"),)))
    plan = desk.look("exec_1")
    assert plan.lost == {"private/key.txt": "this machine's rules deny it, so it stays as it is"}
    assert [change.path for change in plan.files] == ["a.txt", "log.txt"]
    assert by_path(plan)["log.txt"].unshown == "not shown: this machine's rules deny reading it"
    assert "the owner's own" not in plan.model_dump_json()
    with pytest.raises(UndoRefused, match="rules deny it"):
        carry_out(desk, plan.plan)
    # As an undo that was interrupted leaves it: names for the time between are cleared away, but not there.
    assert desk._history is not None
    begun = Entry("undo_x", "undo", "", now(), undoes="exec_1", done=False)
    desk._history._index.put(begun)
    between = f".byleave-{'0' * 16}.undo"
    for directory in (root, root / "private"):
        (directory / between).write_text("")
    carry_out(desk, plan.plan, partial=True)
    assert not (root / between).exists()
    assert (root / "private" / between).exists()
    assert (root / "private" / "key.txt").read_text() == "theirs"
    assert (root / "a.txt").read_text() == "hello\n"


@pytest.mark.promise("G9", "S")
async def test_what_the_organisation_denies_is_neither_written_nor_shown(
    workspace: Workspace, undoer: Undoer, reports: Reports, root: Path
) -> None:
    (root / "private").mkdir()
    for name in ("private/key.txt", "log.txt", "out.bin"):
        (root / name).write_text("before")
    code = "[open(name, 'w').write('x') for name in ('private/key.txt', 'log.txt', 'out.bin', 'a.txt')]"
    await python(workspace, code)
    keep_off = {"write_file": ["private/**"], "read_file": ["log.txt", "private/**"], "execute_command": ["out.bin"]}
    undoer.request(asked("r1", keep_off=keep_off), server_ahead=0)
    plan = (await reports.of("r1")).plan
    assert plan is not None
    denied = "the organisation's rules deny it, so it stays as it is"
    assert plan.lost == {"private/key.txt": denied, "out.bin": denied}
    assert [change.path for change in plan.files] == ["a.txt", "log.txt"]
    log = by_path(plan)["log.txt"]
    assert (log.before, log.after, log.unshown) == (None, None, "not shown: the organisation's rules deny reading it")
    assert "before" not in {change.after for change in plan.files}
    undoer.request(asked("r2", plan.plan, partial=True, keep_off=keep_off), server_ahead=0)
    assert (await reports.of("r2")).done
    found = {name: (root / name).read_text() for name in ("private/key.txt", "out.bin", "log.txt", "a.txt")}
    assert found == {"private/key.txt": "x", "out.bin": "x", "log.txt": "before", "a.txt": "hello\n"}
    undoer.request(asked("r3", plan.plan, partial=True), server_ahead=0)
    assert not (await reports.of("r3")).done


@pytest.mark.promise("G9", "S")
async def test_directory_that_became_a_link_to_outside_is_not_followed(
    workspace: Workspace, desk: UndoDesk, root: Path, tmp_path: Path
) -> None:
    (root / "d").mkdir()
    (root / "d" / "x.txt").write_text("old")
    await python(workspace, "open('d/x.txt','w').write('new')")
    plan = desk.look("exec_1")
    outside = tmp_path / "outside"
    (root / "d").rename(outside)
    (root / "d").symlink_to(outside)
    with pytest.raises(UndoRefused):
        carry_out(desk, plan.plan)
    assert desk.look("exec_1").conflicts == ["d/x.txt"]
    assert (outside / "x.txt").read_text() == "new"


async def test_nothing_is_undone_while_a_call_runs_and_a_short_one_is_waited_for(
    workspace: Workspace, desk: UndoDesk, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(workspace, "a.txt", "new")
    monkeypatch.setattr(undo_plans, "PATIENCE_SECONDS", 0.0)
    running = asyncio.create_task(python(workspace, _UNTIL_OFF, "exec_2"))
    async with asyncio.timeout(20):
        while not (root / "on").exists():
            await asyncio.sleep(0.01)
    with pytest.raises(ToolFailure, match="A call or another undo runs in this workspace right now"):
        await asyncio.to_thread(desk.look, "exec_1")
    monkeypatch.setattr(undo_plans, "PATIENCE_SECONDS", 20.0)
    looking = asyncio.create_task(asyncio.to_thread(desk.look, "exec_1"))
    (root / "off").write_text("")
    await running
    assert (await looking).total_files == 1


_UNTIL_OFF = "import os, time\nopen('on','w')\nwhile not os.path.exists('off'): time.sleep(0.01)"


async def test_unknown_calls_and_stores_that_cannot_be_read_are_said(
    workspace: Workspace, desk: UndoDesk, root: Path, settings: ClientSettings, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match="Nothing that 'exec_1' changed in this workspace is known"):
        desk.look("exec_1")
    file = tmp_path / "file"
    file.write_text("")
    broken = Workspace(root, settings.model_copy(update={"home": file / "home"}))
    try:
        with pytest.raises(ToolFailure, match="What calls changed here cannot be read: Not a directory"):
            broken.undoing.look("exec_1")
    finally:
        await broken.close()


# Being asked


async def test_request_is_answered_with_the_plan_and_then_carried_out(
    undoer: Undoer, reports: Reports, workspace: Workspace, root: Path, forgotten: list[bool]
) -> None:
    await write(workspace, "a.txt", "new\n")
    undoer.request(asked("r1"), server_ahead=0)
    plan = (await reports.of("r1")).plan
    assert plan is not None
    assert by_path(plan)["a.txt"].after == "hello\n"
    assert not forgotten
    undoer.request(asked("r2", plan.plan), server_ahead=0)
    done = await reports.of("r2")
    assert (done.done, done.problem) == (True, None)
    assert (root / "a.txt").read_text() == "hello\n"
    assert len(forgotten) == 2
    paths = PathValidator(root)
    try:
        history = UndoHistory(paths, workspace._settings.home)
        assert [entry.id for entry in history.entries()] == ["exec_1", done.undo_id]
    finally:
        paths.close()


async def test_of_two_who_press_at_once_one_does_it_and_the_other_is_told(
    undoer: Undoer, reports: Reports, workspace: Workspace, desk: UndoDesk
) -> None:
    await write(workspace, "a.txt", "new\n")
    digest = desk.look("exec_1").plan
    for name in ("r1", "r2"):
        undoer.request(asked(name, digest), server_ahead=0)
    first, second = await reports.of("r1"), await reports.of("r2")
    assert (first.done, second.done) == (True, False)
    assert second.problem is not None
    assert second.problem.startswith(f"'exec_1' is already undone. `byleave undo {first.undo_id}` brings it back.")


async def test_replayed_late_and_foreign_requests_do_nothing(
    undoer: Undoer, reports: Reports, workspace: Workspace, desk: UndoDesk, root: Path
) -> None:
    await write(workspace, "a.txt", "new\n")
    digest = desk.look("exec_1").plan
    late = timestamp(datetime.now(UTC) - timedelta(seconds=1))
    undoer.request(asked("r1", digest, deadline=late), server_ahead=0)
    undoer.request(asked("r2", digest), server_ahead=3600)  # by the server's clock
    undoer.request(asked("r3", digest, client_id="another"), server_ahead=0)
    undoer.request(asked("r4"), server_ahead=0)
    await reports.of("r4")
    undoer.request(asked("r4", digest), server_ahead=0)
    undoer.request(asked("r5"), server_ahead=0)
    await reports.of("r5")
    assert [report.request_id for report in reports.got] == ["r4", "r5"]
    assert (root / "a.txt").read_text() == "new\n"


async def test_what_was_asked_in_time_but_would_begin_too_late_is_not_done(
    workspace: Workspace, desk: UndoDesk, root: Path
) -> None:
    await write(workspace, "a.txt", "new\n")
    digest = desk.look("exec_1").plan
    with pytest.raises(UndoRefused, match="Its time was up before it could begin"):
        desk.carry_out("exec_1", digest, partial=False, wanted=lambda: False)
    assert (root / "a.txt").read_text() == "new\n"


async def test_undo_whose_time_passes_while_it_is_written_down_does_not_begin(
    undoer: Undoer,
    reports: Reports,
    workspace: Workspace,
    desk: UndoDesk,
    root: Path,
    tmp_path: Path,
    intents: UndoIntents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await write(workspace, "a.txt", "new\n")
    keep = intents.keep

    def slow_disk(request_id: str, tool_id: str, plan: str) -> None:
        keep(request_id, tool_id, plan)
        monkeypatch.setattr(undoing, "_is_late", lambda until: True)

    monkeypatch.setattr(intents, "keep", slow_disk)
    undoer.request(asked("r1", desk.look("exec_1").plan), server_ahead=0)
    report = await reports.of("r1")
    assert (report.problem or "").startswith("Its time was up before it could begin")
    assert (root / "a.txt").read_text() == "new\n"
    assert not UndoIntents(tmp_path / "client").left


async def test_problems_are_told_with_the_plan_and_what_to_do(
    undoer: Undoer, reports: Reports, workspace: Workspace, root: Path
) -> None:
    undoer.request(asked("r1"), server_ahead=0)
    problem = (await reports.of("r1")).problem or ""
    assert problem.endswith("is known. `byleave undo --list` shows what can be undone here.")
    await write(workspace, "a.txt", "new\n")
    undoer.request(asked("r2", "0" * 64), server_ahead=0)
    refused = await reports.of("r2")
    assert refused.plan is not None
    assert refused.problem == "Something changed while you decided; nothing was undone. Look at what it would do now."


class Failing:
    """A desk that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def look(self, tool_id: str, keep_off: object) -> UndoPlan:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "The machine could not do it: No space left on device."),
        (ValueError("inside"), "The client failed with ValueError; its log says more."),
        (ToolFailure("It is busy."), "It is busy."),
    ],
)
async def test_every_request_is_answered_whatever_goes_wrong(
    reports: Reports, intents: UndoIntents, error: Exception, said: str
) -> None:
    desk = Failing(error)
    undoer = made(desk, reports, intents)
    undoer.request(asked("r1"), server_ahead=0)
    assert ((await reports.of("r1")).problem or "").startswith(said)
    await undoer.close()


async def test_report_of_what_was_done_is_sent_until_the_server_has_it(
    undoer: Undoer, reports: Reports, workspace: Workspace, desk: UndoDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(workspace, "a.txt", "new\n")
    monkeypatch.setattr(undoing, "pause", lambda attempt: 0.0)
    digest = desk.look("exec_1").plan
    reports.failures = [UnreachableError("away")] * undoing.TRIES
    undoer.request(asked("r1", digest), server_ahead=0)
    async with asyncio.timeout(10), reports.news:
        await reports.news.wait_for(lambda: not reports.failures)
    while undoer._tasks:
        await asyncio.wait(list(undoer._tasks))
    assert not reports.got
    await undoer.resend()
    assert [report.done for report in reports.got] == [True]
    await undoer.resend()
    assert len(reports.got) == 1
    # What the server refuses for good is not sent again.
    reports.failures = [NotFound("Nobody asked.")]
    undoer.request(asked("r2"), server_ahead=0)
    async with asyncio.timeout(10), reports.news:
        await reports.news.wait_for(lambda: not reports.failures)
    await undoer.resend()
    assert len(reports.got) == 1


async def test_undo_that_began_and_failed_is_told_on_the_next_connection(
    reports: Reports, intents: UndoIntents, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck:
        def carry_out(self, *named: object, wanted: Callable[[], bool], **more: object) -> None:
            assert wanted()
            raise ToolFailure("It stopped in the middle.")

    monkeypatch.setattr(undoing, "pause", lambda attempt: 0.0)
    undoer = made(Stuck(), reports, intents)
    reports.failures = [UnreachableError("away")] * undoing.TRIES
    undoer.request(asked("r1", "0" * 64), server_ahead=0)
    await asyncio.wait(list(undoer._tasks), timeout=10)
    assert not reports.got
    await undoer.resend()
    assert [(report.done, report.problem) for report in reports.got] == [(False, "It stopped in the middle.")]
    await undoer.resend()
    assert len(reports.got) == 1
    await undoer.close()


async def test_memory_is_bounded_and_a_closed_one_begins_nothing(
    undoer: Undoer, reports: Reports, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "REMEMBERED", 1)
    monkeypatch.setattr(undoing, "WAITING", 2)
    for number in range(4):
        undoer.request(asked(f"r{number}"), server_ahead=0)
    assert (len(undoer._tasks), list(undoer._seen)) == (2, ["r1"])
    await undoer.close()
    undoer.request(asked("r9"), server_ahead=0)
    assert not undoer._tasks
    assert "r1" not in [report.request_id for report in reports.got]


async def test_what_is_being_undone_comes_to_its_end_when_the_client_closes(
    workspace: Workspace, desk: UndoDesk, root: Path, intents: UndoIntents, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(workspace, "a.txt", "new\n")
    digest = desk.look("exec_1").plan
    silent = asyncio.Event()

    class Silent:
        async def post_undo_report(self, project_id: str, tool_id: str, report: UndoReport) -> None:
            await silent.wait()

    monkeypatch.setattr(undoing, "LAST_POST_SECONDS", 0.0)
    undoer = made(desk, cast(UndoLink, Silent()), intents)
    undoer.request(asked("r1", digest), server_ahead=0)
    await asyncio.sleep(0)  # it begins
    await undoer.close()
    assert (root / "a.txt").read_text() == "hello\n"
    assert not undoer._tasks


@pytest.mark.promise("C6")
async def test_what_was_read_before_is_forgotten(
    make_handler: MakeHandler,
    link: RecordingLink,
    signal: MakeSignal,
    approved: MakeApproved,
    reports: Reports,
    intents: UndoIntents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "SETTLED_SECONDS", -1.0)
    handler = await make_handler()
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "a.txt", "content": "new"}))
    await link.report("exec_1")
    handler.handle_tool_execution_signal(signal("exec_2"))
    assert (await link.report("exec_2"))["result"]["content"] == "new"
    assert handler._cache is not None
    assert handler._cache._entries
    desk = handler._workspace.undoing
    undoer = made(desk, reports, intents, forget=handler.forget_reads)
    undoer.request(asked("r1", desk.look("exec_1").plan), server_ahead=0)
    assert (await reports.of("r1")).done
    assert not handler._cache._entries
    handler.handle_tool_execution_signal(signal("exec_3"))
    assert (await link.report("exec_3"))["result"]["content"] == "hello\n"
    await undoer.close()
    (await make_handler(cache_enabled=False, state="other")).forget_reads()  # nothing to forget


# What outlives a kill, and what takes long


@pytest.mark.parametrize("failures", [[], [UnreachableError("gone")]], ids=["told", "not told"])
async def test_undo_that_takes_long_is_told_to_be_under_way_and_then_done(
    workspace: Workspace,
    desk: UndoDesk,
    reports: Reports,
    intents: UndoIntents,
    monkeypatch: pytest.MonkeyPatch,
    failures: list[ByleaveError],
) -> None:
    await write(workspace, "a.txt", "new\n")
    digest = desk.look("exec_1").plan
    go_on = threading.Event()

    class Slow:
        def carry_out(self, *named: Any, wanted: Callable[[], bool], **more: Any) -> tuple[UndoPlan, str | None]:
            assert wanted()
            assert go_on.wait(10)
            return desk.carry_out(*named, wanted=lambda: True, **more)

    monkeypatch.setattr(undoing, "LONG_SECONDS", 0.01)
    reports.failures = [*failures]
    told = [(False, True)] if failures else [(True, False), (False, True)]
    undoer = made(Slow(), reports, intents)
    undoer.request(asked("r1", digest), server_ahead=0)
    async with asyncio.timeout(10), reports.news:
        await reports.news.wait_for(lambda: len(reports.got) == len(told) - 1 and not reports.failures)
        assert [(report.begun, report.done) for report in reports.got] == told[:-1]
        go_on.set()
        await reports.news.wait_for(lambda: len(reports.got) == len(told))
    assert [(report.begun, report.done) for report in reports.got] == told
    await undoer.close()


async def test_client_killed_between_an_undo_and_its_report_tells_it_when_it_starts_again(
    workspace: Workspace, desk: UndoDesk, reports: Reports, tmp_path: Path
) -> None:
    await python(workspace, "open('a.txt','w').write('x'); open('b.txt','w')")
    digest = desk.look("exec_1").plan
    before = UndoIntents(tmp_path / "client")
    _, undo_id = desk.carry_out(
        "exec_1", digest, partial=False, wanted=lambda: before.keep("r1", "exec_1", digest) is None
    )
    reports.failures = [UnreachableError("gone")]
    undoer = made(desk, reports, UndoIntents(tmp_path / "client"))
    await undoer.resend()
    assert reports.got == [], "not yet: it is kept"
    await undoer.resend()
    await undoer.resend()
    [report] = reports.got
    assert (report.request_id, report.done, report.undo_id) == ("r1", True, undo_id)
    assert report.plan is not None
    assert (report.plan.plan, report.plan.total_files) == (digest, 2)
    assert not UndoIntents(tmp_path / "client").left
    await undoer.close()


async def test_undo_that_a_kill_interrupted_or_prevented_is_told_as_that(
    workspace: Workspace, desk: UndoDesk, reports: Reports, tmp_path: Path
) -> None:
    await write(workspace, "a.txt", "new\n")
    digest = desk.look("exec_1").plan
    UndoIntents(tmp_path / "client").keep("r1", "exec_1", digest)
    await made(desk, reports, UndoIntents(tmp_path / "client")).resend()
    UndoIntents(tmp_path / "client").keep("r2", "exec_1", digest)
    begun = Entry("undo_x", "undo", "", now(), undoes="exec_1", done=False)
    assert desk._history is not None
    desk._history._index.put(begun)
    await made(desk, reports, UndoIntents(tmp_path / "client")).resend()
    assert [report.done for report in reports.got] == [False, False]
    assert [report.problem for report in reports.got] == [
        "The client stopped before anything was undone.",
        undoing.HALF_DONE,
    ]


async def test_intent_is_there_while_an_undo_runs_and_gone_when_it_was_told(
    workspace: Workspace, desk: UndoDesk, undoer: Undoer, reports: Reports, tmp_path: Path
) -> None:
    await write(workspace, "a.txt", "new\n")
    (tmp_path / "client" / "undos" / "torn.json").write_text("{")
    undoer.request(asked("r1", desk.look("exec_1").plan), server_ahead=0)
    assert (await reports.of("r1")).done
    await undoer.close()
    assert not UndoIntents(tmp_path / "client").left
    assert not list((tmp_path / "client" / "undos").iterdir())


async def test_nothing_is_undone_that_could_not_be_written_down_before(
    workspace: Workspace, desk: UndoDesk, undoer: Undoer, reports: Reports, root: Path, tmp_path: Path
) -> None:
    await write(workspace, "a.txt", "new\n")
    (tmp_path / "client" / "undos").rename(tmp_path / "away")
    undoer.request(asked("r1", desk.look("exec_1").plan), server_ahead=0)
    report = await reports.of("r1")
    assert (report.done, report.problem is not None) == (False, True)
    assert (root / "a.txt").read_text() == "new\n"


# All calls of a conversation


def all_asked(request_id: str, *tool_ids: str, plan: str | None = None, **changes: object) -> SessionUndoRequested:
    """A request for several calls, newest first."""
    one = asked(request_id, plan, **changes).model_dump(exclude={"kind"})
    return SessionUndoRequested.model_validate(one | {"tool_id": tool_ids[-1], "tool_ids": list(tool_ids)})


async def write_twice(workspace: Workspace) -> None:
    await write(workspace, "a.txt", "two\n", "exec_1")
    await write(workspace, "a.txt", "three\n", "exec_2")


@pytest.mark.promise("L8-undo-all")
async def test_calls_are_planned_as_one_and_undone_newest_first(
    workspace: Workspace, root: Path, undoer: Undoer, reports: Reports
) -> None:
    (root / "a.txt").write_text("one\n")
    told: list[tuple[str, str]] = []
    undoer.on_done = lambda plan, undo_id: told.append((plan.tool_id, undo_id))
    await write_twice(workspace)
    undoer.request(all_asked("r1", "exec_3", "exec_2", "exec_1"), server_ahead=0)
    plan = (await reports.of_session("r1")).plan
    assert plan is not None
    assert (plan.tool_id, plan.calls, plan.unknown) == ("exec_1", ["exec_2", "exec_1"], ["exec_3"])
    assert [(file.path, file.before, file.after) for file in plan.files] == [("a.txt", "three\n", "one\n")]
    undoer.request(all_asked("r2", "exec_3", "exec_2", "exec_1", plan=plan.plan), server_ahead=0)
    report = await reports.of_session("r2")
    assert (report.done, [call.tool_id for call in report.undone]) == (True, ["exec_2", "exec_1"])
    assert (root / "a.txt").read_text() == "one\n"
    assert told == [(call.tool_id, call.undo_id) for call in report.undone]


@pytest.mark.promise("L8-undo-all")
async def test_plan_that_is_no_longer_the_one_shown_undoes_no_call(
    workspace: Workspace, root: Path, undoer: Undoer, reports: Reports
) -> None:
    await write_twice(workspace)
    undoer.request(all_asked("r1", "exec_2", "exec_1", plan="0" * 64), server_ahead=0)
    report = await reports.of_session("r1")
    assert (report.done, report.undone) == (False, [])
    assert (report.problem or "").startswith("Something changed while you decided")
    undoer.request(all_asked("r2", "exec_2", "exec_1", deadline=now()), server_ahead=0)
    undoer.request(all_asked("r3", "exec_2", "exec_1", client_id="another"), server_ahead=0)
    undoer.request(all_asked("r4", "exec_2", "exec_1"), server_ahead=0)
    await reports.of_session("r4")
    assert [one.request_id for one in reports.together] == ["r1", "r4"]
    assert (root / "a.txt").read_text() == "three\n"


@pytest.mark.promise("L8-undo-all")
async def test_what_stops_half_way_says_which_calls_are_undone(
    workspace: Workspace, root: Path, desk: UndoDesk, undoer: Undoer, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(workspace, "a.txt", "one\n", "exec_1")
    await write(workspace, "b.txt", "two\n", "exec_2")
    digest = desk.look_all(["exec_2", "exec_1"]).plan
    apply = UndoHistory.apply

    def then_somebody_writes(history: UndoHistory, plan: Plan) -> Entry:
        done = apply(history, plan)
        (root / "a.txt").write_text("mine\n")
        return done

    monkeypatch.setattr(UndoHistory, "apply", then_somebody_writes)
    undoer.request(all_asked("r1", "exec_2", "exec_1", plan=digest), server_ahead=0)
    report = await reports.of_session("r1")
    assert (report.done, [call.tool_id for call in report.undone]) == (False, ["exec_2"])
    assert (report.problem or "").startswith("'a.txt' changed while it was undone")
    assert ((root / "a.txt").read_text(), (root / "b.txt").exists()) == ("mine\n", False)


@pytest.mark.promise("L8-undo-all")
async def test_client_that_was_killed_while_it_undid_several_reports_what_it_had_undone(
    workspace: Workspace, tmp_path: Path, desk: UndoDesk, reports: Reports
) -> None:
    await write(workspace, "a.txt", "one\n", "exec_1")
    await write(workspace, "b.txt", "two\n", "exec_2")
    request = all_asked("r1", "exec_2", "exec_1", plan="0" * 64)
    UndoIntents(tmp_path / "client").keep("r1", "exec_1", "0" * 64, request)
    desk.carry_out("exec_2", desk.look("exec_2").plan, partial=False, wanted=lambda: True)
    after = made(desk, reports, UndoIntents(tmp_path / "client"))
    await after.resend()
    report = await reports.of_session("r1")
    assert (report.done, [call.tool_id for call in report.undone]) == (False, ["exec_2"])
    assert "stopped in the middle" in (report.problem or "")
    assert not UndoIntents(tmp_path / "client").left
    await after.close()
