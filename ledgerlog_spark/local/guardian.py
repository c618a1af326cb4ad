"""The owner's side of the guardian, a process that stops a cluster when the cluster's owner ends.

The owner is the Python process that started the cluster. It has the write end of a pipe, and the
guardian reads from the other end of this pipe. The operating system closes the pipe when the owner
ends, even after SIGKILL or after a crash of a notebook's kernel.

The environment of each process of an owned cluster contains the owner ID, so the guardian finds all
processes of the cluster. Each process has its own session of the operating system, because Linux
divides the CPUs among sessions. In a measurement, a program and its bookies in one session wrote
large entries at 0.89 times the speed that they had in separate sessions. Because of these separate
sessions, Ctrl-C in a terminal does not reach the processes.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from pathlib import Path

from ledgerlog_spark.local.interrupts import interrupts_deferred, spawn

RELEASED = "."
OWNER_ID_VARIABLE = "LEDGERLOG_OWNER_ID"
RELEASE_TIMEOUT_SECONDS = 10.0


class Guardian:
    """The owner's side of the guardian.

    The guardian waits as long as this object keeps the pipe open. If the owner forks a child
    without exec, the child inherits the pipe. In this case, the guardian also waits for the end of
    the child.
    """

    def __init__(self, directory: Path, *, is_temporary: bool) -> None:
        """Start the guardian.

        If `is_temporary` is True, the guardian deletes the directory after it has stopped the
        cluster.
        """
        self._owner_id = uuid.uuid4().hex
        command = [
            *(sys.executable, "-m", "ledgerlog_spark.local.guardian_process"),
            *("--directory", str(directory)),
            *("--owner-id", self._owner_id),
            *(("--temporary",) if is_temporary else ()),
        ]
        with interrupts_deferred(), (directory / "guardian.log").open("ab") as log:
            self._process = spawn(command, {}, stdin=subprocess.PIPE, stdout=log, stderr=log)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variable with the owner ID; empty if the guardian has ended."""
        return {OWNER_ID_VARIABLE: self._owner_id} if self._process.poll() is None else {}

    def release(self) -> None:
        """End the guardian without stopping the cluster.

        Do nothing if the guardian has already ended.
        """
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
