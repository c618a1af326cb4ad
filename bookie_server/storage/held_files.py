"""The finished files of a directory: which ledgers they hold, and what of them is live."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from bookie_server.storage.entry_log_file import FinishedFile

_by_id = attrgetter("entry.file_id")


class HeldFiles:
    """Finished files in rising order of id, found by ledger.

    A file's `live_bytes` are those of the ledgers that it is found by. A ledger that has entries
    both above and below its tombstone in one file counts with all of them until it is dropped
    again.

    Args:
        files: In rising order of id.
        tombstone_of: Origin sequence below which a ledger's entries were dropped.
    """

    def __init__(self, files: Iterable[FinishedFile], tombstone_of: Callable[[int], int]) -> None:
        self._files: dict[int, FinishedFile] = {}
        self._holding: dict[int, list[FinishedFile]] = {}
        self._tombstone_of = tombstone_of
        for file in files:
            self.add(file)

    def __iter__(self) -> Iterator[FinishedFile]:
        return iter(self._files.values())

    def __contains__(self, file_id: int) -> bool:
        return file_id in self._files

    def holding(self, ledger_id: int) -> list[FinishedFile]:
        """Files with live entries of a ledger, oldest first."""
        return self._holding.get(ledger_id, [])

    def add(self, file: FinishedFile) -> None:
        """Take a file of a larger id than all others."""
        self._files[file.entry.file_id] = file
        self._count(file)

    def count_again(self, file: FinishedFile) -> None:
        """Look a file's ledgers up again after its index was rebuilt; nothing if it is gone."""
        if file.entry.file_id not in self._files:
            return
        for ledger_id in file.live:
            self._holding[ledger_id].remove(file)
        self._count(file)

    def _count(self, file: FinishedFile) -> None:
        file.live = {
            total.ledger_id: total.size_bytes
            for total in file.totals()
            if total.origin_newest > self._tombstone_of(total.ledger_id)
        }
        file.live_bytes = sum(file.live.values())
        for ledger_id in file.live:
            files = self._holding.setdefault(ledger_id, [])
            files.append(file)
            files.sort(key=_by_id)

    def drop(self, ledger_id: int) -> None:
        """No entry that any file holds of a ledger is live any more."""
        for file in self._holding.pop(ledger_id, ()):
            file.live_bytes -= file.live.pop(ledger_id)

    def dead(self, files_in_doubt: set[int]) -> list[FinishedFile]:
        """The files without anything live; one in doubt may hold anything, and is none of them."""
        return [
            file
            for file in self._files.values()
            if not file.live and file.entry.file_id not in files_in_doubt
        ]

    def remove(self, file: FinishedFile) -> None:
        """Forget a file without anything live."""
        assert not file.live
        del self._files[file.entry.file_id]

    def ledgers_with_records(self) -> set[int]:
        """Ledgers of which any file has records, live or dropped."""
        return {total.ledger_id for file in self for total in file.totals()}
