"""What the metadata stores promise: domain-shaped, so that ZooKeeper is one implementation of two.

All methods are coroutines on the client's event loop. Reads may be stale until `sync`. A write
raises `MetadataVersionError` (definite) when it lost, `MetadataUnavailableError` (definite) when
nothing was sent, and `MetadataUnknownError` (not definite) when the connection went after sending:
the caller settles it, never guesses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from ledgerlog_spark.model import BookieInfo, LedgerMetadata, Version, Versioned

OnChange = Callable[[], None]
"""Called on the event loop after something watched changed; read again to see what."""

CancelWatch = Callable[[], None]


class LedgerStore(Protocol):
    """Metadata records of ledgers."""

    async def new_ids(self, count: int = 1) -> Sequence[int]:
        """`count` (1 to 64) ledger ids that nobody was or will be given; unused ones are lost."""

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        """Create the record.

        A lost reply is settled by `metadata.token`.

        Raises:
            LedgerExistsError: The id is taken by somebody else.
            MetadataUnknownError: Not settled; abandon the id.
        """

    async def load(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        """The record, possibly stale.

        Raises:
            LedgerNotFoundError: There is none (as far as this replica of the store knows).
            MetadataFormatError: It cannot be read.
        """

    async def write(
        self, ledger_id: int, metadata: LedgerMetadata, version: Version
    ) -> Versioned[LedgerMetadata]:
        """Replace the record if it is still at `version`.

        Raises:
            MetadataVersionError: It is not.
            LedgerNotFoundError: It was deleted.
            MetadataUnknownError: The outcome is not known.
        """

    async def delete(self, ledger_id: int, version: Version | None = None) -> None:
        """Delete the record; deleting what is not there is fine when `version` is None."""

    def ids(self) -> AsyncIterator[int]:
        """All ledger ids, rising; a snapshot of no single moment. An error ends it loudly."""

    def watch(self, ledger_id: int, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after each change or deletion, and after a session was replaced."""

    async def sync(self) -> None:
        """Make later reads at least as new as this moment."""


class Registration(Protocol):
    """Which bookies there are, and who they are."""

    async def register(self, info: BookieInfo, *, read_only: bool = False) -> None:
        """Announce a bookie for as long as this session lives.

        A node that an older session of the same bookie left behind is waited out.

        Raises:
            LocalProtocolError: Another live session holds the bookie id.
        """

    async def unregister(self, bookie_id: str) -> None:
        """Withdraw the announcement; fine when there is none."""

    async def writable(self) -> Sequence[str]:
        """Bookie ids that accept new ledgers, sorted."""

    async def read_only(self) -> Sequence[str]:
        """Bookie ids that serve reads and recovery only, sorted."""

    async def known(self) -> Sequence[str]:
        """All bookie ids that have a cookie, sorted."""

    async def info(self, bookie_id: str) -> BookieInfo:
        """How to reach a bookie.

        Raises:
            BookieUnavailableError: It is not registered.
        """

    def watch_writable(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after `writable` changed, and after a session was replaced."""

    async def read_cookie(self, bookie_id: str) -> Versioned[bytes] | None:
        """A bookie's cookie as stored, None when it has none."""

    async def write_cookie(self, bookie_id: str, cookie: bytes, version: Version | None) -> None:
        """Create (`version` None) or replace a cookie.

        Raises:
            MetadataVersionError: It exists already, or is at another version.
        """

    async def delete_cookie(self, bookie_id: str, version: Version) -> None:
        """Forget a bookie."""

    async def instance_id(self) -> str:
        """The cluster's UUID; cookies carry it."""

    async def initialize(self) -> None:
        """Make the cluster's nodes (LAYOUT, INSTANCEID, available, cookies) where missing."""

    async def sync(self) -> None:
        """Make later reads at least as new as this moment."""


class Session(Protocol):
    """The session with the metadata store that the stores of one client share."""

    @property
    def is_connected(self) -> bool:
        """Whether requests go out at once; may be asked on any thread."""

    async def is_orphaned(self) -> bool:
        """Whether another store answers at this address than the one of this session."""
        ...


class Leases(Protocol):
    """Named leases, each held by at most one live session."""

    async def acquire(self, name: str, holder: Mapping[str, str]) -> bool:
        """Take the lease if it is free; True when this session now holds it."""

    async def release(self, name: str) -> None:
        """Give the lease back; fine when it is not held."""

    async def holder(self, name: str) -> Mapping[str, str] | None:
        """What the holder said of itself, None when the lease is free."""

    def watch(self, name: str, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after the lease changed hands or was lost."""
