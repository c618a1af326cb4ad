"""A whole cluster on this machine: one ZooKeeper and some bookies as processes in a directory.

For laptops, notebooks, demonstrations and tests. A second start in the same directory finds the
data of the first. `Cluster` works on a directory whoever started the processes;
`local_cluster()` owns what it starts and stops it again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.local.bookie import start_bookie
from ledgerlog_spark.local.members import Member, Members
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess, four_letters, port_is_free

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

ZOOKEEPER = "zookeeper"
USUAL_PORT = 2181
STOP_TIMEOUT_SECONDS = 15.0
URI_VARIABLE = "LEDGERLOG_METADATA_SERVICE_URI"


class Cluster:
    """The cluster in one directory, running or not."""

    def __init__(self, directory: str | Path) -> None:
        """Looks at the directory; starts nothing.

        Raises:
            ConfigurationError: What the directory remembers cannot be read.
        """
        self.directory = Path(directory).expanduser().absolute()
        self.members = Members.load(self.directory)
        self._children: dict[str, subprocess.Popen[str] | ZooKeeperProcess] = {}

    @property
    def metadata_service_uri(self) -> str:
        """`zk://127.0.0.1:PORT/ledgers`."""
        return f"zk://127.0.0.1:{self.members.get(ZOOKEEPER).port}/ledgers"

    @property
    def zookeeper_port(self) -> int:
        """TCP port of ZooKeeper."""
        return self.members.get(ZOOKEEPER).port

    def up(
        self,
        bookies: int | None = None,
        *,
        on_progress: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """Returns when everything serves; starts what does not run yet.

        Args:
            bookies: How many there should be; None keeps the number there was, or takes 3.
                Bookies of an earlier start are never dropped.
            on_progress: Called with a few words before each step.

        Raises:
            ConfigurationError: Java or PySpark missing, a directory in use.
            MetadataUnavailableError: ZooKeeper did not start.
            BookieUnavailableError: A bookie did not start.
        """
        if bookies is not None and bookies < 1:
            raise ConfigurationError(f"a cluster needs at least 1 bookie, got {bookies}")
        self.directory.mkdir(parents=True, exist_ok=True)
        wanted = max(bookies or len(self.members.bookies) or 3, len(self.members.bookies))
        on_progress("starting ZooKeeper")
        self.start(ZOOKEEPER)
        for number in range(wanted):
            on_progress(f"starting bookie {number + 1} of {wanted}")
            self.start(f"bookie-{number}")

    def down(self, *, on_progress: Callable[[str], None] = lambda _what: None) -> None:
        """Stops every process, bookies first; fine when nothing runs."""
        bookies = [m.id for m in self.members.bookies]
        for member_id in bookies:
            self._signal(member_id, signal.SIGCONT)
            self._signal(member_id, signal.SIGTERM)
        for member_id in [*bookies, ZOOKEEPER]:
            if member_id in self.members.by_id:
                on_progress(f"stopping {member_id}")
                self._stop(member_id)

    def start(self, member_id: str) -> Member:
        """Starts one process on the port it had, if that is free; fine when it runs."""
        member = self.members.by_id.get(member_id) or Member(
            role=ZOOKEEPER if member_id == ZOOKEEPER else "bookie",
            id=member_id,
            directory=str(self.directory / member_id),
        )
        if member.state == "down":
            start = self._start_zookeeper if member_id == ZOOKEEPER else self._start_bookie
            member = start(member)
            self.members.put(member)
        return member

    def kill(self, member_id: str, signal_number: int = signal.SIGKILL) -> Member:
        """Sends a signal to one process; after SIGKILL returns when it has ended.

        Raises:
            ConfigurationError: There is no such process, or it does not run.
        """
        member = self.members.get(member_id)
        if member.state == "down":
            raise ConfigurationError(
                f"{member_id} does not run; start it with `ledgerlog local start {member_id} "
                f"--directory {self.directory}`",
                id=member_id,
            )
        self._signal(member_id, signal_number)
        if signal_number in (signal.SIGKILL, signal.SIGTERM):
            self._wait(member_id)
        return member

    def status(self) -> list[Member]:
        """Every process, ZooKeeper first."""
        return list(self.members.by_id.values())

    def _start_zookeeper(self, member: Member) -> Member:
        port = member.port or (USUAL_PORT if port_is_free(USUAL_PORT) else 0)
        server = ZooKeeperProcess(member.directory, port=port or None)
        server.start()
        assert server.pid is not None
        self._children[member.id] = server
        return member.started_as(server.pid, server.port)

    def _start_bookie(self, member: Member) -> Member:
        port = member.port if member.port and port_is_free(member.port) else 0
        running = start_bookie(
            Path(member.directory),
            bookie_id=member.id,
            port=port,
            metadata_service_uri=self.metadata_service_uri,
        )
        self._children[member.id] = running.process
        return member.started_as(running.process.pid, running.port, running.grpc_port)

    def _signal(self, member_id: str, number: int) -> None:
        process = self.members.get(member_id).process
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _stop(self, member_id: str) -> None:
        self._signal(member_id, signal.SIGCONT)
        self._signal(member_id, signal.SIGTERM)
        if not self._wait(member_id):
            self._signal(member_id, signal.SIGKILL)
            self._wait(member_id)

    def _wait(self, member_id: str) -> bool:
        """Whether the process ended in time."""
        process = self.members.get(member_id).process
        ended = True
        if process is not None:
            _, alive = psutil.wait_procs([process], timeout=STOP_TIMEOUT_SECONDS)
            ended = not alive
        child = self._children.get(member_id)
        if ended and isinstance(child, subprocess.Popen):
            child.wait()
        elif ended and isinstance(child, ZooKeeperProcess):
            child.kill()
        return ended

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
    """A cluster that is stopped when its `with` block ends, and removed when it was temporary."""

    def __init__(self, directory: str | Path | None, bookies: int) -> None:
        """Starts nothing; `start_all` and the `with` statement do."""
        self._is_temporary = directory is None
        super().__init__(directory or tempfile.mkdtemp(prefix="ledgerlog-"))
        if self.members.running:
            raise ConfigurationError(
                f"a cluster runs in {self.directory} already; connect to "
                f"{self.metadata_service_uri}, or stop it with "
                f"`ledgerlog local down --directory {self.directory}`",
                directory=str(self.directory),
            )
        self._bookies = bookies
        self._previous_uri: str | None = None

    def __enter__(self) -> Self:
        try:
            self.up(self._bookies)
        except BaseException:
            self.close()
            raise
        self._previous_uri = os.environ.get(URI_VARIABLE)
        os.environ[URI_VARIABLE] = self.metadata_service_uri
        if self.zookeeper_port != USUAL_PORT:
            print(  # noqa: T201 (for the person who started it; the default would not find it)
                f"ledgerlog: port {USUAL_PORT} is taken, this cluster is at "
                f"{self.metadata_service_uri}. A Spark session that runs already needs "
                f"ll.configure(spark) or .option('metadataServiceUri', "
                f"'{self.metadata_service_uri}')."
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._previous_uri is None:
            os.environ.pop(URI_VARIABLE, None)
        else:
            os.environ[URI_VARIABLE] = self._previous_uri
        self.close()

    def close(self) -> None:
        """Stops everything; a temporary directory is removed."""
        self.down()
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


def local_cluster(bookies: int = 3, directory: str | Path | None = None) -> OwnedCluster:
    """A cluster for the length of a `with` block; sets the default service URI meanwhile.

    Args:
        bookies: How many, at least 1.
        directory: Where the data stay; None takes a temporary one that is removed at the end.

    Raises:
        ConfigurationError: A cluster runs in the directory already.

    Source: DESIGN sections 7 and 10.
    """
    return OwnedCluster(directory, bookies)


def zookeeper_answers(port: int) -> bool:
    """Whether a ZooKeeper serves on a port of this machine."""
    return "Mode:" in four_letters(port, "srvr")
