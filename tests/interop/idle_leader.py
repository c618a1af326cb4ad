"""Apache's auto-recovery meets the idle leaders of two logs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import ledgerlog_spark as ll
from ledgerlog_spark.log.blocking.leader import BlockingLeader
from ledgerlog_spark.log.clients import BlockingLogClient
from tests.fixtures.patience import until
from tests.interop.healers import APACHE
from tests.interop.payload import Source
from tests.interop.stage import JAVA, OURS, Scenario, Shape, Stage, expect

RECORDS = 200
HEALED_SECONDS_MAX = 300.0
EVERYWHERE = Shape(5, 5, 3)
WITH_SPARE = Shape(3, 3, 2)


def idle_leader() -> list[Scenario]:
    """Scenarios with a leader that cannot replace the killed bookie, and with one that does.

    Apache's worker fences both. It does not trust the last fragment of an open ledger before an
    entry of this fragment has confirmed all earlier entries, and then looks at the bookies of the
    fragment before it too (docs/INTEROP.md).
    """
    return [
        Scenario(
            "apache's auto-recovery fences an idle leader, which goes on",
            f"{shape} CRC32C",
            partial(_fenced, shape=shape),
        )
        for shape in (EVERYWHERE, WITH_SPARE)
    ]


@dataclass(slots=True)
class _Led:
    """A log and its leader.

    Attributes:
        client: The client of the leader.
        name: The log.
        source: Its records, as the entries of a ledger.
        appended: Number of acknowledged records.
    """

    client: BlockingLogClient
    name: str
    source: Source
    leader: BlockingLeader
    appended: int = 0

    def append(self) -> None:
        """Append records, and wait for each."""
        for number in range(self.appended, self.appended + RECORDS):
            expect(self.leader.append(self.source.payload(number)).offset, number, "offset")
        self.appended += RECORDS

    @property
    def ledger_id(self) -> int:
        """The ledger of the leader."""
        (opened,) = self.client.open_log(self.name).state().head.open_ledgers
        return opened.ledger_id


@contextlib.contextmanager
def _led(stage: Stage, shape: Shape) -> Iterator[_Led]:
    stage.bookies.healers.ours("autorecovery", "delay", "0")
    name = f"idle-{stage.number}"
    properties = {
        "ensembleSize": str(shape.ensemble_size),
        "writeQuorum": str(shape.write_quorum),
        "ackQuorum": str(shape.ack_quorum),
    }
    with ll.connect(stage.bookies.healers.uri) as client:
        leader = client.open_log(name, lead=True, properties=properties)
        led = _Led(client, name, Source(stage.number), leader)
        led.append()
        yield led
        led.append()
        led.leader.close()
    _compare(stage, led)


def _fenced(stage: Stage, shape: Shape) -> None:
    with _led(stage, shape) as led:
        ledger_id = led.ledger_id
        ours, java = (stage.clients.staying(kind) for kind in (OURS, JAVA))
        victim = ours.metadata(ledger_id)["fragments"][-1][1][0]
        stage.bookies.kill(victim)
        try:
            with stage.bookies.healers.running(APACHE) as running:
                until(
                    lambda: java.metadata(ledger_id)["state"] != "OPEN",
                    running.check,
                    HEALED_SECONDS_MAX,
                )
            led.append()
            if led.ledger_id == ledger_id:
                raise AssertionError(f"the leader still appends to ledger {ledger_id}")
        finally:
            stage.bookies.start(victim)


def _compare(stage: Stage, led: _Led) -> None:
    """Read the log with another client, and compare all records with those that were appended."""
    with ll.connect(stage.bookies.healers.uri) as client:
        found = [bytes(record.value) for record in client.open_log(led.name).read(0)]
    stage.tally.entries += len(found)
    stage.tally.lost += max(0, led.appended - len(found))
    stage.tally.invented += max(0, len(found) - led.appended)
    stage.tally.changed += sum(
        value != led.source.payload(number) for number, value in enumerate(found[: led.appended])
    )
