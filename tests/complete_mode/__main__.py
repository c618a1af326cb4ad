"""`python -m tests.complete_mode --batches 1000`: does the used disk space stay the same?

With each batch, a query in complete mode replaces all rows of its log. Rows that no retained
version lists must be deleted from the disks: the sink closes ledgers whose rows are mostly
replaced, upkeep deletes them, and bookies free the files. Grace periods are short, and the bookies'
files are small.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.progress import track

import ledgerlog_spark as ll
from benchmarks.options import positive
from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.client.client import LedgerClient
from tests.fixtures.bookie_process import MEBIBYTE, BookieProcess
from tests.fixtures.stage import Stage, used_bytes
from tests.fixtures.stream_query import StreamQuery

LOG = "counts"
BOOKIES = 3
TASKS = 2
TASK_ROWS = 64 * 1024
FILE_SIZE_BYTES = 8 * MEBIBYTE
GROWTH_MAX = 1.25
LEDGERS_LEFT_MAX = TASKS
"""Each task continues in the ledger that the newest version lists."""
BATCHES_MIN = 500
GRACE_MS = 500
OPTIONS = {
    "versionRetentionMs": str(GRACE_MS),
    "deletedRetentionMs": str(GRACE_MS),
    "compression": "none",
}
COLLECT_EVERY_MS = 1_000
UPKEEP_EVERY_SECONDS = 1.0
POLLS_MAX = 120


def rows(batch_id: int, task: int) -> pa.RecordBatch:
    """Half a MiB of numbers, different in each batch and task."""
    dice = random.Random(batch_id * TASKS + task)
    return pa.record_batch({"id": pa.Array.from_buffers(
        pa.int64(), TASK_ROWS, [None, pa.py_buffer(dice.randbytes(8 * TASK_ROWS))]
    )})  # fmt: skip


class Disks:
    """The disk space of the bookies' files.

    Attributes:
        bytes_max: The maximum of all measurements so far.
    """

    def __init__(self, bookies: Sequence[BookieProcess]) -> None:
        self.bytes_max = 0
        self._bookies = bookies

    def look(self) -> int:
        """Measure the bytes of the blocks of all files of all bookies."""
        found = sum(used_bytes(bookie.directory) for bookie in self._bookies)
        self.bytes_max = max(self.bytes_max, found)
        return found

    def settled(self, client: BlockingClient) -> int:
        """Measure after upkeep has deleted unlisted ledgers, and bookies have freed the files."""
        for _ in range(POLLS_MAX):
            if client.run(_ledgers) <= LEDGERS_LEFT_MAX:
                break
            time.sleep(UPKEEP_EVERY_SECONDS)
        for bookie in self._bookies:
            bookie.collect()
        return self.look()


async def _ledgers(client: LedgerClient) -> int:
    return len([ledger_id async for ledger_id in client.list_ledgers()])


@contextmanager
def upkept(uri: str) -> Iterator[None]:
    """Run upkeep for a local cluster in another process, with shorter pauses."""
    process = subprocess.Popen([
        sys.executable, "-m", "ledgerlog_spark.upkeep", "--metadata-service-uri", uri,
        "--interval-seconds", str(UPKEEP_EVERY_SECONDS),
    ], stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def play(directory: Path, batches: int) -> Result:
    """Run all batches of one query on a separate cluster."""
    with ExitStack() as stack:
        settings = {"file_size_bytes": FILE_SIZE_BYTES, "gc_interval_ms": COLLECT_EVERY_MS}
        stage = Stage(directory, stack, BOOKIES, lambda _number: settings)
        uri, bookies = stage.uri, list(stage.bookies.values())
        client = stack.enter_context(ll.connect(uri))
        query = StreamQuery(uri, LOG, overwrite=True, rows=rows, **OPTIONS)
        stack.callback(query.close)
        stack.enter_context(upkept(uri))
        disks = Disks(bookies)
        at: dict[int, int] = {}
        made: set[int] = set()
        for number in track(range(1, batches + 1), description="batches"):
            _, ranges = query.batch(TASKS)
            made.update(staged.ledger_id for staged in ranges)
            disks.look()
            if number in {batches // 10, batches // 2, batches}:
                at[number] = disks.settled(client)
        return Result(batches, len(made), client.run(_ledgers), at, disks.bytes_max)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    Attributes:
        bytes_at: By number of batches, the bytes on all bookies' disks after the due deletions.
        bytes_max: The maximum at any moment.
    """

    batches: int
    ledgers_made: int
    ledgers_left: int
    bytes_at: dict[int, int]
    bytes_max: int

    @property
    def is_flat(self) -> bool:
        """Whether about as many bytes are left as after a tenth of the batches, and few ledgers."""
        first, *later = self.bytes_at.values()
        is_small = self.ledgers_left <= LEDGERS_LEFT_MAX < self.ledgers_made
        return is_small and max(later) <= GROWTH_MAX * first

    def __str__(self) -> str:
        at = ", ".join(
            f"{found / MEBIBYTE:,.1f} MiB at batch {number:,}"
            for number, found in self.bytes_at.items()
        )
        return (
            f"{self.batches:,} batches, {self.ledgers_made:,} ledgers made, "
            f"{self.ledgers_left} left, {at}, {self.bytes_max / MEBIBYTE:,.1f} MiB at most"
        )


def main() -> int:
    """Return 0 if the used space at the end is the same as after a tenth of the batches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=positive, default=1_000)
    chosen = parser.parse_args()
    if chosen.batches < BATCHES_MIN:
        parser.error(f"files are freed whole: it takes {BATCHES_MIN} batches to see that")
    with tempfile.TemporaryDirectory(prefix="complete-mode-") as directory:
        result = play(Path(directory), chosen.batches)
    print(result)
    return 0 if result.is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
