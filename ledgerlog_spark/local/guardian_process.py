"""The guardian: a process that stops an owned cluster when its owner ends without stopping it.

The guardian waits for the end of its standard input, and then stops the cluster. Then it kills all
other processes that have the cluster's owner ID, because `cluster.json` may not list all processes
yet. At the end, the guardian deletes the directory of the cluster if it is temporary.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.local.guardian import OWNER_ID_VARIABLE, RELEASED

KILL_TIMEOUT_SECONDS = 15.0
LOOKS = 3
LOOK_PAUSE_SECONDS = 0.2
"""Pause between two searches for processes.

The guardian searches several times, because a process that was forked just before its owner ended
has the owner ID only after its `exec`.
"""


def main() -> None:
    """Wait for the end of the standard input, then stop the cluster."""
    parser = argparse.ArgumentParser(prog=f"python -m {__name__}", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="directory of the cluster")
    parser.add_argument("--owner-id", required=True, help="owner ID of the processes")
    parser.add_argument("--temporary", action="store_true", help="delete the directory at the end")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read(1) == RELEASED.encode():
        return
    _stop(arguments.directory, arguments.owner_id)
    if arguments.temporary:
        shutil.rmtree(arguments.directory, ignore_errors=True)


def _stop(directory: Path, owner_id: str) -> None:
    """Stop the processes in `cluster.json`, then kill all other processes with this owner ID.

    If no process has this owner ID, the function stops nothing, because the owner's cluster has
    ended, and another cluster may run in the directory.
    """
    if not _found(owner_id):
        return
    try:
        Cluster(directory).down()
    except (LedgerLogError, OSError) as error:
        sys.stderr.write(f"guardian: {error}\n")
    rest = _found(owner_id)
    for process in rest:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(rest, timeout=KILL_TIMEOUT_SECONDS)


def _found(owner_id: str) -> list[psutil.Process]:
    """Return the processes with this owner ID.

    If a search finds no process, it is repeated. There are at most LOOKS searches.
    """
    for look in range(LOOKS):
        if look:
            time.sleep(LOOK_PAUSE_SECONDS)
        found = [process for process in psutil.process_iter() if _owner_of(process) == owner_id]
        if found:
            return found
    return []


def _owner_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(OWNER_ID_VARIABLE)
    except (psutil.Error, OSError):  # the process has ended, or belongs to another user
        return None


if __name__ == "__main__":
    main()
