"""A cluster on this machine. Its processes are ZooKeeper, bookies and, optionally, upkeep.

Such a cluster is for laptops, notebooks, demonstrations and tests. Its data is in one directory. A
later start in this directory uses the data of the earlier starts. `Cluster` manages the processes
of a directory, even if another program started them. `local_cluster()` owns the processes that it
starts, and stops them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Self

import psutil

from ledgerlog_spark.errors import (
    BookieUnavailableError,
    ConfigurationError,
    LocalProtocolError,
    MetadataUnavailableError,
)
from ledgerlog_spark.local.bookie import StartingBookie
from ledgerlog_spark.local.guardian import Guardian
from ledgerlog_spark.local.interrupts import interrupts_deferred, spawn
from ledgerlog_spark.local.members import ZOOKEEPER, Member, Members, locked_directory
from ledgerlog_spark.local.zookeeper import (
    ZooKeeperProcess,
    four_letters,
    free_port,
    port_is_free,
)
from ledgerlog_spark.model import SERVICE_URI_VARIABLE

UPKEEP = "upkeep"
BOOKIE_PREFIX = "bookie-"
USUAL_PORT = 2181
BOOKIES_DEFAULT = 4
"""Default number of bookies. It is one more than the ensemble size, so that new entries get all
copies if one bookie is lost."""
STOP_TIMEOUT_SECONDS = 15.0
POLL_SECONDS = 0.02


class Cluster:
    """The cluster in one directory, running or not.

    Attributes:
        directory: The absolute path.
        members: The processes of the cluster, as this object last read them from the directory.
    """

    def __init__(self, directory: str | Path) -> None:
        """Read the state of the directory. Start no process.

        Raises:
            ConfigurationError: The state in the directory cannot be read.
        """
        self.directory = Path(directory).expanduser().absolute()
        self.members = Members.load(self.directory)
        self._children: dict[str, subprocess.Popen[str] | ZooKeeperProcess] = {}
        self._guardian: Guardian | None = None
        self._is_temporary = False

    @property
    def metadata_service_uri(self) -> str:
        """The URI of the cluster: `zk://127.0.0.1:PORT/ledgers`."""
        return f"zk://127.0.0.1:{self.members.get(ZOOKEEPER).port}/ledgers"

    @property
    def zookeeper_port(self) -> int:
        """TCP port of ZooKeeper."""
        return self.members.get(ZOOKEEPER).port

    def up(
        self,
        bookies: int | None = None,
        *,
        upkeep: bool = False,
        owned: bool = False,
        on_progress: Callable[[str], None] = lambda _step: None,
    ) -> list[str]:
        """Start all processes that do not run yet, and return when ZooKeeper and all bookies serve.

        Bookies that were decommissioned are not started.

        After an error or Ctrl-C, the method stops the processes that it started, and then raises
        the error.

        Args:
            bookies: Number of bookies. If it is None, the number of the earlier start is used, or 4
                for a new cluster. The method never removes bookies of an earlier start.
            upkeep: Whether to also start the process that merges, sweeps and applies retention.
            owned: Whether to stop the cluster if this Python process ends for any reason before it
                calls `disown`. This argument is ignored if the cluster already runs.
            on_progress: Called with a short text before each step.

        Returns:
            Ids of the processes that were started.

        Raises:
            ConfigurationError: Java or PySpark is missing, or the directory cannot be used.
            MetadataUnavailableError: ZooKeeper did not start.
            BookieUnavailableError: A bookie did not start.
        """
        if bookies is not None and bookies < 1:
            raise ConfigurationError(f"a cluster needs at least 1 bookie, got {bookies}")
        started: list[str] = []
        with locked_directory(self.directory):
            self.refresh()
            # An existing guardian is kept. If the pipe to this guardian were closed, the guardian
            # would stop the cluster.
            if owned and not self.members.running and not self._environment:
                self._guardian = Guardian(self.directory, is_temporary=self._is_temporary)
            before = len(self.members.bookies)
            wanted = max(bookies or before or BOOKIES_DEFAULT, before)
            ids = [f"{BOOKIE_PREFIX}{number}" for number in range(wanted)]
            try:
                if self._member(ZOOKEEPER).state == "down":
                    on_progress("starting ZooKeeper")
                    started.append(ZOOKEEPER)
                    self._start_zookeeper()
                down = [each for each in ids if self._member(each).state == "down"]
                self._start_bookies(down, started, on_progress)
                if upkeep and self._member(UPKEEP).state == "down":
                    started.append(UPKEEP)
                    self._start_upkeep()
            except BaseException:
                for member_id in reversed(started):
                    self._roll_back(member_id)
                self.disown()  # the guardian has no process that it must stop
                raise
        return started

    def down(self, *, on_progress: Callable[[str], None] = lambda _step: None) -> None:
        """Stop all processes, bookies first. Do nothing if no process runs.

        The method also stops processes that another program started.
        """
        if not self.directory.exists() and not self._children:
            return
        with locked_directory(self.directory):
            self.refresh()
            first = [UPKEEP] if UPKEEP in self.members.by_id else []
            first += [m.id for m in self.members.bookies]
            for member_id in first:
                self._signal(member_id, signal.SIGCONT)
                self._signal(member_id, signal.SIGTERM)
            for member_id in [*first, ZOOKEEPER]:
                if member_id in self.members.by_id:
                    on_progress(f"stopping {member_id}")
                    self._stop(member_id)

    def start(self, member_id: str) -> Member:
        """Start one process, if possible on its previous port. Do nothing if the process runs.

        Raises:
            ConfigurationError: The ZooKeeper of a bookie is down, or Java or PySpark is missing.
            MetadataUnavailableError: ZooKeeper did not start.
            BookieUnavailableError: The bookie did not start.
        """
        with locked_directory(self.directory):
            self.refresh()
            if self._member(member_id).state == "down":
                if member_id == ZOOKEEPER:
                    self._start_zookeeper()
                elif member_id == UPKEEP:
                    self._start_upkeep()
                elif self._member(ZOOKEEPER).state == "down":
                    raise ConfigurationError(
                        f"{member_id} needs the cluster's ZooKeeper, which is down; start "
                        f"everything with `ledgerlog local up --directory {self.directory}`",
                        id=member_id,
                    )
                else:
                    self._start_bookies([member_id], [], lambda _step: None)
        return self.members.get(member_id)

    def kill(self, member_id: str, signal_number: int = signal.SIGKILL) -> Member:
        """Send a signal to one process. After SIGKILL or SIGTERM, wait until the process has ended.

        Args:
            member_id: The id of the process, such as `bookie-1` or `zookeeper`.
            signal_number: SIGKILL by default.

        Raises:
            ConfigurationError: The process does not exist or does not run.
            LocalProtocolError: The process did not end in time.
        """
        self.refresh()
        member = self.members.get(member_id)
        if member.state == "down":
            raise ConfigurationError(
                f"{member_id} does not run: start it with `ledgerlog local start {member_id} "
                f"--directory {self.directory}`",
                id=member_id,
            )
        self._signal(member_id, signal_number)
        if signal_number in (signal.SIGKILL, signal.SIGTERM) and not self._ends(member_id):
            raise LocalProtocolError(
                f"{member_id} (pid {member.pid}) still runs {STOP_TIMEOUT_SECONDS:g} s after the "
                f"signal; end it with `ledgerlog local kill {member_id} --directory "
                f"{self.directory}`",
                id=member_id,
            )
        return member

    def disown(self) -> None:
        """Let an owned cluster continue to run after this Python process ends.

        If the cluster is not owned, the method does nothing.
        """
        if self._guardian is not None:
            self._guardian.release()
            self._guardian = None

    @property
    def _environment(self) -> dict[str, str]:
        return self._guardian.environment if self._guardian is not None else {}

    def status(self) -> list[Member]:
        """Return the current state of all processes, ZooKeeper first."""
        self.refresh()
        return list(self.members.by_id.values())

    def refresh(self) -> None:
        """Read changes by other programs, and the exit codes of child processes that have ended."""
        loaded = Members.load(self.directory)
        if loaded.by_id or not self._children:  # another program may have deleted the file
            self.members = loaded
        for member_id in self._children:
            self._reap(member_id)

    def _member(self, member_id: str) -> Member:
        """Return the known member with this id, or a new member that was never started."""
        return self.members.by_id.get(member_id) or Member(
            role=member_id if member_id in {ZOOKEEPER, UPKEEP} else "bookie",
            id=member_id,
            directory=str(self.directory / member_id),
        )

    def _start_zookeeper(self) -> None:
        member = self._member(ZOOKEEPER)
        port = self._port_of_zookeeper(member)
        server = self._children[member.id] = ZooKeeperProcess(
            member.directory, port=port, environment=self._environment
        )
        try:
            server.start()
        except (ConfigurationError, MetadataUnavailableError):
            if port is None or self._is_port_fixed:
                raise
            # Another process may have taken the port between the check and the start.
            server = self._children[member.id] = ZooKeeperProcess(
                member.directory, port=free_port(), environment=self._environment
            )
            server.start()
        assert server.pid is not None
        self.members.put(member.started_as(server.pid, server.port))

    @property
    def _is_port_fixed(self) -> bool:
        """Whether running bookies use the port of the previous start of ZooKeeper."""
        return any(bookie.state != "down" for bookie in self.members.bookies)

    def _port_of_zookeeper(self, member: Member) -> int | None:
        """Return the port for ZooKeeper, or None if it can use any free port.

        The result is the port of the previous start if running bookies need this port, or if it is
        free. Otherwise, the result is the default port if that port is free.
        """
        if self._is_port_fixed:
            return member.port
        return next((p for p in (member.port, USUAL_PORT) if p and port_is_free(p)), None)

    def _start_bookies(
        self, ids: list[str], started: list[str], on_progress: Callable[[str], None]
    ) -> None:
        """Start bookies in parallel. When a bookie serves, its id is added to `started`."""
        starting: dict[str, StartingBookie] = {}
        try:
            for member_id in ids:
                member = self._member(member_id)
                starting[member_id] = StartingBookie(
                    Path(member.directory),
                    bookie_id=member.id,
                    port=member.port if member.port and port_is_free(member.port) else 0,
                    metadata_service_uri=self.metadata_service_uri,
                    environment=self._environment,
                )
                starting[member_id].spawn()
            for number, member_id in enumerate(ids, start=1):
                on_progress(f"starting bookie {number} of {len(ids)}")
                try:
                    running = starting[member_id].ready()
                except BookieUnavailableError as refused:
                    if not refused.fields["is_retired"]:
                        raise
                    on_progress(f"{member_id} was decommissioned, so it is not started")
                    del starting[member_id]
                    continue
                self._children[member_id] = running.process
                pid = running.process.pid
                self.members.put(
                    self._member(member_id).started_as(pid, running.port, running.grpc_port)
                )
                started.append(member_id)
                del starting[member_id]
        finally:
            for bookie in starting.values():
                bookie.abandon()

    def _start_upkeep(self) -> None:
        member = self._member(UPKEEP)
        directory = Path(member.directory)
        directory.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            *("-m", "ledgerlog_spark.upkeep"),
            *("--metadata-service-uri", self.metadata_service_uri),
            *("--directory", str(directory)),
        ]
        # This method does not wait until upkeep has started, because no other process needs upkeep.
        with (directory / "upkeep.log").open("ab") as log, interrupts_deferred():
            process = spawn(command, self._environment, stdout=log, stderr=log)
            self._children[UPKEEP] = process
        self.members.put(member.started_as(process.pid, 0))

    def _signal(self, member_id: str, number: int) -> None:
        process = self.members.get(member_id).process
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _roll_back(self, member_id: str) -> None:
        """Stop a process that this object started, even if `cluster.json` does not list it yet."""
        child = self._children.get(member_id)
        if isinstance(child, ZooKeeperProcess):
            child.stop()
        elif member_id in self.members.by_id:
            self._stop(member_id)

    def _stop(self, member_id: str) -> None:
        self._signal(member_id, signal.SIGCONT)
        self._signal(member_id, signal.SIGTERM)
        if not self._ends(member_id):
            self._signal(member_id, signal.SIGKILL)
            self._ends(member_id)

    def _ends(self, member_id: str) -> bool:
        """Return whether the process ends before a time limit.

        At the limit, a zombie counts as ended.
        """
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while True:
            is_reaped = self._reap(member_id)
            has_ended = self.members.get(member_id).process is None
            is_late = time.monotonic() > deadline
            # A zombie has no exit code before its last threads have ended, so wait until its exit
            # code is read. If the zombie's parent is another process, that process may read the
            # exit code late.
            if has_ended and (is_reaped or is_late):
                return True
            if is_late:
                return False
            time.sleep(POLL_SECONDS)

    def _reap(self, member_id: str) -> bool:
        """Read the exit code of a child process that has ended, so that it does not stay a zombie.

        The result is False if the process is a child process that has not ended.
        """
        child = self._children.get(member_id)
        if isinstance(child, ZooKeeperProcess):
            return not child.is_running
        return child is None or child.poll() is not None

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(m.id)}</td><td>{m.port}</td><td>{m.pid}</td>"
            f"<td>{'&#x1F7E2;' if m.state == 'running' else '&#x1F534;'} {m.state}</td></tr>"
            for m in self.status()
        )
        return (
            f"<b>ledgerlog cluster</b> <code>{escape(self.metadata_service_uri)}</code>"
            f"<table><tr><th>process</th><th>port</th><th>pid</th><th>state</th></tr>{rows}</table>"
        )

    def __repr__(self) -> str:
        states = ", ".join(f"{m.id} {m.state}" for m in self.status())
        return f"<ledgerlog cluster in {self.directory}: {states or 'never started'}>"


class OwnedCluster(Cluster):
    """A cluster that is stopped at the end of its `with` block.

    If the directory is temporary, it is also deleted. If this Python process ends inside the block,
    a guardian process stops the cluster.
    """

    def __init__(self, directory: str | Path | None, bookies: int, *, upkeep: bool = True) -> None:
        """Prepare the cluster. The `with` statement starts its processes."""
        if bookies < 1:
            raise ConfigurationError(f"a cluster needs at least 1 bookie, got {bookies}")
        super().__init__(directory or tempfile.mkdtemp(prefix="ledgerlog-"))
        self._is_temporary = directory is None
        if self.members.running:
            raise ConfigurationError(
                f"a cluster already runs in {self.directory}: connect to "
                f"{self.metadata_service_uri}, or stop it with "
                f"`ledgerlog local down --directory {self.directory}`",
                directory=str(self.directory),
            )
        self._bookies = bookies
        self._upkeep = upkeep
        self._previous_uri: str | None = None

    def __enter__(self) -> Self:
        try:
            self.up(self._bookies, upkeep=self._upkeep, owned=True)
        except BaseException:
            self.close()
            raise
        self._previous_uri = os.environ.get(SERVICE_URI_VARIABLE)
        os.environ[SERVICE_URI_VARIABLE] = self.metadata_service_uri
        if self.zookeeper_port != USUAL_PORT:
            print(  # noqa: T201 (for the user: the default URI belongs to another cluster)
                f"ledgerlog: port {USUAL_PORT} is in use, so this cluster is at "
                f"{self.metadata_service_uri}. To use it in a running Spark session, call "
                f"ll.configure(spark), or set .option('metadataServiceUri', "
                f"'{self.metadata_service_uri}')."
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous_uri is None:
            os.environ.pop(SERVICE_URI_VARIABLE, None)
        else:
            os.environ[SERVICE_URI_VARIABLE] = self._previous_uri
        self.close()

    def close(self) -> None:
        """Stop all processes, and remove the directory if it is temporary."""
        self.down()
        self.disown()
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


def local_cluster(
    bookies: int = BOOKIES_DEFAULT, directory: str | Path | None = None, *, upkeep: bool = True
) -> OwnedCluster:
    """Run a cluster during a `with` block, and make its URI the default service URI.

    Args:
        bookies: Number of bookies, at least 1. If there is one bookie more than the ensemble size,
            new entries still get all copies after the loss of one bookie.
        directory: Directory of the data. If the argument is None, a temporary directory is created,
            and removed at the end of the block.
        upkeep: Whether to start a process that merges and sweeps logs, and applies their retention.

    Raises:
        ConfigurationError: A cluster already runs in the directory.
    """
    return OwnedCluster(directory, bookies, upkeep=upkeep)


def zookeeper_answers(port: int) -> bool:
    """Whether a ZooKeeper server on this machine answers on this port."""
    return "Mode:" in four_letters(port, "srvr")
