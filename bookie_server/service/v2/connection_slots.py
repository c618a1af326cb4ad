"""Chooses the connections that a bookie keeps when it has as many as it may.

A new connection gets the place of an idle one: first of peers that never had a request answered,
then of the host with most connections, then of the one that was silent longest. A client whose idle
connection is closed opens another one when needed. The last eighth of the places is reserved for
hosts that had a request answered, so unknown hosts cannot exclude others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final, Protocol, TypeVar

from bookie_server.service.v2.peer_watch import PeerWatch

KNOWN_HOSTS_PART: Final = 8


class Occupant(Protocol):
    """The part of `PeerConnection` on which the choice depends."""

    @property
    def host(self) -> str:
        """The peer's address."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is open on it."""

    @property
    def is_proven(self) -> bool:
        """Whether one of its requests was answered."""

    @property
    def watch(self) -> PeerWatch:
        """The record of its peer's progress."""


AnyOccupant = TypeVar("AnyOccupant", bound=Occupant)


def is_full(open_count: int, connections_max: int, *, is_known_host: bool) -> bool:
    """Return whether a new connection has to take another one's place."""
    if is_known_host:
        return open_count >= connections_max
    return open_count >= connections_max - connections_max // KNOWN_HOSTS_PART


def to_replace(connections: Collection[AnyOccupant], *, is_known_host: bool) -> AnyOccupant | None:
    """Return the connection whose place a new one gets; None when all of them are busy.

    A new connection from an unknown host takes the place of one that never sent a request.
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
