"""Writers, readers and recoverers that work while bookies lose entries, and judge each answer."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ledgerlog_spark as ll
from ledgerlog_spark.errors import EntryNotFoundError, LedgerLogError
from tests.kill_test.payload import payload

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.client.blocking.client import BlockingClient

ENTRIES_MAX = 40
LEDGERS_MAX = 10_000
PAUSE_SECONDS = 0.02
BROKEN_MAX = 20


@dataclass(slots=True)
class Written:
    """A ledger of a writer.

    Attributes:
        acknowledged: Number of entries whose append was acknowledged.
        is_closed: Whether its writer or a recoverer has closed it.
    """

    ledger_id: int
    acknowledged: int = 0
    is_closed: bool = False


@dataclass(slots=True)
class Tally:
    """The results. `lost`, `wrongly_absent` and `broken` must be empty.

    Attributes:
        ledgers: All ledgers, by id.
        lost: Number of acknowledged entries after the end of a closed ledger.
        wrongly_absent: Number of acknowledged entries that a reader got the answer "absent" for.
        reads: Number of entries that readers got.
        unknown: Number of reads and recoveries that failed with another error, and are repeated.
        broken: Sentences about the first wrong results.
    """

    ledgers: dict[int, Written] = field(default_factory=dict)
    lost: int = 0
    wrongly_absent: int = 0
    reads: int = 0
    unknown: int = 0
    broken: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, sentence: str) -> None:
        """Keep a wrong result."""
        with self.lock:
            if len(self.broken) < BROKEN_MAX:
                self.broken.append(sentence)

    def closed_ids(self) -> set[int]:
        """The ledgers that are closed now."""
        with self.lock:
            return {each.ledger_id for each in self.ledgers.values() if each.is_closed}


class Loads:
    """Threads that work until `stop`."""

    def __init__(self, uri: str, tally: Tally, seed: int) -> None:
        self._uri = uri
        self._tally = tally
        self._seed = seed
        self._stopped = threading.Event()
        works = (self._write, self._write, self._read, self._recover)
        self._threads = [
            threading.Thread(target=self._work, args=(work, number), name=f"load {number}")
            for number, work in enumerate(works)
        ]

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all threads."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _work(self, work: Callable[[BlockingClient, random.Random], None], number: int) -> None:
        dice = random.Random(f"{self._seed} {number}")
        with ll.connect(self._uri) as client:
            while not self._stopped.is_set():
                try:
                    work(client, dice)
                except LedgerLogError:
                    with self._tally.lock:
                        self._tally.unknown += 1
                self._stopped.wait(PAUSE_SECONDS)

    def _write(self, client: BlockingClient, dice: random.Random) -> None:
        """Write a ledger. Close it, or leave it to the recoverers."""
        if len(self._tally.ledgers) >= LEDGERS_MAX:
            return
        ledger = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        written = Written(ledger.id)
        with self._tally.lock:
            self._tally.ledgers[ledger.id] = written
        for entry_id in range(dice.randrange(1, ENTRIES_MAX)):
            ledger.append(payload(ledger.id, entry_id))
            written.acknowledged = entry_id + 1
        if dice.random() < 0.7:
            ledger.close()
            written.is_closed = True

    def _read(self, client: BlockingClient, dice: random.Random) -> None:
        """Read one acknowledged entry."""
        written = self._chosen(dice, lambda one: one.acknowledged > 0)
        if written is None:
            return
        entry_id = dice.randrange(written.acknowledged)
        try:
            with client.open_ledger(written.ledger_id, is_listed=True) as reader:
                (entry,) = reader.read(entry_id, entry_id)
        except EntryNotFoundError as error:
            with self._tally.lock:
                self._tally.wrongly_absent += 1
            self._tally.find(f"entry {entry_id} of ledger {written.ledger_id}: {error}")
            return
        with self._tally.lock:
            self._tally.reads += 1
        if bytes(entry.payload) != payload(written.ledger_id, entry_id):
            self._tally.find(f"entry {entry_id} of ledger {written.ledger_id}: other bytes")

    def _recover(self, client: BlockingClient, dice: random.Random) -> None:
        """Close a ledger whose writer has left it, or which is still written."""
        written = self._chosen(dice, lambda one: not one.is_closed)
        if written is not None:
            seal(client, written, self._tally)

    def _chosen(self, dice: random.Random, is_fit: Callable[[Written], bool]) -> Written | None:
        with self._tally.lock:
            fit = [one for one in self._tally.ledgers.values() if is_fit(one)]
        return dice.choice(fit) if fit else None


def seal(client: BlockingClient, written: Written, tally: Tally) -> None:
    """Close a ledger, and check that it has each entry that was acknowledged before."""
    acknowledged = written.acknowledged
    sealed = client.seal(written.ledger_id)
    written.is_closed = True
    lost = acknowledged - 1 - sealed.last_entry_id
    if lost > 0:
        with tally.lock:
            tally.lost += lost
        tally.find(f"ledger {written.ledger_id} ends {lost} entries too early")
