"""Ledger ids that a client drew from the store: each makes one ledger, once.

Nothing in an entry says which of two ledgers of one id it belongs to, so an id is never used again,
also after its ledger was deleted: recovery of the second would take entries of the first that a
bookie has not collected yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

DRAWN_MAX = 4_096
"""Ids that wait to be used; the oldest are given up."""


class DrawnIds:
    """Ids drawn and not used yet."""

    def __init__(self) -> None:
        """None."""
        self._ids: dict[int, None] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._ids)

    def add(self, ledger_ids: Iterable[int]) -> None:
        """The store gave out these."""
        self._ids |= dict.fromkeys(ledger_ids)
        while len(self._ids) > DRAWN_MAX:
            del self._ids[next(iter(self._ids))]

    def use(self, ledger_id: int) -> int:
        """The id, which cannot be used again.

        Raises:
            LocalProtocolError: This client did not draw it, or used it before.
        """
        if ledger_id not in self._ids:
            raise LocalProtocolError(
                f"ledger id {ledger_id} was not drawn by this client, or was used before: leave it "
                "out, or take one from new_ledger_ids",
                ledger_id=ledger_id,
            )
        del self._ids[ledger_id]
        return ledger_id
