"""A bookie process in each write mode: SIGKILL, switches between two starts, refusals."""

from __future__ import annotations

import itertools
import resource
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bookie_server.storage.device import mapped_number
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.requests import encode_read
from tests.fixtures.bookie_process import add_frame, set_mode, stored_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess

    MakeBookie = Callable[..., BookieProcess]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

REFUSED = 3
STORAGE_FAILED = 5
MODES = ("direct", "journal", "unjournaled", "journal without its sync")
EACH_SWITCH = (0, 0, 1, 0, 2, 0, 3, 1, 1, 2, 1, 3, 2, 2, 3, 3, 0)
"""Modes of consecutive starts, in which each pair of modes is adjacent once."""
BURST = 40


def test_each_switch_is_tried() -> None:
    pairs = itertools.product(range(len(MODES)), repeat=2)
    assert sorted(itertools.pairwise(EACH_SWITCH)) == sorted(pairs)


def number_of(bookie: BookieProcess) -> Path:
    """The file in shared memory with the number of a run without syncs."""
    return mapped_number.FOLDER / f"ledgerlog-{bookie.manifest()['directory_id']}"


def test_acknowledged_entries_survive_a_kill_in_each_mode_and_each_switch(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    bookie, journal = make_bookie(), tmp_path / "journal"
    payload = b"x" * 70_000
    stored = 0
    for mode in (MODES[number] for number in EACH_SWITCH):
        set_mode(bookie, mode, journal)
        bookie.start()
        with bookie.peer() as peer:
            for entry_id in {0, stored // 2, stored - 1} if stored else ():
                expected = stored_entry(1, entry_id, payload)
                assert peer.read(encode_read(1, entry_id)) == expected, (mode, entry_id)
            peer.send(*(add_frame(1, stored + number, payload) for number in range(BURST)))
            assert {peer.answer().code for _ in range(BURST)} == {Code.OK}
        stored += BURST
        bookie.kill()
    set_mode(bookie, "direct", journal)
    bookie.start()
    assert [path.name for path in journal.iterdir()] in ([], ["LOCK"])
    with bookie.peer() as peer:
        for entry_id in range(stored):
            assert peer.read(encode_read(1, entry_id)) == stored_entry(1, entry_id, payload)
    assert bookie.stop() == 0
    assert bookie.manifest()["run"] is None


@pytest.mark.parametrize("mode", MODES[2:])
def test_a_run_without_syncs_is_in_doubt_without_its_proof(
    make_bookie: MakeBookie, tmp_path: Path, mode: str
) -> None:
    bookie, journal = make_bookie(), tmp_path / "journal"
    set_mode(bookie, mode, journal)
    bookie.start()
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"x")).code is Code.OK
    number = number_of(bookie)
    assert number.exists()
    bookie.kill()
    number.unlink()  # as a power loss does
    set_mode(bookie, "direct", journal)
    bookie.start()
    with bookie.peer() as peer:
        assert peer.ask(encode_read(1, 0)).code is Code.OK, "the page cache had it"
    assert bookie.stop() == 0
    assert bookie.manifest()["doubt"]["epoch"] == 1
    assert "acknowledged entries before their sync" in bookie.log()


def test_a_clean_stop_needs_no_proof_and_leaves_no_journal(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    bookie, journal = make_bookie(), tmp_path / "journal"
    for mode in MODES:
        set_mode(bookie, mode, journal)
        bookie.start()
        assert bookie.stop(signal.SIGTERM) == 0
        assert not number_of(bookie).exists()
        assert list(journal.glob("journal-*")) == []


def test_a_missing_journal_is_refused(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie, journal = make_bookie(), tmp_path / "journal"
    set_mode(bookie, "journal", journal)
    bookie.start()
    bookie.kill()
    (name, *_) = sorted(journal.glob("journal-*"))
    name.unlink()
    set_mode(bookie, "direct", journal)
    code, log = bookie.refusal()
    assert code == REFUSED
    assert f"the journal file {name.name}" in log


def test_two_bookies_cannot_share_a_journal_directory(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    first, second, journal = make_bookie(), make_bookie("b2"), tmp_path / "journal"
    set_mode(first, "journal", journal)
    set_mode(second, "journal", journal)
    first.start()
    code, log = second.refusal()
    assert code == REFUSED
    assert "in use by another bookie process" in log
    first.kill()
    code, log = second.refusal()
    assert code == REFUSED
    assert "belongs to another directory of entries" in log
    first.start()


def test_a_missing_journal_directory_is_refused_with_the_command_that_creates_it(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    bookie, journal = make_bookie(), tmp_path / "journal"
    set_mode(bookie, "journal", journal)
    journal.rmdir()
    code, log = bookie.refusal()
    assert code == REFUSED
    assert f"mkdir -p -m 700 {journal}" in log
    assert not journal.exists()
    # Otherwise, the cluster would have a bookie that never started.
    assert not (bookie.directory / "VERSION").exists()


def test_a_bookie_whose_journal_fails_stops_and_starts_without_it(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    """A limit on the size of files fails a write to the journal, which grows fastest."""
    bookie, journal = make_bookie(), tmp_path / "journal"
    set_mode(bookie, "journal", journal)
    bookie.start()
    assert bookie.process is not None
    resource.prlimit(bookie.process.pid, resource.RLIMIT_FSIZE, (65_536, 65_536))
    stored = 0
    with bookie.peer() as peer:
        while peer.ask(add_frame(1, stored, b"x")).code is Code.OK:
            stored += 1
            assert stored < 100
    assert stored > 10
    assert bookie.wait() == STORAGE_FAILED
    log = bookie.log()
    assert f"the journal in {journal} has failed" in log
    assert "does not need this journal: start the bookie with another --journal-directory" in log
    assert bookie.manifest()["run"] is None
    shutil.rmtree(journal)
    set_mode(bookie, "direct", journal)
    bookie.start()
    with bookie.peer() as peer:
        for entry_id in range(stored):
            assert peer.read(encode_read(1, entry_id)) == stored_entry(1, entry_id, b"x")
    assert bookie.stop() == 0
