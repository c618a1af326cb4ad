"""A bounded number of places, shared fairly among peers by taking from who has most.

For what holds a place for as long as its peer likes: calls of the control service, watches of a
ledger. When all places are taken, a peer that has fewer than another gets one, and the other one's
newest occupant is ended. A peer is a connection: processes of one host count apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class FairSlots:
    """The places, and who has them.

    Attributes:
        count_max: Of places.
        count: Of places that are taken.
        refused: How often there was none to be had; only ever rising.
        ended: How often an occupant was ended for another peer; only ever rising.
    """

    __slots__ = ("_by_peer", "count", "count_max", "ended", "refused")

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.count = 0
        self.refused = 0
        self.ended = 0
        self._by_peer: dict[str, dict[object, Callable[[], object]]] = {}

    def enter(self, peer: str, end: Callable[[], object]) -> object | None:
        """Take a place.

        Args:
            peer: Whose it is.
            end: Called at most once, when the place is given to another peer.

        Returns:
            What `leave` takes; None where no peer has more places than this one would have.
        """
        mine = len(self._by_peer.get(peer, ()))
        if self.count >= self.count_max:
            greediest = max(self._by_peer, key=lambda name: len(self._by_peer[name]))
            if len(self._by_peer[greediest]) <= mine + 1:
                self.refused += 1
                return None
            newest = next(reversed(self._by_peer[greediest]))
            end_newest = self._by_peer[greediest][newest]
            self.leave(greediest, newest)
            self.ended += 1
            end_newest()
        place = object()
        self._by_peer.setdefault(peer, {})[place] = end
        self.count += 1
        return place

    def leave(self, peer: str, place: object) -> None:
        """Free a place; fine when it was given to another peer."""
        places = self._by_peer.get(peer)
        if places is not None and places.pop(place, None) is not None:
            self.count -= 1
            if not places:
                del self._by_peer[peer]
