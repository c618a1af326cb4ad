"""Readers for one consumer together hold at most the bytes of their room."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest

from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, LedgerMetadata
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.read_room import AHEAD_SIZE_BYTES_MAX, ReadPlace, ReadRoom
from tests.unit.protocol.test_read_budget import BOUND, PLAIN, STRIPED, Reading

RANGES = 8
LAST = 24


class Task:
    """A consumer of several ranges, one after the other, whose readers share a room.

    Attributes:
        most: Maximum of the held and requested bytes of all readers.
        most_ahead: The same maximum for the readers that do not have their turn.
    """

    def __init__(self, metadata: LedgerMetadata, size: str, seed: int) -> None:
        self.random = Random(seed)
        self.room = ReadRoom()
        self.places = [self.room.place() for _ in range(RANGES)]
        self.readings: list[Reading] = []
        self.over: set[int] = set()
        self.most = self.most_ahead = 0
        for number, place in enumerate(self.places):
            reading = Reading(metadata, LAST, size, seed + number, place)
            reading.faults = 0.1 if seed % 2 else 0.0
            self.readings.append(reading)
            self.settle(place)

    def settle(self, place: ReadPlace) -> None:
        """Do what a host does after each event of the place's reader, and check the limits."""
        place.settled()
        # Answers to a reader that has ended are dropped.
        out = [len(each.out) if each.end is None else 0 for each in self.readings]
        held = [
            0 if number in self.over else each.held + out[number] * FRAME_SIZE_BYTES_MAX
            for number, each in enumerate(self.readings)
        ]
        self.most = max(self.most, sum(held))
        ahead = [size for size, each in zip(held, self.places, strict=False) if not each.has_turn]
        self.most_ahead = max(self.most_ahead, sum(ahead))

    def answer_any(self) -> bool:
        out = [(n, request) for n, each in enumerate(self.readings) for request in each.out]
        if not out:
            return False
        number, request = self.random.choice(out)
        self.readings[number].answer(request)
        self.settle(self.places[number])
        return True

    def answer_all(self) -> None:
        while self.answer_any():
            pass

    def read(self, number: int) -> m.Effect:
        """Read one range to its end."""
        reading, place = self.readings[number], self.places[number]
        place.take_turn()
        for _ in range(10_000):
            if reading.untaken and (not reading.out or self.random.random() < 0.3):
                reading.take_one()
                self.settle(place)
            elif reading.end is not None and not reading.untaken:
                self.over.add(number)
                place.leave()
                return reading.end
            elif not self.answer_any():
                raise AssertionError("the reader whose turn it is waits for nothing")
            if self.random.random() < 0.02:
                late = self.random.choice(self.readings)
                late.tick()
                self.settle(self.places[self.readings.index(late)])
        raise AssertionError("the range does not end")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("metadata", [PLAIN, STRIPED], ids=["plain", "striped"])
@pytest.mark.parametrize("size", ["large", "mixed", "small"])
def test_every_range_is_read_to_its_end_and_all_readers_stay_within_one_bound(
    metadata: LedgerMetadata, size: str, seed: int
) -> None:
    task = Task(metadata, size, seed)
    for number in range(RANGES):
        end = task.read(number)
        if not seed % 2:
            assert isinstance(end, m.RangeRead)
            assert task.readings[number].next_entry_id == LAST + 1
    assert task.most <= BOUND
    assert task.most_ahead <= AHEAD_SIZE_BYTES_MAX
    assert task.room.reserved_size_bytes == 0


def test_a_consumer_that_takes_nothing_leaves_room_for_the_range_that_has_the_turn() -> None:
    task = Task(PLAIN, "large", 0)
    task.answer_all()
    assert task.most_ahead <= AHEAD_SIZE_BYTES_MAX
    assert not task.readings[-1].next_entry_id
    task.places[-1].take_turn()
    assert task.readings[-1].out
    task.answer_all()
    assert len(task.readings[-1].untaken) > 1
    assert task.most <= BOUND


def test_small_ranges_are_read_ahead_as_room_is_made_and_in_order() -> None:
    task = Task(PLAIN, "small", 0)
    asked = [bool(each.out) for each in task.readings]
    assert asked == sorted(asked, reverse=True)
    task.answer_all()
    assert all(isinstance(each.end, m.RangeRead) for each in task.readings)


def test_what_was_handed_to_the_consumer_counts_until_it_comes_back() -> None:
    room = ReadRoom()
    ahead, turn = room.place(), room.place()
    turn.take_turn()
    ahead.handed_size_bytes = AHEAD_SIZE_BYTES_MAX
    ahead.settled()
    assert not ahead.fits(1, 0)
    assert turn.fits(BOUND - AHEAD_SIZE_BYTES_MAX, 0)
    assert not turn.fits(BOUND - AHEAD_SIZE_BYTES_MAX + 1, 0)
    ahead.leave()
    assert turn.fits(BOUND, 0)
    assert (room.reserved_size_bytes, room.ahead_size_bytes) == (0, 0)


def test_a_range_that_takes_its_turn_makes_room_ahead() -> None:
    room = ReadRoom()
    first, second = room.place(), room.place()
    notified: list[int] = []
    second.begin(lambda: 0, lambda: notified.append(1))
    first.handed_size_bytes = AHEAD_SIZE_BYTES_MAX
    first.settled()
    assert not second.fits(1, 0)
    first.take_turn()
    assert notified == [1]
    assert second.fits(1, 0)
    assert (room.reserved_size_bytes, room.ahead_size_bytes) == (AHEAD_SIZE_BYTES_MAX, 0)


def test_a_reader_that_is_over_is_not_notified() -> None:
    room = ReadRoom()
    place = room.place()
    notified: list[int] = []
    place.begin(lambda: 0, lambda: notified.append(1))
    assert not place.fits(BOUND, 0)
    room.offer()
    assert notified == [1]
    assert not place.fits(BOUND, 0)
    place.end()
    room.offer()
    assert notified == [1]


def test_what_a_reader_that_is_over_held_makes_room_and_its_turn_is_none_of_its_own() -> None:
    room = ReadRoom()
    place = room.place()
    notified: list[int] = []
    place.begin(lambda: BOUND, lambda: notified.append(1))
    place.settled()
    assert (room.reserved_size_bytes, room.ahead_size_bytes) == (BOUND, BOUND)
    place.end()
    assert (room.reserved_size_bytes, room.ahead_size_bytes) == (0, 0)
    place.take_turn()
    assert notified == []


def test_a_room_keeps_no_range_that_was_left() -> None:
    room = ReadRoom()
    place = room.place()
    left = weakref.ref(place)
    place.leave()
    place.leave()
    del place
    gc.collect()
    assert left() is None
