"""Recently read metadata of ledgers. Reads are correct even if this metadata is outdated."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from ledgerlog_spark.model import LedgerMetadata

SIZE_BYTES_MAX = 16 << 20
"""Maximum memory of the cached metadata in bytes: about 10,000 ledgers with few fragments."""

AGE_MAX_S = 60.0
"""Maximum age of cached metadata.

For at most this time, reads may send requests to bookies that were already replaced."""

RECORD_SIZE_BYTES = 1_200
FRAGMENT_SIZE_BYTES = 250
VALUE_SIZE_BYTES = 120
"""Bytes of memory that Python needs for a `str` or `bytes` object in addition to its content.

The two constants above are the bytes for the metadata of a ledger and for a fragment."""


class RecentRecords:
    """A cache of the metadata of ledgers, with at most 16 MiB of memory.

    The oldest metadata is dropped first. Metadata contains the bookies of the entries. With
    outdated metadata, requests go to bookies that no longer have the entries. But a reader never
    concludes from outdated metadata that an entry is absent (LOGS.md#R4).
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        size_bytes_max: int = SIZE_BYTES_MAX,
    ) -> None:
        self.size_bytes = 0
        """Bytes of memory of the cached metadata, as `memory_size_bytes` estimates them."""
        self._now_s = now_s
        self._size_bytes_max = size_bytes_max
        self._records: OrderedDict[int, tuple[LedgerMetadata, float, int]] = OrderedDict()

    def get(self, ledger_id: int) -> LedgerMetadata | None:
        """Return the metadata of a ledger; None if it is unknown or too old."""
        metadata, read_s, _ = self._records.get(ledger_id, (None, 0.0, 0))
        if metadata is None or self._now_s() - read_s > AGE_MAX_S:
            return None
        return metadata

    def put(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Store metadata that was just read, unless it alone exceeds the limit of memory."""
        self._drop(ledger_id)
        size_bytes = memory_size_bytes(metadata)
        if size_bytes > self._size_bytes_max:
            return
        self._records[ledger_id] = metadata, self._now_s(), size_bytes
        self.size_bytes += size_bytes
        while self.size_bytes > self._size_bytes_max:
            self._drop(next(iter(self._records)))

    def _drop(self, ledger_id: int) -> None:
        _, _, size_bytes = self._records.pop(ledger_id, (None, 0.0, 0))
        self.size_bytes -= size_bytes


def memory_size_bytes(metadata: LedgerMetadata) -> int:
    """Estimate the bytes of memory of metadata in a dictionary. The real number may be larger."""
    values = [metadata.password, metadata.unknown_fields]
    bookies = [bookie_id for each in metadata.fragments for bookie_id in each.ensemble]
    for name, value in metadata.custom.items():
        values.append(value)
        bookies.append(name)
    # Python uses at most four bytes for a character.
    text = sum(map(len, values)) + 4 * sum(map(len, bookies))
    named = VALUE_SIZE_BYTES * (len(values) + len(bookies))
    return RECORD_SIZE_BYTES + FRAGMENT_SIZE_BYTES * len(metadata.fragments) + named + text
