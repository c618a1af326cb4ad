"""A bookie starts with an older copy of its directory: it is in limbo, and both clients go on."""

from __future__ import annotations

import time
from functools import partial

from tests.interop.dying_writers import ENDLESS, recover
from tests.interop.healers import APACHE
from tests.interop.stage import (
    JAVA,
    OURS,
    OUTSTANDING,
    STRIPED,
    WHOLE,
    Scenario,
    Shape,
    Stage,
    expect,
)

ENTRIES = 500
LEDGERS = 6
MOVED_SECONDS_MAX = 180.0
PAUSE_SECONDS = 0.5


def bookie_in_limbo() -> list[Scenario]:
    """Scenarios with each pair of writer and recoverer, and with Apache's auto-recovery."""
    recoveries = [
        Scenario(
            f"{writer} dies, a bookie is in limbo, {recoverer} recovers",
            f"{shape} {digest}",
            partial(_recovered, writer=writer, recoverer=recoverer, shape=shape, digest=digest),
        )
        for writer, recoverer, shape, digest in (
            (JAVA, JAVA, WHOLE, "CRC32C"),
            (JAVA, OURS, STRIPED, "CRC32"),
            (OURS, JAVA, WHOLE, "MAC"),
            (OURS, JAVA, STRIPED, "CRC32C"),
        )
    ]
    moves = [
        Scenario(
            "apache's auto-recovery moves ledgers, a bookie is in limbo",
            f"{WHOLE} CRC32C",
            _moved,
        )
    ]
    return [*recoveries, *moves]


def _recovered(stage: Stage, writer: str, recoverer: str, shape: Shape, digest: str) -> None:
    bookies = stage.our_bookies
    copies = {bookie_id: bookies.copy(bookie_id) for bookie_id in bookies.ids}
    ledger = stage.create(stage.clients.mortal(writer), shape, digest)
    ledger.append(ENDLESS)
    ledger.writer.wait_for(OUTSTANDING + stage.number * 37 % 700)
    ledger.kill_writer(stage.tally)
    ensemble = ledger.created["fragments"][-1][1]
    victim: str = ensemble[stage.number % len(ensemble)]
    epoch = bookies.doubt_epoch(victim)
    bookies.restore(victim, copies[victim])
    expect(bookies.doubt_epoch(victim), epoch + 1, f"epoch of doubt of {victim}")
    recover(stage, ledger, recoverer)


def _moved(stage: Stage) -> None:
    bookies = stage.our_bookies
    copies = {bookie_id: bookies.copy(bookie_id) for bookie_id in bookies.ids}
    ledgers = []
    for _ in range(LEDGERS):
        ledger = stage.create(stage.clients.staying(JAVA), WHOLE, "CRC32C")
        ledger.append(ENTRIES)
        ledger.writer.finish()
        last, length = map(int, ledger.writer.ask("close", ledger.id))
        ledgers.append((ledger, last, length))
    named = [bookie for ledger, *_ in ledgers for bookie in ledger.created["fragments"][0][1]]
    dead, in_limbo = sorted(set(named), key=named.count)[-2:]
    with bookies.healers.running(APACHE):
        bookies.kill(dead)
        bookies.restore(in_limbo, copies[in_limbo])
        try:
            _wait_until_moved(stage, [ledger.id for ledger, *_ in ledgers], dead)
            for ledger, last, length in ledgers:
                stage.compare_closed(ledger, last, length)
        finally:
            bookies.start(dead)


def _wait_until_moved(stage: Stage, ledger_ids: list[int], dead: str) -> None:
    """Wait until no fragment names a dead bookie."""
    client = stage.clients.staying(OURS)
    deadline = time.monotonic() + MOVED_SECONDS_MAX
    left = set(ledger_ids)
    while left:
        for ledger_id in sorted(left):
            fragments = client.metadata(ledger_id)["fragments"]
            if not any(dead in ensemble for _, ensemble in fragments):
                left.remove(ledger_id)
        if time.monotonic() > deadline:
            raise AssertionError(f"ledgers {sorted(left)} still name {dead}")
        time.sleep(PAUSE_SECONDS)
