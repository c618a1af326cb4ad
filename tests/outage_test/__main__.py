"""`python -m tests.outage_test --away-s 300 --zookeeper-s 30`.

Three bookies, single ledgers, a leader log and a Spark stream work. First, one bookie is dead for
some minutes, and returns. Then ZooKeeper is dead for half a minute, and returns. Last, sessions
expire: of each bookie, of the auditor and of the writers. Nothing that was acknowledged may be
lost, the leader and the stream may not stop for long, and all copies must be back at the end.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import ledgerlog_spark as ll
from benchmarks.options import positive
from tests.fixtures.bookie_process import MEBIBYTE
from tests.fixtures.command_line import ledgerlog_json
from tests.fixtures.patience import until
from tests.fixtures.replicas import Copies
from tests.fixtures.stage import Stage
from tests.heal_test.daemons import Daemons
from tests.heal_test.healing import Records, is_whole, wait_until
from tests.outage_test.load import SOURCE, Load

BOOKIES = 3
DAEMONS = 2
WRITERS = 4
LOST = "bookie-1"
WARM_SECONDS = 10.0
GAP_SECONDS_MAX = 10.0
COPIES_SECONDS_MAX = 300.0
PAUSE_SECONDS = 0.5
MARKS_MAX = 0
"""ZooKeeper was away for less than the delay after which a lost bookie is marked."""
SETTINGS: dict[str, object] = {
    "file_size_bytes": 8 * MEBIBYTE,
    "free_bytes_min": 0,
    "disk_usage_max": 1,
    "change_interval_ms": 1_000,
    "gc_interval_ms": 5_000,
}


@dataclass(slots=True)
class Report:
    """What was found. `broken` must be empty."""

    lines: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    gaps: dict[str, float] = field(default_factory=dict)
    copies: Copies = field(default_factory=Copies)

    def note(self, sentence: str) -> None:
        """Print a sentence."""
        print(sentence, flush=True)

    def require(self, holds: bool, sentence: str) -> None:
        """Note a sentence about what is wrong, unless the condition holds."""
        if not holds:
            self.broken.append(sentence)


class Outages:
    """The scenarios on one cluster, in their order."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._stage = Stage(directory, stack, BOOKIES, lambda _: dict(SETTINGS))
        self._records = Records(self._stage.uri)
        self._daemons = Daemons(directory, self._stage.uri)
        stack.callback(self._daemons.kill_all)
        self._daemons.start(DAEMONS)
        self.load = Load(self._stage.uri, directory, WRITERS)
        self.report = Report()

    def run(self, away_s: float, zookeeper_s: float) -> Report:
        """Play all scenarios."""
        self.load.start()
        self._work(WARM_SECONDS)
        self._bookie_is_away(away_s)
        self._zookeeper_is_away(zookeeper_s)
        self._sessions_expire()
        copied = self.load.stop()
        self._close_all()
        self._wait_whole("the end")
        self.report.note(
            f"{len(self.load.ledgers):,} ledgers, {len(self.load.records):,} records of a leader, "
            f"{copied:,} rows copied by the stream, errors: {dict(self.load.errors)}"
        )
        self.report.broken += self.load.indefinite
        return self.report

    # The scenarios.

    def _bookie_is_away(self, seconds: float) -> None:
        self.load.begin()
        self._stage.bookies[LOST].kill()
        self._work(seconds / 2)
        shown = ledgerlog_json("logs", "show", SOURCE, "--metadata-service-uri", self._stage.uri)
        self.report.require(
            shown["bookies_away"] == [LOST], f"`logs show` shows {shown['bookies_away']} as away"
        )
        self._work(seconds / 2)
        errors = sum(self.load.errors.values())
        self.report.require(not errors, f"a dead bookie caused errors: {dict(self.load.errors)}")
        begun = time.monotonic()
        self._stage.bookies[LOST].start()
        self._wait_holes(f"{LOST} is back")
        whole_seconds = time.monotonic() - begun
        self.report.gaps = self.load.gaps()
        for name, gap in self.report.gaps.items():
            self.report.require(gap <= GAP_SECONDS_MAX, f"{name} stopped for {gap:.1f} s")
        self.report.note(
            f"a bookie was away for {seconds:g} s: longest stops "
            + ", ".join(f"{name} {gap:.1f} s" for name, gap in self.report.gaps.items())
            + f"; its holes were healed {whole_seconds:.1f} s after its return"
        )

    def _zookeeper_is_away(self, seconds: float) -> None:
        marks = self._daemons.marks()
        self._stage.zookeeper.kill()
        begun = time.monotonic()
        while time.monotonic() < begun + seconds:
            self.load.check()
            time.sleep(PAUSE_SECONDS)
        self._stage.zookeeper.start()
        self._all_is_registered("ZooKeeper is back")
        self._goes_on("ZooKeeper is back")
        self._expect_few_marks(marks, f"ZooKeeper was away for {seconds:g} s")

    def _sessions_expire(self) -> None:
        """Freeze each process for longer than its session, and end the sessions of the writers."""
        marks = self._daemons.marks()
        for name, bookie in self._stage.bookies.items():
            process = bookie.process
            assert process is not None
            process.send_signal(signal.SIGSTOP)
            until(partial(self._is_gone, name), self.load.check)
            process.send_signal(signal.SIGCONT)
            self._all_is_registered(f"the session of {name} expired")
        before = self._records.auditor()
        assert before in self._daemons.running, f"the auditor is {before}"
        self._daemons.running[before].send_signal(signal.SIGSTOP)
        until(lambda: self._records.auditor() not in (before, None), self.load.check)
        self._daemons.running[before].send_signal(signal.SIGCONT)
        for client in list(self.load.clients):
            client.run(end_own_session)
        self._goes_on("the sessions of all writers ended")
        self._all_is_registered("all sessions expired")
        self._expect_few_marks(marks, "all sessions expired once")

    # Parts.

    def _work(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.load.check()
            assert not self._daemons.dead(), f"{self._daemons.dead()} ended"
            time.sleep(PAUSE_SECONDS)

    def _goes_on(self, what: str) -> None:
        """Each kind of load makes ten more steps, the stream two."""
        wanted = {
            name: one.steps + (2 if name == "stream" else 10)
            for name, one in self.load.progress.items()
        }
        try:
            until(
                lambda: all(one.steps >= wanted[n] for n, one in self.load.progress.items()),
                self.load.check,
            )
        except AssertionError as error:
            steps = {name: one.steps for name, one in self.load.progress.items()}
            self.report.require(holds=False, sentence=f"{what}: {steps}, not {wanted}: {error}")

    def _is_gone(self, name: str) -> bool:
        return name not in self._records.writable()

    def _all_is_registered(self, what: str) -> None:
        """All bookies are registered, and one running process is the auditor."""
        until(lambda: set(self._records.writable()) == set(self._stage.bookies), self.load.check)
        auditor = until(self._records.auditor, self.load.check)
        self.report.require(
            auditor in self._daemons.running, f"{what}: the auditor is {auditor}, which is dead"
        )

    def _expect_few_marks(self, before: int, what: str) -> None:
        marks = self._daemons.marks() - before
        self.report.require(marks <= MARKS_MAX, f"{what}: {marks} marks")
        self.report.note(f"{what}: {marks} ledgers marked, errors: {dict(self.load.errors)}")

    def _wait_holes(self, what: str) -> None:
        wait_until(
            f"{what}: the queues are empty",
            self._records,
            lambda found: is_whole(found, ()),
            self.load.check,
        )

    def _close_all(self) -> None:
        """Close the ledgers that a writer or the stream left open."""
        with ll.connect(self._stage.uri) as client:
            for ledger_id, metadata in self._records.found().ledgers.items():
                if not metadata.is_closed:
                    client.seal(ledger_id)

    def _wait_whole(self, what: str) -> None:
        """Read each copy of each ledger, again until every bookie has every entry that it owes."""
        deadline = time.monotonic() + COPIES_SECONDS_MAX
        while True:
            self._wait_holes(what)
            copies, found = Copies(), self._records.found()
            for ledger_id, metadata in found.ledgers.items():
                copies.check(ledger_id, metadata, self._stage.bookies)
            if not (copies.absent or copies.wrong) or time.monotonic() > deadline:
                break
            time.sleep(PAUSE_SECONDS)
        self.report.copies = copies
        self.report.broken += copies.broken
        for ledger_id, written in self.load.ledgers.items():
            last = found.ledgers[ledger_id].last_entry_id
            self.report.require(
                last >= written.last,
                f"ledger {ledger_id} ends at {last}, but {written.last} was acknowledged",
            )


async def end_own_session(client: object) -> None:
    """End the ZooKeeper session of a client, as the server does after the session timeout."""
    tree = client.services.session  # type: ignore[attr-defined]
    await tree.end_session(tree.session_secret)


def run(away_s: float, zookeeper_s: float, directory: Path) -> int:
    """Play all scenarios, and return the exit code."""
    with ExitStack() as stack:
        report = Outages(directory, stack).run(away_s, zookeeper_s)
    for sentence in report.broken:
        print(f"broken: {sentence}")
    copies = report.copies
    print(
        f"3 outages, {copies.entries:,} entries, {copies.read:,} copies compared, "
        f"{copies.absent} short, {copies.wrong} wrong, {len(report.broken)} broken, longest stop "
        f"{max(report.gaps.values()):.1f} s"
    )
    return 1 if report.broken or copies.absent or copies.wrong else 0


def main() -> int:
    """Return 0 if nothing was lost, and nothing stopped for long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--away-s", type=positive, default=300)
    parser.add_argument("--zookeeper-s", type=positive, default=30)
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    chosen = parser.parse_args()
    if chosen.directory is not None:
        chosen.directory.mkdir(exist_ok=True)
        return run(chosen.away_s, chosen.zookeeper_s, chosen.directory)
    with tempfile.TemporaryDirectory(prefix="ledgerlog-outage-") as directory:
        return run(chosen.away_s, chosen.zookeeper_s, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
