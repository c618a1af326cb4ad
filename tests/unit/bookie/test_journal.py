"""The groups of the journal, and how many of them are written at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.requests import EntryIds
from bookie_server.core.settings import ModeSettings, StorageSettings
from bookie_server.errors import StorageError, SyncFailedError
from bookie_server.ports import Buffer
from bookie_server.storage import journal as log_module
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.entry_log_file import OpenFile
from bookie_server.storage.journal import Journal
from bookie_server.storage.modes.writers import DirectWriter
from bookie_server.storage.shared import Shared
from ledgerlog_spark.model import Code
from tests.sim.runtime import Host, Scheduler, SimFuture

GROUP = 1 << 14
FULL = GROUP + 1
SETTINGS = StorageSettings(256 << 20, 64 << 20, free_bytes_min=0, open_files_max=8)


class HeldDevice:
    """Accepts groups, and ends them when the test asks for it, in order like every file system."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.under_way: list[tuple[int, int, SimFuture[None]]] = []

    async def write_synced(self, offset: int, buffers: Sequence[Buffer]) -> None:
        done: SimFuture[None] = self._host.future()
        self.under_way.append((offset, sum(map(len, buffers)), done))
        await done

    def end(self, error: StorageError | None = None) -> None:
        """End the oldest group."""
        _, _, done = self.under_way.pop(0)
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


class OneFile:
    """A file that never fills, unless the test decides that the next record needs another file."""

    def __init__(self, host: Host) -> None:
        self.device = HeldDevice(host)
        entry = FileEntry(file_id=1, slot="slot-00000001", salt="00" * 16, state=FileState.OPEN,
                          size_bytes=1 << 30)  # fmt: skip
        handle: Any = self.device
        self.active = OpenFile(entry, handle, entry.identity)
        self.is_full = False
        self.rolls_under: list[int] = []
        self.stretches_most = 0

    def must_roll(self, size: int, stretches: int) -> bool:
        assert size
        self.stretches_most = max(self.stretches_most, stretches)
        return self.is_full

    async def roll(self) -> None:
        self.rolls_under.append(len(self.device.under_way))
        self.is_full = False


def run_of(ledger_id: int, size: int, ids: EntryIds = range(1)) -> JournalRecord:
    return JournalRecord(
        JournalRecordKind.RUN, ledger_id, entry_ids=ids, lengths=(size,) * len(ids),
        body=bytes(size * len(ids)), master_key=bytes(20),
    )  # fmt: skip


class World:
    """A journal on a held device, and its reports."""

    def __init__(self, group_wait_ms: int = 0) -> None:
        self.scheduler = Scheduler()
        self.host = Host(self.scheduler, "bookie")
        self.files = OneFile(self.host)
        self.device = self.files.device
        self.durable: list[list[int]] = []
        self.lost: list[int] = []
        settings = replace(SETTINGS, group_bytes_max=GROUP, idle_watermark_ms=1_000_000,
                           mode_settings=ModeSettings(group_wait_ms=group_wait_ms))  # fmt: skip
        self.shared = Shared(Mock(), self.host, self.host, settings, Mock())
        self.journal = Journal(
            self.shared,
            self.files,
            lambda group, _is_synced: self.durable.append([r.ledger_id for r in group]),
            lambda _error, records: self.lost.extend(r.ledger_id for r in records),
        )
        self.journal.start(DirectWriter())
        self.settle()

    def settle(self) -> None:
        self.scheduler.run_for(1)

    def submit(self, ledger_id: int, size: int, ids: EntryIds = range(1)) -> JournalRecord:
        record = run_of(ledger_id, size, ids)
        self.journal.submit(record)
        self.settle()
        return record

    def end(self, error: StorageError | None = None) -> None:
        self.device.end(error)
        self.settle()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.scheduler.close()


def test_what_is_queued_while_a_group_is_under_way_waits_for_it_and_travels_together(
    world: World,
) -> None:
    for ledger_id in range(4):
        world.submit(ledger_id, 100)
    assert len(world.device.under_way) == 1
    world.end()
    assert world.durable == [[0]]
    world.end()
    assert world.durable == [[0], [1, 2, 3]]
    assert world.device.under_way == []


def test_a_group_waits_for_more_records_until_it_is_full_or_its_time_is_over() -> None:
    world = World(group_wait_ms=50)
    world.submit(0, 100)
    world.submit(1, 100)
    world.scheduler.run_for(40)
    assert world.device.under_way == []
    world.scheduler.run_for(20)
    assert len(world.device.under_way) == 1
    world.submit(2, 100)
    world.end()
    assert world.durable == [[0, 1]]
    assert world.device.under_way == []
    world.submit(3, FULL)
    assert len(world.device.under_way) == 1
    world.end()
    assert world.durable == [[0, 1], [2, 3]]
    # A record that a full group leaves behind does not wait, and neither does a close.
    world.submit(4, FULL)
    for ledger_id in (5, 6):
        world.submit(ledger_id, FULL)
    while world.device.under_way:
        world.end()
    world.submit(7, 100)
    closed: list[bool] = []

    async def close() -> None:
        await world.journal.close()
        closed.append(True)

    world.host.spawn("close", close())
    world.settle()
    world.end()
    assert closed
    assert world.durable[-1] == [7]
    world.scheduler.close()


def test_a_full_group_is_handed_over_while_the_one_before_is_under_way_and_no_third_one(
    world: World,
) -> None:
    for ledger_id in range(3):
        world.submit(ledger_id, FULL)
    assert len(world.device.under_way) == 2
    (first, size, _), (second, _, _) = world.device.under_way
    assert second == first + size
    assert world.durable == []
    world.end()
    assert len(world.device.under_way) == 2
    world.end()
    world.end()
    assert world.durable == [[0], [1], [2]]


def test_a_group_has_a_bounded_number_of_stretches_of_ids(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of ids with gaps is one record, and one piece of the index for each id."""
    monkeypatch.setattr(log_module, "GROUP_STRETCHES_MAX", 10)
    apart = range(0, 12, 3)
    runs: list[EntryIds] = [range(1), apart, (1, 3, 5, 7), apart, range(100), range(1)]
    runs += [range(0, 90, 3), range(9)]
    for ledger_id, ids in enumerate(runs):
        world.submit(ledger_id, 32, ids)
    for _ in range(5):
        world.end()
    assert world.durable == [[0], [1, 2], [3, 4, 5], [6], [7]]
    assert world.device.under_way == []


def test_the_stretches_of_groups_under_way_count_when_a_file_is_asked_for_room(
    world: World,
) -> None:
    for ledger_id in range(2):
        world.submit(ledger_id, FULL, range(0, 12, 3))
    assert len(world.device.under_way) == 2
    assert world.files.stretches_most == 8
    world.end()
    world.end()
    world.files.stretches_most = 0
    world.submit(2, 100)
    assert world.files.stretches_most == 1


def test_a_record_vouches_only_for_what_was_synced_when_it_was_encoded(world: World) -> None:
    records = [world.submit(ledger_id, FULL) for ledger_id in range(3)]
    assert [record.durable_upto for record in records[:2]] == [0, 0]
    world.end()
    assert records[2].durable_upto == records[0].sequence


def test_no_file_is_rolled_while_a_group_is_under_way(world: World) -> None:
    world.submit(0, FULL)
    world.files.is_full = True
    world.submit(1, FULL)
    assert len(world.device.under_way) == 1
    world.end()
    assert world.files.rolls_under == [0]
    assert len(world.device.under_way) == 1


def test_a_group_that_fails_takes_the_one_behind_it_along(world: World) -> None:
    waited: list[Code] = []
    records = [world.submit(ledger_id, FULL) for ledger_id in range(4)]
    world.journal.when_durable(records[-1].ticket, waited.append)
    world.end(SyncFailedError("input/output error", path="slot"))
    # The result of the second group no longer matters.
    world.end()
    assert world.durable == []
    assert sorted(world.lost) == [0, 1, 2, 3]
    assert waited == [Code.IO_ERROR]
    world.scheduler.run(world.journal.close(), world.host)


def test_a_closing_log_ends_after_all_that_was_queued(world: World) -> None:
    for ledger_id in range(3):
        world.submit(ledger_id, FULL)
    world.submit(3, 100)
    ended: list[bool] = []

    async def close() -> None:
        await world.journal.close()
        ended.append(True)

    world.host.spawn("close", close())
    world.settle()
    for _ in range(4):
        assert not ended
        world.end()
    assert world.durable == [[0], [1], [2], [3]]
    assert ended


def test_busy_time_of_two_groups_at_once_counts_once(world: World) -> None:
    for ledger_id in range(2):
        world.submit(ledger_id, FULL)
    world.scheduler.run_for(100)
    world.end()
    world.scheduler.run_for(50)
    world.end()
    assert 150 <= world.shared.counters.journal_busy_ms <= 160


@pytest.mark.parametrize("size", [100, FULL])
def test_a_bug_in_one_writer_stops_the_other_and_close_still_ends(world: World, size: int) -> None:
    crashes: list[BaseException] = []
    world.host.on_failure = crashes.append
    world.submit(0, size)
    world.submit(1, size)
    *_, done = world.device.under_way.pop(0)
    done.set_exception(MemoryError("a bug"))
    world.settle()
    assert [type(crash) for crash in crashes] == [MemoryError]
    world.submit(2, FULL)
    if size == FULL:
        # It was handed over before, so its result no longer matters.
        world.end()
    assert world.device.under_way == []
    assert world.durable == []
    world.scheduler.run(world.journal.close(), world.host)


def test_a_bug_in_who_is_told_of_a_group_stops_the_journal(world: World) -> None:
    crashes: list[BaseException] = []
    world.host.on_failure = crashes.append

    def told(_group: list[JournalRecord], _is_synced: bool) -> None:
        raise RuntimeError("a bug")

    world.journal._on_stored = told
    world.submit(0, 100)
    world.submit(1, 100)
    world.end()
    assert [type(crash) for crash in crashes] == [RuntimeError]
    assert world.device.under_way == []


def test_a_watermark_that_travels_with_others_vouches_for_nothing(world: World) -> None:
    world.submit(0, 100)
    world.submit(1, 100)
    world.journal.submit(JournalRecord(JournalRecordKind.WATERMARK))
    world.end()
    world.end()
    assert world.shared.sequences.durable_sequence == 3
    world.scheduler.run_for(2_000_000)
    assert [len(world.device.under_way), world.journal.last_ticket] == [1, 4]
    world.end()
    world.scheduler.run_for(4_000_000)
    assert world.journal.last_ticket == 4


def test_a_record_that_its_file_has_no_room_for_goes_to_the_next_file(world: World) -> None:
    world.files.is_full = True
    world.submit(0, 100)
    assert world.files.rolls_under == [0]
    world.end()
    assert world.durable == [[0]]


async def test_cancelled_writers_and_a_cancelled_close_are_no_crash() -> None:
    crashes: list[str] = []
    tasks = OsTasks(lambda name, _error: crashes.append(name))
    files = OneFile(Host(Scheduler(), "unused"))
    shared = Shared(Mock(), OsClock(), tasks, SETTINGS, Mock())
    journal = Journal(shared, files, lambda _group, _is_synced: None, lambda _error, _records: None)
    journal.start(DirectWriter())
    await asyncio.sleep(0)
    closing = asyncio.create_task(journal.close())
    closing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    await tasks.aclose()
    assert crashes == []


def test_groups_are_small_enough_for_the_file_that_they_go_to() -> None:
    assert SETTINGS.group_bytes == 8 << 20
    assert replace(SETTINGS, file_size_bytes=8 << 20).group_bytes == 1 << 20
