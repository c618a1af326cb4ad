"""One round: append, kill, restart in any write mode, seal, compare."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ledgerlog_spark as ll
from bookie_server.core.bookie_run import BookieWriteMode
from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.local.cluster import Cluster
from tests.kill_test.payload import payload
from tests.kill_test.writer import NUMBER

ROOT = Path(__file__).parents[2]
VICTIMS = ("bookie", "writer", "everything")
QUORUMS = ((3, 3, 2), (3, 2, 2), (4, 3, 2), (5, 3, 2))
PATIENCE_SECONDS = 60.0
KEPT_ENTRIES = 20
WRITER = "import sys; from tests.kill_test.writer import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Result:
    """What one round saw; lost, changed and invented have to be 0."""

    acknowledged: int
    lost: int
    changed: int
    invented: int
    fragments: int
    kept_ledger_id: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What was read of the ledgers that no round deleted."""

    read: int
    lost: int


def keep_a_ledger(client: BlockingClient, number: int) -> int:
    """Write a small ledger and close it; return its id."""
    with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as ledger:
        for entry_id in range(KEPT_ENTRIES):
            ledger.append(payload(number, entry_id))
        return ledger.id


def check_kept(cluster: Cluster, ledger_ids: list[int]) -> Kept:
    """Read all entries of the small ledgers."""
    read = lost = 0
    with ll.connect(cluster.metadata_service_uri) as client:
        for number, ledger_id in enumerate(ledger_ids):
            with client.open_ledger(ledger_id) as ledger:
                for entry in ledger.read(0, KEPT_ENTRIES - 1):
                    read += 1
                    lost += bytes(entry.payload) != payload(number, entry.entry_id)
    return Kept(read, lost + KEPT_ENTRIES * len(ledger_ids) - read)


class Writer:
    """The appending process and what it reported."""

    def __init__(self, uri: str, seed: int, quorum: tuple[int, int, int]) -> None:
        self._sent_pipe, sent_end = os.pipe()
        self._acked_pipe, acked_end = os.pipe()
        self.sent = -1
        self.acknowledged = -1
        numbers = map(str, (seed, *quorum, sent_end, acked_end))
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, uri, *numbers],
            pass_fds=(sent_end, acked_end),
            cwd=ROOT,
            start_new_session=True,
        )
        os.close(sent_end)
        os.close(acked_end)
        self.ledger_id = NUMBER.unpack(self._read(self._sent_pipe, NUMBER.size))[0]

    def wait_for(self, acknowledged: int) -> None:
        """Returns when so many entries are acknowledged."""
        while self.acknowledged + 1 < acknowledged:
            self._take(self._read(self._acked_pipe, NUMBER.size))

    def wait_for_more(self) -> None:
        """Returns when one more entry is acknowledged: the writer got over what happened."""
        self.wait_for(self.acknowledged + 2)

    def kill(self) -> None:
        """SIGKILL, then everything that it had reported."""
        self.process.kill()
        self.process.wait()
        for pipe, take in ((self._acked_pipe, self._take), (self._sent_pipe, self._take_sent)):
            with os.fdopen(pipe, "rb") as rest:
                content = rest.read()
            for at in range(0, len(content) - NUMBER.size + 1, NUMBER.size):
                take(content[at : at + NUMBER.size])

    def _take(self, number: bytes) -> None:
        self.acknowledged = max(self.acknowledged, NUMBER.unpack(number)[0])

    def _take_sent(self, number: bytes) -> None:
        self.sent = max(self.sent, NUMBER.unpack(number)[0])

    def _read(self, pipe: int, size: int) -> bytes:
        ready, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
        content = os.read(pipe, size) if ready else b""
        if len(content) != size:
            raise RuntimeError(
                f"the writer said nothing for {PATIENCE_SECONDS} s or ended "
                f"(exit code {self.process.poll()})"
            )
        return content


@contextmanager
def write_mode(mode: BookieWriteMode, directory: Path) -> Iterator[None]:
    """Bookies that are started in the block have this write mode."""
    names = {"LEDGERLOG_WRITE_MODE": mode.value}
    if mode is BookieWriteMode.JOURNAL:
        journal = directory.with_suffix(".journal")
        journal.mkdir(exist_ok=True)
        names["LEDGERLOG_JOURNAL_DIRECTORY"] = str(journal)
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


def play(cluster: Cluster, number: int, seed: int) -> Result:
    """Play round `number`; all its choices follow from `seed`."""
    dice = random.Random(f"{seed}:{number}")
    victim = VICTIMS[number % len(VICTIMS)]
    quorum = QUORUMS[dice.randrange(len(QUORUMS))]
    writer = Writer(cluster.metadata_service_uri, number, quorum)
    try:
        writer.wait_for(dice.randrange(1, 20_000))
        bookies = [member.id for member in cluster.members.bookies]
        killed = bookies if victim == "everything" else [dice.choice(bookies)]
        if victim != "writer":
            for bookie in killed:
                cluster.kill(bookie)
        if victim == "bookie":
            writer.wait_for_more()
    finally:
        writer.kill()
    if victim != "writer":
        for bookie in killed:
            with write_mode(dice.choice(list(BookieWriteMode)), cluster.directory / bookie):
                cluster.start(bookie)
    return _compare(cluster, writer, number)


def _compare(cluster: Cluster, writer: Writer, seed: int) -> Result:
    with ll.connect(cluster.metadata_service_uri) as client:
        sealed = client.seal(writer.ledger_id)
        lost = max(0, writer.acknowledged - sealed.last_entry_id)
        changed = invented = 0
        if sealed.last_entry_id >= 0:
            with client.open_ledger(writer.ledger_id) as ledger:
                for entry in ledger.read(0, sealed.last_entry_id):
                    changed += bytes(entry.payload) != payload(seed, entry.entry_id)
                    invented += entry.entry_id > writer.sent
        kept = keep_a_ledger(client, seed)
        client.delete_ledger(writer.ledger_id)
    acknowledged = writer.acknowledged + 1
    return Result(acknowledged, lost, changed, invented, len(sealed.fragments), kept)
