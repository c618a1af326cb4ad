"""Three bookies with auto-recovery under a leader, a Spark stream and single ledgers."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

import ledgerlog_spark as ll
from tests.fixtures.patience import until
from tests.fixtures.ports import free_port
from tests.fixtures.replicas import Copies
from tests.fixtures.stage import Stage
from tests.kill_test.payload import payload
from tests.limbo_test.load import LOG, Load
from tests.outage_test.gaps import Gaps
from tests.outage_test.observer import Observer
from tests.outage_test.streaming import COPY, Streaming

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledgerlog_spark.local.zookeeper import ZooKeeperProcess

BOOKIES = 3
WRITERS = 2
WRITER_PAUSE_SECONDS = 0.2
ROLL_BYTES = "20000"
WARM_LEDGERS = 30
WARM_BATCHES = 3
START_SECONDS_MAX = 180.0
HEAL_SECONDS_MAX = 300.0
PAUSE_SECONDS = 0.5


class World:
    """The processes, the load, and their measurements. All end with the context.

    Attributes:
        broken: A sentence about each violation.
        copies: The copies at the end.
        seconds_to_heal: Time until the queues of auto-recovery were empty.
    """

    stage: Stage
    observer: Observer
    load: Load
    streaming: Streaming
    gaps: Gaps

    def __init__(
        self, directory: Path, seed: int, delay_seconds: int, note: Callable[[str], object]
    ) -> None:
        """Start nothing before the context begins. `note` gets a sentence about each event."""
        self.note = note
        self.broken: list[str] = []
        self.copies = Copies()
        self.seconds_to_heal = float("inf")
        self._directory = directory
        self._seed = seed
        self._delay_seconds = delay_seconds
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            self.stage = Stage(
                self._directory,
                stack,
                BOOKIES,
                self._settings,
                address_of=partial(self._front, stack),
            )
            self.observer.set_delay(self._delay_seconds)
            self.load = Load(
                self.stage.uri, self._seed, WRITERS, WRITER_PAUSE_SECONDS, {"rollBytes": ROLL_BYTES}
            )
            self.load.start()
            stack.callback(self.load.stop)
            self._warm(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def counters(self) -> dict[str, int]:
        """The progress of each part of the load."""
        return {
            "leader": len(self.load.led),
            "stream": self.streaming.batches,
            "single ledgers": self.load.findings.counts["ledgers appended to"],
        }

    def fail(self, sentence: str) -> None:
        """Add a violation, and report it at once, because a later wait may take long."""
        self.broken.append(sentence)
        self.note(f"broken: {sentence}")

    def expect_progress(self, seconds: float) -> float:
        """Wait until each part of the load has made progress, and return the time."""
        began, before = time.monotonic(), self.counters()
        until(
            lambda: all(now > before[name] for name, now in self.counters().items()),
            self._check_load,
            seconds,
            f"progress of each part of the load after {before}",
        )
        return time.monotonic() - began

    def run_for(self, seconds: float) -> None:
        """Let the load run."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._check_load()
            time.sleep(min(PAUSE_SECONDS, left))

    def wait_until_healed(self, since: float | None = None) -> None:
        """Wait until nothing is queued for auto-recovery. Store the time since `since`."""
        until(
            self._nothing_is_queued, seconds=HEAL_SECONDS_MAX, what="empty queues of auto-recovery"
        )
        if since is not None:
            self.seconds_to_heal = time.monotonic() - since

    def queued(self) -> dict[str, int] | None:
        """The number of ledgers in the queues of auto-recovery; None if it could not be read."""
        status = self.observer.status()
        if status is None:
            return None
        return {name: status.queues[name].ledgers for name in ("marks", "holes", "moves")}

    def finish(self) -> None:
        """End the load. Read back the log, what the stream copied, and each copy of each entry."""
        self.load.stop()
        self.streaming.stop()
        self.load.check_log()
        with ll.connect(self.stage.uri) as client:
            log = [bytes(record.value) for record in client.open_log(LOG).read(0)]
        copied = self.streaming.finish()
        self.streaming.close()
        if copied != log:
            self.fail(f"the stream copied {len(copied):,} records, not the {len(log):,} of the log")
        self.wait_until_healed()
        self._check_copies()
        findings = self.load.findings
        for sentence in (*findings.broken, *self.copies.broken):
            self.fail(sentence)
        for name in ("lost", "invented", "wrong", "unclosed"):
            if count := getattr(findings, name):
                self.fail(f"single ledgers and the log: {count} {name}")
        if self.copies.absent or self.copies.wrong:
            self.fail(f"{self.copies.absent} copies are absent, {self.copies.wrong} are wrong")

    def _front(self, stack: ExitStack, zookeeper: ZooKeeperProcess) -> str:
        self.observer = stack.enter_context(Observer(zookeeper.port))
        return f"127.0.0.1:{self.observer.proxy.port}"

    def _settings(self, _number: int) -> dict[str, object]:
        return {
            "autorecovery": True,
            "metrics_port": free_port(),
            "free_bytes_min": 0,
            "disk_usage_max": 1,
        }

    def _warm(self, stack: ExitStack) -> None:
        until(lambda: self.load.led, self._check_load, START_SECONDS_MAX, "a record of the leader")
        self.streaming = Streaming(self.stage.uri, self._directory)
        stack.callback(self.streaming.close)
        self.streaming.start()
        stack.callback(self.streaming.stop)
        until(
            lambda: (
                self.streaming.batches >= WARM_BATCHES and len(self.load.closed()) >= WARM_LEDGERS
            ),
            self._check_load,
            START_SECONDS_MAX,
            f"{WARM_BATCHES} micro-batches and {WARM_LEDGERS} closed ledgers",
        )
        self.gaps = Gaps({name: partial(self._count, name) for name in self.counters()})
        self.gaps.start()
        stack.callback(self.gaps.stop)

    def _count(self, name: str) -> int:
        return self.counters()[name]

    def _check_load(self) -> None:
        """Raise the error of a thread of the load that has ended."""
        if self.load.failures:
            raise self.load.failures[0]
        assert self._stream_lives(), f"the stream has ended: {self.streaming.endings[-1:]}"

    def _stream_lives(self) -> bool:
        streaming = getattr(self, "streaming", None)
        return streaming is None or streaming.ident is None or streaming.is_alive()

    def _nothing_is_queued(self) -> bool:
        queued = self.queued()
        if queued is not None and not any(queued.values()):
            return True
        time.sleep(PAUSE_SECONDS)  # because each look counts the ledgers of all queues
        return False

    def _check_copies(self) -> None:
        """Read each copy of each ledger from its bookie, without code of the worker."""
        single = set(self.load.closed())
        with ll.connect(self.stage.uri) as client:
            of_logs = [
                item.ledger_id
                for name in (LOG, COPY)
                for item in client.open_log(name).snapshot().items
            ]
            for ledger_id in [*single, *dict.fromkeys(of_logs)]:
                metadata = client.ledger_metadata(ledger_id)
                if not metadata.is_closed:
                    client.seal(ledger_id)
                    metadata = client.ledger_metadata(ledger_id)
                expected = partial(payload, ledger_id) if ledger_id in single else None
                self.copies.check(ledger_id, metadata, self.stage.bookies, expected)
