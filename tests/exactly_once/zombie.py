"""A driver that is paused in the middle of a batch, while another driver takes over its queries."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ledgerlog_spark as ll
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LedgerNotFoundError
from ledgerlog_spark.log.logs import logs_of
from tests.exactly_once.driver import Driver, LetDownError, SilentDriverError, signal_all
from tests.exactly_once.kills import DRIVERS_LOG, Scenario
from tests.exactly_once.query import COPY, COUNTS

PAUSED_AT = ("range.rows_sent", "commit.before_multi")
"""The places of the pause: a task of one query has sent rows, the other query will commit."""

BATCHES_BEFORE = 6
BATCHES_AFTER = 8
BATCHES_TO_A_SEAL_MAX = 100
ELSEWHERE = "elsewhere"
REFUSED = re.compile(r"Ledger(?:Fenced|Closed)Error: ledger (\d+)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for both drivers.

    Attributes:
        reasons: The errors that ended the zombie's queries after it was resumed.
        is_fenced: Whether each of them ended because it was replaced.
        sealed: Ledgers that it had open, and that were sealed while it was paused.
        left_open: The ledgers that were not sealed; must be empty.
        refused: The sealed ledgers for which its later writes were refused.
        epochs_taken_back: Logs whose producer changed after it was resumed; must be empty.
        survivor_endings: Why queries of the other driver ended; must be empty.
    """

    reasons: tuple[str, ...]
    is_fenced: bool
    sealed: tuple[int, ...]
    left_open: tuple[int, ...]
    refused: tuple[int, ...]
    epochs_taken_back: tuple[str, ...]
    survivor_endings: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether it could not commit, not acknowledge, and not get its epoch back."""
        wrong = (self.left_open, self.epochs_taken_back, self.survivor_endings)
        return self.is_fenced and bool(self.refused) and not any(wrong)


@dataclass(frozen=True, slots=True)
class Look:
    """The metadata of both logs.

    Attributes:
        producers: Epoch and run of each producer, by log and producer.
        open: Registered ledgers that are not closed.
    """

    producers: dict[tuple[str, str], tuple[int, str | None]]
    open: frozenset[int]


async def look(client: LedgerClient) -> Look:
    """Read the current metadata."""
    logs = logs_of(client)
    producers, still_open = {}, set()
    for name in (COPY, COUNTS):
        log_id = (await logs.open(name)).log_id
        for app in await logs.store.producers.names(log_id):
            found = await logs.store.producers.read(log_id, app)
            assert found is not None
            producers[name, app] = (found.value.epoch, found.value.current_run)
            for ledger_id in await logs.store.producers.registered(log_id, app):
                try:
                    metadata = await client.ledger_metadata(ledger_id)
                except LedgerNotFoundError:
                    continue
                if not metadata.is_closed:
                    still_open.add(ledger_id)
    return Look(producers, frozenset(still_open))


def haunt(scenario: Scenario) -> Verdict:
    """Pause one driver, run the same queries in another driver, then resume the first driver.

    Start again if Spark lets the first driver down before it is paused.
    """
    directory = scenario.directory
    while True:
        try:
            return _haunted(scenario)
        except LetDownError as error:
            if scenario.directory != directory:  # the other one is already running
                raise
            scenario.count_let_down(error)


def _haunted(scenario: Scenario) -> Verdict:
    log = scenario.directory / "zombie.log"
    files = [scenario.directory / f"stop-{name}" for name in PAUSED_AT]
    stops = [f"stop:{name}@{file}" for name, file in zip(PAUSED_AT, files, strict=True)]
    no_restart = scenario.directory / "no-restart"
    settings = {**scenario.settings(), "no_restart": str(no_restart)}
    zombie = Driver(settings, log, ",".join(stops))
    survivor: Driver | None = None
    try:
        with ll.connect(scenario.cluster.metadata_service_uri) as client:
            _pause(zombie, files)
            scenario.chunks = zombie.chunks
            paused = client.run(look)
            survivor = _replacement(scenario)
            before = _sealed(survivor, paused, lambda: client.run(look))
            no_restart.touch()
            signal_all(zombie.tree(), signal.SIGCONT)
            reasons = tuple(zombie.wait_for("ended")["why"] for _ in range(2))
            zombie.end()
            survivor.wait_for_batches(BATCHES_AFTER)
            scenario.chunks = survivor.chunks
            after = client.run(look)
    except LetDownError:
        raise
    except SilentDriverError as silence:
        raise SilentDriverError(f"zombie: {silence}; see {log}") from None
    finally:
        for driver in filter(None, (zombie, survivor)):
            driver.end()
    sealed = paused.open - before.open
    told = {int(number) for number in REFUSED.findall(log.read_text())}
    return Verdict(
        reasons=tuple(", ".join(sorted(set(re.findall(r"\w+Error", why)))) for why in reasons),
        is_fenced=all("ProducerFencedError" in why for why in reasons),
        sealed=tuple(sorted(sealed)),
        left_open=tuple(sorted(paused.open & before.open)),
        refused=tuple(sorted(sealed & told)),
        epochs_taken_back=tuple(
            log for (log, app), was in before.producers.items() if after.producers[log, app] != was
        ),
        survivor_endings=tuple(survivor.endings),
    )


def _pause(zombie: Driver, files: list[Path]) -> None:
    """Two of its processes stop themselves at the places in the files. Then stop all others."""
    zombie.wait_for("running")
    zombie.wait_for_batches(BATCHES_BEFORE)
    for file in files:
        file.touch()
    zombie.wait_until(lambda: zombie.stopped() == len(files))
    signal_all(zombie.tree(), signal.SIGSTOP)
    zombie.wait_for_silence()


def _replacement(scenario: Scenario) -> Driver:
    """Start the same queries from a copy of their checkpoints, as if on another machine."""
    elsewhere = scenario.directory / ELSEWHERE
    shutil.copytree(scenario.directory, elsewhere, ignore=shutil.ignore_patterns("*.log"))
    scenario.directory = elsewhere
    survivor = Driver(scenario.settings(), elsewhere / DRIVERS_LOG)
    survivor.wait_for("running")
    return survivor


def _sealed(survivor: Driver, paused: Look, look_again: Callable[[], Look]) -> Look:
    """The metadata after the zombie's ledgers are sealed. No batch waits for this."""
    survivor.wait_for_batches(BATCHES_AFTER)
    found = look_again()
    for _ in range(BATCHES_TO_A_SEAL_MAX):
        if not paused.open & found.open:
            break
        survivor.wait_for_batches(1)
        found = look_again()
    return found
