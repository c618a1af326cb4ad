"""The finished files of a directory: their ledgers, and their live bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.slices import parts

_by_id = attrgetter("entry.file_id")


class HeldFiles:
    """Finished files in ascending order of id, found by ledger.

    A file's `live_bytes` are those of the ledgers that it is found by. A ledger with entries both
    above and below its tombstone in one file counts with all of them until the next drop.
    """

    def __init__(self, files: Iterable[FinishedFile], tombstone_of: Callable[[int], int]) -> None:
        self._files: dict[int, FinishedFile] = {}
        self._holding: dict[int, list[FinishedFile]] = {}
        self._tombstone_of = tombstone_of
        for file in files:
            for _ in self.adding(file):
                pass

    def __iter__(self) -> Iterator[FinishedFile]:
        return iter(self._files.values())

    def __contains__(self, file_id: int) -> bool:
        return file_id in self._files

    def holding(self, ledger_id: int) -> list[FinishedFile]:
        """Return the files with live entries of a ledger, oldest first."""
        return self._holding.get(ledger_id, [])

    def adding(self, file: FinishedFile) -> Iterator[None]:
        """Add a file with a larger id than all others; yields after each slice.

        It becomes findable slice by slice. Until the end, another index must cover its ledgers.
        """
        yield from self._count(file)
        self._files[file.entry.file_id] = file

    def counting_again(self, file: FinishedFile) -> Iterator[None]:
        """Count a file's ledgers after its index was rebuilt; does nothing if the file is freed.

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
        """Count all entries of a ledger in all files as not live."""
        for file in self._holding.pop(ledger_id, ()):
            file.live_bytes -= file.live.pop(ledger_id)

    def dead(self, files_in_doubt: set[int]) -> list[FinishedFile]:
        """Return the files without live entries, except those in doubt, which may hold anything."""
        return [
            file
            for file in self._files.values()
            if not file.live and file.entry.file_id not in files_in_doubt
        ]

    def remove(self, file: FinishedFile) -> None:
        """Remove a file without live entries."""
        assert not file.live
        del self._files[file.entry.file_id]
