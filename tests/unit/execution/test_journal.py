"""The journal: what is appended is read again, whatever the power cut left of the end."""

import base64
import os
import time
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.wire import Outcome, TaskReport
from mitosis.execution import journal as module
from mitosis.execution.journal import Entry, Journal
from mitosis.ipc.messages import EncodedReport
from tests.support.examples import examples
from tests.support.reports import decoded


def report(task_id: int, detail: str = "{}") -> EncodedReport:
    return EncodedReport.of(
        TaskReport(
            task_id=task_id,
            attempt=1,
            outcome=Outcome.SUCCEEDED,
            detail=msgspec.Raw(detail.encode()),
        )
    )


def reports(epoch: int, *task_ids: int) -> list[Entry]:
    return [(epoch, report(task_id)) for task_id in task_ids]


def read(path: Path) -> list[tuple[int, int]]:
    journal = Journal(path)
    found = [(epoch, one.key.task_id) for epoch, one in journal.take_entries()]
    journal.close()
    return found


def write(path: Path, *batches: tuple[int, list[int]]) -> None:
    journal = Journal(path)
    for epoch, task_ids in batches:
        journal.write([(epoch, report(n)) for n in task_ids])
    journal.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_what_is_not_acknowledged_is_read_again_in_order(path: Path) -> None:
    write(path, (7, [1, 2]), (8, [3]), (7, [4]))
    assert read(path) == [(7, 1), (7, 2), (8, 3), (7, 4)]
    assert read(path) == [(7, 1), (7, 2), (8, 3), (7, 4)]


def test_what_is_acknowledged_is_not(path: Path) -> None:
    journal = Journal(path)
    journal.write(reports(7, 1, 2))
    journal.clear()
    journal.close()
    assert read(path) == []


def test_records_of_an_earlier_round_are_not_read_after_a_newer_one(path: Path) -> None:
    journal = Journal(path)
    journal.write(reports(7, 1, 2, 3))
    journal.clear()
    journal.write(reports(8, 9))
    journal.close()
    assert read(path) == [(8, 9)]


def test_a_new_round_leaves_what_is_needed_and_nothing_else(path: Path) -> None:
    journal = Journal(path)
    journal.write(reports(7, 1, 2, 3), durable=True)
    journal.write(reports(7, 3, 4), new_round=True)
    journal.write(reports(7, 5))
    journal.close()
    assert read(path) == [(7, 3), (7, 4), (7, 5)]


def test_a_new_round_is_worth_it_when_little_of_much_is_needed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REWIND_BYTES", 1000)
    journal = Journal(path)
    journal.write(reports(7, *range(4)))
    assert [journal.worth_rewinding(needed) for needed in (0, 1)] == [True, False], "it is short"
    journal.write(reports(7, *range(4, 40)))
    assert [journal.worth_rewinding(needed) for needed in (0, 9, 10)] == [True, True, False]
    journal.write(reports(7, 39), new_round=True)
    assert not journal.worth_rewinding(1)
    journal.close()


def test_a_restart_after_a_clear_reads_nothing_old(path: Path) -> None:
    journal = Journal(path)
    journal.write(reports(7, 1, 2))
    journal.clear()
    journal.close()
    write(path, (8, [5]))  # ends exactly where record 2 of the earlier round begins
    assert read(path) == [(8, 5)]


@settings(max_examples=examples(25))
@given(cut=st.integers(1, 400))
def test_a_torn_end_costs_only_what_was_torn(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    with patch.object(module, "RESERVED_BYTES", 4096):  # 8 MB, 60 times, take their time
        write(path, (7, [1, 2, 3]))
        end = _written(path)
        with path.open("r+b") as file:
            file.seek(max(0, end - cut))
            file.write(bytes(cut))
        found = read(path)
        assert found == [(7, 1), (7, 2), (7, 3)][: len(found)]
        assert len(found) < 3
        write(path, (7, [4]))  # and it goes on after the last whole record
        assert read(path) == [*found, (7, 4)]


def test_a_flipped_bit_ends_the_reading(path: Path) -> None:
    write(path, (7, [1, 2, 3]))
    data = bytearray(path.read_bytes())
    data[_written(path) // 2] ^= 1
    path.write_bytes(data)
    assert read(path) == [(7, 1)]


def test_it_may_grow_beyond_what_is_reserved_and_shrinks_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESERVED_BYTES", 4096)
    journal = Journal(path)
    big = '{"stdout": "' + "x" * 3000 + '"}'
    for n in range(5):
        journal.write([(7, report(n, big))])
    assert path.stat().st_size > 4096
    assert read(path) == [(7, n) for n in range(5)]
    journal.clear()
    assert path.stat().st_size == 4096
    journal.close()


# Two reports, as the agent wrote them when it still decoded and encoded each.
OLD_JOURNAL = base64.b64decode(
    "TUowMcEAAADG5AKNAAAqNv6clxeSB8S9eyJ0YXNrX2lkIjo0MSwiYXR0ZW1wdCI6Miwib3V0Y29tZSI6InN1Y2NlZWRl"
    "ZCIsImV4aXRfY29kZSI6MCwic3RhcnRlZF9hdCI6MTAwLjUsImZpbmlzaGVkX2F0IjoxMDEuMjUsImRldGFpbCI6eyJy"
    "ZXN1bHQiOnsiYSI6WzEsMl19LCJzdGRvdXQiOiJoaVxuIiwic3Rkb3V0X2J5dGVzIjozLCJ3b3JrZXIiOjAsImNwdXMi"
    "OlswXX19TUowMZ4AAABCNU88AAAqNv6clxeSCMSaeyJ0YXNrX2lkIjo0MiwiYXR0ZW1wdCI6MSwib3V0Y29tZSI6ImZh"
    "aWxlZCIsImtpbmQiOiJzaWduYWwiLCJzaWduYWwiOjksImZpbmlzaGVkX2F0IjoxMDIuMCwiZGV0YWlsIjp7Im1lc3Nh"
    "Z2UiOiJraWxsZWQgYnkgU0lHS0lMTCIsIndvcmtlciI6MSwiY3B1cyI6W119fQ=="
)
OLD_ROUND = 1_700_000_000_000_000_000


def test_a_journal_of_the_version_before_is_read(path: Path) -> None:
    path.write_bytes(OLD_JOURNAL)
    journal = Journal(path)
    (first, done), (second, killed) = journal.take_entries()
    journal.close()
    assert (first, second) == (7, 8)
    assert (done.key, done.started_at, done.finished_at) == ((41, 2), 100.5, 101.25)
    assert (killed.key, killed.started_at, killed.finished_at) == ((42, 1), None, 102.0)
    assert bytes(decoded(done).detail) == (
        b'{"result":{"a":[1,2]},"stdout":"hi\\n","stdout_bytes":3,"worker":0,"cpus":[0]}'
    )
    assert (decoded(killed).outcome, decoded(killed).kind) == ("failed", "signal")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_a_kill_while_a_new_round_is_written_loses_nothing_that_was_safe(
    path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """SIGKILL ends a large write between two pages."""

    class Killed(BaseException):
        pass

    def torn(descriptor: int, data: bytes, at: int) -> int:
        pwrite(descriptor, data[: int(len(data) * share)], at)
        raise Killed

    journal, pwrite = Journal(path), os.pwrite
    kept = [(7, report(n, '{"stdout":"%s"}' % ("x" * 9_000))) for n in range(20)]
    journal.write(reports(7, *range(100, 300)))
    journal.write(kept)
    monkeypatch.setattr(os, "pwrite", torn)
    with pytest.raises(Killed):
        journal.write([*kept, *reports(8, 400)], new_round=True, kept=len(kept))
    monkeypatch.undo()
    journal.close()
    assert {(7, n) for n in range(20)} <= set(read(path))


def test_a_round_without_room_for_a_second_file_is_appended(path: Path) -> None:
    journal = Journal(path)
    kept = reports(7, 1, 2)
    journal.write(kept)
    with patch.object(module, "_opened", side_effect=OSError(28, "full")):
        journal.write([*kept, *reports(8, 3)], new_round=True, kept=2)
    journal.close()
    assert read(path) == [(7, 1), (7, 2), (8, 3)]


def test_after_the_last_entries_a_late_write_changes_nothing(path: Path) -> None:
    journal = Journal(path)
    journal.write(reports(7, 1))
    journal.finish(reports(7, 2))
    with pytest.raises(OSError, match="last entries"):
        journal.write(reports(7, 1), new_round=True)
    journal.close()
    assert read(path) == [(7, 1), (7, 2)]


def test_a_record_with_values_that_no_report_may_have_is_read(path: Path) -> None:
    """An agent that could not read its journal would never start again."""
    odd = EncodedReport(AttemptKey(5, 1), None, None, b'{"task_id":5,"attempt":1,"outcome":"no"}')
    journal = Journal(path)
    journal.write([(7, odd)])
    journal.close()
    assert read(path) == [(7, 5)]


def test_the_version_before_can_read_what_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(OLD_JOURNAL)
    journal = Journal(path)
    entries = journal.take_entries()
    journal.close()
    path.unlink()
    monkeypatch.setattr(time, "time_ns", lambda: OLD_ROUND)
    journal = Journal(path)
    journal.write(entries)
    journal.close()
    assert path.read_bytes().startswith(OLD_JOURNAL)


def test_it_is_private(path: Path) -> None:
    write(path, (7, [1]))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size == module.RESERVED_BYTES


def _written(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


@pytest.mark.parametrize("new_round", [False, True])
@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_report_is_on_disk_when_its_write_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool, new_round: bool
) -> None:
    """The kernel is asked to force the file that has the record; nothing less survives a power cut."""
    forced: list[bytes] = []
    force = os.fdatasync

    def watched(descriptor: int) -> None:
        forced.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())
        force(descriptor)

    monkeypatch.setattr(os, "fdatasync", watched)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    journal = Journal(path)
    journal.write(reports(7, 1))
    forced.clear()
    journal.write([(7, report(2, '{"mark":"here"}'))], durable=durable, new_round=new_round)
    journal.close()
    assert any(b"here" in content for content in forced) is durable
