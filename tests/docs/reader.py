"""A reader who follows a page: a shell, a Python and further terminals in one directory."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import psutil

from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.model import SERVICE_URI_VARIABLE
from tests.docs.blocks import missing_line
from tests.fixtures import patience
from tests.fixtures.command_line import ROOT, processes_of
from tests.fixtures.java import OPTIONS_VARIABLE, quick_options
from tests.fixtures.ports import free_port

if TYPE_CHECKING:
    from tests.docs.blocks import Block

PROGRAMS = Path(__file__).parent / "programs"
"""Programs that a page needs and a developer's machine lacks, with the names in the page."""

LOGGING = Path(__file__).with_name("log4j2.properties")

PYTHON = """\
import os, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    code, output, ended = line.rstrip("\\n").split("\\t")
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT, 0o600), 1)
    os.dup2(1, 2)
    for assignment in open(code + ".environment", "rb").read().split(b"\\0"):
        name, _, value = assignment.partition(b"=")
        if name.startswith(b"LEDGERLOG_"):
            os.environb[name] = value
    exec(compile(open(code).read(), code, "exec"), names)
    sys.stdout.flush()
    open(ended, "w").close()
"""
PORT = re.compile(r"(--(?:metrics-)?port |_PORT=|127\.0\.0\.1:)(\d{4})\b")
USUAL_PORT = "2181"
BLOCK_SECONDS = 300
"""A block may start Spark twice, on a machine that runs other tests."""
MACHINE = re.compile(r"\b10\.0\.0\.(\d+)\b")


def java_options(logging: Path) -> str:
    """Options of each JVM. Java splits them at spaces, so the path of `logging` is a URI."""
    return f"{quick_options()} -Dlog4j2.configurationFile={logging.as_uri()}"


class Reader:
    """Runs the blocks of one page.

    Machines of the page, 10.0.0.N, are addresses of the loopback interface, others in each test;
    there they have the page's ports. Ports of 127.0.0.1 are free ones.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs = directory / ".reader"
        self._logs.mkdir()
        self._count = 0
        inherited = {k: v for k, v in os.environ.items() if k != SERVICE_URI_VARIABLE}
        folders = (PROGRAMS, Path(sys.executable).parent)
        self._environment = inherited | {
            "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "PYTHON_OF_TEST": sys.executable,
            "PYSPARK_PYTHON": str(PROGRAMS / "python"),
            "PYTHONUNBUFFERED": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "COLUMNS": "200",
            # As in the other tests with Spark: JVMs that live for a few seconds. Spark logs only
            # warnings: spark-submit copies what the job prints in pieces, and a line of the log
            # between two pieces would cut an expected line.
            OPTIONS_VARIABLE: java_options(LOGGING),
        }
        self._network = f"127.{1 + os.getpid() % 200}.{1 + os.getpid() // 200 % 250}"
        self._ports: dict[str, int] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._shell: subprocess.Popen[str] | None = None
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        cluster = Cluster(self._directory / ".ledgerlog")
        cluster.down()
        for process in self._processes:
            process.kill()
            process.communicate()
        for left in processes_of(self._directory):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()

    def run(self, block: Block) -> None:
        """Run the block, and check that it prints the expected output."""
        self._count += 1
        code = self._logs / f"{self._count}"
        code.write_text(self._here(block.code))
        output, ended = code.with_suffix(".out"), code.with_suffix(".end")
        if block.until:
            self._stay(block, code, output)
            return
        if block.language == "bash":
            process = self._shell = self._shell or self._spawn(["bash", "--norc", "-s"])
            run = f"set -e; . {code} < /dev/null > {output} 2>&1; set +e"
            words = f"{run}; env -0 > {ended}.e; touch {ended}\n"
        else:
            process = self._python = self._python or self._spawn([sys.executable, "-c", PYTHON])
            environment = sorted(
                self._logs.glob("*.end.e"), key=lambda path: int(path.name.split(".")[0])
            )
            Path(f"{code}.environment").write_bytes(
                environment[-1].read_bytes() if environment else b""
            )
            words = f"{code}\t{output}\t{ended}\n"
        assert process.stdin is not None
        process.stdin.write(words)
        process.stdin.flush()
        patience.until(lambda: ended.exists() or process.poll() is not None, seconds=BLOCK_SECONDS)
        printed = output.read_text(errors="replace")
        assert ended.exists(), f"line {block.line}:\n{block.code}\n{printed}"
        expected = tuple(map(self._here, block.output))
        missing = missing_line(expected, printed)
        assert missing is None, f"line {block.line}: {missing!r} is not in\n{printed}"

    def _stay(self, block: Block, code: Path, output: Path) -> None:
        """Start the block in a separate terminal, and return when it is ready."""
        with output.open("w") as stream:
            process = self._spawn(["bash", "-e", str(code)], stream)
        patience.until(
            lambda: block.until in output.read_text(errors="replace") or process.poll() is not None
        )
        printed = output.read_text(errors="replace")
        assert block.until in printed, f"line {block.line}:\n{block.code}\n{printed}"

    def _spawn(
        self, command: list[str], output: int | IO[str] = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def _here(self, text: str) -> str:
        """The text of the page with the addresses of this test."""
        cluster = Cluster(self._directory / ".ledgerlog")
        if cluster.status():
            self._ports[USUAL_PORT] = cluster.zookeeper_port
        text = PORT.sub(lambda match: f"{match[1]}{self._port(match[2])}", text)
        return MACHINE.sub(rf"{self._network}.\1", text)

    def _port(self, of_page: str) -> int:
        """The port of 127.0.0.1 that replaces a port of the page, which other programs may use."""
        return self._ports.setdefault(of_page, free_port())
