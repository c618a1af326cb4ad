"""The finished files of a directory: which ledgers they hold, and what of them is live."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.slices import parts

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
        """Take a file of a larger id than all others, at once."""
        for _ in self.adding(file):
            pass

    def adding(self, file: FinishedFile) -> Iterator[None]:
        """Take a file of a larger id than all others; yields after each slice.

        Its ledgers are found by it slice by slice: until the end another index has to know them.
        """
        yield from self._count(file)
        self._files[file.entry.file_id] = file

    def counting_again(self, file: FinishedFile) -> Iterator[None]:
        """Look a file's ledgers up again after its index was rebuilt; nothing if it is gone.

        Yields after each slice; until the end the file has to be in doubt.
        """
        if file.entry.file_id not in self._files:
            return
        for ids in parts(list(file.live)):
            for ledger_id in ids:
                files = self._holding.get(ledger_id, ())
                if file in files:
                    self._holding[ledger_id].remove(file)
            yield
        yield from self._count(file)

    def _count(self, file: FinishedFile) -> Iterator[None]:
        file.live, file.live_bytes = {}, 0
        for totals in parts(file.totals()):
            for total in totals:
                ledger_id = total.ledger_id
                if total.origin_newest <= self._tombstone_of(ledger_id):
                    continue
                file.live[ledger_id] = total.size_bytes
                file.live_bytes += total.size_bytes
                files = self._holding.setdefault(ledger_id, [])
                files.append(file)
                files.sort(key=_by_id)
            yield

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
