"""The load: ledgers that live for a while, and a leader log that stays."""

from __future__ import annotations

import heapq
import random
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LedgerLogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.log.clients import BlockingLogClient
    from tests.fixtures.replicas import Copies
    from tests.fixtures.stage import Stage

LOG = "kept"
LEDGER_PERIOD_SECONDS = 1.0
RECORD_PERIOD_SECONDS = 0.1
ROLL_RECORDS = 300
SHAPES = ((16, 65_536), (100, 8_192), (800, 200))
"""Numbers and sizes of the entries of a ledger."""
LIVES_SECONDS = (5, 10, 10, 20, 20, 40, 90)
CATCH_UP_SECONDS = 10.0
"""A delayed writer makes up for at most this time."""
PACE_MIN = 0.9
"""With a smaller part of the steps, the load may still grow, so the levels decide nothing."""


def payload_of(ledger: int, entry_id: int, size_bytes: int) -> bytes:
    """The payload of an entry, which no other entry has."""
    name = b"%d:%d|" % (ledger, entry_id)
    return name + random.Random(name).randbytes(16) * (size_bytes // 16)


class Writer(ABC):
    """A thread that works at a steady pace, until the block ends.

    Attributes:
        failures: Sentences about calls that failed, or came too late.
    """

    def __init__(self, uri: str, name: str, period_seconds: float) -> None:
        self._uri = uri
        self._period_seconds = period_seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with ll.connect(self._uri) as client:
            try:
                self.begin(client)
                due = began = time.monotonic()
                steps = 0
                while not self._is_over.wait(max(0.0, due - time.monotonic())):
                    self.step(client)
                    steps += 1
                    due = max(due + self._period_seconds, time.monotonic() - CATCH_UP_SECONDS)
                planned = (time.monotonic() - began) / self._period_seconds
                self.end(client)
                if steps < PACE_MIN * planned:
                    self.failures.append(
                        f"{self._thread.name}: {steps} of {planned:.0f} steps, so the levels "
                        "decide nothing; run it again without other programs"
                    )
            except LedgerLogError as error:
                self.failures.append(f"{self._thread.name}: {type(error).__name__}: {error}")

    def begin(self, client: BlockingLogClient) -> None:  # noqa: B027 -- most have nothing to do
        """Called before the first step."""

    @abstractmethod
    def step(self, client: BlockingLogClient) -> None:
        """Called once in each period."""

    def end(self, client: BlockingLogClient) -> None:  # noqa: B027
        """Called after the last step."""


class Ledgers(Writer):
    """Writes a ledger in each period, and deletes those whose life has ended.

    Attributes:
        written: Number of written ledgers.
        deleted: Number of deleted ledgers.
        size_bytes: Size of all payloads.
        live: The shape of each ledger that is not deleted, by id.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri, "ledgers", LEDGER_PERIOD_SECONDS)
        self._dice = random.Random(1)
        self._ends: list[tuple[float, int]] = []
        self.written = self.deleted = self.size_bytes = 0
        self.live: dict[int, tuple[int, int]] = {}

    def step(self, client: BlockingLogClient) -> None:
        """Write one ledger, and delete those whose life has ended."""
        entries, size_bytes = shape = self._dice.choice(SHAPES)
        with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as ledger:
            payloads = [payload_of(ledger.id, number, size_bytes) for number in range(entries)]
            for pending in [ledger.append_async(payload) for payload in payloads]:
                pending.result()
        self.live[ledger.id] = shape
        self.written += 1
        self.size_bytes += sum(map(len, payloads))
        life = time.monotonic() + self._dice.choice(LIVES_SECONDS)
        heapq.heappush(self._ends, (life, ledger.id))
        while self._ends[0][0] < time.monotonic():
            _, ledger_id = heapq.heappop(self._ends)
            client.delete_ledger(ledger_id)
            del self.live[ledger_id]
            self.deleted += 1

    def check(self, stage: Stage, copies: Copies) -> None:
        """Read each entry of each live ledger from each bookie."""
        with ll.connect(stage.uri) as client:
            for ledger_id, (entries, size_bytes) in self.live.items():
                metadata = client.ledger_metadata(ledger_id)
                if metadata.last_entry_id != entries - 1:
                    copies.find(f"ledger {ledger_id} ends at {metadata.last_entry_id}")
                copies.check(ledger_id, metadata, stage.bookies, _payloads(ledger_id, size_bytes))


def _payloads(ledger_id: int, size_bytes: int) -> Callable[[int], bytes]:
    return lambda entry_id: payload_of(ledger_id, entry_id, size_bytes)


class KeptLog(Writer):
    """Appends small records to a leader log that is never truncated or deleted.

    Attributes:
        appended: Number of acknowledged records.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri, "leader log", RECORD_PERIOD_SECONDS)
        self.appended = 0

    def begin(self, client: BlockingLogClient) -> None:
        """Become the leader."""
        self._leader = client.open_log(LOG, lead=True)

    def step(self, client: BlockingLogClient) -> None:
        """Append one record. Sometimes roll to another ledger."""
        del client
        self._leader.append(b"%020d" % self.appended)
        self.appended += 1
        if self.appended % ROLL_RECORDS == 0:
            self._leader.roll()

    def end(self, client: BlockingLogClient) -> None:
        """Close the last ledger."""
        del client
        self._leader.close()

    def check(self, stage: Stage, copies: Copies) -> None:
        """Read all records, and each entry of each ledger of the log from each bookie."""
        with ll.connect(stage.uri) as client:
            log = client.open_log(LOG)
            found = [bytes(record.value) for record in log.read()]
            if found != [b"%020d" % number for number in range(self.appended)]:
                copies.find(f"{len(found)} records of {self.appended}, or other ones")
            for item in log.snapshot().items:
                metadata = client.ledger_metadata(item.ledger_id)
                copies.check(item.ledger_id, metadata, stage.bookies)
