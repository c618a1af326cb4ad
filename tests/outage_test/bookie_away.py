"""One of three bookies dies, stays away, and comes back."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.fixtures.command_line import ledgerlog, ledgerlog_json
from tests.fixtures.patience import until
from tests.limbo_test.load import LOG

if TYPE_CHECKING:
    from tests.outage_test.world import World

VICTIM = "bookie-1"
GAP_SECONDS_MAX = 10.0
SESSION_SECONDS_MAX = 60.0
RETURNED_SECONDS = 20.0
"""Time under load after the return, in which writers name the bookie again."""


def play(world: World, away_seconds: float) -> dict[str, float]:
    """Kill a bookie, start it again after a while, and return the longest gaps."""
    victim = world.stage.bookies[VICTIM]
    world.gaps.take()
    began = time.monotonic()
    victim.kill()
    until(
        lambda: VICTIM not in world.observer.owners([VICTIM]),
        seconds=SESSION_SECONDS_MAX,
        what=f"the end of the session of {VICTIM}",
    )
    world.run_for(away_seconds - (time.monotonic() - began))
    expect_shown(world)
    longest = expect_no_stop(world)
    victim.start()
    returned = time.monotonic()
    world.expect_progress(GAP_SECONDS_MAX)
    world.wait_until_healed(returned)
    world.run_for(RETURNED_SECONDS)
    expect_return_shown(world)
    for name, seconds in expect_no_stop(world).items():
        longest[name] = max(longest[name], seconds)
    return longest


def expect_no_stop(world: World) -> dict[str, float]:
    """Check gaps and errors since the last call, and return the longest gaps."""
    longest = world.gaps.take()
    for name, seconds in longest.items():
        if seconds > GAP_SECONDS_MAX:
            world.fail(f"{name}: nothing for {seconds:.1f} s")
    errors, world.load.findings.errors = world.load.findings.errors, Counter()
    for name, count in errors.items():
        world.fail(f"{count} calls failed ({name})")
    endings, world.streaming.endings = world.streaming.endings, []
    for reason in endings:
        world.fail(f"the stream ended: {reason[:300]}")
    return longest


def expect_shown(world: World) -> None:
    """Check what operators see while the bookie is away."""
    uri = ("--metadata-service-uri", world.stage.uri)
    away = ledgerlog_json("logs", "show", LOG, *uri)["bookies_away"]
    if away != [VICTIM]:
        world.fail(f"logs show: bookies_away is {away}")
    shown = ledgerlog("logs", "show", LOG, *uri)
    if not any(line.startswith(VICTIM) and line.endswith("away") for line in _lines(shown)):
        world.fail(f"the picture of logs show does not mark {VICTIM} as away: {shown[-1_000:]}")
    queued = ledgerlog_json("autorecovery", "status", *uri)["queues"]["marks"]["ledgers"]
    if not queued:
        world.fail("autorecovery status: no ledger is marked")
    world.note(f"{VICTIM} is away: logs show names it, {queued:,} ledgers are marked")


def expect_return_shown(world: World) -> None:
    """Check that `logs show` names no bookie as away."""
    uri = ("--metadata-service-uri", world.stage.uri)
    away = ledgerlog_json("logs", "show", LOG, *uri)["bookies_away"]
    if away:
        world.fail(f"logs show: bookies_away is {away} after the return")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]
