"""A pass over the metadata of all ledgers (a walk), with many reads at the same time.

An auditor reads, for example, 100,000 records in one walk. Therefore the reads overlap, and only
the records of the newest reads are in memory. Equal ensembles share one object, because a cluster
has few different ensembles.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from ledgerlog_spark.errors import LedgerNotFoundError, MetadataFormatError
from ledgerlog_spark.metadata.ordered import in_order
from ledgerlog_spark.model import Fragment, LedgerMetadata, Versioned

WALK_DEPTH = 256
"""Maximum number of records that a walk reads at the same time."""
ENSEMBLES_MAX = 65_536
"""Maximum number of different ensembles that are stored for sharing.

Before one more ensemble is added, all of them are forgotten.
"""


@dataclass(frozen=True, slots=True)
class WalkedLedger:
    """One ledger of a walk.

    Attributes:
        ledger_id: Id of the ledger.
        found: The metadata of the ledger and its version. If the metadata cannot be decoded, this
            is the error, and the walk continues.
    """

    ledger_id: int
    found: Versioned[LedgerMetadata] | MetadataFormatError


def walked(
    ids: AsyncGenerator[int, None],
    load: Callable[[int], Awaitable[Versioned[LedgerMetadata]]],
    depth: int,
) -> AsyncIterator[WalkedLedger]:
    """Yield the ledgers `ids` in this order. Omit ledgers that are deleted during the walk."""
    ensembles = Ensembles()

    async def read(ledger_id: int) -> WalkedLedger | None:
        try:
            found = await load(ledger_id)
        except LedgerNotFoundError:
            return None
        except MetadataFormatError as error:
            return WalkedLedger(ledger_id, error)
        return WalkedLedger(ledger_id, Versioned(ensembles.shared(found.value), found.version))

    return in_order(ids, read, depth)


class Ensembles:
    """Replaces equal ensembles by one object, so that an index of many ledgers is small."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def shared(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """Return the same metadata with shared ensembles."""
        fragments = tuple(
            Fragment(each.first_entry_id, self._shared(each.ensemble))
            for each in metadata.fragments
        )
        return replace(metadata, fragments=fragments)

    def _shared(self, ensemble: tuple[str, ...]) -> tuple[str, ...]:
        found = self._known.get(ensemble)
        if found is None:
            if len(self._known) >= ENSEMBLES_MAX:
                self._known.clear()
            found = tuple(map(sys.intern, ensemble))
            self._known[found] = found
        return found
