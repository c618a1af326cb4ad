"""`python -m ledgerlog_spark.upkeep` maintains the logs of a local cluster until SIGTERM.

This program does the same as `ledgerlog upkeep run`, but at a low priority, and without importing
the code of the commands.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os

from ledgerlog_spark.upkeep.service import INTERVAL_SECONDS, UpkeepService, standard_output

NICENESS = 10


def main() -> None:
    """Maintain the logs of one cluster, at a low priority."""
    parser = argparse.ArgumentParser(prog="python -m ledgerlog_spark.upkeep", description=__doc__)
    parser.add_argument("--metadata-service-uri", help="URI of the cluster")
    parser.add_argument("--interval-seconds", type=float, default=INTERVAL_SECONDS)
    parser.add_argument(
        "--directory", help="directory of the cluster; it only identifies this process"
    )
    arguments = parser.parse_args()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with standard_output() as write_line:
        service = UpkeepService(arguments.metadata_service_uri, write_line)
        asyncio.run(service.run(interval_seconds=arguments.interval_seconds))


if __name__ == "__main__":
    main()
