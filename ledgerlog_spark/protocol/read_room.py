"""How much the readers of one consumer may hold together.

A consumer that takes one range after the other has the next ones read ahead. Each of their readers
has limits of its own (`read_budget.py`); a `ReadRoom` bounds the sum. The reader whose range is
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
    """

    def __init__(
        self,
        size_bytes_max: int = ROOM_SIZE_BYTES_MAX,
        ahead_size_bytes_max: int = AHEAD_SIZE_BYTES_MAX,
    ) -> None:
        """A room that nobody reads in."""
        self.size_bytes_max = size_bytes_max
        self.ahead_size_bytes_max = ahead_size_bytes_max
        self._places: list[ReadPlace] = []
        self._is_offering = False

    @property
    def reserved_size_bytes(self) -> int:
        """What all readers hold, and what may still come for them."""
        return sum(place.reserved_size_bytes for place in self._places)

    def place(self) -> ReadPlace:
        """The place of one more range, behind the others; `ReadPlace.leave` has to follow."""
        place = ReadPlace(self)
        self._places.append(place)
        return place

    def offer(self) -> None:
        """Notify the readers that were denied room, in order, until one is denied it again.

        A host calls this after each event of a reader of the room.
        """
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

    def fits(self, place: ReadPlace, size_bytes: int, spared_size_bytes: int) -> bool:
        """Whether `place` may come to hold so much; see `ReadPlace.fits`."""
        others = [each for each in self._places if each is not place]
        held = size_bytes + sum(each.reserved_size_bytes for each in others)
        if place.has_turn:
            return held + spared_size_bytes <= self.size_bytes_max
        ahead = sum(each.reserved_size_bytes for each in others if not each.has_turn)
        if ahead + size_bytes > self.ahead_size_bytes_max:
            return False
        return held + HEDGES_SPARED * FRAME_SIZE_BYTES_MAX <= self.size_bytes_max

    def forget(self, place: ReadPlace) -> None:
        """The place holds nothing any more."""
        if place in self._places:
            self._places.remove(place)
            self.offer()


class ReadPlace:
    """One range's place in a room, whichever reader reads the range.

    Attributes:
        has_turn: The range is the one that is being taken.
        is_denied: Its reader was denied room and not notified since.
        handed_size_bytes: Payload that was taken from the reader and is not used up yet.
    """

    def __init__(self, room: ReadRoom) -> None:
        self.has_turn = False
        self.is_denied = False
        self.handed_size_bytes = 0
        self._room = room
        self._of_reader: Callable[[], int] | None = None
        self._on_room: Callable[[], None] | None = None

    @property
    def reserved_size_bytes(self) -> int:
        """What the range holds, and what may still come for it."""
        reserved = self.handed_size_bytes
        return reserved if self._of_reader is None else reserved + self._of_reader()

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
        self._room.offer()

    def settled(self) -> None:
        """The reader has seen an event: others may have room now."""
        self._room.offer()

    def notify(self) -> None:
        """There may be room for the reader."""
        self.is_denied = False
        if self._on_room is not None:
            self._on_room()

    def take_turn(self) -> None:
        """The range is being taken from now on; taking the turn again changes nothing."""
        if not self.has_turn:
            self.has_turn = True
            self.notify()

    def fits(self, size_bytes: int, spared_size_bytes: int) -> bool:
        """Whether the reader may come to hold so much; it is notified after a denial.

        Args:
            size_bytes: Payload that it holds and may get for its requests, the next one included.
            spared_size_bytes: For help against slow bookies, left free beside that.
        """
        fits = self._room.fits(self, self.handed_size_bytes + size_bytes, spared_size_bytes)
        self.is_denied = self.is_denied or not fits
        return fits

    def leave(self) -> None:
        """The range is over; leaving again changes nothing."""
        self.end()
        self._room.forget(self)
