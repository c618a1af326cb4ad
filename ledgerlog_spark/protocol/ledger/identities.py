"""The identities of bookies, which show whether another bookie has taken over the id of a bookie.

A bookie that restarts with an empty directory may keep its id. The host reads the identity of a
bookie before entries are sent to it. A later write of the metadata contains the identity. If the
bookie then has another identity, the write changes nothing (PROTOCOL.md#C25, AUTORECOVERY.md#X7).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """The cookie and the directories of a bookie. A machine only passes identities on.

    Attributes:
        bookie_id: The bookie.
        token: A value from the host. It does not change while the bookie has lost no entries.
    """

    bookie_id: str
    token: object


@dataclass(frozen=True, slots=True)
class ReadIdentities:
    """Read the identities of these bookies, after a sync. The reply is `IdentitiesRead`."""

    request: int
    bookie_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IdentitiesRead:
    """Answer to a `ReadIdentities`.

    Attributes:
        request: The number of the request.
        identities: The identities of the bookies that have a cookie. This value is None if the
            identities could not be read.
    """

    request: int
    identities: tuple[Identity, ...] | None
