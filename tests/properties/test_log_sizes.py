"""LOGS.md#G2: a head of 16 KiB, pages of 256 KiB, and a small commit that rewrites little."""

from __future__ import annotations

from dataclasses import replace

from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.read.versions import SnapshotMachine
from ledgerlog_spark.protocol.log.state.codec import encode_head
from ledgerlog_spark.protocol.log.state.records import (
    HEAD_SIZE_BYTES_MAX,
    PAGE_SIZE_BYTES_MAX,
    StagedRange,
)
from tests.unit.log.log_values import OneLog, full_statistics, new_head, staged, token

PROPERTIES = {f"property{n}": "x" * 70 for n in range(24)}
TRANSACTION_SIZE_BYTES_MAX = 1_000_000


def commit(log: OneLog, batch_id: int, ranges: list[StagedRange], schema: bytes = b"") -> None:
    log.register("app", *(r.ledger_id for r in ranges))
    head = log.head.value
    request = CommitRequest(
        app="app",
        run="run",
        batch_id=batch_id,
        ranges=tuple(ranges),
        schema=schema,
        base_schema_id=head.schema_id,
        planned_version=head.version,
    )
    machine = CommitMachine("flights", request, token=token(1_000_000 + batch_id * 10))
    assert log.run(machine).status is CommitStatus.COMMITTED
    assert len(encode_head(log.head.value)) <= HEAD_SIZE_BYTES_MAX
    assert max(log.pages_written, default=0) <= PAGE_SIZE_BYTES_MAX
    log.registered["app"] = ()


def test_fifty_thousand_items_stay_within_the_sizes() -> None:
    log = OneLog(*new_head(PROPERTIES))
    log.producer("app", "run")
    sizes, statistics = [], full_statistics(1)
    for batch_id in range(125):
        commit(log, batch_id, [staged(batch_id * 400 + n, 100, statistics) for n in range(400)])
        sizes.append(len(encode_head(log.head.value)))
    assert log.head.value.items.count == 50_000
    snapshot = log.run(SnapshotMachine("flights"))
    assert [item.ledger_id for item in snapshot.items] == list(range(50_000))
    offsets = [item.first_offset for item in snapshot.items]
    assert offsets == [n * 100 for n in range(50_000)]
    assert all(len(item.statistics) <= 64 for item in snapshot.items[10_000:])
    assert max(sizes) <= HEAD_SIZE_BYTES_MAX
    assert sum(log.pages_written) / 125 < PAGE_SIZE_BYTES_MAX / 4


def test_single_range_commits_mostly_write_the_head_alone() -> None:
    log = OneLog(*new_head())
    log.producer("app", "run")
    commits_with_pages = 0
    for batch_id in range(1_000):
        before = len(log.pages_written)
        commit(log, batch_id, [staged(batch_id)])
        commits_with_pages += len(log.pages_written) > before
        assert len(log.pages_written) - before <= 4
    assert commits_with_pages < 60
    assert log.heads_written == 1_000


def test_commit_of_ten_thousand_tasks_fits_with_full_statistics() -> None:
    log = OneLog(*new_head(PROPERTIES))
    log.producer("app", "run")
    # Compression finds no text again that is a megabyte behind.
    ranges = [staged(n, statistics=full_statistics(n % 1_000)) for n in range(10_000)]
    assert min(len(r.statistics) for r in ranges) > 900
    commit(log, 0, ranges)
    head = encode_head(log.head.value)
    assert len(head) + 4_096 * 40 < TRANSACTION_SIZE_BYTES_MAX
    snapshot = log.run(SnapshotMachine("flights"))
    assert [item.statistics for item in snapshot.items] == [r.statistics for r in ranges]
    for batch_id in range(1, 200):
        commit(log, batch_id, [staged(10_000 + batch_id)])
    assert len(log.run(SnapshotMachine("flights")).items) == 10_199


def test_pages_of_many_large_commits_are_named_by_an_index_page() -> None:
    log = OneLog(*new_head(PROPERTIES))
    log.producer("app", "run")
    for batch_id in range(15):
        commit(log, batch_id, [staged(batch_id * 10_000 + n) for n in range(10_000)])
    assert log.head.value.items.count == 150_000
    assert len(encode_head(log.head.value)) <= HEAD_SIZE_BYTES_MAX
    assert len(log.head.value.items.index) == 1


def test_old_version_is_read_from_pages_of_history() -> None:
    log = OneLog(*new_head())
    log.producer("app", "run")
    for batch_id in range(500):
        commit(log, batch_id, [staged(batch_id, rows=batch_id + 1)])
    snapshot = log.run(SnapshotMachine("flights", version=17))
    assert snapshot.interval.version == 17
    assert snapshot.interval.end_offset == sum(range(1, 18))
    assert [item.ledger_id for item in snapshot.items] == list(range(17))


def test_large_schemas_go_to_pages_and_are_found_again() -> None:
    log = OneLog(*new_head(PROPERTIES))
    log.producer("app", "run")
    schemas = [bytes([n]) * (1_000 + n * 4_000) for n in range(40)]
    for n, schema in enumerate(schemas):
        commit(log, n, [staged(n)], schema=schema)
        assert log.head.value.schema_id == n
    snapshot = log.run(SnapshotMachine("flights"))
    assert [snapshot.schemas[n] for n in range(40)] == schemas
    again = replace(snapshot, items=())
    assert again.schema == schemas[-1]
