"""Ledger ids that a client drew from the store; each is used for one ledger, once.

If two ledgers had the same id, their entries could not be distinguished. So an id is never reused,
even after its ledger was deleted: recovery of the second ledger would find entries of the first
that a bookie has not deleted yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

DRAWN_MAX = 4_096
"""Maximum number of unused ids; beyond it the oldest are dropped."""


class DrawnIds:
    """Ids drawn and not used yet."""

    def __init__(self) -> None:
        """No ids."""
        self._ids: dict[int, None] = {}

    def __len__(self) -> int:
        """Number of unused ids."""
        return len(self._ids)

    def add(self, ledger_ids: Iterable[int]) -> None:
        """Add ids that the store returned."""
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
