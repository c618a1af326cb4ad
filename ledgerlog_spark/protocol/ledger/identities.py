"""The identities of bookies: how a machine detects that a bookie was replaced by another one.

A bookie that restarts with an empty directory may keep its id. The host reads the identity of a
bookie before entries are sent to it. A later write of the metadata contains the identity, and
changes nothing if the bookie has another identity then (PROTOCOL.md#C25, AUTORECOVERY.md#X7).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """The cookie and the directories of a bookie. A machine only passes it on.

    Attributes:
        bookie_id: The bookie.
        token: The host's value, which stays equal as long as the bookie has lost nothing.
    """

    bookie_id: str
    token: object


@dataclass(frozen=True, slots=True)
class ReadIdentities:
    """Read the identities of some bookies, after a sync. The reply is `IdentitiesRead`."""

    request: int
    bookie_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IdentitiesRead:
    """Answer to a `ReadIdentities`.

    Attributes:
        request: The number of the request.
        identities: Those of the bookies that have a cookie. None if they could not be read.
    """

    request: int
    identities: tuple[Identity, ...] | None
