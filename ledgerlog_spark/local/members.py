"""The directory of a local cluster: its lock, and the file that lists its processes.

`cluster.json` in the cluster's directory contains the pid and the start of every process. A pid
alone does not identify a process, because the operating system reuses pids. A start time in seconds
since 1970 does not identify it either: Linux computes it from the clock, so the start time of a
running process changes when the clock is set.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from ledgerlog_spark.errors import (
    BookieUnavailableError,
    ConfigurationError,
    LocalProtocolError,
)

FILE_NAME = "cluster.json"
ZOOKEEPER = "zookeeper"
FORMAT = 1
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
START_TICKS_FIELD = 19
"""The place of the start in `/proc/PID/stat`, after the name of the program."""


def start_mark_of(pid: int) -> str:
    """Return the value of `Member.start_mark` for a running process, or "" without /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return f"{BOOT_ID.read_text().strip()} {stat.rpartition(')')[2].split()[START_TICKS_FIELD]}"
    except (OSError, IndexError):
        return ""


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the cluster.

    Attributes:
        role: Kind of the process: `zookeeper`, `bookie` or `upkeep`.
        id: Name of the process: `zookeeper`, `bookie-0`, `bookie-1`, ..., or `upkeep`.
        port: TCP port on 127.0.0.1 at the last start; 0 before the first start, and for `upkeep`.
        grpc_port: TCP port of the control service, or None if the process has no such port.
        pid: Process id at the last start; 0 before the first start.
        started: Start time of the process in seconds since 1970. It identifies the process only
            if `start_mark` is empty.
        start_mark: The id of the machine's boot, and the ticks from the boot to the start of the
            process; empty if the system does not report them.
        directory: Directory with the data of the process.
    """

    role: str
    id: str
    directory: str
    port: int = 0
    grpc_port: int | None = None
    pid: int = 0
    started: float = 0.0
    start_mark: str = ""

    @property
    def process(self) -> psutil.Process | None:
        """The process if it runs, otherwise None."""
        if not self.pid:
            return None
        try:
            process = psutil.Process(self.pid)
            if self.start_mark:
                is_other = start_mark_of(self.pid) != self.start_mark
            else:
                is_other = abs(process.create_time() - self.started) > 1
            if is_other:
                return None
            return process if process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    @property
    def state(self) -> str:
        """The state of the process: `running`, `paused` (by SIGSTOP) or `down`."""
        process = self.process
        if process is None:
            return "down"
        return "paused" if process.status() == psutil.STATUS_STOPPED else "running"

    def started_as(self, pid: int, port: int, grpc_port: int | None = None) -> Member:
        """Return the member with the pid, ports and start time of a new start."""
        try:
            started = psutil.Process(pid).create_time()
        except psutil.NoSuchProcess:
            raise BookieUnavailableError(
                f"{self.id} ended immediately after its start; read its log file next to or in "
                f"{self.directory}",
                bookie_id=self.id,
                definite=True,
            ) from None
        return replace(
            self,
            pid=pid,
            port=port,
            grpc_port=grpc_port,
            started=started,
            start_mark=start_mark_of(pid),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the member in the output of `local status --json`."""
        shown = {k: v for k, v in asdict(self).items() if k not in {"started", "start_mark"}}
        return {**shown, "state": self.state}


@dataclass(slots=True)
class Members:
    """All processes of the cluster in one directory, in the order of their first start."""

    directory: Path
    by_id: dict[str, Member] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path) -> Members:
        """Read the members from `cluster.json`.

        If the file does not exist, there are no members.
        """
        path = directory / FILE_NAME
        try:
            stored = json.loads(path.read_text())
            assert stored["format"] == FORMAT, f"format {stored['format']}"
            members = [Member(**fields) for fields in stored["members"]]
        except (FileNotFoundError, NotADirectoryError):
            return cls(directory)
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be read ({error.strerror}): choose a directory that you may "
                "read, or run the command as the user who started the cluster",
                path=str(path),
            ) from error
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise ConfigurationError(
                f"{path} cannot be read ({error}): it is damaged, or another version wrote it; "
                "choose another directory, or delete the file if no process of the cluster runs",
                path=str(path),
            ) from error
        return cls(directory, {member.id: member for member in members})

    def save(self) -> None:
        """Write `cluster.json` atomically."""
        path = self.directory / FILE_NAME
        text = json.dumps(
            {"format": FORMAT, "members": [asdict(m) for m in self.by_id.values()]}, indent=1
        )
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(text + "\n")
        part.replace(path)

    def put(self, member: Member) -> None:
        """Add or replace a member, and write `cluster.json`."""
        self.by_id[member.id] = member
        self.save()

    def get(self, member_id: str) -> Member:
        """Return the member with this id."""
        try:
            return self.by_id[member_id]
        except KeyError:
            raise ConfigurationError(
                f"no process {member_id!r} in {self.directory}; there are "
                f"{', '.join(self.by_id) or 'none: start a cluster with `ledgerlog local up`'}",
                id=member_id,
            ) from None

    @property
    def bookies(self) -> list[Member]:
        """The members that are bookies."""
        return [m for m in self.by_id.values() if m.role == "bookie"]

    @property
    def running(self) -> list[Member]:
        """The members whose processes run."""
        return [m for m in self.by_id.values() if m.state != "down"]


LOCK_NAME = "cluster.lock"
LOCK_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.05


@contextlib.contextmanager
def locked_directory(
    directory: Path, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS
) -> Iterator[None]:
    """Lock the directory during the block, so that no other command starts or stops the cluster.

    The directory is created if it does not exist.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigurationError(
            f"a cluster cannot keep its data in {directory} ({error.strerror}): choose a "
            "writable directory with --directory",
            directory=str(directory),
        ) from error
    try:
        deadline = time.monotonic() + timeout_seconds
        while not _is_taken(lock):
            if time.monotonic() > deadline:
                raise LocalProtocolError(
                    f"another command is starting or stopping the cluster in {directory}: wait "
                    "until it is done, and try again",
                    directory=str(directory),
                    retriable=True,
                )
            time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(lock)


def _is_taken(lock: int) -> bool:
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
