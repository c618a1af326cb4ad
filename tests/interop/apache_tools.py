"""The jars of Apache BookKeeper and Apache Pulsar and our Java programs, in a cache.

They are fetched and compiled once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

JAVA = Path(__file__).parent / "java"
PAYLOADS = JAVA / "Payloads.java"
LOGGING = JAVA / "log4j2.xml"
FETCH_TIMEOUT_SECONDS = 600
UNRESOLVED = re.compile(
    r"Could not (resolve|transfer|find)|could not be resolved|Unknown host|in offline mode",
    re.IGNORECASE,
)
OPENED = ("java.io", "java.nio", "java.lang", "java.util.zip", "jdk.internal.misc", "sun.nio.ch")


class SkippedError(Exception):
    """Apache BookKeeper cannot be installed on this machine. The message has the reason."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project of Apache, whose jars our programs call."""

    name: str
    pom: Path
    programs: tuple[Path, ...]
    size_mb: int


BOOKKEEPER = Project(
    "Apache BookKeeper",
    JAVA / "pom.xml",
    (JAVA / "InteropClient.java", JAVA / "AutoRecoveryPart.java"),
    95,
)
PULSAR = Project(
    "Apache Pulsar", JAVA / "pulsar" / "pom.xml", (JAVA / "pulsar" / "PulsarBroker.java",), 235
)


@dataclass(frozen=True, slots=True)
class ApacheTools:
    """The places of the jars and of our compiled program."""

    jars: Path
    classes: Path

    def java(self, *arguments: str, heap_mib: int) -> tuple[str, ...]:
        """A command that runs a Java program with everything on its class path."""
        return (
            "java",
            f"-Xmx{heap_mib}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED),
            "-Dio.netty.tryReflectionSetAccessible=true",
            "-Dio.netty.leakDetectionLevel=disabled",
            f"-Dlog4j2.configurationFile={LOGGING}",
            *("-cp", f"{self.classes}{os.pathsep}{self.jars}/*"),
            *arguments,
        )

    def client(
        self, metadata_service_uri: str, *, batch_recovery: bool = False, version_3: bool = False
    ) -> tuple[str, ...]:
        """A command that runs Apache's client with line commands."""
        uri = metadata_service_uri.replace("zk://", "zk+hierarchical://")
        batches = f"-Dinterop.batches={str(batch_recovery).lower()}"
        version = f"-Dinterop.version3={str(version_3).lower()}"
        return self.java(batches, version, "InteropClient", uri, heap_mib=320)

    def broker(self, metadata_service_uri: str) -> tuple[str, ...]:
        """A command that runs a broker of Pulsar with line commands."""
        servers = metadata_service_uri.removeprefix("zk://").removesuffix("/ledgers")
        return self.java("PulsarBroker", servers, heap_mib=512)


def apache_tools(project: Project = BOOKKEEPER) -> ApacheTools:
    """The tools, which are fetched if they are not in the cache.

    Raises:
        SkippedError: Maven or a Java compiler is missing, or Maven cannot resolve the jars.
    """
    javac = shutil.which("javac")
    if javac is None:
        raise SkippedError("no javac on PATH; install a Java 17 development kit")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ledgerlog-interop"
    cache.mkdir(parents=True, exist_ok=True)
    jars = cache / f"jars-{_name(project.pom)}"
    if not jars.exists():
        _into(jars, lambda folder: _fetch(project, folder))
    classes = cache / f"classes-{_name(project.pom, *project.programs, PAYLOADS)}"
    if not classes.exists():
        _into(classes, lambda folder: _compile(javac, project, jars, folder))
    return ApacheTools(jars, classes)


def _name(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def _into(folder: Path, fill: object) -> None:
    """Fill a folder next to its place, and move it there when it is complete."""
    assert callable(fill)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made = Path(temporary) / folder.name
        made.mkdir()
        fill(made)
        made.rename(folder)


def _fetch(project: Project, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise SkippedError(f"no mvn on PATH; install Maven to fetch {project.name}")
    Console().print(f"fetching {project.name} with Maven (once, about {project.size_mb} MB)")
    ran = subprocess.run(
        [
            *(maven, "--batch-mode", "--quiet", "--file", str(project.pom)),
            "dependency:copy-dependencies",
            *("-DincludeScope=runtime", f"-DoutputDirectory={folder}"),
        ],
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_SECONDS,
        check=False,
    )
    if ran.returncode:
        said = (ran.stdout + ran.stderr).strip()
        if UNRESOLVED.search(said):
            raise SkippedError(f"Maven cannot resolve {project.name}: {said.splitlines()[0]}")
        raise RuntimeError(f"Maven failed:\n{said}")


def _compile(javac: str, project: Project, jars: Path, folder: Path) -> None:
    subprocess.run(
        [
            *(javac, "-nowarn", "-cp", f"{jars}/*", "-d", str(folder)),
            *map(str, (*project.programs, PAYLOADS)),
        ],
        check=True,
    )
