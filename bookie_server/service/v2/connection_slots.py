"""Which connections a bookie keeps when there are as many as it may have.

A newcomer gets the place of a connection that nothing is open on: of peers that never had a request
answered first, then of the host with most connections, then of the one that was silent longest. A
client whose idle connection is closed makes another one when it needs it. Of the last eighth of the
places nothing goes to hosts that never had a request answered, so strangers lock nobody out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final, Protocol, TypeVar

from bookie_server.service.v2.peer_watch import PeerWatch

KNOWN_HOSTS_PART: Final = 8


class Occupant(Protocol):
    """What the choice is made from; V2Connection has this shape."""

    @property
    def host(self) -> str:
        """The peer's address."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open on it."""

    @property
    def is_proven(self) -> bool:
        """Whether one of its requests was answered."""

    @property
    def watch(self) -> PeerWatch:
        """When its peer was last heard."""


AnyOccupant = TypeVar("AnyOccupant", bound=Occupant)


def is_full(open_count: int, connections_max: int, *, is_known_host: bool) -> bool:
    """Whether a newcomer has to take another connection's place."""
    if is_known_host:
        return open_count >= connections_max
    return open_count >= connections_max - connections_max // KNOWN_HOSTS_PART


def to_replace(connections: Collection[AnyOccupant], *, is_known_host: bool) -> AnyOccupant | None:
    """The connection whose place a newcomer gets; None when all of them are busy.

    A newcomer from a host that is not known takes the place of one that never asked for anything.
    """
    of_host = Counter(connection.host for connection in connections)
    return min(
        (
            connection
            for connection in connections
            if connection.is_idle and (is_known_host or not connection.is_proven)
        ),
        key=lambda connection: (
            connection.is_proven,
            -of_host[connection.host],
            connection.watch.heard_at,
        ),
        default=None,
    )
