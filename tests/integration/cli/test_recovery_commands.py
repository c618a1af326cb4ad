"""`ledgerlog autorecovery` and `ledgers accept-loss` on a real cluster, without a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.composition import metadata
from ledgerlog_spark.wire.repair_notes import (
    FailedAttempts,
    Hole,
    Holes,
    Move,
    Moves,
    Unreadable,
    UnreadableRange,
    WorkerReport,
    WorkerTask,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster
    from ledgerlog_spark.metadata.stores import MetadataStores
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

REASON = ("--reason", "disks burnt")


def in_store(cluster: Cluster, work: Callable[[MetadataStores], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with metadata(cluster.metadata_service_uri) as stores:
            return await work(stores)

    return asyncio.run(run())


def closed_ledger(client: BlockingClient, entries: int = 5) -> int:
    ledger = client.create_ledger()
    ledger.append_batch([b"x"] * entries)
    ledger.close()
    return ledger.id


def report_loss(cluster: Cluster, ledger_id: int, *ranges: UnreadableRange) -> None:
    """Report unreadable entries, as a worker does."""
    in_store(cluster, lambda stores: stores.unreadable.add(ledger_id, Unreadable(ranges)))


def test_auto_recovery_is_disabled_and_enabled(run: Run) -> None:
    assert run("autorecovery", "status", "--json").json["is_enabled"]
    assert run("autorecovery", "disable", "--json").json == {
        "is_enabled": False,
        "is_changed": True,
    }
    assert "was disabled already" in run("autorecovery", "disable").done
    assert not run("cluster", "info", "--json").json["auto_recovery"]["is_enabled"]
    assert "disabled" in run("cluster", "info").done
    assert "is enabled" in run("autorecovery", "enable").done
    assert not run("autorecovery", "enable", "--json").json["is_changed"]
    assert run("autorecovery", "status", "--json").json["is_enabled"]


def test_the_delay_is_shown_and_set_and_an_audit_writes_it_again(
    run: Run, cluster: Cluster
) -> None:
    assert "the auditor waits 90 s" in run("autorecovery", "delay", 90).done
    assert run("autorecovery", "delay", "--json").json == {"delay_s": 90}
    before = in_store(cluster, lambda stores: stores.recovery_switch.lost_bookie_delay())
    ended = run("autorecovery", "audit")
    assert ended.code == 4
    assert "no auditor runs" in ended.out
    after = in_store(cluster, lambda stores: stores.recovery_switch.lost_bookie_delay())
    assert (after.value, after.version != before.version) == (90, True)
    assert run("autorecovery", "delay", "--json", "--", "-1").code == 2


def test_the_auditor_and_the_workers_are_shown(run: Run, cluster: Cluster) -> None:
    async def with_daemon() -> None:
        async with metadata(cluster.metadata_service_uri) as stores:
            candidacy = await stores.auditor_election.join("host:8080")
            task = WorkerTask(17, "mark", 3, 9, 1_000)
            report = WorkerReport((task,), 4, 5, 6_000_000, 2_000_000, 0, "working")
            await stores.worker_reports.publish("host:8080", report)
            shown = await asyncio.to_thread(run, "autorecovery", "status", "--json")
            found = shown.json
            assert found["auditor"] == "host:8080"
            assert found["workers"]["host:8080"]["ledgers_healed"] == 4
            audit = await asyncio.to_thread(run, "autorecovery", "audit", "--json")
            assert audit.json == {"auditor": "host:8080", "is_enabled": True}
            text = (await asyncio.to_thread(run, "autorecovery", "status")).done
            assert "host:8080" in text
            assert "working" in text
            info = await asyncio.to_thread(run, "cluster", "info", "--json")
            assert info.json["auto_recovery"]["auditor"] == "host:8080"
            ledger = await asyncio.to_thread(
                run, "autorecovery", "status", "--ledger", 17, "--json"
            )
            assert ledger.json["worker"] == "host:8080"
            await candidacy.leave()

    asyncio.run(with_daemon())


def test_the_queues_are_listed(run: Run, client: BlockingClient, cluster: Cluster) -> None:
    first, second, third = (closed_ledger(client) for _ in range(3))

    async def queue(stores: MetadataStores) -> None:
        await stores.marks.mark(first, ["bookie-9"])
        await stores.holes.add(second, Holes((Hole("bookie-1", 0, ranges=((1, 2),)),)))
        await stores.moves.add(third, Moves((Move("bookie-2"),)))

    in_store(cluster, queue)
    found = run("autorecovery", "queue", "--json").json
    queued = {(each["ledger_id"], each["queue"]): each["bookies"] for each in found}
    assert queued[first, "marks"] == ["bookie-9"]
    assert queued[second, "holes"] == ["bookie-1"]
    assert queued[third, "moves"] == ["bookie-2"]
    only = run("autorecovery", "queue", "--kind", "holes", "--json").json
    assert [each["ledger_id"] for each in only] == [second]
    of_bookie = run("autorecovery", "queue", "--bookie-id", "bookie-9", "--json").json
    assert [each["ledger_id"] for each in of_bookie] == [first]
    assert len(run("autorecovery", "queue", "--limit", 1, "--json").json) == 3
    wrong = run("autorecovery", "queue", "--kind", "urgent")
    assert wrong.code == 2
    assert "marks, holes, moves, unreadable" in wrong.err
    lengths = run("autorecovery", "status", "--json").json["queues"]
    assert lengths["holes"] == {"ledgers": 1, "is_whole": True}
    assert run("cluster", "info", "--json").json["auto_recovery"]["is_under_replicated"]


def test_a_ledger_is_explained(run: Run, client: BlockingClient, cluster: Cluster) -> None:
    ledger_id = closed_ledger(client)
    sound = run("autorecovery", "status", "--ledger", ledger_id, "--json").json
    assert (sound["is_queued"], sound["lost_bookies"]) == (False, [])
    assert "no queue has the ledger" in sound["reasons"][0]

    async def queue(stores: MetadataStores) -> None:
        await stores.marks.mark(ledger_id, ["bookie-9"])
        attempts = FailedAttempts(4, "no_spare", "3 bookies run, and 4 are needed", "w", 0, 300_000)
        await stores.attempts.add(ledger_id, attempts)

    in_store(cluster, queue)
    run("autorecovery", "disable")
    try:
        text = " ".join(run("autorecovery", "status", "--ledger", ledger_id).done.split())
    finally:
        run("autorecovery", "enable")
    for expected in (
        "bookie-9",
        "auto-recovery is disabled: `ledgerlog autorecovery enable` enables it",
        "4 attempts failed, the last one because no bookie can take a copy",
        "(3 bookies run, and 4 are needed)",
        "Start a bookie that the ledger does not name, or the bookie that is away",
        "the next one follows after 300 s",
        "no worker of ledgerlog runs",
    ):
        assert expected in text
    gone = run("autorecovery", "status", "--ledger", 999_999, "--json").json
    assert gone["reasons"] == ["the ledger does not exist"]


def test_only_reported_losses_are_accepted(run: Run, client: BlockingClient) -> None:
    ledger_id = closed_ledger(client)
    ended = run("ledgers", "accept-loss", ledger_id, *REASON, "--yes")
    assert ended.code == 1
    assert "has reported no unreadable entry" in ended.err
    empty = run("ledgers", "accept-loss", ledger_id, "--reason", " ", "--yes")
    assert empty.code == 2
    assert "--reason is empty" in empty.err
    missing = run("ledgers", "accept-loss", 999_999, *REASON, "--yes")
    assert missing.code == 1
    assert "does not exist" in missing.err


def test_entries_that_can_be_read_are_not_given_up(
    run: Run, client: BlockingClient, cluster: Cluster
) -> None:
    ledger_id = closed_ledger(client)
    report_loss(cluster, ledger_id, UnreadableRange(1, 2, is_lost=True))
    ended = run("ledgers", "accept-loss", ledger_id, *REASON, "--yes", "--force")
    assert ended.code == 1
    assert "6 copies of the entries 1 to 2" in ended.err
    assert "nothing was given up" in ended.err
    status = run("autorecovery", "status", "--ledger", ledger_id, "--json").json
    assert (len(status["unreadable"]), status["accepted_losses"]) == (1, [])


def test_a_loss_is_accepted_and_recorded(
    run: Run, client: BlockingClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_id = closed_ledger(client)
    before = client.ledger_metadata(ledger_id)
    answers = (("bookie-0", "timeout"), ("bookie-1", "no_entry"))
    # The entries after the end exist on no bookie.
    report_loss(
        cluster, ledger_id, UnreadableRange(7, 8, True), UnreadableRange(9, 9, False, answers)
    )
    status = run("autorecovery", "status", "--ledger", ledger_id, "--json").json
    assert f"ledgerlog ledgers accept-loss {ledger_id}" in status["reasons"][0]
    unforced = run("ledgers", "accept-loss", ledger_id, *REASON, "--yes")
    assert unforced.code == 4
    assert "entries 9 to 9" in unforced.err
    assert "bookie-0: timeout" in unforced.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    unasked = run("ledgers", "accept-loss", ledger_id, *REASON, "--force")
    assert unasked.code == 2
    assert "pass --yes" in unasked.err
    done = run("ledgers", "accept-loss", ledger_id, *REASON, "--force", "--yes", "--json").json
    assert done == {
        "ledger_id": ledger_id,
        "entries_count": 3,
        "ranges": [[7, 8], [9, 9]],
        "acceptances": 1,
    }
    status = run("autorecovery", "status", "--ledger", ledger_id, "--json").json
    assert status["unreadable"] == []
    (accepted,) = status["accepted_losses"]
    assert (accepted["reason"], accepted["is_forced"]) == ("disks burnt", True)
    assert "@" in accepted["accepted_by"]
    found = in_store(cluster, lambda stores: stores.accepted_losses.of_ledger(ledger_id))
    assert found.ranges == ((7, 8), (9, 9))
    assert client.ledger_metadata(ledger_id) == before
    again = run("ledgers", "accept-loss", ledger_id, *REASON, "--yes")
    assert again.code == 1
