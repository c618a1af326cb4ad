"""Three bookies are enough: one is killed under appends, a leader, a stream and new ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import Code, Quorum
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.retry import RetryPolicy
from tests.fixtures.bookie_cluster import BookieCluster
from tests.fixtures.command_line import ledgerlog, ledgerlog_json
from tests.fixtures.patience import until
from tests.fixtures.stream_query import StreamQuery

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]

VICTIM = "bookie-1"
WINDOW = 200
WRITER = WriterSettings(
    window=Window(entries_max=WINDOW),
    absence_poll_ms=200,
    replacement=RetryPolicy(first_delay_ms=50, delay_max_ms=100, attempts_max=5),
)


def codes_of(client: BlockingClient, ledger_id: int, entry_id: int) -> dict[str, Code]:
    """Read an entry from each bookie."""
    metadata = client.ledger_metadata(ledger_id)
    return dict(client.run(lambda one: one.entry_copies(ledger_id, metadata, entry_id)))


def noted(client: BlockingClient, ledger_id: int) -> set[str]:
    """Return the bookies whose holes in a ledger are noted for auto-recovery."""

    async def load(one: LedgerClient) -> set[str]:
        assert one.services.hole_notes is not None
        note = await one.services.hole_notes.load(ledger_id)
        return set() if note is None else {hole.bookie_id for hole in note.value.holes}

    return client.run(load)


def is_listed(cluster: BookieCluster, client: BlockingClient) -> bool:
    return VICTIM in client.run(lambda one: one.services.registration.writable())


def expect_return(
    client: BlockingClient, handle: BlockingWriteHandle, payloads: list[bytes]
) -> None:
    """Wait for the new fragment with the victim, and look at the copies on both of its sides."""
    until(lambda: not handle.absent_bookies)
    fragments = handle.metadata.fragments
    names = frozenset(f"bookie-{number}" for number in range(3))
    assert {frozenset(one.ensemble) for one in fragments} == {names}
    begun = fragments[-1].first_entry_id
    assert handle.append_batch(payloads)[0] == begun
    until(lambda: set(codes_of(client, handle.id, begun).values()) == {Code.OK})
    older = codes_of(client, handle.id, begun - 1)
    assert older.pop(VICTIM).is_absent
    assert set(older.values()) == {Code.OK}
    assert until(lambda: noted(client, handle.id)) == {VICTIM}


def test_nothing_stops_while_one_of_three_bookies_is_dead(
    cluster: BookieCluster,
) -> None:
    payloads = [b"x" * 100] * WINDOW
    with cluster.connect(writer=WRITER) as client:
        ledger = client.create_ledger()
        leader = client.open_log("orders", lead=True, properties={"rollBytes": "20000"})
        query = StreamQuery(cluster.uri, "stream")
        query.batch(4)
        ledger.append_batch(payloads)
        first = leader.append_many([b"before"])[0].offset
        cluster.bookies[VICTIM].kill()

        # More entries than the window holds, many rolls of the leader, batches of the stream.
        for _ in range(10):
            ledger.append_batch(payloads)
            leader.append_many([b"y" * 1_000] * 50)

        def has_rolled() -> bool:
            return len(client.open_log("orders").state().head.items.recent) > 3

        until(has_rolled, lambda: leader.append_many([b"y" * 1_000] * 50))
        query.batch(4)
        until(lambda: ledger.absent_bookies == (VICTIM,), lambda: ledger.append(b"x"))

        # Its session ends. New ledgers, also of the leader and of the stream, name it.
        until(lambda: not is_listed(cluster, client))
        while_away = client.create_ledger()
        assert while_away.absent_bookies == (VICTIM,)
        assert while_away.append_batch(payloads) == range(WINDOW)
        last = leader.append_many([b"y" * 1_000] * 100)[-1].offset
        query.close_ledgers()
        query.batch(4)
        shown = ledgerlog_json("logs", "show", "orders", "--metadata-service-uri", cluster.uri)
        assert shown["bookies_away"] == [VICTIM]
        assert f"{VICTIM}: entries" in ledgerlog(
            "logs", "show", "orders", "--metadata-service-uri", cluster.uri
        )

        # It comes back: new fragments name it again, and get nothing older.
        cluster.bookies[VICTIM].start()
        for handle in (ledger, while_away):
            expect_return(client, handle, payloads)

        entries = ledger.close().last_entry_id + 1
        assert sum(1 for _ in client.open_ledger(ledger.id).read()) == entries
        while_away.close()
        leader.close()
        values = [record.offset for record in client.open_log("orders").read()]
        assert values == list(range(first, last + 1))
        query.batch(4)
        query.close()


def test_without_an_ack_quorum_nothing_is_acknowledged_and_nothing_is_closed_short(
    cluster: BookieCluster,
) -> None:
    with cluster.connect(writer=WRITER) as client:
        ledger = client.create_ledger()
        ledger.append_batch([b"x"] * 10)
        for name in (VICTIM, "bookie-2"):
            cluster.bookies[name].kill()
        with pytest.raises(LedgerLogError) as failed:
            ledger.append(b"unknown")
        assert not failed.value.definite
        with pytest.raises(LedgerLogError):
            client.seal(ledger.id)
        assert not client.ledger_metadata(ledger.id).is_closed
        cluster.bookies[VICTIM].start()
        sealed = until(lambda: sealed_or_none(client, ledger.id))
        assert sealed >= 9


def sealed_or_none(client: BlockingClient, ledger_id: int) -> int | None:
    try:
        return client.seal(ledger_id).last_entry_id
    except LedgerLogError:
        return None


def test_a_ledger_that_replaces_no_bookie_names_one_that_is_away(cluster: BookieCluster) -> None:
    with cluster.connect(writer=WRITER) as client:
        cluster.bookies[VICTIM].kill()
        until(lambda: not is_listed(cluster, client))
        spec = LedgerSpec(Quorum(3, 3, 2), changes_ensemble=False)

        async def written(one: LedgerClient) -> int:
            handle = await one.create_registered_ledger(one.services.ledgers.create, spec)
            await handle.append_batch([b"x"] * 2 * WINDOW)
            return (await handle.close()).last_entry_id

        assert client.run(written) == 2 * WINDOW - 1
