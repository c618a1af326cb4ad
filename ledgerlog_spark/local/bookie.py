"""One bookie as a process of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ledgerlog_spark.errors import BookieUnavailableError

FILE_SIZE_BYTES = 64 << 20
START_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RunningBookie:
    """What a bookie said when it began to serve."""

    process: subprocess.Popen[str]
    port: int
    grpc_port: int | None


def start_bookie(
    directory: Path,
    *,
    bookie_id: str,
    metadata_service_uri: str,
    port: int = 0,
    file_size_bytes: int = FILE_SIZE_BYTES,
    extra_arguments: tuple[str, ...] = (),
) -> RunningBookie:
    """A bookie process that serves.

    It has a session of its own, so that Ctrl-C in a terminal reaches the caller only.

    Args:
        directory: Its data; made when missing. What the bookie says goes to a file of the same
            name with `.log` beside it: a directory with anything else in it is not a bookie's.
        port: 0 takes a free one.

    Raises:
        BookieUnavailableError: It ended or did not serve in time; carries what it said last.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    log_path = directory.with_suffix(".log")
    command = [
        sys.executable,
        "-m",
        "bookie_server",
        *("--directory", str(directory)),
        *("--bookie-id", bookie_id),
        *("--port", str(port)),
        *("--metadata-service-uri", metadata_service_uri),
        *("--file-size-bytes", str(file_size_bytes)),
        *extra_arguments,
    ]
    with log_path.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 (built above)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    assert process.stdout is not None
    line = _first_line(process.stdout, START_TIMEOUT_SECONDS)
    if not line:
        process.kill()
        process.wait()
        process.stdout.close()
        raise BookieUnavailableError(
            f"bookie {bookie_id} did not start; {log_path} ends:\n{_last_lines(log_path)}",
            bookie_id=bookie_id,
            log_path=str(log_path),
        )
    process.stdout.close()
    ready = json.loads(line)
    return RunningBookie(process, int(ready["port"]), ready.get("grpc_port"))


def _first_line(stream: IO[str], timeout_seconds: float) -> str:
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(timeout_seconds)
    return lines[0] if lines else ""


def _last_lines(path: Path, count: int = 12) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
