"""A client that behaves well: it appends and reads, and records the time of each call."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING, Self

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LedgerLogError

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle

PAYLOAD_SIZES_BYTES = (100, 1_024, 1_024, 16_384, 200_000)
READ_EVERY = 5
READ_ENTRIES_MAX = 20


class Calls:
    """Calls of one kind.

    Attributes:
        count: Number of calls that ended.
        slowest_seconds: The longest time of a call, including a call that has not ended yet.
    """

    def __init__(self) -> None:
        self.count = 0
        self._slowest_seconds = 0.0
        self._begun: float | None = None

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *_: object) -> None:
        assert self._begun is not None
        seconds = time.monotonic() - self._begun
        self._begun = None
        self._slowest_seconds = max(self._slowest_seconds, seconds)
        self.count += 1

    @property
    def slowest_seconds(self) -> float:
        begun = self._begun
        open_seconds = 0.0 if begun is None else time.monotonic() - begun
        return max(self._slowest_seconds, open_seconds)


class GoodClient:
    """Appends to one ledger and reads the entries back, in a separate thread.

    Attributes:
        appends: The appends since `begin`.
        reads: The reads since `begin`.
        refused: The errors of failed calls.
        wrong: Reads that did not return the appended entries.
    """

    def __init__(self, uri: str) -> None:
        self._client: BlockingClient = ll.connect(uri)
        self._writer = self._create()
        self._rng = random.Random(1)
        self._noise = self._rng.randbytes(1 << 20)
        self._appended: list[tuple[int, bytes]] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="good client")
        self.appends = Calls()
        self.reads = Calls()
        self.refused: list[str] = []
        self.wrong = 0

    def begin(self) -> None:
        """Begin to count."""
        self.appends, self.reads = Calls(), Calls()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._client.close()

    def stop(self) -> None:
        """Wait for the end of the running call, and make no further call."""
        self._is_over = True
        self._thread.join()

    def ensembles(self) -> int:
        """The number of ensembles of the ledger. More than one means that a bookie was replaced."""
        return len(self._client.ledger_metadata(self._writer.id).fragments)

    def _run(self) -> None:
        while not self._is_over:
            try:
                self._append()
                if len(self._appended) % READ_EVERY == 0:
                    self._read()
            except LedgerLogError as error:
                self.refused.append(f"{type(error).__name__}: {error}")
                self._begin_again()

    def _begin_again(self) -> None:
        self._appended = []
        while not self._is_over:
            with contextlib.suppress(LedgerLogError):
                self._writer = self._create()
                return
            time.sleep(0.1)

    def _create(self) -> BlockingWriteHandle:
        return self._client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)

    def _append(self) -> None:
        start = self._rng.randrange(len(self._noise) // 2)
        payload = self._noise[start : start + self._rng.choice(PAYLOAD_SIZES_BYTES)]
        with self.appends:
            entry_id = self._writer.append(payload)
        self._appended.append((entry_id, payload))

    def _read(self) -> None:
        count = self._rng.randrange(1, READ_ENTRIES_MAX)
        expected = self._appended[-count - 1 : -1]  # the last one is confirmed by the next append
        if not expected:
            return
        with self.reads, self._client.open_ledger(self._writer.id) as ledger:
            entries = list(ledger.read(expected[0][0], expected[-1][0]))
        found = [(entry.entry_id, bytes(entry.payload)) for entry in entries]
        self.wrong += found != expected
        self._appended = self._appended[-READ_ENTRIES_MAX * 2 :]
