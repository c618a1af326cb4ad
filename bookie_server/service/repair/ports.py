"""The interfaces of a repair to the storage, the metadata store and other bookies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from bookie_server.core.doubt import Doubt
from ledgerlog_spark.model import Code, LedgerMetadata, Versioned


class RepairStorage(Protocol):
    """The storage of a bookie, as a repair uses it. `LedgerStorage` implements it."""

    @property
    def doubt(self) -> Doubt:
        """The durable doubt of the directory."""

    async def end_doubt(self, epoch: int) -> None:
        """Store that the doubt of this epoch has ended (`Doubt.ended`).

        This is durable on return.
        """

    def is_known(self, ledger_id: int) -> bool:
        """Return whether the bookie has stored a state of the ledger."""

    def limbo_ledgers(self) -> list[int]:
        """Return the ids of the ledgers that have a state and are in limbo, in ascending order."""

    def take_asked(self) -> list[int]:
        """Return the ledgers for which a client got "unknown" because of limbo, and forget them."""

    def take_damaged(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return the damaged entries that the scrub found, by ledger, and forget them."""

    def last_accepted_id(self, ledger_id: int) -> int:
        """Return the largest entry id that the bookie has accepted; NO_ENTRY if there is none."""

    async def verify_held(
        self, ledger_id: int, entry_ids: Sequence[int], is_intact: Callable[[int, bytes], bool]
    ) -> frozenset[int]:
        """Return the entries that are stored with valid checksums, and are intact."""

    async def store_repaired(self, ledger_id: int, entry_id: int, stored: bytes) -> Code:
        """Store an entry as a synced recovery add. The entry is durable if the code is OK."""

    async def clear_ledger(self, ledger_id: int, epoch: int, last_add_confirmed: int) -> Code:
        """Store that the ledger is cleared up to `epoch`. This is durable if the code is OK."""

    async def keep_in_limbo(self, ledger_id: int) -> Code:
        """Store a state of the ledger in limbo. The state is durable if the code is OK."""


class LedgerRecords(Protocol):
    """The metadata of ledgers. Each call returns the newest state."""

    async def load(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        """Return the metadata of a ledger; None if the ledger does not exist.

        Raises:
            MetadataFormatError: This release cannot read the metadata.
            MetadataError: The store did not answer.
        """

    def ids(self) -> AsyncIterator[int]:
        """Yield the id of each ledger that exists, in ascending order.

        Raises:
            MetadataError: The listing is not complete.
        """


class Peers(Protocol):
    """Other bookies. Each call ends after a time limit."""

    async def read(
        self, bookie_id: str, ledger_id: int, entry_id: int
    ) -> tuple[Code, bytes | None]:
        """Read an entry, without fencing the ledger."""

    async def read_batch(
        self, bookie_id: str, ledger_id: int, first_entry_id: int, count: int
    ) -> Sequence[bytes]:
        """Read consecutive entries. If the bookie cannot read them together, return no entries."""

    async def read_lac(self, bookie_id: str, ledger_id: int) -> tuple[Code, int]:
        """Read the LAC of a ledger that the bookie has."""
