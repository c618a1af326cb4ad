"""Runs a bookie in its own process: handles signals, prints the ready line, sets the exit code.

SIGTERM and SIGINT stop the bookie. After a permanent failure of storage, the bookie stops in the
same way, but with another exit code.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any, Final

from bookie_server.config import BookieSettings
from bookie_server.descriptors import divided, raise_limit
from bookie_server.errors import ExitCode
from bookie_server.service.lifecycle import Bookie
from bookie_server.service.logging import fields_of, get_logger
from ledgerlog_spark.transport.allocator import keep_freed_memory

GC_THRESHOLDS: Final = (10_000, 500, 1_000)
MALLOC_ARENAS_MAX: Final = 2

_logger = get_logger("lifecycle")


async def run_bookie(
    settings: BookieSettings, log_lines_dropped: Callable[[], int] = lambda: 0
) -> ExitCode:
    """Serve until a signal or a failure, close everything, and return the exit code."""
    keep_freed_memory(arenas_max=MALLOC_ARENAS_MAX)
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    budget = divided(
        raise_limit(settings.connections_max), settings.connections_max, len(settings.places)
    )
    if budget.connections < settings.connections_max:
        _logger.warning("connections_limited", **asdict(budget))
        settings = settings.model_copy(update={"connections_max": budget.connections})
    bookie = Bookie(
        settings, budget.files, budget.callers, _tune_garbage_collector, log_lines_dropped
    )
    started = asyncio.create_task(bookie.start())
    await _first_of(stop_requested.wait(), started)
    if not started.done():
        started.cancel()
        await asyncio.gather(started, return_exceptions=True)
        return ExitCode.STOPPED
    await started
    _print_ready_line(bookie)
    await _first_of(stop_requested.wait(), bookie.failed.wait())
    failure = bookie.failure
    _logger.info("stopping", bookie_id=bookie.bookie_id, failure=failure and str(failure))
    await bookie.close()
    # Read the failure again: after storage is closed, a failed journal may no longer be needed.
    failure = bookie.directory_failure
    if bookie.crash is not None:
        return ExitCode.INTERNAL_ERROR
    if failure is not None:
        _logger.error("storage_failed", bookie_id=bookie.bookie_id, **fields_of(failure))
        return ExitCode.STORAGE_FAILED
    return ExitCode.STOPPED


async def _first_of(*waits: Coroutine[Any, Any, object] | asyncio.Task[None]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for wait, task in zip(waits, tasks, strict=True):
        if task is not wait:
            task.cancel()


def _print_ready_line(bookie: Bookie) -> None:
    line = {
        "bookie_id": bookie.bookie_id,
        "port": bookie.port,
        "grpc_port": bookie.grpc_port,
        "pid": os.getpid(),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    _logger.info("ready", **line)


def _tune_garbage_collector() -> None:
    """Let Python's garbage collector scan old objects only very rarely.

    Such scans would find nothing, because requests create no reference cycles. After a start with
    100,000 ledgers, a scan of all objects takes 0.2 s. So one scan runs here, before any client is
    served, and the objects that exist then are never scanned again. With Python's default
    thresholds and adds of 1 KiB, the garbage collector scanned the pieces of the active file five
    times in 8 s, and stopped the bookie for 287 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
