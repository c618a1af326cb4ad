"""A process that stops an owned cluster when its owner ends without stopping it.

The owner holds the write end of the guardian's standard input. The system closes it when the owner
ends, however it ends: SIGKILL, a dead notebook kernel, a forgotten `with`. The guardian then stops
the cluster, kills what is left of its own process group, and deletes a temporary directory.

The processes of an owned cluster are members of the guardian's process group, so that also those
are found that `cluster.json` does not list yet. No Ctrl-C of a terminal reaches that group.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.local.interrupts import interrupts_deferred

RELEASED = b"."
RELEASE_TIMEOUT_SECONDS = 10.0
KILL_TIMEOUT_SECONDS = 15.0


class Guardian:
    """The owner's side: while this object holds the pipe, the guardian waits.

    A child that the owner forks without exec inherits the pipe: the guardian then waits for the
    child, too.
    """

    def __init__(self, directory: Path, *, is_temporary: bool) -> None:
        """Starts the process.

        Args:
            directory: Of the cluster; must exist.
            is_temporary: Delete the directory after the cluster was stopped.

        Raises:
            OSError: The system refused.
        """
        command = [sys.executable, "-m", __name__, "--directory", str(directory)]
        if is_temporary:
            command.append("--temporary")
        with interrupts_deferred(), (directory / "guardian.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    @property
    def group(self) -> int | None:
        """The process group for the cluster's processes; None after the guardian has ended."""
        return self._process.pid if self._process.poll() is None else None

    def release(self) -> None:
        """End the guardian; the cluster stays as it is. Fine when it has ended already."""
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.write(RELEASED)
            pipe.flush()
        with contextlib.suppress(OSError):
            pipe.close()
        try:
            self._process.wait(RELEASE_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Wait for the end of standard input, then stop the cluster."""
    parser = argparse.ArgumentParser(prog=f"python -m {__name__}", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="of the cluster")
    parser.add_argument("--temporary", action="store_true", help="delete the directory at the end")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read(1) == RELEASED:
        return
    _stop(arguments.directory)
    if arguments.temporary:
        shutil.rmtree(arguments.directory, ignore_errors=True)


def _stop(directory: Path) -> None:
    """Stop what `cluster.json` lists, then kill the rest of this process group.

    Unless the group is empty: then the owner's cluster has ended, and another one may run in the
    directory by now, which is not ours to stop.
    """
    from ledgerlog_spark.local.cluster import Cluster

    if not _rest_of_group():
        return
    try:
        Cluster(directory).down()
    except (LedgerLogError, OSError) as error:
        sys.stderr.write(f"guardian: {error}\n")
    rest = _rest_of_group()
    for process in rest:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(rest, timeout=KILL_TIMEOUT_SECONDS)


def _rest_of_group() -> list[psutil.Process]:
    group = os.getpgrp()
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if process.pid != os.getpid() and os.getpgid(process.pid) == group:
                found.append(process)
    return found


if __name__ == "__main__":
    main()
