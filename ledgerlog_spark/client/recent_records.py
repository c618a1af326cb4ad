"""Records of ledgers as they were read lately, for reads that stay right when they are outdated."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.model import LedgerMetadata

RECORDS_MAX = 10_000
AGE_MAX_S = 60.0
"""Bookies that were replaced are asked first for no longer than this."""


class RecentRecords:
    """Records by ledger id; the oldest go first.

    A record names the bookies that were asked to hold the entries. An outdated one costs requests
    to bookies that do not have them any more; it never makes an entry absent (DESIGN 6.5).
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Knows nothing yet."""
        self._now_s = now_s
        self._records: OrderedDict[int, tuple[LedgerMetadata, float]] = OrderedDict()

    def get(self, ledger_id: int) -> LedgerMetadata | None:
        """The record, None when it is not known or too old."""
        metadata, read_s = self._records.get(ledger_id, (None, 0.0))
        if metadata is None or self._now_s() - read_s > AGE_MAX_S:
            return None
        return metadata

    def put(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Keep a record that was read just now."""
        self._records[ledger_id] = metadata, self._now_s()
        self._records.move_to_end(ledger_id)
        if len(self._records) > RECORDS_MAX:
            self._records.popitem(last=False)
