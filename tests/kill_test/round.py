"""One round: append, compact, kill, restart in any write mode, seal, compare."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ledgerlog_spark as ll
from tests.fixtures.bookie_process import BookieProcess, set_mode
from tests.fixtures.ports import free_port
from tests.fixtures.replicas import Copies
from tests.fixtures.stage import Stage, start_all
from tests.kill_test.payload import payload
from tests.kill_test.writer import NUMBER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.client.blocking.client import BlockingClient

ROOT = Path(__file__).parents[2]
VICTIMS = ("bookie", "writer", "everything")
MODES = ("direct", "journal", "unjournaled")
QUORUMS = ((3, 3, 2), (3, 2, 2), (4, 3, 2), (5, 3, 2))
PATIENCE_SECONDS = 60.0
ENTRIES_MAX = 2_000
KEPT_ENTRIES = 20
COMPACTING_SECONDS_MAX = 0.3
"""A process is killed within this time after a compaction began on each bookie."""
WRITER = "import sys; from tests.kill_test.writer import main; sys.exit(main())"


@dataclass(slots=True)
class Tally:
    """The results of all rounds. `lost`, `invented` and `copies.wrong` must be 0.

    Attributes:
        rounds: Number of rounds.
        acknowledged: Number of entries whose writer got an acknowledgement.
        lost: Number of acknowledged entries that are not in the sealed ledger.
        invented: Number of entries that no writer sent.
        copies: The copies on the bookies, at the end of each round and of the run.
        kills: Number of killed bookies, by write mode.
        compacting: Number of bookies that compacted files immediately before they were killed.
        kept: The ledgers that no round deleted, by the number of the round.
    """

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    invented: int = 0
    copies: Copies = field(default_factory=Copies)
    kills: Counter[str] = field(default_factory=Counter)
    compacting: int = 0
    kept: dict[int, int] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost, changed or invented."""
        return not (self.lost or self.invented or self.copies.wrong)


class Writer:
    """The appending process and its reports."""

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
        """Wait until this number of entries is acknowledged."""
        while self.acknowledged + 1 < acknowledged:
            self._take(self._read(self._acked_pipe, NUMBER.size))

    def wait_for_more(self) -> None:
        """Wait until one more entry is acknowledged, so the writer has recovered from the fault."""
        self.wait_for(self.acknowledged + 2)

    def kill(self) -> None:
        """Kill the process, then read all of its reports."""
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


def mode_settings(directory: Path, number: int) -> dict[str, Any]:
    """The write mode of the first start of a bookie."""
    bookie = BookieProcess(directory / f"bookie-{number}", "", 1)
    set_mode(bookie, MODES[number % len(MODES)], journal_of(bookie))
    return bookie.settings | {"metrics_port": free_port()}


def journal_of(bookie: BookieProcess) -> Path:
    """The journal directory of a bookie, which it uses only in one write mode."""
    return bookie.directory.with_suffix(".journal")


def compact(bookies: Sequence[BookieProcess]) -> None:
    """Collect garbage on each bookie, and start to compact each file with a deleted entry."""
    with ThreadPoolExecutor(len(bookies)) as pool:
        list(pool.map(BookieProcess.collect, bookies))


def play(stage: Stage, number: int, seed: int, tally: Tally) -> None:
    """Play round `number`; all its choices follow from `seed`."""
    dice = random.Random(f"{seed}:{number}")
    victim = VICTIMS[number % len(VICTIMS)]
    writer = Writer(stage.uri, number, dice.choice(QUORUMS))
    bookies = list(stage.bookies.values())
    killed: list[BookieProcess] = []
    try:
        writer.wait_for(dice.randrange(1, ENTRIES_MAX))
        compact(bookies)
        time.sleep(dice.random() * COMPACTING_SECONDS_MAX)
        if victim != "writer":
            killed = bookies if victim == "everything" else [dice.choice(bookies)]
        tally.compacting += sum(bookie.is_compacting() for bookie in killed)
        for bookie in killed:
            bookie.kill()
        if victim == "bookie":
            writer.wait_for_more()
    finally:
        writer.kill()
    for bookie in killed:
        tally.kills[str(bookie.settings["write_mode"])] += 1
        set_mode(bookie, dice.choice(MODES), journal_of(bookie))
    start_all(killed)
    _compare(stage, writer, number, tally)


def _compare(stage: Stage, writer: Writer, number: int, tally: Tally) -> None:
    with ll.connect(stage.uri) as client:
        sealed = client.seal(writer.ledger_id)
        tally.rounds += 1
        tally.acknowledged += writer.acknowledged + 1
        tally.lost += max(0, writer.acknowledged - sealed.last_entry_id)
        tally.invented += max(0, sealed.last_entry_id - writer.sent)
        tally.copies.check(
            writer.ledger_id, sealed, stage.bookies, lambda entry_id: payload(number, entry_id)
        )
        tally.kept[number] = _keep_a_ledger(client, number)
        client.delete_ledger(writer.ledger_id)


def _keep_a_ledger(client: BlockingClient, number: int) -> int:
    """Write a small ledger and close it; return its id."""
    with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as ledger:
        for entry_id in range(KEPT_ENTRIES):
            ledger.append(payload(number, entry_id))
        return ledger.id


def check_kept(stage: Stage, tally: Tally) -> int:
    """Read the ledgers that no round deleted; return the number of copies that were read."""
    before = tally.copies.read
    with ll.connect(stage.uri) as client:
        for number, ledger_id in tally.kept.items():
            metadata = client.ledger_metadata(ledger_id)
            tally.lost += KEPT_ENTRIES - 1 - metadata.last_entry_id
            tally.copies.check(
                ledger_id,
                metadata,
                stage.bookies,
                lambda entry_id, number=number: payload(number, entry_id),  # type: ignore[misc]
            )
    return tally.copies.read - before
