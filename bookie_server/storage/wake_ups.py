"""Waking up coroutines that wait for something to have happened."""

from __future__ import annotations

from bookie_server.ports import Future


def settle(futures: list[Future[None]]) -> None:
    """Wake up whoever waits for any of them, cancelled ones passed over; empties the list."""
    while futures:
        future = futures.pop()
        if not future.done():
            future.set_result(None)
