"""How much the readers of one consumer may hold together.

A consumer that takes one range after the other has the next ones read ahead. Each of their readers
has limits of its own (`read/budget.py`); a `ReadRoom` bounds the sum. The reader whose range is
being taken has its turn. The others wait for room when they have none, and leave it enough to go
on: what they hold is bounded apart, and so it never waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

ROOM_SIZE_BYTES_MAX = 64 << 20
"""Payload that all readers of a room hold, each request that is out counted as a whole frame."""

AHEAD_SIZE_BYTES_MAX = 32 << 20
"""The part of it for readers that do not have the turn, together: six requests at once."""

HEDGES_SPARED = 2
"""Requests that always have room beside those that read ahead: to help a slow bookie."""


@dataclass(frozen=True, slots=True)
class RoomMade:
    """Other readers of the room hold less than before, or this one has the turn now."""


class ReadRoom:
    """A bound on what several readers hold; all of it on one thread.

    The first reader that is denied room is the first to be told when there is more.

    Attributes:
        reserved_size_bytes: What all readers hold, and what may still come for them.
        ahead_size_bytes: The part of those that do not have the turn.
    """

    def __init__(
        self,
        size_bytes_max: int = ROOM_SIZE_BYTES_MAX,
        ahead_size_bytes_max: int = AHEAD_SIZE_BYTES_MAX,
    ) -> None:
        """A room that nobody reads in."""
        self.size_bytes_max = size_bytes_max
        self.ahead_size_bytes_max = ahead_size_bytes_max
        self.reserved_size_bytes = 0
        self.ahead_size_bytes = 0
        self._places: list[ReadPlace] = []
        self._is_offering = False

    def place(self) -> ReadPlace:
        """The place of one more range, behind the others; `ReadPlace.leave` has to follow."""
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
    """One range's place in a room, whichever reader reads the range.

    Attributes:
        has_turn: The range is the one that is being taken.
        is_denied: Its reader was denied room and not notified since.
        handed_size_bytes: Payload that was taken from the reader and is not used up yet; counts
            from the reader's next event on.
    """

    def __init__(self, room: ReadRoom) -> None:
        self.has_turn = False
        self.is_denied = False
        self.handed_size_bytes = 0
        self._room = room
        self._reserved_size_bytes = 0
        self._of_reader: Callable[[], int] | None = None
        self._on_room: Callable[[], None] | None = None

    def begin(self, reserved_size_bytes: Callable[[], int], on_room: Callable[[], None]) -> None:
        """A reader reads the range from now on.

        Args:
            reserved_size_bytes: What it holds and asked for.
            on_room: Called when there may be more room, or at its turn.
        """
        self._of_reader = reserved_size_bytes
        self._on_room = on_room

    def end(self) -> None:
        """The reader is over; another may follow for the rest of the range."""
        self._of_reader = self._on_room = None
        self.is_denied = False
        self.handed_size_bytes = 0
        self.settled()

    def settled(self) -> None:
        """The reader has seen an event, which its host tells: others may have room now."""
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
        """The range is being taken from now on; taking the turn again changes nothing."""
        if not self.has_turn:
            self.has_turn = True
            self._room.ahead_size_bytes -= self._reserved_size_bytes
            self.notify()
            self._room.offer()

    def fits(self, size_bytes: int, spared_size_bytes: int) -> bool:
        """Whether the reader may come to hold so much; it is notified after a denial.

        Args:
            size_bytes: Payload that it holds and may get for its requests, the next one included.
            spared_size_bytes: For help against slow bookies, left free beside that.
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
        """The range is over; leaving again changes nothing."""
        self.end()
        self._room.forget(self)
