"""Limits the memory of all readers of one consumer.

While a consumer takes the entries of one range, other readers read the next ranges ahead. Each
reader has its own limits (`read/budget.py`), and a `ReadRoom` limits the memory of all readers
together. One reader has the *turn*: the consumer takes the entries of this reader. All other
readers together have a smaller limit, and they wait when they have reached it. So they never make
the reader with the turn wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX

ROOM_SIZE_BYTES_MAX = 64 << 20
"""Maximum number of payload bytes that all readers of a room hold. A pending request counts as the
size of a whole frame."""

AHEAD_SIZE_BYTES_MAX = 32 << 20
"""Maximum number of payload bytes that all readers without the turn hold. This is enough for six
pending requests."""

HEDGES_SPARED = 2
"""Number of hedging requests for which room is kept free. A hedging request is sent to another
bookie if a bookie is slow."""


@dataclass(frozen=True, slots=True)
class RoomMade:
    """There may be room, because other readers hold less payload, or this reader has the turn."""


class ReadRoom:
    """A limit for the memory of several readers. Call all methods on one thread.

    When there is more room, readers that got no room are notified in the order of their places.
    """

    def __init__(
        self,
        size_bytes_max: int = ROOM_SIZE_BYTES_MAX,
        ahead_size_bytes_max: int = AHEAD_SIZE_BYTES_MAX,
    ) -> None:
        self.size_bytes_max = size_bytes_max
        self.ahead_size_bytes_max = ahead_size_bytes_max
        self.reserved_size_bytes = 0  # payload bytes that readers hold or may still receive
        self.ahead_size_bytes = 0  # payload bytes of the readers without the turn, counted alike
        self._places: list[ReadPlace] = []
        self._is_offering = False

    def place(self) -> ReadPlace:
        """Add a place for one more range, after the other places.

        `ReadPlace.leave` removes the place.
        """
        place = ReadPlace(self)
        self._places.append(place)
        return place

    def offer(self) -> None:
        """Notify the readers that got no room, in order, until a reader again gets no room."""
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
        """Remove a place whose readers hold no payload any more."""
        if place in self._places:
            self._places.remove(place)


class ReadPlace:
    """The place of one range in a room. Several readers may use it, one after the other."""

    def __init__(self, room: ReadRoom) -> None:
        self.has_turn = False  # the consumer takes this range now
        self.is_denied = False  # the reader got no room, and has not been notified since
        # payload bytes that the consumer took and still uses; counted from the next event on
        self.handed_size_bytes = 0
        self._room = room
        self._reserved_size_bytes = 0
        self._of_reader: Callable[[], int] | None = None
        self._on_room: Callable[[], None] | None = None

    def begin(self, reserved_size_bytes: Callable[[], int], on_room: Callable[[], None]) -> None:
        """Record that a reader of the range begins."""
        self._of_reader = reserved_size_bytes
        self._on_room = on_room

    def end(self) -> None:
        """Record that the reader has ended. Another reader may read the rest of the range."""
        self._of_reader = self._on_room = None
        self.is_denied = False
        self.handed_size_bytes = 0
        self.settled()

    def settled(self) -> None:
        """Update the room's sums. The host of the reader calls this after each event of the reader.

        If the reader holds less than before, the room is offered to other readers.
        """
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
        """Notify the reader that there may be room."""
        self.is_denied = False
        if self._on_room is not None:
            self._on_room()

    def take_turn(self) -> None:
        """Record that the consumer takes the entries of this range from now on.

        Further calls have no effect.
        """
        if not self.has_turn:
            self.has_turn = True
            self._room.ahead_size_bytes -= self._reserved_size_bytes
            self.notify()
            self._room.offer()

    def fits(self, size_bytes: int, spared_size_bytes: int) -> bool:
        """Whether the reader may hold `size_bytes`, including the answer to its next request.

        `spared_size_bytes` of the room stay free for hedging requests. A reader that got no room is
        notified when there may be room.
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
        """Record that the range has ended. Further calls have no effect."""
        self.end()
        self._room.forget(self)
