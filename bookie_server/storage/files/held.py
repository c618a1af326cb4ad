"""The finished files of a directory, and the ledgers that they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from bookie_server.core.background.compaction import stored_bytes
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.files.live_bytes import LiveBytes
from bookie_server.storage.slices import parts

_by_id = attrgetter("entry.file_id")


class HeldFiles:
    """Finished files in ascending order of id, and for each ledger the files that hold it.

    The `live_bytes` of a file are the bytes of its entries that no tombstone deletes. In an index
    that is written to a file, all entries of a ledger are either older or newer than its tombstone.
    A rebuilt index may have older and newer entries of a ledger, so it is counted piece by piece.
    """

    def __init__(self, files: Iterable[FinishedFile], tombstone_of: Callable[[int], int]) -> None:
        self._files: dict[int, FinishedFile] = {}
        self._holding: dict[int, list[FinishedFile]] = {}
        self._counted_again: list[FinishedFile] = []  # being counted; `_holding` may lack them
        self._tombstone_of = tombstone_of
        for file in files:
            for _ in self.adding(file):
                pass

    def __iter__(self) -> Iterator[FinishedFile]:
        return iter(self._files.values())

    def __contains__(self, file_id: int) -> bool:
        return file_id in self._files

    def get(self, file_id: int) -> FinishedFile | None:
        """Return a file, or None if it was freed."""
        return self._files.get(file_id)

    def __len__(self) -> int:
        return len(self._files)

    def holding(self, ledger_id: int) -> list[FinishedFile]:
        """Return the files that may have live entries of a ledger, oldest first.

        A file whose ledgers are being recounted is always returned. Without this file, a reading
        could get an older copy of an entry from another file.
        """
        files = self._holding.get(ledger_id, [])
        if not self._counted_again:
            return files
        others = [
            file
            for file in self._counted_again
            if file not in files and file.entry.file_id in self._files
        ]
        return sorted([*files, *others], key=_by_id)

    def adding(self, file: FinishedFile) -> Iterator[None]:
        """Add a file. The iterator yields after each slice of the work.

        After each slice, readers find the entries of more ledgers. Until the last slice, another
        index must contain the entries of the file.
        """
        yield from self._count(file)
        self._files[file.entry.file_id] = file

    def counting_again(self, file: FinishedFile) -> Iterator[None]:
        """Count the ledgers of a file again after its index was rebuilt. Yield after each slice.

        If the file is freed, the count ends. Until the last slice, the file must be in doubt.
        """
        if file.entry.file_id not in self._files:
            return
        self._counted_again.append(file)
        try:
            yield from self._counting_again(file)
        finally:
            self._counted_again.remove(file)

    def _counting_again(self, file: FinishedFile) -> Iterator[None]:
        for ids in parts(list(file.live)):
            for ledger_id in ids:
                files = self._holding.get(ledger_id, ())
                if file in files:
                    self._holding[ledger_id].remove(file)
            yield
            if file.entry.file_id not in self._files:
                return
        for _ in self._count(file):
            yield
            if file.entry.file_id not in self._files:
                return

    def removing(self, file: FinishedFile) -> Iterator[None]:
        """Remove a file whose live entries are also in another file. Yield after each slice."""
        while file.live:  # another task may count the ledgers of the file again
            for ids in parts(list(file.live)):
                for ledger_id in ids:
                    file.live_bytes -= file.live.pop(ledger_id)
                    files = self._holding.get(ledger_id, ())
                    if file in files:
                        self._holding[ledger_id].remove(file)
                        if not self._holding[ledger_id]:
                            del self._holding[ledger_id]
                yield
        del self._files[file.entry.file_id]

    def _count(self, file: FinishedFile) -> Iterator[None]:
        file.live, file.live_bytes, file.data_bytes = LiveBytes(), 0, 0
        is_explained, tombstone_of = True, self._tombstone_of
        for totals in parts(file.totals()):
            ids: list[int] = []
            sizes: list[int] = []
            for ledger_id, _, _, size_bytes, origin_newest, pieces in totals:
                file.data_bytes += size_bytes
                if not pieces:
                    is_explained = False
                if origin_newest > tombstone_of(ledger_id):
                    ids.append(ledger_id)
                    sizes.append(size_bytes)
            if file.rebuilt is not None:
                sizes = [file.rebuilt.bytes_after(each, tombstone_of(each)) for each in ids]
            file.live.extend(ids, sizes)
            file.live_bytes += sum(sizes)
            self._hold(file, ids)
            yield
        if not is_explained:
            # The index lacks the entries that were dropped before it was written. Only the size of
            # the records includes these entries.
            unexplained = file.entry.data_end - RECORDS_START
            for totals in parts(file.totals()):
                unexplained -= sum(stored_bytes(each.size_bytes, each.pieces) for each in totals)
                yield
            file.data_bytes += max(0, unexplained)

    def _hold(self, file: FinishedFile, ledger_ids: Iterable[int]) -> None:
        holding, file_id = self._holding, file.entry.file_id
        for ledger_id in ledger_ids:
            files = holding.get(ledger_id)
            if not files:
                holding[ledger_id] = [file]
                continue
            is_newest = files[-1].entry.file_id < file_id
            files.append(file)
            if not is_newest:
                files.sort(key=_by_id)

    def drop(self, ledger_id: int) -> None:
        """Count the entries of a ledger as deleted in all files."""
        for file in self._holding.pop(ledger_id, ()):
            file.live_bytes -= file.live.pop(ledger_id)

    def dead(self, files_in_doubt: set[int]) -> list[FinishedFile]:
        """Return the files without live entries.

        Files in doubt are omitted, because they may have live entries.
        """
        return [
            file
            for file in self._files.values()
            if not file.live and file.entry.file_id not in files_in_doubt
        ]

    def remove(self, file: FinishedFile) -> None:
        """Remove a file without live entries."""
        assert not file.live
        del self._files[file.entry.file_id]
