"""Ledgers, their writers and leaders of logs, which work while members of the cluster die."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LeaderDeposedError, LedgerLogError
from tests.heal_test.dead_writer import ENTRIES, left_open
from tests.kill_test.payload import payload

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient

THREE: dict[str, Any] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
TWO: dict[str, Any] = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 2}
THREADS = 8
PAIRS = 40
TURN_SECONDS = 0.05
LOGS = ("busy", "idle")


def closed_ledgers(client: BlockingClient, count: int, quorum: dict[str, Any]) -> list[int]:
    """Write and close ledgers, and return their ids."""

    def one(_: int) -> int:
        with client.create_ledger(**quorum) as ledger:
            ledger.append_batch([payload(ledger.id, number) for number in range(ENTRIES)])
            return ledger.id

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(count)))


@dataclass(slots=True)
class Findings:
    """What writers and leaders noticed. `errors` and `deposed` must be empty.

    Attributes:
        errors: The errors of writers and leaders.
        deposed: The leaders that lost their leadership.
        appended: Number of acknowledged entries and records.
    """

    errors: list[str] = field(default_factory=list)
    deposed: list[str] = field(default_factory=list)
    appended: int = 0


class Writers:
    """Open ledgers and leader logs: half of them are written all the time, the others are idle.

    Attributes:
        ends: The last acknowledged entry of each ledger.
    """

    def __init__(self, uri: str, count: int) -> None:
        self._client = ll.connect(uri)
        self._handles = [self._client.create_ledger(**THREE) for _ in range(count)]
        self._logs = {name: self._client.open_log(name, lead=True) for name in LOGS}
        self._records = dict.fromkeys(self._logs, 0)
        self.ends: dict[int, int] = {handle.id: -1 for handle in self._handles}
        self.findings = Findings()
        self._is_stopped = threading.Event()
        self._may_write = threading.Event()
        self._is_paused = threading.Event()
        self._append(self._handles)
        self._append_record("idle")
        self._thread = threading.Thread(target=self._run, name="writers")

    @property
    def ids(self) -> list[int]:
        """The open ledgers."""
        return list(self.ends)

    def start(self) -> None:
        """Begin to write."""
        self._may_write.set()
        self._thread.start()

    def use_idle(self) -> None:
        """Append to each ledger and log that was idle until now."""
        self.pause()
        self._append(self._handles[1::2])
        self._append_record("idle")
        self.resume()

    def pause(self) -> None:
        """Stop writing, and return when all entries are acknowledged."""
        self._is_paused.clear()
        self._may_write.clear()
        self._is_paused.wait()

    def resume(self) -> None:
        """Go on."""
        self._may_write.set()

    def close(self) -> None:
        """Stop writing, close all ledgers, and read the logs."""
        self._is_stopped.set()
        self._may_write.set()
        self._thread.join()
        for handle in self._handles:
            try:
                last = handle.close().last_entry_id
            except LedgerLogError as error:
                self._note(f"close of ledger {handle.id}", error)
                continue
            if last != self.ends[handle.id]:
                self.findings.errors.append(
                    f"ledger {handle.id} ends at {last}, not at {self.ends[handle.id]}"
                )
        for name, log in self._logs.items():
            log.close()
            found = [int(record.value) for record in self._client.open_log(name).read(0)]
            if found != list(range(self._records[name])):
                self.findings.errors.append(f"log {name}: other records than were appended")
        self._client.close()

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            if not self._may_write.is_set():
                self._is_paused.set()
                self._may_write.wait()
                continue
            self._append(self._handles[::2])
            self._append_record("busy")
            self._is_stopped.wait(TURN_SECONDS)

    def _append(self, handles: Sequence[ll.BlockingWriteHandle]) -> None:
        pending: list[tuple[ll.BlockingWriteHandle, Any]] = []
        for handle in handles:
            try:
                entry = payload(handle.id, self.ends[handle.id] + 1)
                pending.append((handle, handle.append_async(entry)))
            except LedgerLogError as error:
                self._note(f"append to ledger {handle.id}", error)
        for handle, added in pending:
            try:
                self.ends[handle.id] = added.result()
                self.findings.appended += 1
            except LedgerLogError as error:
                self._note(f"append to ledger {handle.id}", error)

    def _append_record(self, name: str) -> None:
        try:
            self._logs[name].append(b"%d" % self._records[name])
        except LeaderDeposedError as error:
            self.findings.deposed.append(f"log {name}: {error}")
        except LedgerLogError as error:
            self._note(f"append to log {name}", error)
        else:
            self._records[name] += 1
            self.findings.appended += 1

    def _note(self, what: str, error: LedgerLogError) -> None:
        self.findings.errors.append(f"{what}: {type(error).__name__}: {error}")


@dataclass(slots=True)
class Ledgers:
    """The ledgers that were written before the first loss.

    Attributes:
        closed: Ledgers with three copies of each entry.
        pairs: Closed ledgers with two copies of each entry.
        dead: Open ledgers with three copies, whose writer is dead.
        dead_pairs: Open ledgers with two copies, whose writer is dead.
    """

    closed: list[int]
    pairs: list[int]
    dead: list[int]
    dead_pairs: list[int]

    @classmethod
    def written(cls, uri: str, count: int) -> Ledgers:
        """Write `count` ledgers. The writers of some of them are dead."""
        dead = max(20, count // 40)
        with ll.connect(uri) as client:
            closed = closed_ledgers(client, max(1, count - dead), THREE)
        return cls(closed, [], left_open(uri, dead, 3), [])

    def write_pairs(self, uri: str) -> None:
        """Write more ledgers with two copies."""
        with ll.connect(uri) as client:
            self.pairs += closed_ledgers(client, PAIRS, TWO)
        self.dead_pairs += left_open(uri, PAIRS, 2)

    @property
    def all(self) -> list[int]:
        """All ids."""
        return [*self.closed, *self.pairs, *self.dead, *self.dead_pairs]
