"""Auto-recovery of either make as processes, and the shells of either make."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures.ports import free_port
from tests.interop.apache_tools import ApacheTools
from tests.interop.client_process import ROOT

SHELL = "org.apache.bookkeeper.bookie.BookieShell"
SHELL_TIMEOUT_SECONDS = 60.0
SETTINGS = """\
metadataServiceUri={uri}
zkTimeout=5000
allowLoopback=true
useV2WireProtocol=true
httpServerEnabled=false
lostBookieRecoveryDelay=0
auditorPeriodicBookieCheckInterval=5
openLedgerRereplicationGracePeriod=30000
rwRereplicateBackoffMs=500
bookiePort={port}
advertisedAddress=127.0.0.1
"""
APACHE = "apache's auto-recovery"
APACHE_AUDITOR = "apache's auditor"
APACHE_WORKER = "apache's worker"
OURS = "our auto-recovery"
OUR_AUDITOR = "our auditor"
OUR_WORKER = "our worker"


@dataclass(frozen=True, slots=True)
class Healer:
    """A process of auto-recovery.

    Attributes:
        id: Its id for other members of the cluster.
        process: The process.
        log: The file of its output.
    """

    id: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Fail if the process has ended by itself."""
        assert self.process.poll() is None, f"{self.id} ended: {self.log}"

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


class Running:
    """The processes of one `with` block, by their names."""

    def __init__(self) -> None:
        self._healers: dict[str, Healer] = {}

    def __getitem__(self, name: str) -> Healer:
        return self._healers[name]

    def add(self, name: str, healer: Healer) -> Healer:
        """Watch and kill a further process."""
        self._healers[name] = healer
        return healer

    def check(self) -> None:
        """Fail if a process has ended by itself."""
        for healer in self._healers.values():
            if healer.process.returncode is None:
                healer.check()

    def kill(self, *names: str) -> None:
        """Kill these processes, by default all."""
        for name in names or self._healers:
            self._healers[name].kill()


class Healers:
    """Starts auto-recovery of either make in one cluster, and runs the shells of both makes."""

    def __init__(self, tools: ApacheTools, metadata_service_uri: str, directory: Path) -> None:
        self.uri = metadata_service_uri
        self._tools = tools
        self._directory = directory
        self._begun = 0

    @contextlib.contextmanager
    def running(self, *names: str) -> Iterator[Running]:
        """Run processes in a `with` block. None of them may end by itself."""
        running = Running()
        try:
            for name in names:
                running.add(name, self.start(name))
            yield running
            running.check()
        finally:
            running.kill()

    def shell(self, *words: str) -> str:
        """The output of a command of Apache's shell."""
        settings = self._settings("shell", free_port())
        command = ("-Dinterop.level=INFO", SHELL, "-conf", str(settings), *words)
        return self._output(self._tools.java(*command, heap_mib=256))

    def ours(self, *words: str) -> Any:
        """The JSON output of a command of `ledgerlog`."""
        command = (sys.executable, "-m", "ledgerlog_spark.cli", *words, "--json", "-u", self.uri)
        return json.loads(self._output(command))

    def start(self, name: str) -> Healer:
        """Start a process."""
        self._begun += 1
        port = free_port()
        healer_id = f"127.0.0.1:{port}"
        file = f"healer-{self._begun}"
        log = self._directory / f"{file}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._command(name, healer_id, self._settings(file, port)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,
            )
        return Healer(healer_id, process, log)

    def _command(self, name: str, healer_id: str, settings: Path) -> tuple[str, ...]:
        main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
        part = (sys.executable, "-m", "tests.interop.recovery_part")
        daemon = (sys.executable, "-m", "ledgerlog_spark.cli", "autorecovery", "run")
        java, file = self._tools.java, str(settings)
        commands = {
            APACHE: java(main, "-c", file, heap_mib=256),
            APACHE_AUDITOR: java("AutoRecoveryPart", "auditor", file, heap_mib=256),
            APACHE_WORKER: java("AutoRecoveryPart", "worker", file, heap_mib=256),
            OURS: (*daemon, "--id", healer_id, "-u", self.uri),
            OUR_AUDITOR: (*part, "auditor", healer_id, self.uri),
            OUR_WORKER: (*part, "worker", healer_id, self.uri),
        }
        return commands[name]

    def _settings(self, name: str, port: int) -> Path:
        settings = self._directory / f"{name}.conf"
        uri = self.uri.replace("zk://", "zk+hierarchical://")
        settings.write_text(SETTINGS.format(uri=uri, port=port))
        return settings

    def _output(self, command: tuple[str, ...]) -> str:
        ran = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SHELL_TIMEOUT_SECONDS,
            check=False,
        )
        said = ran.stdout + ran.stderr
        if ran.returncode:
            raise RuntimeError(f"{' '.join(command[-4:])} ended with {ran.returncode}: {said}")
        return ran.stdout or said
