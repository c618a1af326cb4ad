"""Runs a real ZooKeeper server as a process on this machine, with the jars of PySpark.

The server is for laptops, notebooks, demonstrations and tests. ZooKeeper runs without an ensemble,
on the loopback interface. A later start in the same directory uses the data of the earlier start.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import psutil

from ledgerlog_spark.errors import ConfigurationError, MetadataUnavailableError
from ledgerlog_spark.local.interrupts import interrupts_deferred, spawn
from ledgerlog_spark.local.requirement import install_command

HOST = "127.0.0.1"
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JAVA_VERSION_MIN = 17
HEAP_MIB_MAX = 192
POLL_SECONDS = 0.05
START_ATTEMPTS_MAX = 5

# A standalone server needs only these jars. With all 300 jars of PySpark, a start takes twice as
# long.
JAR_PATTERNS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j*-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-*.jar",
    "commons-io-*.jar",
    "audience-annotations-*.jar",
)

LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log_path}
appender.file.filePattern = {log_path}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}} %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 8MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def find_java() -> str:
    """Return the path of a Java runtime that is new enough, from JAVA_HOME or else from PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise ConfigurationError(
            f"no Java was found in JAVA_HOME or on PATH: install a Java {JAVA_VERSION_MIN} runtime "
            "(Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME",
            java=None,
        )
    version = _java_version(java)
    if version < JAVA_VERSION_MIN:
        raise ConfigurationError(
            f"{java} is Java {version}, but the ZooKeeper of PySpark needs Java {JAVA_VERSION_MIN} "
            "or later: install it and set JAVA_HOME",
            java=java,
            version=version,
        )
    return java


def _java_version(java: str) -> int:
    """Return the feature release of a Java runtime, such as 8, 11 or 17."""
    try:
        answer = subprocess.run(  # noqa: S603 (this program has looked up the path)
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(
            f"{java} does not run ({error}): set JAVA_HOME to a Java {JAVA_VERSION_MIN} runtime",
            java=java,
        ) from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None:
        raise ConfigurationError(
            f"the output of {java} -version contains no version (exit code "
            f"{answer.returncode}): set JAVA_HOME to a Java {JAVA_VERSION_MIN} runtime",
            java=java,
        )
    return int(found.group(1))


def find_jars() -> list[Path]:
    """Return the jars of ZooKeeper and its dependencies, from the installed PySpark."""
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise ConfigurationError(
            "PySpark, whose jars contain ZooKeeper, is not installed: "
            f"{install_command('pyspark')}, or use a ZooKeeper that runs already"
        )
    folder = Path(package.origin).parent / "jars"
    jars = sorted({jar for pattern in JAR_PATTERNS for jar in folder.glob(pattern)})
    if not any(jar.name.startswith("zookeeper-3") for jar in jars):
        raise ConfigurationError(
            f"the jars of PySpark in {folder} do not contain ZooKeeper: "
            f"{install_command('pyspark', '--force-reinstall')}, "
            "or use a ZooKeeper that runs already",
            folder=str(folder),
        )
    return jars


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free now. It may be in use later."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def four_letters(port: int, command: str, *, timeout_seconds: float = 0.3) -> str:
    """Return the response to one of ZooKeeper's four-letter commands.

    The result is an empty text if no server answers.
    """
    try:
        with socket.create_connection((HOST, port), timeout=timeout_seconds) as connection:
            connection.sendall(command.encode())
            parts = iter(lambda: connection.recv(65_536), b"")
            return b"".join(parts).decode(errors="replace")
    except OSError:
        return ""


class ZooKeeperProcess:
    """One ZooKeeper server on 127.0.0.1, and the directory of this server.

    The directory contains `data/` (files of the server), `zoo.cfg`, `zookeeper.log` and `lock`.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        port: int | None = None,
        tick_time_ms: int = 2_000,
        start_timeout_seconds: float = 60.0,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Prepare the server, but do not start it.

        If `port` is None, the server uses the port of the previous start in the directory, or
        another port if that port is in use. Session timeouts may be 2 to 20 ticks. The server gets
        the environment of this Python process, and the variables in `environment`.
        """
        if port is not None and not 0 < port < 65_536:  # noqa: PLR2004 (TCP ports)
            raise ConfigurationError(f"port must be 1 to 65535, got {port}", port=port)
        self.directory = Path(directory).absolute()
        self.port = port or 0  # if no port is given, this is 0 until the first start
        self.log_path = self.directory / "zookeeper.log"
        self._tick_time_ms = tick_time_ms
        self._start_timeout_seconds = start_timeout_seconds
        self._environment = environment or {}
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """The process id if the server runs, otherwise None."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process exists and has not ended.

        The value is also True while the process is paused or does not serve yet.
        """
        return self._process is not None and self._process.poll() is None

    @property
    def connect_string(self) -> str:
        """The address of the server as `host:port`."""
        return f"{HOST}:{self.port}"

    @property
    def service_uri(self) -> str:
        """The metadata service URI of a cluster at the usual root `/ledgers`."""
        return f"zk://{self.connect_string}/ledgers"

    def start(self) -> None:
        """Start the server and wait until it serves. Do nothing if the server already runs."""
        if self.is_running:
            return
        java, jars = find_java(), find_jars()
        try:
            (self.directory / "data").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"the directory {self.directory} for ZooKeeper cannot be created: {error}",
                directory=str(self.directory),
            ) from error
        wants_any_port = not self.port
        reason = outcome = ""
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            if wants_any_port:
                self.port = self._last_port() if attempt == 1 else free_port()
            self._refuse_taken_port()
            if self._spawned_and_serves(java, jars):
                return
            reason = self._last_log_lines()
            outcome = self._failed_start()
            self.kill()
            # Retry only if the port is in use. A free port can be in use at the start, because
            # another program may take it before the server does.
            if not (wants_any_port and "Address already in use" in reason):
                break
        raise MetadataUnavailableError(
            f"ZooKeeper {outcome}; read {self.log_path}. Its last lines are:\n{reason}",
            port=self.port,
            log_path=str(self.log_path),
        )

    def stop(self, *, timeout_seconds: float = 10.0) -> None:
        """End the server with SIGTERM, and then with SIGKILL if necessary.

        Do nothing if the server does not run.
        """
        if self._process is None:
            return
        self._send(signal.SIGCONT)  # a paused process would not handle the SIGTERM
        self._send(signal.SIGTERM)
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End the server immediately with SIGKILL. Do nothing if the server does not run."""
        if self._process is None:
            return
        self._send(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _last_port(self) -> int:
        """Return the port of the previous start if it is free, otherwise any free port."""
        with contextlib.suppress(OSError, ValueError):
            text = (self.directory / "zoo.cfg").read_text()
            port = int(re.findall(r"^clientPort=(\d+)$", text, re.MULTILINE)[-1])
            if port_is_free(port):
                return port
        return free_port()

    def _refuse_taken_port(self) -> None:
        if not port_is_free(self.port):
            raise ConfigurationError(
                f"port {self.port} on {HOST} is in use: stop the program that listens there, "
                "or choose another port for ZooKeeper",
                port=self.port,
            )

    def _spawn(self, java: str, jars: list[Path]) -> None:
        config = self.directory / "zoo.cfg"
        logging = self.directory / "log4j2.properties"
        command = [
            java,
            f"-Xmx{HEAP_MIB_MAX}m",
            "-Xms32m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dzookeeper.preAllocSize=1024",
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            os.pathsep.join(map(str, jars)),
            MAIN_CLASS,
            str(config),
        ]
        lock = self._lock()
        try:
            config.write_text(self._config())
            logging.write_text(LOGGING.format(log_path=self.log_path))
            output_path = self.directory / "zookeeper.out"
            with output_path.open("wb") as output, interrupts_deferred():
                self._process = spawn(
                    command,
                    self._environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.directory,
                    pass_fds=(lock,),
                )
        finally:
            os.close(lock)

    def _lock(self) -> int:
        """Lock a file that the server inherits, so that the lock lasts until the server ends."""
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ConfigurationError(
                f"another ZooKeeper runs in {self.directory}: stop it, or choose another directory",
                directory=str(self.directory),
            ) from error
        return lock

    def _config(self) -> str:
        return (
            f"tickTime={self._tick_time_ms}\n"
            f"dataDir={self.directory / 'data'}\n"
            f"clientPort={self.port}\n"
            f"clientPortAddress={HOST}\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=ruok,srvr,mntr,stat\n"
            "autopurge.snapRetainCount=3\n"
            "autopurge.purgeInterval=1\n"
        )

    def _failed_start(self) -> str:
        if self.is_running:
            seconds = self._start_timeout_seconds
            return f"did not serve on {self.connect_string} within {seconds:g} s"
        return f"ended before it served on {self.connect_string}"

    def _spawned_and_serves(self, java: str, jars: list[Path]) -> bool:
        """Start the server, and return whether it serves.

        An error or an interrupt ends the server.
        """
        try:
            self._spawn(java, jars)
            return self._serves()
        except BaseException:
            self.kill()
            raise

    def _serves(self) -> bool:
        """Wait until the server serves.

        Return False if it ends, or does not serve before a time limit.
        """
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout_seconds
        while time.monotonic() < deadline:
            if "Mode: standalone" in four_letters(self.port, "srvr") and self._listens():
                return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_SECONDS)
                return False
        return False

    def _listens(self) -> bool:
        """Whether the server that this object started listens on the port.

        Two servers that start at the same time may both find the same port free. The slower server
        ends when it cannot bind the port. Until then, an answer from the faster server could be
        mistaken for an answer of the slower server.
        """
        assert self._process is not None
        try:
            sockets = psutil.Process(self._process.pid).net_connections(kind="tcp")
        except psutil.Error:
            return False
        return any(s.status == psutil.CONN_LISTEN and s.laddr.port == self.port for s in sockets)

    def _last_log_lines(self, count: int = 12) -> str:
        lines: list[str] = []
        for path in (self.log_path, self.directory / "zookeeper.out"):
            with contextlib.suppress(OSError):
                lines += path.read_text(errors="replace").splitlines()[-count:]
        return "\n".join(lines)


def port_is_free(port: int) -> bool:
    """Whether a server could now listen on a port of the loopback interface."""
    with socket.socket() as probe:
        # The server also sets this option. So the port is not in use only because of a connection
        # in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
