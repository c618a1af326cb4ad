"""Upkeep of the logs as a process of this machine, beside a local cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ledgerlog_spark.local.interrupts import interrupts_deferred


def spawn_upkeep(
    directory: Path, *, metadata_service_uri: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """The process, which takes care of all logs from time to time until SIGTERM.

    Nobody waits until it is there: nothing depends on it. What it did goes to `upkeep.log` in the
    directory.

    Args:
        directory: Of its log; made when missing.
        metadata_service_uri: Of the cluster.
        environment: Variables that the process has beside those of this one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "upkeep.log"
    with path.open("ab") as log, interrupts_deferred():
        return subprocess.Popen(  # noqa: S603 (our own program)
            [
                sys.executable,
                *("-m", "ledgerlog_spark.upkeep"),
                *("--metadata-service-uri", metadata_service_uri),
                *("--directory", str(directory)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | (environment or {}),
        )
