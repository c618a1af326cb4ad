"""Three bookies lose power together. New ledgers work at once, and old ledgers can be closed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LedgerLogError
from tests.fixtures.stage import start_all
from tests.limbo_test.load import QUORUM
from tests.limbo_test.power import cut_power, kill_traced

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from tests.fixtures.bookie_process import BookieProcess
    from tests.fixtures.stage import Stage

NEW_LEDGERS = 20
OLD_LEDGERS = 60
ENTRIES = 10
CLOSE_SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.5


@dataclass(slots=True)
class Together:
    """What happened after the power was back. Times begin when all bookies serve.

    Attributes:
        new_seconds: The longest time to create, write and close a new ledger.
        closed_seconds: For each old ledger that was closed, the time until then.
        open: Number of old ledgers that were not closed within `CLOSE_SECONDS_MAX`.
        lost: Number of acknowledged entries after the end of an old ledger.
    """

    new_seconds: float = 0.0
    closed_seconds: list[float] = field(default_factory=list)
    open: int = 0
    lost: int = 0


def lose_power_together(stage: Stage, bookies: Sequence[BookieProcess], random: Random) -> Together:
    """Leave ledgers open, cut the power of the bookies, and use the cluster again."""
    found = Together()
    with ll.connect(stage.uri) as client:
        acknowledged = dict(left_open(client) for _ in range(OLD_LEDGERS))
    for bookie in bookies:
        kill_traced(bookie)
    for bookie in bookies:
        cut_power(bookie, random)
    start_all(bookies)
    began = time.monotonic()
    with ll.connect(stage.uri) as client:
        for _ in range(NEW_LEDGERS):
            before = time.monotonic()
            with client.create_ledger(**QUORUM) as ledger:
                for number in range(ENTRIES):
                    ledger.append(b"%d" % number)
            found.new_seconds = max(found.new_seconds, time.monotonic() - before)
        with ThreadPoolExecutor(OLD_LEDGERS) as pool:
            ends = pool.map(lambda ledger_id: closed_end(client, ledger_id, began), acknowledged)
            for last, end in zip(acknowledged.values(), list(ends), strict=True):
                if end is None:
                    found.open += 1
                    continue
                found.closed_seconds.append(end[0])
                found.lost += max(0, last - end[1])
    return found


def left_open(client: BlockingClient) -> tuple[int, int]:
    """Write a ledger, and leave it open; return its id and the last acknowledged entry."""
    ledger = client.create_ledger(**QUORUM)
    return ledger.id, max(ledger.append(b"%d" % number) for number in range(ENTRIES))


def closed_end(client: BlockingClient, ledger_id: int, began: float) -> tuple[float, int] | None:
    """Recover a ledger; return the time since `began` and its last entry; None without success."""
    while time.monotonic() - began < CLOSE_SECONDS_MAX:
        try:
            sealed = client.seal(ledger_id)
        except LedgerLogError:
            time.sleep(PAUSE_SECONDS)
        else:
            return time.monotonic() - began, sealed.last_entry_id
    return None
