"""The places of bookies (host, rack and region), and the bookies that are avoided if possible."""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BookiePlace:
    """The place of a bookie. A part of the place that is unknown is None.

    Two racks with the same name in different regions are different racks.
    """

    host: str | None = None
    rack: str | None = None
    region: str | None = None


UNKNOWN = BookiePlace()


@dataclass(frozen=True, slots=True)
class BookieMap:
    """The bookies of a cluster: their places, and the bookies that are avoided if possible.

    Attributes:
        places: The place of each known bookie, including bookies that are down.
        quarantined: Bookies in quarantine.
        without_room: Bookies that reported no free bytes.
    """

    places: Mapping[str, BookiePlace] = field(default_factory=dict)
    quarantined: frozenset[str] = frozenset()
    without_room: frozenset[str] = frozenset()

    @property
    def has_racks(self) -> bool:
        """Whether the rack of at least one bookie is known, so that rules about racks apply."""
        return any(place.rack is not None for place in self.places.values())

    @property
    def has_regions(self) -> bool:
        """Whether the region of at least one bookie is known, so that rules about regions apply."""
        return any(place.region is not None for place in self.places.values())

    def host_of(self, bookie_id: str) -> Hashable:
        """Return the host of a bookie. Each bookie on a loopback or unknown host has its own host.

        If the host of a bookie is not stored, it is taken from an id of the form `host:port`.
        """
        host = self.places.get(bookie_id, UNKNOWN).host or _host_in(bookie_id)
        return (bookie_id,) if host is None or _is_loopback(host) else host.lower()

    def rack_of(self, bookie_id: str) -> Hashable:
        """Return the rack of a bookie. Bookies of a region with an unknown rack share one rack."""
        place = self.places.get(bookie_id, UNKNOWN)
        return place.region, place.rack

    def region_of(self, bookie_id: str) -> Hashable:
        """Return the region of a bookie. All bookies with an unknown region share one region."""
        return self.places.get(bookie_id, UNKNOWN).region


def _host_in(bookie_id: str) -> str | None:
    host, colon, port = bookie_id.rpartition(":")
    return host if colon and host and port.isascii() and port.isdigit() else None


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
