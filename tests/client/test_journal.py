"""The journal: no call runs twice, no report is lost, whenever the client dies."""

import asyncio
import json
import os
import signal as signals
import subprocess
import sys
from pathlib import Path

import pytest

from byleave.client.identity import open_identity
from byleave.client.journal import INTERRUPTED, KEPT_IDS, SPOOL_BYTES, Journal
from byleave.protocol.errors import ConfigurationError, MachineError
from byleave.protocol.generation import Generation
from harness.json_values import JsonObject

REPORT = b'{"status":"completed","result":{"success":true}}'


async def acted(journal: Journal, tool_id: str, *, durable: bool = True) -> None:
    await journal.acting(tool_id, "write_file", "d" * 64, durable=durable)


def lines(directory: Path) -> list[JsonObject]:
    return [json.loads(line) for line in (directory / "journal.jsonl").read_text().splitlines()]


@pytest.mark.promise("C1")
async def test_each_step_is_on_disk_before_the_next(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await acted(journal, "exec_1")
    await journal.done("exec_1", REPORT, durable=True)
    assert journal.unsent == ["exec_1"]
    assert journal.report("exec_1") == REPORT
    assert [line["step"] for line in lines(tmp_path)] == ["seen", "acting", "done"]
    journal.accepted("exec_1")
    assert [line["step"] for line in lines(tmp_path)] == ["seen", "acting", "accepted"]
    assert lines(tmp_path)[1].keys() == {"step", "tool_id", "tool_name", "digest", "at", "crc"}
    assert journal.unsent == []
    assert journal.report("exec_1") is None
    journal.close()
    journal.close()
    again = Journal(tmp_path)
    assert again.knows("exec_1")
    assert not again.knows("exec_2")
    again.close()


@pytest.mark.promise("C5")
async def test_a_report_nobody_accepted_is_there_after_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await acted(journal, "exec_1", durable=False)
    await journal.done("exec_1", REPORT, durable=False)
    journal.close()
    again = Journal(tmp_path)
    assert again.unsent == ["exec_1"]
    assert json.loads(again.report("exec_1") or b"") == json.loads(REPORT)
    again.close()


_CHILD = """
import asyncio, sys
from pathlib import Path
from byleave.client.journal import Journal

async def main():
    journal = Journal(Path(sys.argv[1]))
    await journal.acting("exec_1", "read_file", "d", durable=False)
    await journal.done("exec_1", b'{"status":"completed","result":{}}', durable=False)
    await journal.acting("exec_2", "write_file", "d", durable=True)
    print("acting", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


@pytest.mark.promise("C1", "C5", "X22")
async def test_a_client_killed_while_it_acts_reports_that_and_never_runs_it_again(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "acting\n"
        with pytest.raises(ConfigurationError, match="Another client already works"):
            Journal(tmp_path)
        child.send_signal(signals.SIGKILL)
        child.wait()
    journal = Journal(tmp_path)
    assert journal.knows("exec_1")
    assert journal.knows("exec_2")
    assert journal.unsent == ["exec_1", "exec_2"]
    report = json.loads(journal.report("exec_2") or b"")
    assert (report["status"], report["error_type"], report["error"]) == ("failed", "interrupted", INTERRUPTED)
    assert json.loads(journal.report("exec_1") or b"")["status"] == "completed"
    journal.close()
    again = Journal(tmp_path)
    assert again.unsent == ["exec_1", "exec_2"]
    again.close()


async def test_everything_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    journal = Journal(directory)
    await journal.done("exec_1", REPORT + b" " * SPOOL_BYTES, durable=True)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [directory, *directory.rglob("*")]}
    journal.close()
    assert all(mode in (0o600, 0o700) for mode in modes.values()), modes
    assert len(modes) == 5


async def test_a_large_report_has_a_file_of_its_own_until_it_is_accepted(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    large = b'{"status":"completed","result":{"content":"' + b"x" * SPOOL_BYTES + b'"}}'
    await acted(journal, "exec_1")
    await journal.done("exec_1", large, durable=True)
    assert journal.report("exec_1") == large
    journal.close()
    assert (tmp_path / "journal.jsonl").stat().st_size < 1000
    (tmp_path / "spool" / "stray.json").write_text("left over")
    again = Journal(tmp_path)
    assert [path.name for path in (tmp_path / "spool").iterdir()] != ["stray.json"]
    assert again.report("exec_1") == large
    await again.done("exec_2", b"{}", durable=False)
    again.accepted("exec_2")
    again.close()
    again = Journal(tmp_path)
    assert again.unsent == ["exec_1"]
    again.accepted("exec_1")
    assert list((tmp_path / "spool").iterdir()) == []
    again.close()


def on_disk(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("size", [20, SPOOL_BYTES])
async def test_what_was_delivered_is_not_on_the_disk_any_more(tmp_path: Path, size: int) -> None:
    def report(word: bytes) -> bytes:
        return b'{"status":"completed","result":{"content":"' + word * size + b'"}}'

    journal = Journal(tmp_path)
    await acted(journal, "exec_open", durable=False)
    await journal.done("exec_1", report(b"first"), durable=False)
    await journal.done("exec_2", report(b"second"), durable=False)
    journal.accepted("exec_1")
    assert b"first" not in on_disk(tmp_path)
    assert b"second" in on_disk(tmp_path)
    # A report that the server cannot read is replaced by another.
    await journal.done("exec_2", REPORT, durable=False)
    assert b"second" not in on_disk(tmp_path)
    journal._compact()
    await acted(journal, "exec_3", durable=False)
    journal.accepted("exec_2")
    assert REPORT not in on_disk(tmp_path)
    os.close(journal._lock)  # as one that is killed leaves it: nothing is written at the end
    again = Journal(tmp_path)
    assert all(again.knows(f"exec_{number}") for number in (1, 2, 3))
    assert again.unsent == ["exec_open", "exec_3"]
    again.close()


async def test_a_lost_spool_file_is_reported_instead(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await journal.done("exec_1", b" " * (SPOOL_BYTES + 1), durable=False)
    for path in (tmp_path / "spool").iterdir():
        path.unlink()
    report = json.loads(journal.report("exec_1") or b"")
    assert (report["status"], report["error_type"]) == ("failed", "internal")
    journal.close()


@pytest.mark.promise("C1")
async def test_call_on_a_torn_last_line_counts_as_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await acted(journal, "exec_1")
    journal.close()
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"step":"acting","tool_id":"exec_2","tool_na')
    again = Journal(tmp_path)
    assert again.knows("exec_1")
    assert again.knows("exec_2")
    await acted(again, "exec_3")
    again.close()
    last = Journal(tmp_path)
    assert last.unsent == ["exec_1", "exec_2", "exec_3"]
    last.close()


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.promise("C1")
async def test_any_flipped_bit_leaves_each_call_known_or_makes_a_new_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path)
    await acted(journal, "exec_1")
    await journal.done("exec_1", REPORT, durable=False)
    journal.accepted("exec_1")
    journal.close()
    journal = Journal(tmp_path)
    await acted(journal, "exec_2")
    await journal.done("exec_2", REPORT, durable=False)
    await acted(journal, "exec_3")
    os.close(journal._lock)  # as one that is killed leaves it
    content, kept = (tmp_path / "journal.jsonl").read_bytes(), tmp_path / "client_id"
    for at in range(len(content)):
        (tmp_path / "journal.jsonl").write_bytes(flipped(content, at))
        kept.write_text("client_1")
        caplog.clear()
        again = Journal(tmp_path)
        whole = all(again.knows(f"exec_{number}") for number in (1, 2, 3))
        again.close()
        assert whole or not kept.exists(), flipped(content, at)
        assert kept.exists() or ["given up" in message for message in caplog.messages] == [True]


@pytest.mark.promise("C1")
@pytest.mark.parametrize(
    "broken",
    [
        b"\x00\x00\x00",
        b"[]",
        b"",
        b'{"step":"seen","tool_ids":[1]}',
        b'{"step":"done","tool_id":"exec_2"}',
        b'{"step":"acting","tool_id":"exec_2"}',
    ],
)
async def test_line_that_cannot_be_read_makes_a_new_client_and_sends_nothing_of_the_old(
    tmp_path: Path, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path)
    await acted(journal, "exec_1")
    journal.close()
    (tmp_path / "client_id").write_text("client_1")
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(broken + b"\n")
    again = Journal(tmp_path)
    assert not (tmp_path / "client_id").exists()
    assert again.knows("exec_1")
    assert again.unsent == []
    assert ["cannot be read at line 3" in message for message in caplog.messages] == [True]
    again.close()


@pytest.mark.promise("C1")
async def test_journal_of_an_earlier_version_is_read_without_checksums(tmp_path: Path) -> None:
    report = b'{"status":"completed","result":{"a":1,"crc":"2"}}'
    (tmp_path / "client_id").write_text("client_1")
    (tmp_path / "journal.jsonl").write_bytes(
        b'{"step":"seen","tool_ids":["exec_1"]}\n{"step":"acting","tool_id":"exec_2"}\n'
        b'{"step":"done","tool_id":"exec_3","report":%s}\n' % report
    )
    journal = Journal(tmp_path)
    assert all(journal.knows(f"exec_{number}") for number in (1, 2, 3))
    assert sorted(journal.unsent) == ["exec_2", "exec_3"]
    assert json.loads(journal.report("exec_3") or b"") == json.loads(report)
    journal.close()
    assert (tmp_path / "client_id").exists()
    assert all("crc" in line for line in lines(tmp_path))


class SmallDisk:
    """A disk that takes so many bytes and no more."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.write = os.write

    def __call__(self, descriptor: int, data: bytes) -> int:
        written = self.write(descriptor, data[: self.room]) if self.room else 0
        self.room -= written
        if not written:
            raise OSError(28, "No space left on device")
        return written


@pytest.mark.promise("C3")
@pytest.mark.parametrize("room", [0, 20])
async def test_on_a_full_disk_nothing_is_said_to_act_and_no_line_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    journal = Journal(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("byleave.client.journal.os.write", SmallDisk(room))
        with pytest.raises(MachineError, match="nothing was run"):
            await acted(journal, "exec_1")
    assert [line["step"] for line in lines(tmp_path)] == ["seen"]
    await acted(journal, "exec_2")
    journal.close()
    again = Journal(tmp_path)
    assert again.unsent == ["exec_2"]
    again.close()


@pytest.mark.promise("C3")
async def test_behind_a_line_that_stays_torn_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: object) -> None:
        raise OSError(5, "Input/output error")

    journal = Journal(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("byleave.client.journal.os.write", SmallDisk(20))
        patch.setattr("byleave.client.journal.os.ftruncate", no)
        with pytest.raises(MachineError):
            await acted(journal, "exec_1")
    with pytest.raises(MachineError):
        await acted(journal, "exec_2")
    journal.close()


async def test_a_full_disk_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    await acted(journal, "exec_1")
    with monkeypatch.context() as patch:
        patch.setattr("byleave.client.journal.os.write", SmallDisk(0))
        await journal.done("exec_1", REPORT, durable=True)
        assert journal.report("exec_1") == REPORT
        journal.accepted("exec_1")
    assert journal.unsent == []
    journal.close()


async def test_a_sync_that_fails_stops_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object) -> None:
        raise OSError(5, "Input/output error")

    journal = Journal(tmp_path)
    monkeypatch.setattr("byleave.client.journal.os.fdatasync", no)
    with pytest.raises(MachineError, match="Input/output error"):
        await acted(journal, "exec_1", durable=True)
    journal.close()


async def test_it_stays_small_while_the_client_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byleave.client.journal.COMPACT_BYTES", 20_000)
    journal = Journal(tmp_path)
    await acted(journal, "exec_open", durable=False)
    await journal.done("exec_kept", REPORT, durable=False)
    for number in range(200):
        await acted(journal, f"exec_{number}", durable=False)
        await journal.done(
            f"exec_{number}", b'{"status":"completed","result":{"x":"' + b"x" * 500 + b'"}}', durable=False
        )
        journal.accepted(f"exec_{number}")
    assert (tmp_path / "journal.jsonl").stat().st_size < 30_000
    journal.close()
    again = Journal(tmp_path)
    assert all(again.knows(f"exec_{number}") for number in range(200))
    assert sorted(again.unsent) == ["exec_kept", "exec_open"]
    again.close()


async def test_where_it_cannot_be_written_anew_it_still_takes_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    monkeypatch.setattr("byleave.client.journal.COMPACT_BYTES", 0)
    draft = tmp_path / "journal.draft"
    draft.mkdir()
    await journal.done("exec_1", REPORT, durable=True)
    journal.accepted("exec_1")
    await acted(journal, "exec_2", durable=True)
    journal.close()
    draft.rmdir()
    again = Journal(tmp_path)
    assert (again.knows("exec_1"), again.unsent) == (True, ["exec_2"])
    again.close()


@pytest.mark.promise("C1")
async def test_a_directory_that_cannot_be_synced_costs_no_line_and_no_safety(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: object) -> None:
        raise OSError(5, "Input/output error")

    journal = Journal(tmp_path)
    await acted(journal, "exec_1")
    with monkeypatch.context() as patch:
        patch.setattr("byleave.client.journal.COMPACT_BYTES", 0)
        patch.setattr("byleave.client.journal.sync_directory", no)
        await journal.done("exec_1", REPORT, durable=False)
        journal.accepted("exec_1")
        # A power cut could bring the old file back, without this line: so nothing acts.
        with pytest.raises(MachineError, match="nothing was run"):
            await acted(journal, "exec_2")
        await acted(journal, "exec_3", durable=False)
    await acted(journal, "exec_4")
    os.close(journal._lock)  # as one that is killed leaves it: nothing is written at the end
    again = Journal(tmp_path)
    assert all(again.knows(f"exec_{number}") for number in (1, 3, 4))
    again.close()


async def test_ids_are_remembered_up_to_a_bound_and_open_ones_always(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await acted(journal, "exec_open", durable=False)
    await journal.done("exec_kept", REPORT, durable=False)
    for number in range(2 * KEPT_IDS + 10):
        journal._remember(f"exec_{number}")
    assert len(journal._seen) <= 2 * KEPT_IDS
    assert all(journal.knows(f"exec_{number}") for number in range(KEPT_IDS + 20, 2 * KEPT_IDS + 10))
    assert not journal.knows("exec_0")
    assert journal.knows("exec_open")
    assert journal.knows("exec_kept")
    journal.close()


async def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    with pytest.raises(MachineError):
        await acted(journal, "exec_1")


async def test_syncs_and_compaction_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byleave.client.journal.COMPACT_BYTES", 100)
    journal = Journal(tmp_path)

    async def one(number: int) -> None:
        await acted(journal, f"exec_{number}", durable=True)
        await journal.done(f"exec_{number}", REPORT, durable=True)
        journal.accepted(f"exec_{number}")

    await asyncio.gather(*(one(number) for number in range(50)))
    journal.close()
    again = Journal(tmp_path)
    assert again.unsent == []
    assert all(again.knows(f"exec_{number}") for number in range(50))
    again.close()


@pytest.mark.promise("C3")
async def test_a_call_that_was_taken_but_never_acted_may_come_again_after_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.take("exec_1")
    journal.take("exec_2")
    await acted(journal, "exec_2", durable=False)
    assert journal.knows("exec_1")
    journal.close()
    again = Journal(tmp_path)
    assert not again.knows("exec_1")
    assert again.knows("exec_2")
    again.close()


async def test_half_written_result_does_not_stay_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    await acted(journal, "exec_1")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    report = b'{"status":"completed","result":"' + b"x" * SPOOL_BYTES + b'"}'
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        await journal.done("exec_1", report, durable=False)
    assert list((tmp_path / "spool").iterdir()) == []
    assert journal.report("exec_1") == report
    journal.close()


async def test_each_opening_is_a_later_generation_with_another_name_and_on_disk_before_it_is_told(
    tmp_path: Path,
) -> None:
    generations: list[Generation] = []
    for _ in range(3):
        journal = Journal(tmp_path)
        generations.append(journal.generation)
        first = json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[0])
        assert first["generation"] == journal.generation.number
        journal._compact()  # pyright: ignore[reportPrivateUsage]
        journal.close()
    assert [each.number for each in generations] == [1, 2, 3]
    assert len({each.instance for each in generations}) == 3
    assert [Generation.parse(str(each)) for each in generations] == generations


async def test_client_whose_generation_cannot_be_read_is_new(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    identity = open_identity(tmp_path)
    (tmp_path / "journal.jsonl").write_text('{"step":"seen","generation":"9","tool_ids":[]}\n')
    Journal(tmp_path).close()
    assert open_identity(tmp_path).client_id != identity.client_id
