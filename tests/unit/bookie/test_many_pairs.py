"""The memory for many pairs of a ledger and a file."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast

from bookie_server.core import index_format
from bookie_server.core.index_format import IndexHead, LedgerTotal, Totals
from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.files.held import HeldFiles

PAIRS = 50_000
FILES = 20
LEDGERS = 5_000  # each ledger is in ten files
BYTES_PER_PAIR_MAX = 100


def file_with(file_id: int, ledger_ids: list[int]) -> FinishedFile:
    pack: Any = index_format._total.pack
    totals = [LedgerTotal(ledger_id, 0, 9, 1_000, file_id, 1) for ledger_id in ledger_ids]
    data = b"".join(pack(*total) for total in totals)
    entry = FileEntry(file_id, f"slot-{file_id:08d}", "00" * 16, FileState.FINISHED, 1 << 28)
    head = IndexHead((), Totals(data), len(totals), 0)
    return FinishedFile(entry, cast("Any", None), entry.identity, head)


def test_a_pair_of_ledger_and_file_takes_less_than_a_hundred_bytes() -> None:
    """So 1,000,000 pairs take less than 100 MB."""
    per_file = PAIRS // FILES
    assert per_file * FILES == PAIRS
    tracemalloc.start()
    try:
        files = [
            file_with(
                number + 1, sorted((number * per_file + n) % LEDGERS for n in range(per_file))
            )
            for number in range(FILES)
        ]
        held = HeldFiles(files, lambda _ledger_id: 0)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(file.live) for file in held) == PAIRS
    assert len(held.holding(7)) == PAIRS // LEDGERS
    assert taken / PAIRS < BYTES_PER_PAIR_MAX
