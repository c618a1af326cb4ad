"""A process that stops an owned cluster when its owner ends without stopping it.

The owner holds the write end of the guardian's standard input. The system closes it when the owner
ends, however it ends: SIGKILL, a dead notebook kernel, a forgotten `with`. The guardian then stops
the cluster, kills what else has its mark, and deletes a temporary directory.

The processes of an owned cluster have the mark in their environment, so that also those are found
that `cluster.json` does not list yet. They do not share a process group or a session: Linux
shares the CPUs out by sessions, and bookies that had one together with the program that writes to
them took 0.89 of its large entries. No Ctrl-C of a terminal reaches them.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.local.interrupts import interrupts_deferred

RELEASED = b"."
MARK_VARIABLE = "LEDGERLOG_GUARDIAN_MARK"
RELEASE_TIMEOUT_SECONDS = 10.0
KILL_TIMEOUT_SECONDS = 15.0
LOOKS = 3
LOOK_PAUSE_SECONDS = 0.2
"""A process that was forked just before its owner ended has its mark a moment later."""


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
        self._mark = uuid.uuid4().hex
        command = [sys.executable, "-m", __name__, "--directory", str(directory)]
        command += ["--mark", self._mark]
        if is_temporary:
            command.append("--temporary")
        with interrupts_deferred(), (directory / "guardian.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the cluster's processes; none after the guardian has ended."""
        return {MARK_VARIABLE: self._mark} if self._process.poll() is None else {}

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
    parser.add_argument("--mark", required=True, help="of the cluster's processes")
    parser.add_argument("--temporary", action="store_true", help="delete the directory at the end")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read(1) == RELEASED:
        return
    _stop(arguments.directory, arguments.mark)
    if arguments.temporary:
        shutil.rmtree(arguments.directory, ignore_errors=True)


def _stop(directory: Path, mark: str) -> None:
    """Stop what `cluster.json` lists, then kill whatever else has the mark.

    Unless nothing has it: then the owner's cluster has ended, and another one may run in the
    directory by now, which is not ours to stop.
    """
    from ledgerlog_spark.local.cluster import Cluster

    if not _found(mark):
        return
    try:
        Cluster(directory).down()
    except (LedgerLogError, OSError) as error:
        sys.stderr.write(f"guardian: {error}\n")
    rest = _found(mark)
    for process in rest:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(rest, timeout=KILL_TIMEOUT_SECONDS)


def _found(mark: str) -> list[psutil.Process]:
    """The processes with a mark; looks a few times when there are none."""
    for look in range(LOOKS):
        if look:
            time.sleep(LOOK_PAUSE_SECONDS)
        found = [process for process in psutil.process_iter() if _mark_of(process) == mark]
        if found:
            return found
    return []


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK_VARIABLE)
    except (psutil.Error, OSError):  # it has ended, or is somebody else's
        return None


if __name__ == "__main__":
    main()
