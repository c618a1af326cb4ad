"""A bound on the memory of all readers of one consumer.

While a consumer takes one range, the next ranges are read ahead. Each of their readers
has its own limits (`read/budget.py`); a `ReadRoom` bounds the sum. The reader of the range that is
being taken has the turn. The others wait when there is no room. Their memory has a bound of its
own, so the reader with the turn never waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

ROOM_SIZE_BYTES_MAX = 64 << 20
"""Payload that all readers of a room hold; each pending request counts as a whole frame."""

AHEAD_SIZE_BYTES_MAX = 32 << 20
"""Part of it for all readers without the turn: six requests at once."""

HEDGES_SPARED = 2
"""Number of hedging requests that always have room beside the requests that read ahead."""


@dataclass(frozen=True, slots=True)
class RoomMade:
    """Other readers of the room hold less than before, or this one has the turn now."""


class ReadRoom:
    """A bound on the memory of several readers; all calls on one thread.

    The first reader that is denied room is the first to be notified when there is more.
    """

    def __init__(
        self,
        size_bytes_max: int = ROOM_SIZE_BYTES_MAX,
        ahead_size_bytes_max: int = AHEAD_SIZE_BYTES_MAX,
    ) -> None:
        self.size_bytes_max = size_bytes_max
        self.ahead_size_bytes_max = ahead_size_bytes_max
        self.reserved_size_bytes = 0  # held by readers, or still to be received
        self.ahead_size_bytes = 0  # the part of readers without the turn
        self._places: list[ReadPlace] = []
        self._is_offering = False

    def place(self) -> ReadPlace:
        """The place of one more range, after the others; call `ReadPlace.leave` later."""
        place = ReadPlace(self)
        self._places.append(place)
        return place

    def offer(self) -> None:
        """Notify the readers that were denied room, in order, until one is denied it again."""
        if self._is_offering:
            return
        self._is_offering = True
        try:
            for place in tuple(self._places):
                if place.is_denied:
                    place.notify()
                    if place.is_denied:
                        break
        finally:
            self._is_offering = False

    def forget(self, place: ReadPlace) -> None:
        """The place holds nothing any more."""
        if place in self._places:
            self._places.remove(place)


class ReadPlace:
    """One range's place in a room, for every reader that reads the range."""

    def __init__(self, room: ReadRoom) -> None:
        self.has_turn = False  # the range is being taken
        self.is_denied = False  # and not notified since
        # taken from the reader and not used up; counts from its next event on
        self.handed_size_bytes = 0
        self._room = room
        self._reserved_size_bytes = 0
        self._of_reader: Callable[[], int] | None = None
        self._on_room: Callable[[], None] | None = None

    def begin(self, reserved_size_bytes: Callable[[], int], on_room: Callable[[], None]) -> None:
        """A reader of the range begins."""
        self._of_reader = reserved_size_bytes
        self._on_room = on_room

    def end(self) -> None:
        """The reader has ended; another may follow for the rest of the range."""
        self._of_reader = self._on_room = None
        self.is_denied = False
        self.handed_size_bytes = 0
        self.settled()

    def settled(self) -> None:
        """The reader handled an event; others may have room now. Called by its host."""
        room = self._room
        of_reader = 0 if self._of_reader is None else self._of_reader()
        more = self.handed_size_bytes + of_reader - self._reserved_size_bytes
        if not more:
            return
        self._reserved_size_bytes += more
        room.reserved_size_bytes += more
        if not self.has_turn:
            room.ahead_size_bytes += more
        if more < 0:
            room.offer()

    def notify(self) -> None:
        """There may be room for the reader."""
        self.is_denied = False
        if self._on_room is not None:
            self._on_room()

    def take_turn(self) -> None:
        """The range is being taken from now on; idempotent."""
        if not self.has_turn:
            self.has_turn = True
            self._room.ahead_size_bytes -= self._reserved_size_bytes
            self.notify()
            self._room.offer()

    def fits(self, size_bytes: int, spared_size_bytes: int) -> bool:
        """Whether the reader may hold this much, the next request included.

        `spared_size_bytes` stay free for help against slow bookies. After a denial it is notified.
        """
        room = self._room
        more = self.handed_size_bytes + size_bytes - self._reserved_size_bytes
        if self.has_turn:
            fits = room.reserved_size_bytes + more + spared_size_bytes <= room.size_bytes_max
        else:
            spared_size_bytes = HEDGES_SPARED * FRAME_SIZE_BYTES_MAX
            fits = (
                room.ahead_size_bytes + more <= room.ahead_size_bytes_max
                and room.reserved_size_bytes + more + spared_size_bytes <= room.size_bytes_max
            )
        self.is_denied = self.is_denied or not fits
        return fits

    def leave(self) -> None:
        """The range has ended; idempotent."""
        self.end()
        self._room.forget(self)
