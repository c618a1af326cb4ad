"""The journal files of a run: their order, their reuse, and how an append waits for a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from bookie_server.core.bookie_run import BookieRun, BookieWriteMode
from bookie_server.core.group_copy import (
    HEAD_SIZE,
    GroupCopy,
    checksum_of,
    decode_copy_head,
    encode_copy_head,
    size_of_copy,
)
from bookie_server.core.record import FileIdentity
from bookie_server.errors import StorageError, SyncFailedError
from bookie_server.storage.modes.ring import JournalPlace, JournalRing, journal_names
from tests.sim.disk import SimDisk, SimFileSystem
from tests.sim.runtime import Host, Scheduler

IDENTITY = FileIdentity("slot-00000001", 1, bytes(16))
RUN = BookieRun(
    "00112233445566aa",
    BookieWriteMode.JOURNAL,
    journal="/j",
    journal_files=2,
    journal_file_bytes=4 * size_of_copy(1_000),
)
NAMES = journal_names("fedcba9876543210", RUN)


@dataclass
class World:
    """A ring of two files, each with room for four groups, and the appends that ended."""

    scheduler: Scheduler = field(default_factory=Scheduler)
    ended: list[int] = field(default_factory=list)
    ends: dict[int, JournalPlace] = field(default_factory=dict)
    failed: list[StorageError] = field(default_factory=list)
    full: int = 0

    def __post_init__(self) -> None:
        self.host = Host(self.scheduler, "bookie")
        self.disk = SimDisk(Random(1))
        files = SimFileSystem(self.disk, self.host)
        creating = JournalRing.create(files, NAMES, RUN, self.host)
        self.ring = self.scheduler.run(creating, self.host)
        self.ring.on_full = self.on_full

    def on_full(self) -> None:
        self.full += 1

    def append(self, *sequences: int) -> None:
        for sequence in sequences:
            self.host.spawn("append", self._append(sequence))
        self.scheduler.run_for(1_000)

    async def _append(self, sequence: int) -> None:
        body = bytes([sequence]) * 1_000
        try:
            end = await self.ring.append(IDENTITY, 512 * sequence, [body], (sequence, sequence))
        except StorageError as error:
            self.failed.append(error)
        else:
            self.ended.append(sequence)
            self.ends[sequence] = end

    def heads(self, number: int) -> list[GroupCopy]:
        """The copies in a file on the device, in the order of the places."""
        data = bytes(self.disk.durable_names[NAMES[number]].durable)
        found, offset = [], 0
        while copy := decode_copy_head(data[offset:], bytes.fromhex(RUN.run_id), number, offset):
            body = data[offset + HEAD_SIZE : offset + HEAD_SIZE + copy.size]
            assert checksum_of((body,)) == copy.checksum
            found.append(copy)
            offset = copy.end
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_groups_fill_the_files_in_turn_and_each_copy_names_the_one_before(world: World) -> None:
    world.append(*range(1, 7))
    copies = [*world.heads(0), *world.heads(1)]
    assert [copy.number for copy in copies] == [1, 2, 3, 4, 5, 6]
    assert [copy.previous_sequence for copy in copies] == [0, 1, 2, 3, 4, 5]
    assert [copy.offset for copy in copies] == [512 * number for number in range(1, 7)]
    assert len(world.heads(0)) == 4


def test_a_file_is_not_reused_before_all_its_records_are_released(world: World) -> None:
    world.append(*range(1, 11))
    assert world.ended == list(range(1, 9))
    assert world.full == 1
    world.ring.release(3, world.ends[3])
    world.scheduler.run_for(1_000)
    assert world.ended == list(range(1, 9))
    assert world.full == 2
    assert [copy.number for copy in world.heads(0)] == [1, 2, 3, 4]
    world.ring.release(4, world.ends[4])
    world.scheduler.run_for(1_000)
    assert world.ended == list(range(1, 11))
    first, second, *older = world.heads(0)
    assert [first.number, second.number] == [9, 10]
    assert [copy.number for copy in older] == [3, 4]
    assert first.needed_from == 5


def test_the_mark_is_the_end_of_the_last_copy_that_was_released(world: World) -> None:
    assert world.ring.mark == JournalPlace(0, NAMES[0], 0)
    world.append(*range(1, 7))
    copies = [*world.heads(0), *world.heads(1)]
    for sequence, copy in enumerate(copies, start=1):
        number = int(sequence > 4)
        assert world.ends[sequence] == JournalPlace(number, NAMES[number], copy.end)
    world.ring.release(5, world.ends[5])
    assert world.ring.mark == world.ends[5]
    world.ring.release(5, None)
    assert world.ring.mark == world.ends[5], "nothing was written since"


def test_an_append_that_waits_ends_when_the_storage_fails(world: World) -> None:
    world.append(*range(1, 10))
    error = SyncFailedError("broken", path="x")
    world.ring.fail(error)
    world.scheduler.run_for(1_000)
    assert world.failed == [error]


def test_a_head_of_another_run_or_place_or_with_a_flipped_bit_is_no_head(world: World) -> None:
    world.append(1)
    (copy,) = world.heads(0)
    head = encode_copy_head(copy)
    assert decode_copy_head(head, copy.run_id, 0, 0) == copy
    assert decode_copy_head(head, bytes(8), 0, 0) is None
    assert decode_copy_head(head, copy.run_id, 1, 0) is None
    assert decode_copy_head(head, copy.run_id, 0, 512) is None
    for bit in range(8 * len(head.rstrip(b"\0"))):
        damaged = bytearray(head)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_copy_head(damaged, copy.run_id, 0, 0) is None
