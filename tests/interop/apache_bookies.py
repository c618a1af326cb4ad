"""Real Apache bookies as processes of this machine, on a separate ZooKeeper or on ours."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from kazoo.client import KazooClient

from tests.fixtures.ports import free_port
from tests.interop.apache_tools import ApacheTools
from tests.interop.healers import SHELL, Healers

START_TIMEOUT_SECONDS = 90.0
STOP_TIMEOUT_SECONDS = 10.0
STORAGES = (
    "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
)
SETTINGS = """\
bookiePort={port}
advertisedAddress=127.0.0.1
allowLoopback=true
metadataServiceUri={uri}
zkTimeout=5000
journalDirectories={directory}/journal
ledgerDirectories={directory}/ledgers
ledgerStorageClass={storage}
diskUsageThreshold=0.98
diskUsageWarnThreshold=0.97
nettyMaxFrameSizeBytes=5253120
httpServerEnabled=false
journalMaxSizeMB=512
journalMaxBackups=0
journalPreAllocSizeMB=4
logSizeLimit=67108864
skipListSizeLimit=16777216
skipListArenaChunkSize=4194304
dbStorage_writeCacheMaxSizeMb=32
dbStorage_readAheadCacheMaxSizeMb=16
dbStorage_rocksDB_blockCacheSize=8388608
"""


class ApacheBookies:
    """Bookies 0, 1, ... of one cluster, alternating between the two kinds of ledger storage.

    Every second bookie has a name as its id instead of host and port.

    Attributes:
        healers: Auto-recovery of either make.
    """

    def __init__(
        self, tools: ApacheTools, metadata_service_uri: str, directory: Path, *, count: int
    ) -> None:
        """Prepare the bookies, but start none."""
        self.healers = Healers(tools, metadata_service_uri, directory)
        self._tools = tools
        self._ports: dict[str, int] = {}
        self._uri = metadata_service_uri.replace("zk://", "zk+hierarchical://")
        self._zookeeper = metadata_service_uri.removeprefix("zk://").partition("/")[0]
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._settings: dict[str, Path] = {}
        for number in range(count):
            self._configure(number)

    @property
    def ids(self) -> tuple[str, ...]:
        """The registered bookie ids."""
        return tuple(self._settings)

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports of all bookies by their ids."""
        return self._ports

    def format(self) -> None:
        """Make the nodes of a new cluster with Apache's own shell."""
        settings = next(iter(self._settings.values()))
        with (self._directory / "format.log").open("wb") as log:
            subprocess.run(
                self._tools.java(SHELL, "-conf", str(settings), "initnewcluster", heap_mib=256),
                stdout=log,
                stderr=subprocess.STDOUT,
                check=True,
            )

    def start(self, *bookie_ids: str) -> None:
        """Start these bookies, by default all, and return when all are registered."""
        wanted = bookie_ids or self.ids
        zookeeper = KazooClient(self._zookeeper)
        zookeeper.start()
        try:
            earlier = {bookie_id: _session(zookeeper, bookie_id) for bookie_id in wanted}
            for bookie_id in wanted:
                self._spawn(bookie_id)
            self._wait_until_registered(zookeeper, earlier)
        finally:
            zookeeper.stop()
            zookeeper.close()

    def kill(self, bookie_id: str) -> None:
        """SIGKILL."""
        process = self._processes.pop(bookie_id)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Stop everything that runs."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_SECONDS)
            process.kill()
            process.wait()
        self._processes.clear()

    def _configure(self, number: int) -> None:
        port = free_port()
        directory = self._directory / f"apache-{number}"
        for name in ("journal", "ledgers"):
            (directory / name).mkdir(parents=True)
        settings = self._directory / f"apache-{number}.conf"
        text = SETTINGS.format(
            port=port, uri=self._uri, directory=directory, storage=STORAGES[number // 2 % 2]
        )
        bookie_id = f"127.0.0.1:{port}"
        if number % 2:
            bookie_id = f"apache-{number}"
            text += f"bookieId={bookie_id}\n"
        settings.write_text(text)
        self._settings[bookie_id] = settings
        self._ports[bookie_id] = port

    def _spawn(self, bookie_id: str) -> None:
        settings = self._settings[bookie_id]
        with settings.with_suffix(".log").open("ab") as log:
            self._processes[bookie_id] = subprocess.Popen(
                self._tools.java(
                    "-XX:MaxDirectMemorySize=512m",
                    "org.apache.bookkeeper.server.Main",
                    *("-c", str(settings)),
                    heap_mib=320,
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_until_registered(self, zookeeper: KazooClient, earlier: dict[str, int]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        missing = set(earlier)
        while missing:
            ended = [i for i in missing if self._processes[i].poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(
                    f"bookies {sorted(missing)} did not start; their logs are in {self._directory}"
                )
            time.sleep(0.1)
            missing = {i for i in missing if _session(zookeeper, i) in (0, earlier[i])}


def _session(zookeeper: KazooClient, bookie_id: str) -> int:
    """The session that registered the bookie, or 0. That of a killed bookie stays for a while."""
    stat = zookeeper.exists(f"/ledgers/available/{bookie_id}")
    return stat.ephemeralOwner if stat is not None else 0
