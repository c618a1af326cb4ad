"""A bookie of the ensemble is killed while a client appends; another takes its place."""

from __future__ import annotations

from functools import partial

from tests.interop.dying_writers import ENDLESS, recover
from tests.interop.stage import Scenario, Shape, Stage, Written

ENTRIES_BEFORE = 200
ENTRIES_MEANWHILE = 3_000
ENTRIES_AFTER = 200


def bookie_loss(
    writer: str, recoverers: tuple[str, str], shapes: tuple[Shape, Shape]
) -> list[Scenario]:
    """Scenarios with a writer that continues and closes, and one that dies too, on both shapes."""
    closing = [
        Scenario(
            f"{writer} loses a bookie and goes on",
            f"{shape} {digest}",
            partial(_goes_on, writer=writer, shape=shape, digest=digest),
        )
        for shape, digest in zip(shapes, ("CRC32C", "MAC"), strict=True)
    ]
    dying = [
        Scenario(
            f"{writer} loses a bookie and dies, {recoverer} recovers",
            f"{shape} {digest}",
            partial(_dies, writer=writer, recoverer=recoverer, shape=shape, digest=digest),
        )
        for shape, digest, recoverer in zip(shapes, ("CRC32", "DUMMY"), recoverers, strict=True)
    ]
    return [*closing, *dying]


def _goes_on(stage: Stage, writer: str, shape: Shape, digest: str) -> None:
    ledger = stage.create(stage.clients.staying(writer), shape, digest)
    ledger.append(ENTRIES_MEANWHILE, outstanding=32)
    ledger.writer.wait_for(ENTRIES_BEFORE)
    victim = _kill_a_bookie(stage, ledger)
    try:
        ledger.writer.finish()
        ledger.append(ENTRIES_AFTER)
        ledger.writer.finish()
        last, length = map(int, ledger.writer.ask("close", ledger.id))
        _expect_replaced(stage, ledger, victim)
        stage.compare_closed(ledger, last, length)
    finally:
        stage.bookies.start(victim)


def _dies(stage: Stage, writer: str, recoverer: str, shape: Shape, digest: str) -> None:
    ledger = stage.create(stage.clients.mortal(writer), shape, digest)
    ledger.append(ENDLESS, outstanding=32)
    ledger.writer.wait_for(ENTRIES_BEFORE)
    victim = _kill_a_bookie(stage, ledger)
    try:
        ledger.writer.wait_for(ledger.writer.acknowledged + ENTRIES_AFTER)
        ledger.kill_writer(stage.tally)
        recover(stage, ledger, recoverer)
        _expect_replaced(stage, ledger, victim)
    finally:
        stage.bookies.start(victim)


def _kill_a_bookie(stage: Stage, ledger: Written) -> str:
    ensemble = ledger.created["fragments"][-1][1]
    victim: str = ensemble[stage.number % len(ensemble)]
    stage.bookies.kill(victim)
    return victim


def _expect_replaced(stage: Stage, ledger: Written, victim: str) -> None:
    fragments = stage.fragments(ledger)
    if len(fragments) < 2 or victim in fragments[-1][1]:
        raise AssertionError(f"{victim} was killed and not replaced: {fragments}")
