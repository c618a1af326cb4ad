from __future__ import annotations

from concurrent.futures import Future

import pytest

from ledgerlog_spark.client.appends.batches import (
    AppendBatches,
    Gathered,
    checked_payload,
    checked_payloads,
)
from ledgerlog_spark.client.settings import PAYLOAD_SIZE_BYTES_MAX
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.log.records import checked_records
from ledgerlog_spark.model import RUN_ENTRIES_MAX, RUN_SIZE_BYTES_MAX


def taken_sizes(batches: AppendBatches) -> list[tuple[int, int]]:
    found = []
    while (run := batches.take()) is not None:
        assert run.size_bytes == sum(map(len, run.payloads))
        found.append((len(run.payloads), run.size_bytes))
    return found


def test_small_appends_travel_in_one_run_in_their_order() -> None:
    batches = AppendBatches()
    futures: list[Future[int]] = [Future() for _ in range(3)]
    for number, future in enumerate(futures):
        batches.add(bytes([number]), future)
    run = batches.take()
    assert run is not None
    assert run.payloads == [b"\x00", b"\x01", b"\x02"]
    run.first_entry_id = 10
    assert run.results() == list(zip(futures, (10, 11, 12), strict=True))


def test_a_run_holds_at_most_4096_entries() -> None:
    batches = AppendBatches()
    for _ in range(RUN_ENTRIES_MAX + 5):
        batches.add(b"x", Future())
    assert batches.entries == RUN_ENTRIES_MAX + 5
    assert taken_sizes(batches) == [(RUN_ENTRIES_MAX, RUN_ENTRIES_MAX), (5, 5)]
    assert (batches.entries, batches.size_bytes) == (0, 0)


def test_a_run_holds_at_most_one_mebibyte_unless_one_entry_is_larger() -> None:
    batches = AppendBatches()
    large, half = bytes(RUN_SIZE_BYTES_MAX + 1), bytes(RUN_SIZE_BYTES_MAX // 2)
    for payload in (half, half, half, large, half):
        batches.add(payload, Future())
    assert [entries for entries, _ in taken_sizes(batches)] == [2, 1, 1, 1]


def test_a_batch_that_spans_runs_completes_with_its_last_entry() -> None:
    batches = AppendBatches()
    single: Future[int] = Future()
    whole: Future[range] = Future()
    batches.add(b"first", single)
    batches.add_batch([bytes(300_000)] * 8, whole)
    runs: list[Gathered] = []
    while (run := batches.take()) is not None:
        run.first_entry_id = sum(len(one.payloads) for one in runs)
        runs.append(run)
    assert [len(run.payloads) for run in runs] == [1, 3, 3, 2]
    assert [run.results() for run in runs] == [[(single, 0)], [], [], [(whole, range(1, 9))]]


def test_only_full_runs_are_taken_while_the_pipe_is_busy() -> None:
    batches = AppendBatches()
    batches.add(b"x", Future())
    assert batches.take_full() is None
    batches.add_batch([b"y"] * RUN_ENTRIES_MAX, Future())
    full = batches.take_full()
    assert full is not None
    assert full.payloads == [b"x"]


def test_bytes_and_read_only_views_are_kept_and_other_buffers_copied() -> None:
    kept = b"payload"
    assert checked_payload(kept) is kept
    view = memoryview(kept)
    assert checked_payload(view) is view
    changing = bytearray(kept)
    copied = checked_payload(changing)
    changing[0] = 0
    assert copied == b"payload"
    writable = checked_payload(memoryview(changing))
    changing[1] = 0
    assert writable == b"\x00ayload"


@pytest.mark.parametrize("payload", ["text", 7, None, ["x"]])
def test_a_payload_that_is_not_bytes_is_refused(payload: object) -> None:
    with pytest.raises(LocalProtocolError, match="bytes, a bytearray or a memoryview"):
        checked_payload(payload)


@pytest.mark.parametrize("payload", [b"", b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_one_payload_where_a_list_is_expected_is_refused_with_what_to_do(payload: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="into a list, or use append"):
        checked_payloads(payload)
    with pytest.raises(LocalProtocolError, match="a record by itself"):
        checked_records(payload)  # type: ignore[arg-type]
    assert checked_payloads([payload]) == [payload]


def test_records_of_an_iterator_are_all_there() -> None:
    assert checked_records(b"%d" % number for number in range(3)) == [b"0", b"1", b"2"]
    assert checked_records(map(bytearray, [b"a", b"b"])) == [b"a", b"b"]


def test_a_payload_larger_than_a_frame_is_refused_with_both_sizes() -> None:
    assert len(checked_payload(bytes(PAYLOAD_SIZE_BYTES_MAX))) == PAYLOAD_SIZE_BYTES_MAX
    with pytest.raises(LocalProtocolError) as refused:
        checked_payload(bytes(PAYLOAD_SIZE_BYTES_MAX + 1))
    assert refused.value.size_bytes == PAYLOAD_SIZE_BYTES_MAX + 1
    assert refused.value.definite
