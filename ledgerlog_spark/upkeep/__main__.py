"""`python -m ledgerlog_spark.upkeep`: upkeep beside a local cluster, until SIGTERM.

Writes one JSON line on standard output for each log for which it did something.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

from ledgerlog_spark.connect import open_client
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.upkeep.background import INTERVAL_SECONDS, keep_up

if TYPE_CHECKING:
    from ledgerlog_spark.upkeep.upkeep import Kept

NICENESS = 10
RETRY_SECONDS = 5.0


def main() -> None:
    """Keep up the logs of one cluster, at a low priority."""
    parser = argparse.ArgumentParser(prog="python -m ledgerlog_spark.upkeep", description=__doc__)
    parser.add_argument("--metadata-service-uri", help="of the cluster")
    parser.add_argument("--interval-seconds", type=float, default=INTERVAL_SECONDS)
    parser.add_argument("--directory", help="of the cluster; names the process, nothing more")
    arguments = parser.parse_args()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    asyncio.run(_run(arguments.metadata_service_uri, arguments.interval_seconds))


async def _run(uri: str | None, interval_seconds: float) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    while not stop.is_set():
        try:
            async with await open_client(uri) as client:
                await keep_up(client, stop=stop, interval_seconds=interval_seconds, on_log=_say)
        except LedgerLogError as error:
            print(json.dumps({"error": str(error)}), file=sys.stderr, flush=True)  # noqa: T201
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), RETRY_SECONDS)


def _say(kept: Kept) -> None:
    if kept.did_something or kept.errors:
        said = {
            "log": kept.log,
            "unlisted": len(kept.truncated.unlisted) if kept.truncated else 0,
            "ranges_merged": kept.merged.ranges_before - kept.merged.ranges_after
            if kept.merged
            else 0,
            "ledgers_deleted": kept.swept.ledgers_deleted if kept.swept else 0,
            "errors": [str(error) for error in kept.errors],
        }
        print(json.dumps(said), flush=True)  # noqa: T201 (its output)


if __name__ == "__main__":
    main()
