"""Runs one bookie as a process on this machine."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ledgerlog_spark.errors import BookieUnavailableError
from ledgerlog_spark.local.interrupts import interrupts_deferred, spawn

FILE_SIZE_BYTES = 64 << 20
START_TIMEOUT_SECONDS = 60.0
RETIRED = "was decommissioned"
"""Text that the error message of a bookie contains if the bookie can never start again."""


@dataclass(frozen=True, slots=True)
class RunningBookie:
    """A bookie process that serves requests, and the ports that it reported."""

    process: subprocess.Popen[str]
    port: int
    grpc_port: int | None


class StartingBookie:
    """A bookie process that does not serve requests yet.

    Ctrl-C in a terminal reaches only the caller, because the process has its own session.
    `abandon` ends a process that is no longer needed, also if `spawn` was interrupted. For this,
    the caller must store a reference to this object before it calls `spawn`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bookie_id: str,
        metadata_service_uri: str,
        port: int,
        environment: dict[str, str],
    ) -> None:
        """Prepare the process, but do not start it. Port 0 selects a free port.

        The bookie accepts only a directory that has no other files. So its output is written to a
        file outside this directory. The file has the path of the directory, with the ending `.log`.
        """
        self._id = bookie_id
        self._log_path = directory.with_suffix(".log")
        self._command = [
            *(sys.executable, "-m", "bookie_server"),
            *("--directory", str(directory)),
            *("--bookie-id", bookie_id),
            *("--port", str(port)),
            *("--metadata-service-uri", metadata_service_uri),
            *("--file-size-bytes", str(FILE_SIZE_BYTES)),
            # This turns off the limit for the used share of the disk, because the disk of a
            # workstation also has other data. Only the limit `free_bytes_min` applies.
            *("--disk-usage-max", "1"),
        ]
        self._environment = environment
        self._log_begin = 0
        self._process: subprocess.Popen[str] | None = None

    def spawn(self) -> None:
        """Start the process. Do not wait until it serves requests."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            self._log_begin = log.tell()
            with interrupts_deferred():
                self._process = spawn(
                    self._command, self._environment, stdout=subprocess.PIPE, stderr=log
                )

    def ready(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> RunningBookie:
        """Wait until the bookie serves requests. If an error is raised, the process has ended."""
        process = self._process
        assert process is not None, "spawn comes first"
        output = process.stdout
        assert output is not None
        try:
            readable, _, _ = select.select([output], [], [], timeout_seconds)
            line = output.readline() if readable else ""
            refusal = None if line else self._refusal(process, timeout_seconds)
        except BaseException:
            self.abandon()
            raise
        if refusal is not None:
            self.abandon()
            raise refusal
        output.close()
        addresses = json.loads(line)
        return RunningBookie(process, int(addresses["port"]), addresses.get("grpc_port"))

    def abandon(self) -> None:
        """End the process immediately. Do nothing if it has ended or was never started."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def _refusal(
        self, process: subprocess.Popen[str], timeout_seconds: float
    ) -> BookieUnavailableError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)  # a bookie closes its output shortly before it ends
        ended = process.poll() is not None
        reason = (
            self._last_words() or f"it ended with exit code {process.returncode}"
            if ended
            else f"it does not serve after {timeout_seconds:g} s"
        )
        return BookieUnavailableError(
            f"bookie {self._id} did not start: {reason}. Its log is {self._log_path}",
            bookie_id=self._id,
            is_retired=RETIRED in reason,
            log_path=str(self._log_path),
            retriable=not ended,
            definite=True,
        )

    def _last_words(self) -> str:
        """Return the last 12 lines of the log file that are not JSON and are from this start."""
        with self._log_path.open("rb") as log:
            log.seek(self._log_begin)
            lines = log.read().decode(errors="replace").splitlines()
        found = [line.removeprefix("bookie: ") for line in lines if not line.startswith("{")]
        return "\n".join(found[-12:])
