"""Single ledgers, a leader and a Spark stream, and how long each of them stopped at most."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LedgerLogError
from tests.exactly_once.query import session
from tests.kill_test.payload import payload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledgerlog_spark.log.clients import BlockingLogClient

SOURCE, COPY = "led", "copy"
TURN_SECONDS = 0.05
LEDGER_ENTRIES = 200
"""A writer closes its ledger after this number of entries, and begins the next one."""
ROLL_BYTES = 100_000
ERRORS_MAX = 20


@dataclass(slots=True)
class Progress:
    """How one kind of load goes on. `step` is called after each acknowledged step.

    Attributes:
        steps: Number of steps.
        gap_seconds: The longest time between two steps since `begin`.
    """

    steps: int = 0
    gap_seconds: float = 0.0
    _newest: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Measure from now on."""
        self.gap_seconds, self._newest = 0.0, time.monotonic()

    def step(self) -> None:
        """Note one step."""
        now = time.monotonic()
        self.gap_seconds = max(self.gap_seconds, now - self._newest)
        self._newest = now
        self.steps += 1

    def longest(self) -> float:
        """The longest time without a step, up to now."""
        return max(self.gap_seconds, time.monotonic() - self._newest)


@dataclass(slots=True)
class Written:
    """What one ledger got. `last` is the last acknowledged entry, and -1 without one."""

    last: int = -1
    is_closed: bool = False


class Load:
    """All writers. Each ends its step before the next one.

    Attributes:
        ledgers: The single ledgers.
        records: Number of acknowledged records of the leader.
        progress: By the kind of load.
        errors: Number of errors by kind and class.
        indefinite: Sentences about appends whose errors leave open whether they happened.
    """

    def __init__(self, uri: str, directory: Path, writers: int) -> None:
        self._uri = uri
        self._directory = directory
        self.ledgers: dict[int, Written] = {}
        self.records: list[int] = []
        self.progress = {name: Progress() for name in ("ledgers", "leader", "stream")}
        self.errors: Counter[str] = Counter()
        self.indefinite: list[str] = []
        self.clients: list[BlockingLogClient] = []
        self._stopped = threading.Event()
        self._spark: SparkSession = session(uri)
        self._query: Any = None
        works: list[Callable[[], None]] = [*[self._write] * writers, self._lead, self._watch]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def start(self) -> None:
        """Begin, and return when each kind has made a step."""
        for thread in self._threads[:-1]:
            thread.start()
        while not self.records:
            time.sleep(TURN_SECONDS)
        rows = self._spark.readStream.format("ledger").option("startingOffsets", "earliest")
        out = rows.load(SOURCE).writeStream.format("ledger")
        checkpoint = str(self._directory / "checkpoint")
        self._query = out.option("checkpointLocation", checkpoint).start(COPY)
        self._threads[-1].start()
        while not all(one.steps for one in self.progress.values()):
            self.check()
            time.sleep(TURN_SECONDS)

    def begin(self) -> None:
        """Measure the gaps from now on."""
        for one in self.progress.values():
            one.begin()

    def gaps(self) -> dict[str, float]:
        """The longest time without a step, by kind."""
        return {name: one.longest() for name, one in self.progress.items()}

    def check(self) -> None:
        """Raise an error if the query has failed."""
        failure = None if self._query is None else self._query.exception()
        assert failure is None, f"the stream failed: {failure}"

    def stop(self) -> int:
        """End everything, and return how many records the stream has copied.

        The stream copies all records of the leader before it ends.
        """
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._query.processAllAvailable()
        self._query.stop()
        copied = self._spark.read.format("ledger").load(COPY)
        values = [bytes(row.value) for row in copied.select("value").collect()]
        wrong = sorted(map(int, values)) != sorted(self._all_records())
        self._spark.stop()
        assert not wrong, "the stream copied other records than the log has"
        return len(values)

    def _all_records(self) -> list[int]:
        """All records of the leader log: each acknowledged one is among them, once."""
        with ll.connect(self._uri) as client:
            found = [int(record.value) for record in client.open_log(SOURCE).read(0)]
        assert found == sorted(set(found)), "a record is in the log twice, or at another place"
        lost = set(self.records).difference(found)
        assert not lost, f"{len(lost)} records of the leader are lost"
        return found

    def _connect(self) -> BlockingLogClient:
        client = ll.connect(self._uri)
        self.clients.append(client)
        return client

    def _failed(self, what: str, error: LedgerLogError, *, is_append: bool) -> None:
        self.errors[f"{what}: {type(error).__name__}"] += 1
        if is_append and not error.definite and len(self.indefinite) < ERRORS_MAX:
            self.indefinite.append(f"{what}: {type(error).__name__}: {error}")
        self._stopped.wait(10 * TURN_SECONDS)

    def _write(self) -> None:
        client = self._connect()
        while not self._stopped.is_set():
            try:
                ledger = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
            except LedgerLogError as error:
                self._failed("create", error, is_append=False)
                continue
            written = self.ledgers[ledger.id] = Written()
            try:
                for entry_id in range(LEDGER_ENTRIES):
                    ledger.append(payload(ledger.id, entry_id))
                    written.last = entry_id
                    self.progress["ledgers"].step()
                    if self._stopped.wait(TURN_SECONDS):
                        break
            except LedgerLogError as error:
                self._failed("append", error, is_append=True)
                continue
            try:
                written.is_closed = ledger.close().last_entry_id == written.last
            except LedgerLogError as error:
                self._failed("close", error, is_append=False)

    def _lead(self) -> None:
        numbers = itertools.count()
        properties = {"rollBytes": str(ROLL_BYTES)}
        while not self._stopped.is_set():
            try:
                with self._connect().open_log(SOURCE, lead=True, properties=properties) as log:
                    while not self._stopped.is_set():
                        number = next(numbers)
                        log.append(b"%0500d" % number)
                        self.records.append(number)
                        self.progress["leader"].step()
                        self._stopped.wait(TURN_SECONDS)
            except LedgerLogError as error:
                self._failed("leader", error, is_append=False)

    def _watch(self) -> None:
        """Note each batch of the stream that had rows."""
        newest = -1
        while not self._stopped.wait(TURN_SECONDS):
            progress = self._query.lastProgress
            if progress and progress["batchId"] > newest and progress["numInputRows"]:
                newest = progress["batchId"]
                self.progress["stream"].step()
