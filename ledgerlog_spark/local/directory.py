"""The directory of a local cluster: it is made if needed, and locked for each change."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ledgerlog_spark.errors import ConfigurationError, LocalProtocolError

LOCK_NAME = "cluster.lock"
LOCK_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.05


@contextlib.contextmanager
def locked_directory(
    directory: Path, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS
) -> Iterator[None]:
    """The directory, locked against other starts and stops of its cluster."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigurationError(
            f"a cluster cannot keep its data in {directory} ({error.strerror}): choose a "
            "directory that you may write, with --directory",
            directory=str(directory),
        ) from error
    try:
        _take(lock, directory, time.monotonic() + timeout_seconds)
        yield
    finally:
        os.close(lock)


def _take(lock: int, directory: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise LocalProtocolError(
                    f"another command is starting or stopping the cluster in {directory}: wait "
                    "until it is done, and try again",
                    directory=str(directory),
                    retriable=True,
                ) from None
            time.sleep(POLL_SECONDS)
        else:
            return
