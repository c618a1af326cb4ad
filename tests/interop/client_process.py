"""A client of either kind as a process with line commands."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
COMMANDS = (sys.executable, "-m", "tests.interop.client_commands")


class ClientError(Exception):
    """The client's own error; `name` is its class in the client's language."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Got:
    """One entry in the report of a reader."""

    entry_id: int
    size_bytes: int
    digest: str


class ClientProcess:
    """A client process. Its answers have the order of the commands; reports come at any time.

    Attributes:
        kind: `java` or `ours`.
        sent: Number of entries that the last `append` may have sent.
        acknowledged: The last entry that was reported as acknowledged.
    """

    def __init__(self, kind: str, command: tuple[str, ...], log_path: Path) -> None:
        self.kind = kind
        self.sent = 0
        self.acknowledged = -1
        self._log_path = log_path
        self._got: list[Got] = []
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._acked = threading.Condition()
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._is_ready = False

    def ask(self, *words: object) -> list[str]:
        """Send a command, and return the words after `ok`."""
        self.begin(*words)
        return self.finish()

    def begin(self, *words: object) -> None:
        """Send a command. `finish` waits for its answer."""
        if not self._is_ready:
            self._is_ready = True
            self.finish()
        assert self.process.stdin is not None
        if words[0] == "create":
            self.sent, self.acknowledged = 0, -1
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def finish(self) -> list[str]:
        """Wait for the answer to the last command, and return it."""
        try:
            line = self._answers.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            self.kill()
            raise TimeoutError(f"the {self.kind} client was silent: {self._log_path}") from None
        if line is None:
            raise ConnectionError(f"the {self.kind} client ended: {self._log_path}")
        outcome, _, rest = line.partition(" ")
        if outcome == "error":
            name, _, message = rest.partition(" ")
            raise ClientError(name, message)
        return rest.split()

    def metadata(self, ledger_id: int) -> dict[str, Any]:
        """The ledger metadata that this client reads."""
        found: dict[str, Any] = json.loads(" ".join(self.ask("metadata", ledger_id)))
        return found

    def read(
        self, ledger_id: int, first_entry_id: int, last_entry_id: int, how: str = "single"
    ) -> list[Got]:
        """The entries from `first` to `last`, inclusive, of a ledger that it opened."""
        return self.collect("read", ledger_id, first_entry_id, last_entry_id, how)[1]

    def collect(self, *words: object) -> tuple[list[str], list[Got]]:
        """The answer to a command, and the entries that were reported before it."""
        self._got = []
        answer = self.ask(*words)
        return answer, self._got

    def wait_for(self, acknowledged: int) -> None:
        """Wait until this number of entries is acknowledged."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._acked:
            while self.acknowledged + 1 < acknowledged:
                left = deadline - time.monotonic()
                if left <= 0 or self.process.poll() is not None:
                    raise TimeoutError(
                        f"the {self.kind} client acknowledged {self.acknowledged + 1} of "
                        f"{acknowledged} entries: {self._log_path}"
                    )
                self._acked.wait(min(left, 0.5))

    def kill(self) -> None:
        """Kill the process, and wait until all of its reports were read."""
        self.process.kill()
        self._end()

    def stop(self) -> None:
        """End the process, cleanly if possible, otherwise with SIGKILL."""
        if self.process.poll() is None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        self.kill()

    def _end(self) -> None:
        self.process.wait()
        self._listener.join(PATIENCE_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # cut off by the kill
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "acked":
                with self._acked:
                    self.acknowledged = max(self.acknowledged, int(rest))
                    self._acked.notify_all()
            elif word == "sent":
                self.sent = max(self.sent, int(rest))
            elif word == "entry":
                entry_id, size, digest = rest.split()
                self._got.append(Got(int(entry_id), int(size), digest))
            else:
                self._answers.put(line.rstrip("\n"))
        self._answers.put(None)


class Clients:
    """The processes that use one cluster: one of each kind that stays, and others to kill."""

    def __init__(self, commands: dict[str, tuple[str, ...]], log_directory: Path) -> None:
        self._commands = commands
        self._log_directory = log_directory
        self._staying: dict[str, ClientProcess] = {}
        self._spare: dict[str, ClientProcess] = {}
        self._started: list[ClientProcess] = []

    def staying(self, kind: str) -> ClientProcess:
        """The process that stays from scenario to scenario."""
        client = self._staying.get(kind)
        if client is None or client.process.poll() is not None:
            client = self._staying[kind] = self._start(kind)
        return client

    def mortal(self, kind: str) -> ClientProcess:
        """A process to kill. The next one of its kind is started in the background."""
        client = self._spare.pop(kind, None) or self._start(kind)
        self._spare[kind] = self._start(kind)
        return client

    def forget(self) -> None:
        """Stop the processes that stay, because their state is unknown after a failure."""
        for client in self._staying.values():
            client.kill()
        self._staying.clear()

    def close(self) -> None:
        """Stop everything."""
        for client in self._started:
            if client.process.poll() is None:
                client.stop()

    def _start(self, kind: str) -> ClientProcess:
        log_path = self._log_directory / f"client-{kind}-{len(self._started)}.log"
        client = ClientProcess(kind, self._commands[kind], log_path)
        self._started.append(client)
        return client
