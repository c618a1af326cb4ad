from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from ledgerlog_spark.client.append_queue import AppendQueue, Gathered
from ledgerlog_spark.client.payloads import checked_payload, checked_payloads
from ledgerlog_spark.client.settings import PAYLOAD_SIZE_BYTES_MAX, ClientSettings
from ledgerlog_spark.errors import LedgerClosedError, LedgerFencedError, LocalProtocolError
from ledgerlog_spark.log.records import checked_records
from ledgerlog_spark.model import RUN_ENTRIES_MAX, RUN_SIZE_BYTES_MAX


class Writer:
    """A queue whose runs are recorded. `room` of them may be sent."""

    def __init__(self, few_in_flight: int = 1_000) -> None:
        self.room = 1_000
        self.sent: list[Gathered] = []
        self.queue = AppendQueue(
            self, self.sent.append, ClientSettings(), few_in_flight=few_in_flight
        )

    @property
    def can_add(self) -> bool:
        return len(self.sent) < self.room

    def sizes(self) -> list[tuple[int, int]]:
        assert all(run.size_bytes == sum(map(len, run.payloads)) for run in self.sent)
        return [(len(run.payloads), run.size_bytes) for run in self.sent]


@pytest.fixture
def writer() -> Iterator[Writer]:
    with asyncio.Runner() as runner:
        yield runner.run(_made())


async def _made() -> Writer:
    return Writer()


def outcome(future: Future[Any]) -> str:
    error = future.exception(timeout=0)
    assert isinstance(error, LedgerFencedError | LedgerClosedError)
    return "unknown" if isinstance(error, LedgerFencedError) else "never sent"


def test_small_appends_travel_in_one_run_in_their_order(writer: Writer) -> None:
    futures: list[Future[int]] = [Future() for _ in range(3)]
    for number, future in enumerate(futures):
        writer.queue.add(bytes([number]), future)
    assert writer.sent == []
    writer.queue.send_now()
    (run,) = writer.sent
    assert run.payloads == [b"\x00", b"\x01", b"\x02"]
    assert run.results(10) == list(zip(futures, (10, 11, 12), strict=True))


def test_a_run_holds_at_most_4096_entries(writer: Writer) -> None:
    for _ in range(RUN_ENTRIES_MAX + 5):
        writer.queue.add(b"x", Future())
    assert writer.queue.entries == RUN_ENTRIES_MAX + 5
    writer.queue.send_now()
    assert writer.sizes() == [(RUN_ENTRIES_MAX, RUN_ENTRIES_MAX), (5, 5)]
    assert (writer.queue.entries, writer.queue.size_bytes) == (0, 0)


def test_a_run_holds_at_most_one_mebibyte_unless_one_entry_is_larger(writer: Writer) -> None:
    large, half = bytes(RUN_SIZE_BYTES_MAX + 1), bytes(RUN_SIZE_BYTES_MAX // 2)
    for payload in (half, half, half, large, half):
        writer.queue.add(payload, Future())
    writer.queue.send_now()
    assert [entries for entries, _ in writer.sizes()] == [2, 1, 1, 1]


def test_a_batch_that_spans_runs_completes_with_its_last_entry(writer: Writer) -> None:
    single: Future[int] = Future()
    whole: Future[range] = Future()
    writer.queue.add(b"first", single)
    writer.queue.add_batch([bytes(300_000)] * 8, whole)
    writer.queue.send_now()
    assert [len(run.payloads) for run in writer.sent] == [1, 3, 3, 2]
    results = [run.results(first) for run, first in zip(writer.sent, (0, 1, 4, 7), strict=True)]
    assert results == [[(single, 0)], [], [], [(whole, range(1, 9))]]


def test_only_full_runs_are_sent_while_the_pipe_is_busy(writer: Writer) -> None:
    queue = writer.queue
    queue._few_in_flight = 0
    queue.add(b"x", Future())
    queue.send_now()
    assert writer.sent == []
    assert queue.is_lingering
    queue.add_batch([b"y"] * RUN_ENTRIES_MAX, Future())
    queue.send_now()
    assert writer.sent[0].payloads == [b"x"]
    assert [entries for entries, _ in writer.sizes()] == [1, RUN_ENTRIES_MAX]
    assert not queue.is_lingering


@pytest.mark.parametrize(
    ("sent", "acknowledged", "outcomes"),
    [
        (0, 0, ("never sent", "never sent")),
        (1, 0, ("unknown", "never sent")),
        (1, 1, ("unknown", "never sent")),
        (4, 3, (None, "unknown")),
    ],
)
def test_a_batch_is_unknown_when_one_of_its_parts_was_sent(
    writer: Writer, sent: int, acknowledged: int, outcomes: tuple[str | None, str]
) -> None:
    """The batch has three runs. A failure of unsent appends outside of such a batch is definite."""
    queue, writer.room = writer.queue, sent
    cut: Future[range] = Future()
    behind: Future[int] = Future()
    queue.add_batch([bytes(RUN_SIZE_BYTES_MAX)] * 3, cut)
    queue.add(bytes(RUN_SIZE_BYTES_MAX), behind)
    queue.send_now()
    for _ in range(acknowledged):
        queue.complete(queue.in_flight.popleft().results(0))
    queue.refusal = lambda: LedgerClosedError("closed")
    queue.fail(LedgerFencedError("fenced"))
    found = tuple(outcome(future) if future.exception(0) else None for future in (cut, behind))
    assert found == outcomes
    assert not queue.in_flight
    assert (queue.entries, queue.size_bytes) == (0, 0)


class Listener:
    """Counts the appends that left a queue."""

    def __init__(self) -> None:
        self.left = (0, 0)

    def on_sent(self, entries: int, size_bytes: int) -> None:
        self.left = (self.left[0] + entries, self.left[1] + size_bytes)

    def complete(self, results: list[tuple[Any, Any]]) -> None:
        raise AssertionError(results)


def test_everything_that_came_leaves_the_queue_sent_failed_or_refused(writer: Writer) -> None:
    """A thread waits for room until its appends have left."""
    queue, writer.room = writer.queue, 1
    queue.listener = listener = Listener()
    queue.add(b"sent", Future())
    queue.send_now()
    assert listener.left == (1, 4)
    queue.add(b"waits", Future())
    queue.send_now()
    assert listener.left == (1, 4)
    queue.refusal = lambda: LedgerClosedError("closed")
    queue.fail(LedgerFencedError("fenced"))
    assert listener.left == (2, 9)
    refused: list[Future[Any]] = [Future(), Future()]
    queue.add(b"refused", refused[0])
    queue.add_batch([b"a", b"b"], refused[1])
    assert listener.left == (5, 18)
    assert [outcome(future) for future in refused] == ["never sent"] * 2


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
