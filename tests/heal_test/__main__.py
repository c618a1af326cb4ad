"""`python -m tests.heal_test --ledgers 2000 --seed 1`.

Five bookies hold ledgers. Processes of auto-recovery heal them, while writers and leaders work.
Bookies are killed: first one, then another one, then one together with the auditor and a worker,
and then two at once. Then bytes of one bookie's files are flipped. After each loss, every fragment
must again have its write quorum of copies. Each copy is then read from its bookie. No writer may
get an error, and no leader may be deposed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from random import Random

from benchmarks.options import positive
from tests.fixtures.bookie_process import MEBIBYTE
from tests.fixtures.replicas import Copies
from tests.fixtures.stage import Stage, start_all
from tests.heal_test.daemons import Daemons
from tests.heal_test.healing import (
    COPIES_SECONDS_MAX,
    PAUSE_SECONDS,
    Found,
    Healed,
    Records,
    is_whole,
    read_copies,
    wait_until,
)
from tests.heal_test.work import Ledgers, Writers
from tests.limbo_test.losses import finish_files, flip_stored

BOOKIES = 5
DAEMONS = 3
BROKEN_MAX = 40
PAIR_ROUNDS_MAX = 5
SETTINGS: dict[str, object] = {
    "file_size_bytes": 8 * MEBIBYTE,
    "free_bytes_min": 0,
    "disk_usage_max": 1,
    "change_interval_ms": 1_000,
    "gc_interval_ms": 5_000,
}


class Scenes:
    """All scenarios on one cluster, in their order."""

    def __init__(self, directory: Path, stack: ExitStack, count: int, seed: int) -> None:
        """Start the cluster, and write `count` ledgers; 1 of 20 of them stays open."""
        self._random = Random(seed)
        self._stage = Stage(directory, stack, BOOKIES, lambda _: dict(SETTINGS))
        uri = self._stage.uri
        self._records = Records(uri)
        self._daemons = Daemons(directory, uri)
        stack.callback(self._daemons.kill_all)
        open_count = max(4, count // 20)
        self.writers = Writers(uri, open_count)
        self.ledgers = Ledgers.written(uri, count - open_count)
        self._records.set_no_delay()
        self._daemons.start(DAEMONS)

    def run(self) -> list[Healed]:
        """Play all scenarios."""
        self.writers.start()
        try:
            return [
                self._one("one bookie", "bookie-0"),
                self._one("another bookie", "bookie-1"),
                self._one("a bookie, the auditor and a worker", "bookie-2", kills_daemons=True),
                self._two("two bookies at once", ("bookie-3", "bookie-4")),
                self._flipped("flipped bytes", "bookie-0"),
            ]
        finally:
            self.writers.close()
            print(f"ends of jobs: {dict(self._daemons.outcomes())}", flush=True)

    def _one(self, name: str, lost: str, *, kills_daemons: bool = False) -> Healed:
        """Kill a bookie. Start it again when the others have all copies."""
        begun = time.monotonic()
        self._stage.bookies[lost].kill()
        if kills_daemons:
            self._kill_daemons()
        self._wait(f"{name}: no record names {lost}", lambda found: is_whole(found, {lost}))
        healed = self._read(Healed(name, time.monotonic() - begun), {lost})
        start_all([self._stage.bookies[lost]])
        self._daemons.start(DAEMONS)
        return healed

    def _kill_daemons(self) -> None:
        """Kill the auditor and another worker after the first marks exist."""
        self._wait("the first marks", lambda found: bool(found.marks))
        auditor = self._records.auditor()
        assert auditor in self._daemons.running, f"the auditor is {auditor}"
        self._daemons.kill(auditor)
        self._daemons.kill(next(iter(self._daemons.running)))

    def _two(self, name: str, lost: tuple[str, str]) -> Healed:
        """Kill two bookies. The ledgers that only they have are reported, and are not closed."""
        gone, closed = self._with_only_copies(lost)
        begun = time.monotonic()
        for one in lost:
            self._stage.bookies[one].kill()
        found = self._wait(
            f"{name}: all ledgers with a copy are whole, {len(closed)} are reported as unreadable",
            lambda found: is_whole(found, lost, gone) and closed <= found.unreadable,
        )
        healed = self._read(Healed(name, time.monotonic() - begun), lost, gone)
        healed.broken += [
            f"ledger {one} is reported as unreadable, although a bookie has it"
            for one in sorted(found.unreadable - gone)
        ]
        healed.broken += [
            f"ledger {one} was closed, although no bookie had its entries"
            for one in sorted(gone - closed)
            if found.ledgers[one].is_closed
        ]
        print(f"{name}: {len(gone)} ledgers were only on them, and were reported", flush=True)
        start_all(self._stage.bookies[one] for one in lost)
        self._wait(
            f"{name}: they are back, and no ledger is unreadable",
            lambda found: is_whole(found, ()) and not found.unreadable,
        )
        return self._read(healed, ())

    def _with_only_copies(self, names: tuple[str, str]) -> tuple[frozenset[int], set[int]]:
        """Write ledgers with two copies, until some closed and some open ones are only on `names`.

        Return the ids of all ledgers that are only there, and of those that are closed.
        """
        for _ in range(PAIR_ROUNDS_MAX):
            self.ledgers.write_pairs(self._stage.uri)
            found = self._records.found()
            gone = found.only_on(names)
            closed = {one for one in gone if found.ledgers[one].is_closed}
            if closed and gone - closed:
                return gone, closed
        raise AssertionError(f"no ledger has all its copies on {names}")

    def _flipped(self, name: str, bookie: str) -> Healed:
        """Flip bytes in the files of a running bookie. The digest check must find the damage."""
        self._daemons.kill_all()
        finish_files(self._stage.bookies[bookie])
        flip_stored(self._stage.bookies[bookie], self._random)
        process = self._stage.bookies[bookie].process
        self._records.read_all_digests()
        checks = self._daemons.digest_checks()
        failed = self._stage.bookies[bookie].log().count('"read_failed"')
        begun = time.monotonic()
        self._daemons.start(DAEMONS)
        self._wait(f"{name}: a digest check ends", lambda _: self._daemons.digest_checks() > checks)
        damaged = self._stage.bookies[bookie].log().count('"read_failed"') - failed
        print(f"{name}: {damaged} entries were found damaged", flush=True)
        self._wait(f"{name}: the queues are empty", lambda found: is_whole(found, ()))
        healed = self._read(Healed(name, time.monotonic() - begun), ())
        if not damaged:
            healed.broken.append("the digest check found no damaged copy")
        assert process is self._stage.bookies[bookie].process
        assert process is not None
        if process.poll() is not None:
            healed.broken.append(f"{bookie} has ended")
        return healed

    def _wait(self, what: str, holds: Callable[[Found], bool]) -> Found:
        return wait_until(what, self._records, holds, self._check_daemons)

    def _check_daemons(self) -> None:
        assert not self._daemons.dead(), f"{self._daemons.dead()} ended"

    def _read(self, healed: Healed, lost: Collection[str], but: Collection[int] = ()) -> Healed:
        """Append to the idle ledgers. Then read all copies, until no copy is absent or wrong."""
        self.writers.use_idle()
        self.writers.pause()
        ids = {*self.ledgers.all, *self.writers.ids}.difference(but)
        deadline = time.monotonic() + COPIES_SECONDS_MAX
        while True:
            found = self._wait(
                f"{healed.name}: the queues are empty again",
                lambda found: is_whole(found, lost, but),
            )
            copies = read_copies(found, self.writers.ends, ids, self._stage.bookies)
            if not (copies.wrong or copies.absent) or time.monotonic() > deadline:
                break
            time.sleep(PAUSE_SECONDS)
        self.writers.resume()
        healed.copies.append(copies)
        print(
            f"{healed.name}: {len(ids):,} ledgers, {copies.read:,} copies of {copies.entries:,} "
            f"entries, {copies.absent} absent, {copies.wrong} wrong, "
            f"whole after {healed.seconds:.1f} s",
            flush=True,
        )
        return healed


def report(scenes: Scenes, healed: list[Healed]) -> int:
    """Print the findings, and return the exit code."""
    findings = scenes.writers.findings
    copies: list[Copies] = [each for one in healed for each in one.copies]
    broken = [*findings.errors, *findings.deposed]
    broken += [sentence for each in copies for sentence in each.broken]
    broken += [sentence for one in healed for sentence in one.broken]
    for sentence in broken[:BROKEN_MAX]:
        print(f"broken: {sentence}")
    absent = sum(each.absent for each in copies)
    wrong = sum(each.wrong for each in copies)
    ledgers = len(scenes.ledgers.all) + len(scenes.writers.ids)
    print(
        f"{len(healed)} losses, {ledgers:,} ledgers, {findings.appended:,} appends meanwhile, "
        f"{sum(each.read for each in copies):,} copies compared, {absent} short, {wrong} wrong, "
        f"{len(findings.errors)} errors of writers, {len(findings.deposed)} leaders deposed, "
        f"whole after {max(one.seconds for one in healed):.0f} s"
    )
    return 1 if absent or wrong or broken else 0


def run(ledgers: int, seed: int, directory: Path) -> int:
    """Play all scenarios, and return the exit code."""
    with ExitStack() as stack:
        scenes = Scenes(directory, stack, ledgers, seed)
        return report(scenes, scenes.run())


def main() -> int:
    """Return 0 if all copies came back, and no writer and no leader noticed anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledgers", type=positive, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    chosen = parser.parse_args()
    if chosen.directory is not None:
        chosen.directory.mkdir(exist_ok=True)
        return run(chosen.ledgers, chosen.seed, chosen.directory)
    with tempfile.TemporaryDirectory(prefix="ledgerlog-heal-") as directory:
        return run(chosen.ledgers, chosen.seed, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
