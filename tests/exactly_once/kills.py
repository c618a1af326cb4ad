"""The kills of a run: which processes die, and when."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.log.failpoints import NAMES, VARIABLE
from tests.exactly_once.driver import (
    ROOT,
    Driver,
    EndedDriverError,
    LetDownError,
    SilentDriverError,
    signal_all,
)

IN_QUERIES = tuple(name for name in NAMES if not name.startswith("sweep."))
IN_SWEEPER = tuple(name for name in NAMES if name.startswith("sweep."))
BESIDE = ("worker", "bookie", "source", "zookeeper")
LAST = ("driver", "jvm")
KILLS_BESIDE = 2
FAILPOINTS_A_DRIVER = 3
BATCHES_TO_A_FAILPOINT_MAX = 150
DRIVERS_LOG = "drivers.log"
LET_DOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Armed:
    """A failpoint of one driver. The file is deleted when a process dies at this failpoint."""

    name: str
    count: int
    file: Path


def _variable(armed: list[Armed]) -> str:
    return ",".join(f"{at.name}:{at.count}@{at.file}" for at in armed)


@dataclass(slots=True)
class Tally:
    """The numbers of killed processes.

    Attributes:
        kills: Number of kills, by role. A kill at a failpoint counts under the failpoint's name.
        batches: Number of micro-batches that drivers reported.
        missed: Failpoints that no process reached while they were armed.
        let_down: Number of drivers that Spark let down. Each was followed by another driver.
    """

    kills: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    missed: list[str] = field(default_factory=list)
    let_down: int = 0

    @property
    def total(self) -> int:
        """All kills."""
        return self.kills.total()

    @property
    def failpoints(self) -> int:
        """The number of different failpoints at which a process died."""
        return sum(self.kills[name] > 0 for name in NAMES)


class Scenario:
    """Starts drivers one after the other.

    Some processes of each driver are killed, then the driver.
    """

    def __init__(self, cluster: Cluster, directory: Path, chunk_rows: int, seed: int) -> None:
        self.cluster = cluster
        self.directory = directory
        self.chunk_rows = chunk_rows
        self.dice = random.Random(seed)
        self.tally = Tally()
        self.chunks = 0
        self.drivers = 0

    @property
    def rows(self) -> int:
        """Rows fed so far."""
        return self.chunks * self.chunk_rows

    @property
    def failpoints_left(self) -> list[str]:
        """The failpoints at which no process has died yet."""
        return [name for name in NAMES if not self.tally.kills[name]]

    def settings(self, *, finish: bool = False) -> dict[str, Any]:
        """The settings of the next driver. It begins with the first chunk that may not be fed."""
        return {
            "uri": self.cluster.metadata_service_uri,
            "directory": str(self.directory),
            "chunk": self.chunks,
            "chunk_rows": self.chunk_rows,
            "finish": finish,
        }

    def play_driver(self, kills_left: int) -> None:
        """Run one driver: kill processes at failpoints, other processes, and finally the driver."""
        self.drivers += 1
        armed = self._arm()
        driver = Driver(self.settings(), self.directory / DRIVERS_LOG, _variable(armed))
        try:
            driver.wait_for("running")
            self._until_reached(driver, armed)
            for _ in range(min(KILLS_BESIDE, kills_left - len(armed))):
                driver.wait_for_batches(self.dice.randint(1, 3))
                self._kill_beside(driver)
            driver.wait_for_batches(self.dice.randint(1, 3))
            self._kill_last(driver)
        except LetDownError as end:
            self.count_let_down(end)
        except EndedDriverError as end:
            # A failpoint may be reached while the driver feeds, and end the driver. This is no
            # failure.
            if all(at.file.exists() for at in armed):
                raise EndedDriverError(f"{armed}: {end}") from None
        finally:
            driver.end()
            self.tally.batches += driver.batches
            self.chunks = max(self.chunks, driver.chunks)
            for at in armed:
                self.tally.kills[at.name] += not at.file.exists()
                at.file.unlink(missing_ok=True)

    def _arm(self) -> list[Armed]:
        wanted = [name for name in IN_QUERIES if not self.tally.kills[name]] or list(IN_QUERIES)
        chosen = self.dice.sample(wanted, min(FAILPOINTS_A_DRIVER, len(wanted)))
        return self._armed(chosen, count_max=2)

    def _armed(self, names: Sequence[str], *, count_max: int) -> list[Armed]:
        armed = [
            Armed(name, self.dice.randint(1, count_max), self.directory / f"armed-{name}")
            for name in names
        ]
        for at in armed:
            at.file.touch()
        return armed

    def _until_reached(self, driver: Driver, armed: list[Armed]) -> None:
        for _ in range(BATCHES_TO_A_FAILPOINT_MAX):
            if not any(at.file.exists() for at in armed):
                return
            driver.wait_for_batches(1)
        self.tally.missed.extend(at.name for at in armed if at.file.exists())

    def _kill_beside(self, driver: Driver) -> None:
        role = self.dice.choice(BESIDE)
        if role in ("bookie", "zookeeper"):
            bookies = [member.id for member in self.cluster.members.bookies]
            member = self.dice.choice(bookies) if role == "bookie" else "zookeeper"
            self.cluster.kill(member)
            self.tally.kills[role] += 1
            if role == "bookie":
                driver.wait_for_batches(self.dice.randint(1, 2))
            self.cluster.start(member)
            return
        self._kill_one(driver.part(role), role)

    def _kill_last(self, driver: Driver) -> None:
        role = self.dice.choice(LAST)
        self._kill_one(driver.part(role), role)
        # The other processes end when they notice this. Until then, they are zombies.
        psutil.wait_procs(driver.tree(), timeout=20)

    def _kill_one(self, processes: list[psutil.Process], role: str) -> None:
        if processes:
            signal_all([self.dice.choice(processes)], signal.SIGKILL)
            self.tally.kills[role] += 1

    def sweep(self) -> None:
        """Sweep to the end. First, kill a sweeper at each failpoint where no process has died yet.

        If there is no such failpoint, the sweeper dies at a random failpoint that it reaches.
        """
        left = [name for name in IN_SWEEPER if not self.tally.kills[name]]
        armed = self._armed(left or [self.dice.choice(IN_SWEEPER)], count_max=1)
        while not self._swept(armed):
            (died_at,) = (at for at in armed if not at.file.exists())
            self.tally.kills[died_at.name] += 1
            armed.remove(died_at)
        for at in armed:
            at.file.unlink()

    def _swept(self, armed: list[Armed]) -> bool:
        """Whether a sweeper ended normally; False if it died at a failpoint."""
        ended = subprocess.run(
            [sys.executable, "-m", "tests.exactly_once.sweep", self.cluster.metadata_service_uri],
            cwd=ROOT,
            env={**os.environ, VARIABLE: _variable(armed)},
            check=False,
        )
        if ended.returncode not in (0, -signal.SIGKILL):
            raise SilentDriverError(f"the sweeper ended with exit code {ended.returncode}")
        return ended.returncode == 0

    def count_let_down(self, error: LetDownError) -> None:
        """Allow another attempt, a limited number of times.

        Raises:
            LetDownError: There were too many attempts.
        """
        self.tally.let_down += 1
        if self.tally.let_down > LET_DOWN_MAX:
            raise error

    def finish(self) -> None:
        """Run both queries to the end of the fed rows."""
        while True:
            driver = Driver(self.settings(finish=True), self.directory / DRIVERS_LOG)
            try:
                driver.wait_for("finished")
                driver.process.wait(60)
            except LetDownError as error:
                self.count_let_down(error)
            else:
                return
            finally:
                driver.end()
                self.chunks = max(self.chunks, driver.chunks)
