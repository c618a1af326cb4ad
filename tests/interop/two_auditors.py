"""Auditors, switches and queues of both makes in one cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.fixtures.patience import until
from tests.interop.healers import (
    APACHE,
    APACHE_WORKER,
    OUR_AUDITOR,
    OUR_WORKER,
    Healers,
    Running,
)
from tests.interop.healers import OURS as OUR_RECOVERY
from tests.interop.stage import JAVA, KINDS, OURS, WHOLE, Scenario, Stage, Written, expect

ENTRIES = 200
LEDGERS_OF_A_KIND = 3
HEALED_SECONDS_MAX = 300.0
DISABLED_SECONDS = 40.0
"""Longer than the sessions of bookies, and than an auditor holds losses after its election."""
ELECTED = re.compile(r"Auditor: (\S+)")
LISTED = re.compile(r"ListUnderReplicatedCommand (\d+)$", re.MULTILINE)


def two_auditors() -> list[Scenario]:
    """The scenarios, for either kind of bookie."""
    return [
        Scenario("auditors of both makes vote, one audits", "no ledger", _one_audits),
        Scenario(
            "our marks, and the switch of either make",
            f"{WHOLE} CRC32C",
            _switched,
        ),
    ]


def _one_audits(stage: Stage) -> None:
    """Each make waits while the other one audits, and audits after its end."""
    healers = stage.bookies.healers
    with healers.running(APACHE) as running:
        first = running[APACHE]
        _votes(healers, 1, running)
        until(lambda: _auditors(healers) == [first.id], running.check)
        ours = running.add(OUR_RECOVERY, healers.start(OUR_RECOVERY))
        _votes(healers, 2, running)
        expect(_auditors(healers), [first.id], "auditor while Apache's audits")
        expect("elected" in ours.log.read_text(), False, "whether ours audits beside it")
        running.kill(APACHE)
        until(lambda: _auditors(healers) == [ours.id], running.check)
        until(lambda: '"elected"' in ours.log.read_text(), running.check)
        second = running.add(APACHE, healers.start(APACHE))
        _votes(healers, 2, running)
        expect(_auditors(healers), [ours.id], "auditor while ours audits")
        running.kill(OUR_RECOVERY)
        until(lambda: _auditors(healers) == [second.id], running.check)


def _auditors(healers: Healers) -> list[str]:
    """The auditor as both shells find it, or two of them if they differ."""
    theirs = ELECTED.findall(healers.shell("whoisauditor"))
    ours = healers.ours("autorecovery", "status")["auditor"]
    return sorted({*theirs, *([ours] if ours else [])})


def _votes(healers: Healers, count: int, running: Running) -> None:
    """Wait until this number of processes vote."""
    zookeeper = KazooClient(healers.uri.removeprefix("zk://").partition("/")[0])
    zookeeper.start()
    try:
        until(
            lambda: _votes_in(zookeeper) == count,
            running.check,
        )
    finally:
        zookeeper.stop()
        zookeeper.close()


def _votes_in(zookeeper: KazooClient) -> int:
    """Number of votes. The first process that votes creates their directory."""
    try:
        return len(zookeeper.get_children("/ledgers/underreplication/auditorelection"))
    except NoNodeError:
        return 0


def _switched(stage: Stage) -> None:
    """Apache lists our marks; each make obeys the other's switch."""
    healers = stage.bookies.healers
    healers.ours("autorecovery", "delay", "0")
    ledgers = [written for kind in KINDS for written in _written(stage, kind)]
    victim = ledgers[0][0].created["fragments"][0][1][0]
    named = _named(stage, ledgers, victim)
    with healers.running(OUR_AUDITOR) as running:
        stage.bookies.kill(victim)
        try:
            until(partial(_lists, healers, named), running.check, HEALED_SECONDS_MAX)
            _disable_by_ours(healers)
            for worker in (APACHE_WORKER, OUR_WORKER):
                running.add(worker, healers.start(worker))
            time.sleep(DISABLED_SECONDS)
            expect(_named(stage, ledgers, victim), named, "ledgers on the bookie while disabled")
            _enable_by_apache(healers)
            until(lambda: not _named(stage, ledgers, victim), running.check, HEALED_SECONDS_MAX)
        finally:
            healers.ours("autorecovery", "enable")
            stage.bookies.start(victim)
    _auditors_obey(stage, ledgers)
    for ledger, last, length in ledgers:
        stage.compare_closed(ledger, last, length)


def _auditors_obey(stage: Stage, ledgers: Sequence[tuple[Written, int, int]]) -> None:
    """While one make has disabled auto-recovery, the other one marks nothing."""
    _obeys(stage, ledgers, OUR_RECOVERY, _disable_by_apache, _enable_by_ours)
    _obeys(stage, ledgers, APACHE, _disable_by_ours, _enable_by_apache)


def _obeys(
    stage: Stage,
    ledgers: Sequence[tuple[Written, int, int]],
    healer: str,
    disable: Callable[[Healers], None],
    enable: Callable[[Healers], None],
) -> None:
    healers = stage.bookies.healers
    victim = stage.clients.staying(OURS).metadata(ledgers[0][0].id)["fragments"][0][1][0]
    named = _named(stage, ledgers, victim)
    with healers.running(healer) as running:
        until(lambda: _auditors(healers) == [running[healer].id], running.check)
        disable(healers)
        stage.bookies.kill(victim)
        try:
            time.sleep(DISABLED_SECONDS)
            expect(_marks(healers) & named, set(), f"marks of {healer} while it is disabled")
            expect(_named(stage, ledgers, victim), named, "ledgers on the bookie")
            enable(healers)
            until(lambda: not _named(stage, ledgers, victim), running.check, HEALED_SECONDS_MAX)
        finally:
            healers.ours("autorecovery", "enable")
            stage.bookies.start(victim)


def _written(stage: Stage, kind: str) -> list[tuple[Written, int, int]]:
    """Closed ledgers, with their last entry and their length."""
    found = []
    for _ in range(LEDGERS_OF_A_KIND):
        ledger = stage.create(stage.clients.staying(kind), WHOLE, "CRC32C")
        ledger.append(ENTRIES)
        ledger.writer.finish()
        last, length = map(int, ledger.writer.ask("close", ledger.id))
        found.append((ledger, last, length))
    return found


def _named(stage: Stage, ledgers: Sequence[tuple[Written, int, int]], bookie_id: str) -> set[int]:
    """The ledgers of which a fragment names a bookie."""
    client = stage.clients.staying(JAVA)
    return {
        ledger.id
        for ledger, *_ in ledgers
        if any(bookie_id in each for _, each in client.metadata(ledger.id)["fragments"])
    }


def _lists(healers: Healers, wanted: Collection[int]) -> bool:
    """Whether Apache's shell lists these marks, and no others than our shell lists."""
    listed = {int(each) for each in LISTED.findall(healers.shell("listunderreplicated"))}
    return listed >= set(wanted) and listed == _marks(healers)


def _marks(healers: Healers) -> set[int]:
    """The marked ledgers, as our shell lists them."""
    found = healers.ours("autorecovery", "queue", "--kind", "marks", "--limit", "100000")
    return {each["ledger_id"] for each in found}


def _disable_by_ours(healers: Healers) -> None:
    healers.ours("autorecovery", "disable")
    said = healers.shell("autorecovery", "-disable")
    expect("already disabled" in said, True, "whether auto-recovery is disabled for Apache")


def _enable_by_ours(healers: Healers) -> None:
    healers.ours("autorecovery", "enable")
    said = healers.shell("autorecovery", "-enable")
    expect("already enabled" in said, True, "whether auto-recovery is enabled for Apache")


def _disable_by_apache(healers: Healers) -> None:
    healers.shell("autorecovery", "-disable")
    expect(healers.ours("autorecovery", "status")["is_enabled"], False, "whether it is enabled")


def _enable_by_apache(healers: Healers) -> None:
    healers.shell("autorecovery", "-enable")
    expect(healers.ours("autorecovery", "status")["is_enabled"], True, "whether it is enabled")
