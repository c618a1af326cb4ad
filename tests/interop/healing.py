"""A bookie is killed, and auto-recovery of either make restores all copies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import ledgerlog_spark as ll
from tests.fixtures.bookie_process import Peer
from tests.fixtures.patience import until
from tests.fixtures.replicas import Copies
from tests.interop.healers import (
    APACHE,
    APACHE_AUDITOR,
    APACHE_WORKER,
    OUR_AUDITOR,
    OUR_WORKER,
)
from tests.interop.healers import OURS as OUR_RECOVERY
from tests.interop.idle_leader import idle_leader
from tests.interop.stage import (
    JAVA,
    KINDS,
    OURS,
    STRIPED_OVER_THREE,
    WHOLE,
    Scenario,
    Shape,
    Stage,
    Written,
    expect,
)
from tests.interop.two_auditors import two_auditors

ENTRIES = 300
CLOSED_OF_A_KIND = 4
OPEN_OF_A_KIND = 3
HEALED_SECONDS_MAX = 300.0


def healing_on_ours() -> list[Scenario]:
    """Scenarios with Apache's auto-recovery, as a whole and in parts, on bookies of ours."""
    return [
        _scenario((APACHE,), WHOLE, "CRC32C"),
        _scenario((OUR_AUDITOR, APACHE_WORKER), WHOLE, "CRC32"),
        _scenario((APACHE_AUDITOR, OUR_WORKER), STRIPED_OVER_THREE, "MAC"),
        *idle_leader(),
    ]


def healing_on_apache() -> list[Scenario]:
    """Scenarios with our auto-recovery, as a whole and in parts, on Apache's bookies."""
    return [
        _scenario((OUR_RECOVERY,), WHOLE, "CRC32C"),
        _scenario((OUR_RECOVERY,), STRIPED_OVER_THREE, "DUMMY"),
        _scenario((APACHE_AUDITOR, OUR_WORKER), WHOLE, "MAC"),
        _scenario((OUR_AUDITOR, APACHE_WORKER), STRIPED_OVER_THREE, "CRC32"),
        *two_auditors(),
    ]


def _scenario(healers: tuple[str, ...], shape: Shape, digest: str) -> Scenario:
    heals = "heals" if len(healers) == 1 else "heal"
    return Scenario(
        f"a bookie is killed, {' and '.join(healers)} {heals}",
        f"{shape} {digest}",
        partial(_healed, healers=healers, shape=shape, digest=digest),
    )


@dataclass(frozen=True, slots=True)
class _Bookie:
    """A bookie to read copies from.

    Attributes:
        port: Its TCP port on this machine.
    """

    port: int

    def peer(self) -> Peer:
        """A connection to it."""
        return Peer(self.port)


@dataclass(slots=True)
class _Ledgers:
    """Ledgers that a bookie may hold.

    Attributes:
        closed: Closed ledgers, with their last entry and their length.
        dead: Open ledgers whose writer was killed.
        live: Open ledgers whose writer is idle.
    """

    closed: list[tuple[Written, int, int]]
    dead: list[Written]
    live: list[Written]

    @property
    def all(self) -> list[Written]:
        """All ledgers."""
        return [*(ledger for ledger, *_ in self.closed), *self.dead, *self.live]


def _healed(stage: Stage, healers: tuple[str, ...], shape: Shape, digest: str) -> None:
    stage.bookies.healers.ours("autorecovery", "delay", "0")
    # Apache's worker fences the ledgers of idle writers too (docs/INTEROP.md).
    live = 0 if {APACHE, APACHE_WORKER} & set(healers) else OPEN_OF_A_KIND
    ledgers = _written(stage, shape, digest, live)
    named = [bookie for each in ledgers.all for bookie in each.created["fragments"][0][1]]
    victim = max(sorted(set(named)), key=named.count)
    with stage.bookies.healers.running(*healers) as running:
        stage.bookies.kill(victim)
        try:
            until(lambda: _is_healed(stage, ledgers, victim), running.check, HEALED_SECONDS_MAX)
            _compare(stage, ledgers, recoverers=healers)
            copies = until(lambda: _all_copies(stage, ledgers), running.check)
            stage.tally.entries += copies.read
            until(lambda: not _queued(stage, ledgers), running.check, HEALED_SECONDS_MAX)
        finally:
            stage.bookies.start(victim)


def _written(stage: Stage, shape: Shape, digest: str, live: int) -> _Ledgers:
    found = _Ledgers([], [], [])
    for kind in KINDS:
        for _ in range(CLOSED_OF_A_KIND):
            ledger = _appended(stage, kind, shape, digest)
            last, length = map(int, ledger.writer.ask("close", ledger.id))
            found.closed.append((ledger, last, length))
        writer = stage.clients.mortal(kind)
        for _ in range(OPEN_OF_A_KIND):
            ledger = stage.create(writer, shape, digest)
            ledger.append(ENTRIES)
            writer.finish()
            found.dead.append(ledger)
        found.dead[-1].kill_writer(stage.tally)
    # An idle writer of Java does not replace a lost bookie, so both makes close its ledger.
    found.live += [_appended(stage, OURS, shape, digest) for _ in range(live)]
    return found


def _appended(stage: Stage, kind: str, shape: Shape, digest: str) -> Written:
    ledger = stage.create(stage.clients.staying(kind), shape, digest)
    ledger.append(ENTRIES)
    ledger.writer.finish()
    return ledger


def _is_healed(stage: Stage, ledgers: _Ledgers, victim: str) -> bool:
    """Whether no fragment names a bookie, and each ledger of a dead writer that did is closed."""
    client = stage.clients.staying(OURS)
    dead = {ledger.id for ledger in ledgers.dead}
    for ledger in ledgers.all:
        metadata = client.metadata(ledger.id)
        if any(victim in ensemble for _, ensemble in metadata["fragments"]):
            return False
        was_named = victim in ledger.created["fragments"][0][1]
        if ledger.id in dead and was_named and metadata["state"] != "CLOSED":
            return False
    return True


def _compare(stage: Stage, ledgers: _Ledgers, recoverers: tuple[str, ...]) -> None:
    """Read all ledgers with both clients, while the bookie is still dead."""
    for ledger, last, length in ledgers.closed:
        stage.compare_closed(ledger, last, length)
    for ledger in ledgers.dead:
        client = stage.clients.staying(JAVA)
        last, length = map(int, client.ask("recover", *ledger.credentials))
        stage.compare_closed(ledger, last, length, recoverers=recoverers)
    for ledger in ledgers.live:
        ledger.append(1)  # auto-recovery of ours did not fence it
        ledger.writer.finish()
        last, length = map(int, ledger.writer.ask("close", ledger.id))
        expect(last, ENTRIES, "last entry of a ledger with a writer")
        stage.compare_closed(ledger, last, length)


def _all_copies(stage: Stage, ledgers: _Ledgers) -> Copies | None:
    """Read each copy from its bookie. Return the result if none is absent."""
    bookies = {bookie_id: _Bookie(port) for bookie_id, port in stage.bookies.ports.items()}
    copies = Copies()
    with ll.connect(stage.bookies.healers.uri) as client:
        for ledger in ledgers.all:
            metadata = client.ledger_metadata(ledger.id)
            copies.check(ledger.id, metadata, bookies, ledger.source.payload)
    stage.tally.changed += copies.wrong
    expect(copies.broken, [], "what is wrong with copies")
    return None if copies.absent else copies


def _queued(stage: Stage, ledgers: _Ledgers) -> set[int]:
    """The ledgers that wait for auto-recovery."""
    found = stage.bookies.healers.ours("autorecovery", "queue", "--limit", "100000")
    return {each["ledger_id"] for each in found} & {ledger.id for ledger in ledgers.all}
