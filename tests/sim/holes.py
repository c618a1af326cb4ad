"""The holes that writers and recoveries of one ledger reported, and what must hold for them."""

from __future__ import annotations

from collections.abc import Sequence

from ledgerlog_spark.protocol.ledger import messages as m


class Holes:
    """The reported holes of one ledger, by client.

    Attributes:
        absent: Bookies that were away when the ledger was created, or that its writer was told to
            be lost.
        on_their_way: The adds without an answer when a writer stopped adding, by writer.
    """

    def __init__(self) -> None:
        self.absent: set[str] = set()
        self.on_their_way: dict[str, list[m.SendAdd]] = {}
        self._reported: dict[str, list[m.HoleLeft]] = {}

    def report(self, client: str, holes: Sequence[m.HoleLeft]) -> None:
        self._reported.setdefault(client, []).extend(holes)

    def is_reported(self, client: str, bookie_id: str, entry_id: int) -> bool:
        return any(
            hole.bookie_id == bookie_id and hole.first_entry_id <= entry_id <= hole.last_entry_id
            for hole in self._reported.get(client, ())
        )
