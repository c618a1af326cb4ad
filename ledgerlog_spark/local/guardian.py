"""The owner's side of the guardian, a process that stops a cluster when its owner ends.

The owner holds the write end of the guardian's standard input. The system closes it when the owner
ends, however it ends: SIGKILL, a dead notebook kernel, a forgotten `with`.

The processes of an owned cluster have a mark in their environment. They do not share a process
group or a session. Linux divides the CPUs among sessions: bookies in the session of the program
that writes to them reached 0.89 of its speed with large entries. Ctrl-C in a terminal does not
reach them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from pathlib import Path

from ledgerlog_spark.local.interrupts import interrupts_deferred, spawn

RELEASED = "."
MARK_VARIABLE = "LEDGERLOG_GUARDIAN_MARK"
RELEASE_TIMEOUT_SECONDS = 10.0


class Guardian:
    """The owner's side: while this object holds the pipe, the guardian waits.

    A child that the owner forks without exec inherits the pipe: the guardian then also waits for
    the child.
    """

    def __init__(self, directory: Path, *, is_temporary: bool) -> None:
        """Starts the process. It deletes a temporary directory after the cluster was stopped."""
        self._mark = uuid.uuid4().hex
        command = [
            *(sys.executable, "-m", "ledgerlog_spark.local.guardian_process"),
            *("--directory", str(directory)),
            *("--mark", self._mark),
            *(("--temporary",) if is_temporary else ()),
        ]
        with interrupts_deferred(), (directory / "guardian.log").open("ab") as log:
            self._process = spawn(command, {}, stdin=subprocess.PIPE, stdout=log, stderr=log)

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the cluster's processes; none after the guardian has ended."""
        return {MARK_VARIABLE: self._mark} if self._process.poll() is None else {}

    def release(self) -> None:
        """End the guardian, but not the cluster; does nothing if it has ended already."""
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
