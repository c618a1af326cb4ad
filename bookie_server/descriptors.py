"""Divides RLIMIT_NOFILE, the limit of open files, among the bookie's files and connections."""

from __future__ import annotations

import contextlib
import resource
from dataclasses import dataclass
from typing import Final

from ledgerlog_spark.errors import StartupError

FILES_MAX: Final = 4_096
FILES_MIN: Final = 16
CALLERS_MAX: Final = 256
CALLERS_PART: Final = 8
RESERVED: Final = 96  # descriptors for the metadata store, metrics, logs, pipes and libraries
RESERVED_OF_DIRECTORY: Final = 8  # descriptors for the lock and journal of each further directory
LIMIT_MIN: Final = 128
LIMIT_ADVISED: Final = 2_048
"""Number of open files. With this limit or a higher limit, a bookie with default settings accepts
all its connections. The command `doctor` checks the limit."""
LIMIT_UNLIMITED: Final = 1 << 20  # used as the limit if the system sets no limit


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """The division of a limit of open files among connections and files."""

    limit: int  # the soft limit RLIMIT_NOFILE
    connections: int  # connections of the data plane
    callers: int  # connections of the control service (gRPC)
    files: int  # entry-log files of each directory


def raise_limit(connections_max: int) -> int:
    """Raise the soft limit of open files as far as is useful and allowed. Return the new limit."""
    soft, hard = (_finite(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    wanted = min(hard, connections_max + CALLERS_MAX + FILES_MAX + RESERVED)
    if wanted > soft:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            )
    return _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def divided(limit: int, connections_max: int, directories: int = 1) -> DescriptorBudget:
    """Divide a limit among connections and files, or raise StartupError if it is too small."""
    reserved = RESERVED + (directories - 1) * RESERVED_OF_DIRECTORY
    limit_min = LIMIT_MIN + (directories - 1) * (RESERVED_OF_DIRECTORY + FILES_MIN)
    if limit < limit_min:
        raise StartupError(
            f"this process may open {limit} files, but a bookie needs at least {limit_min}; raise "
            "the limit (`ulimit -n`, LimitNOFILE= of a systemd unit)"
        )
    callers = min(CALLERS_MAX, (limit - reserved) // CALLERS_PART)
    available = limit - reserved - callers
    files_min = max(FILES_MIN * directories, min(FILES_MAX, available // 4))
    connections = min(connections_max, max(1, available - files_min))
    files = min(FILES_MAX, available - connections) // directories
    return DescriptorBudget(limit, connections, callers, files)


def _finite(limit: int) -> int:
    return LIMIT_UNLIMITED if limit == resource.RLIM_INFINITY else limit
