"""Writers, recoverers, readers and a leader, which work while bookies lose records."""

from __future__ import annotations

import itertools
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LedgerLogError
from tests.kill_test.payload import payload

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.log.blocking.leader import BlockingLeader

QUORUM: dict[str, Any] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
ENTRIES_MAX = 20
PAUSE_SECONDS = 0.02
SEAL_SECONDS_MAX = 120.0
FATES = ("close", "close", "close", "close", "abandon", "keep open")
"""What a writer does with a ledger after its entries. Each fate is equally likely."""
KEPT_OPEN_MAX = 20
LOG = "led"


@dataclass(slots=True)
class Written:
    """What the writer of a ledger has sent, and what was acknowledged. Ids are -1 before the first.

    Attributes:
        last_sent: The last entry that was sent.
        last_acknowledged: The last entry that was acknowledged.
        is_closed: Whether the ledger was closed, by its writer or by a recoverer.
    """

    last_sent: int = -1
    last_acknowledged: int = -1
    is_closed: bool = False


@dataclass(slots=True)
class Findings:
    """What the load has found. `lost`, `invented` and `wrong` must be 0."""

    lost: int = 0
    invented: int = 0
    wrong: int = 0
    unclosed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def fail(self, what: str, error: LedgerLogError) -> None:
        """Count a call that failed, and its kind of error."""
        self.counts[f"failed {what}"] += 1
        outcome = "definite" if error.definite else "unknown"
        self.errors[f"{what}: {type(error).__name__}, {outcome}"] += 1

    def note(self, sentence: str) -> None:
        """Keep one of the first sentences about a finding."""
        if len(self.broken) < 20:
            self.broken.append(sentence)


class Load:
    """All threads of the load. Each ledger's payloads depend on the ledger's id."""

    def __init__(
        self,
        uri: str,
        seed: int,
        writers: int = 3,
        pause_seconds: float = PAUSE_SECONDS,
        log_properties: dict[str, str] | None = None,
    ) -> None:
        self.uri = uri
        self.log_properties = log_properties
        self.pause_seconds = pause_seconds
        self.ledgers: dict[int, Written] = {}
        self.findings = Findings()
        self.led: list[int] = []
        self.refused: set[int] = set()
        self._seed = seed
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self._may_write = threading.Event()
        self._may_write.set()
        self._writing = writers + 1
        self._idle = threading.Semaphore(0)
        self._to_seal: queue.Queue[int | None] = queue.Queue()
        self.failures: list[BaseException] = []
        workers: list[Callable[[], None]] = [*[self._write] * writers, self._seal, self._read]
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, number), name=f"load-{number}")
            for number, work in enumerate([*workers, self._lead])
        ]
        self._random = threading.local()

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all threads. All ledgers are closed on return, except those in `unclosed`."""
        self._is_stopped.set()
        self._may_write.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def pause(self) -> None:
        """Stop the writers and the leader, and wait until no ledger has to be recovered."""
        self._may_write.clear()
        for _ in range(self._writing):
            self._idle.acquire()
        while not self._to_seal.empty():
            time.sleep(PAUSE_SECONDS)

    def resume(self) -> None:
        """Let the writers and the leader continue."""
        self._may_write.set()

    def write_unsynced(self, count: int) -> None:
        """Write and close ledgers while nothing makes an unjournaled bookie sync its files."""
        with ll.connect(self.uri) as client:
            for _ in range(count):
                ledger = client.create_ledger(**QUORUM)
                with self._lock:
                    self.ledgers[ledger.id] = Written()
                if self._append(ledger, ENTRIES_MAX):
                    self._close(ledger)
                else:
                    self._to_seal.put(ledger.id)

    def closed(self) -> list[int]:
        """The ids of the closed ledgers."""
        with self._lock:
            return [ledger_id for ledger_id, one in self.ledgers.items() if one.is_closed]

    def wait_for_ledgers(self, count: int) -> None:
        """Wait until this number of ledgers has been closed."""
        while len(self.closed()) < count:
            if self.failures:
                raise self.failures[0]
            time.sleep(0.1)

    def _guarded(self, work: Callable[[], None], number: int) -> None:
        self._random.dice = random.Random(f"{self._seed}:{number}")
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - the main thread reports it
            self.failures.append(failure)
        finally:
            if work == self._write:
                self._to_seal.put(None)

    @property
    def _dice(self) -> random.Random:
        dice: random.Random = self._random.dice
        return dice

    def _wait_while_paused(self) -> None:
        if not self._may_write.is_set():
            self._idle.release()
            self._may_write.wait()

    def _write(self) -> None:
        opened: list[ll.BlockingWriteHandle] = []
        with ll.connect(self.uri) as client:
            while not self._is_stopped.is_set():
                self._wait_while_paused()
                self._write_one(client, opened)
                time.sleep(self.pause_seconds)
            for ledger in opened:
                self._close(ledger)

    def _write_one(self, client: BlockingClient, opened: list[ll.BlockingWriteHandle]) -> None:
        dice = self._dice
        try:
            ledger = client.create_ledger(**QUORUM)
        except LedgerLogError as error:
            self.findings.fail("creations", error)
            time.sleep(10 * PAUSE_SECONDS)
            return
        with self._lock:
            self.ledgers[ledger.id] = Written()
        fate = dice.choice(FATES)
        if not self._append(ledger, dice.randrange(1, ENTRIES_MAX)) or fate == "abandon":
            self._to_seal.put(ledger.id)
        elif fate == "close":
            self._close(ledger)
        else:
            opened.append(ledger)
            if len(opened) > KEPT_OPEN_MAX:
                oldest = opened.pop(0)
                if self._append(oldest, 1):
                    self._close(oldest)
                else:
                    self._to_seal.put(oldest.id)

    def _append(self, ledger: ll.BlockingWriteHandle, count: int) -> bool:
        """Append entries, and return whether all are acknowledged."""
        written = self.ledgers[ledger.id]
        pending: list[Future[int]] = []
        try:
            for _ in range(count):
                entry_id = written.last_sent + 1
                pending.append(ledger.append_async(payload(ledger.id, entry_id)))
                written.last_sent = entry_id
            for each in pending:
                written.last_acknowledged = max(written.last_acknowledged, each.result())
        except LedgerLogError as error:
            self.findings.fail("appends", error)
            return False
        self.findings.counts["ledgers appended to"] += 1
        return True

    def _close(self, ledger: ll.BlockingWriteHandle) -> None:
        try:
            last = ledger.close().last_entry_id
        except LedgerLogError as error:
            self.findings.fail("closes", error)
            self._to_seal.put(ledger.id)
        else:
            self._check_end(ledger.id, last)

    def _check_end(self, ledger_id: int, last_entry_id: int) -> None:
        findings, written = self.findings, self.ledgers[ledger_id]
        lost = max(0, written.last_acknowledged - last_entry_id)
        if lost:
            findings.lost += lost
            findings.note(f"ledger {ledger_id} ends at {last_entry_id}, but {written}")
        findings.invented += max(0, last_entry_id - written.last_sent)
        written.is_closed = True

    def _seal(self) -> None:
        """Close the ledgers of dead writers. A ledger in limbo may need several attempts."""
        running = self._writing - 1
        with ll.connect(self.uri) as client:
            while running:
                ledger_id = self._to_seal.get()
                if ledger_id is None:
                    running -= 1
                    continue
                self._seal_one(client, ledger_id)
            while not self._to_seal.empty():
                ledger_id = self._to_seal.get()
                if ledger_id is not None:
                    self._seal_one(client, ledger_id)

    def _seal_one(self, client: BlockingClient, ledger_id: int) -> None:
        deadline = time.monotonic() + SEAL_SECONDS_MAX
        while True:
            try:
                sealed = client.seal(ledger_id)
            except LedgerLogError as error:
                self.findings.fail("recoveries", error)
                if time.monotonic() > deadline:
                    self.findings.unclosed += 1
                    self.findings.note(f"ledger {ledger_id} is not closed: {error}")
                    return
                time.sleep(0.5)
            else:
                self.findings.counts["recoveries"] += 1
                self._check_end(ledger_id, sealed.last_entry_id)
                return

    def _read(self) -> None:
        with ll.connect(self.uri) as client:
            while not self._is_stopped.is_set():
                ids = self.closed()
                if ids:
                    self._read_one(client, self._dice.choice(ids))
                time.sleep(PAUSE_SECONDS)

    def _read_one(self, client: BlockingClient, ledger_id: int) -> None:
        findings = self.findings
        try:
            with client.open_ledger(ledger_id) as ledger:
                for entry in ledger.read():
                    findings.counts["entries read"] += 1
                    if entry.payload != payload(ledger_id, entry.entry_id):
                        findings.wrong += 1
                        findings.note(f"entry {entry.entry_id} of ledger {ledger_id}: other bytes")
        except LedgerLogError as error:
            if error.definite and "exist" in str(error):
                findings.lost += 1
                findings.note(f"ledger {ledger_id}: {error}")
            findings.fail("reads", error)

    def _lead(self) -> None:
        """Append numbers to a leader log. A deposed leader leads again, and skips a number."""
        numbers = itertools.count()
        while not self._is_stopped.is_set():
            self._wait_while_paused()
            try:
                with (
                    ll.connect(self.uri) as client,
                    client.open_log(LOG, lead=True, properties=self.log_properties) as log,
                ):
                    while not self._is_stopped.is_set():
                        self._wait_while_paused()
                        number = next(numbers)
                        self._append_number(log, number)
                        self.led.append(number)
                        time.sleep(PAUSE_SECONDS)
            except LedgerLogError as error:
                self.findings.fail("leaders", error)
                time.sleep(10 * PAUSE_SECONDS)

    def _append_number(self, log: BlockingLeader, number: int) -> None:
        try:
            log.append(b"%d" % number)
        except LedgerLogError as error:
            if error.definite:
                self.refused.add(number)
            raise

    def check_log(self) -> None:
        """Read the leader log.

        Each acknowledged number is in it, no number that was refused with a definite error is in
        it, and all numbers are ascending.
        """
        with ll.connect(self.uri) as client:
            found = [int(record.value) for record in client.open_log(LOG).read(0)]
        lost = set(self.led) - set(found)
        self.findings.lost += len(lost)
        if lost:
            self.findings.note(f"{len(lost)} records of the leader log are lost")
        stored = self.refused.intersection(found)
        self.findings.wrong += len(stored)
        if stored:
            self.findings.note(f"{len(stored)} records are stored after a definite error")
        if found != sorted(set(found)):
            self.findings.wrong += 1
            self.findings.note("the leader log has records twice or in another order")
