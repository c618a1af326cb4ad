"""Runs one replication job: performs the requests of each step together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ledgerlog_spark.protocol.autorecovery.replicate.job import LedgerReplication
from ledgerlog_spark.protocol.autorecovery.replicate.messages import Effect, JobEnded
from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired

Performers = Mapping[type, Callable[[Any], Awaitable[Any]]]
"""For each type of effect, the coroutine function that performs the effect and returns the
reply."""


async def run_job(machine: LedgerReplication, performers: Performers) -> JobEnded:
    """Run a machine to its end. If this call is cancelled, it does not release the lock."""
    perform: Performers = {StartTimer: _wait, **performers}
    effects: list[Effect] = machine.begin()
    while not isinstance(effects[-1], JobEnded):
        replies = await asyncio.gather(*(perform[type(one)](one) for one in effects))
        for reply in replies:
            effects = machine.handle(reply)
    return effects[-1]


async def _wait(effect: StartTimer) -> TimerFired:
    await asyncio.sleep(effect.delay_ms / 1e3)
    return TimerFired(effect.request)
