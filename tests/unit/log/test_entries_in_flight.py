"""The waiters of each entry, the places of divided batches, and definite failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from ledgerlog_spark.client.append_queue import AppendQueue, Gathered
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerFencedError
from ledgerlog_spark.log.entry_codec import encode_body
from ledgerlog_spark.log.leader.entries_in_flight import EntriesInFlight, error_of_append
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.leader.messages import AppendEntry, AppendsAcknowledged

LEDGER_ID = 7
RECORDS_PER_ENTRY = 2


class Leader:
    """Sends batches in entries of at most two records. The number of a record is its place."""

    def __init__(self) -> None:
        self.room = 0
        self.queue = AppendQueue(
            self,
            self._send,
            ClientSettings(),
            few_in_flight=1_000,
            entries_max=RECORDS_PER_ENTRY,
        )
        self.sent = EntriesInFlight("log", self.queue)
        self._next_offset = 0
        self._ends: list[int] = []

    @property
    def can_add(self) -> bool:
        return self.room > 0

    def append(self, records: int) -> Future[Any]:
        future: Future[Any] = Future()
        self.queue.add_batch([b"x"] * records, future)
        return future

    def send(self, entries: int) -> None:
        self.room = entries
        self.queue.send_now()

    def _send(self, gathered: Gathered) -> None:
        self.room -= 1
        gathered.body = body = encode_body(gathered.payloads)
        number = self.sent.first + len(self.queue.in_flight) - 1
        self.sent.entry_of(AppendEntry(LEDGER_ID, number, number, self._next_offset, 0, body.count))
        self._next_offset += body.count
        self._ends.append(self._next_offset)

    def acknowledge(self, last: int) -> None:
        acknowledged = AppendsAcknowledged(self.sent.first, last, LEDGER_ID, last, self._ends[last])
        self.queue.complete(self.sent.acknowledged(acknowledged))

    def fail(self, *, first_unknown: int, first_unsent: int) -> None:
        error = LedgerFencedError("another leader", ledger_id=LEDGER_ID)
        first = self.sent.first
        self.queue.refusal = partial(error_of_append, error, is_definite=True)
        self.queue.fail(
            error_of_append(error, is_definite=False),
            unknown=range(first_unknown - first, first_unsent - first),
        )


@pytest.fixture
def leader() -> Iterator[Leader]:
    with asyncio.Runner() as runner:
        yield runner.run(_made())


async def _made() -> Leader:
    return Leader()


def places(future: Future[Any]) -> list[tuple[int, int]]:
    positions: list[Position] = list(future.result(timeout=0))
    return [(position.offset, position.entry_id) for position in positions]


def is_definite(future: Future[Any]) -> bool:
    with pytest.raises(LedgerFencedError) as caught:
        future.result(timeout=0)
    assert not caught.value.retriable
    return caught.value.definite


def test_records_of_a_batch_that_was_cut_lie_in_several_entries(leader: Leader) -> None:
    cut, behind = leader.append(5), leader.append(1)
    leader.send(3)
    leader.acknowledge(1)
    assert not cut.done()
    leader.acknowledge(2)
    assert places(cut) == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)]
    assert places(behind) == [(5, 2)]


@pytest.mark.parametrize("acknowledged", [0, 1])
def test_a_batch_whose_first_part_may_be_in_the_log_did_not_fail_for_certain(
    leader: Leader,
    acknowledged: int,
) -> None:
    """A part is acknowledged or pending, so the unsent rest does not make the failure definite."""
    cut, behind = leader.append(6), leader.append(2)
    leader.send(1)
    if acknowledged:
        leader.acknowledge(0)
    leader.fail(first_unknown=0, first_unsent=1)
    assert (is_definite(cut), is_definite(behind)) == (False, True)


def test_the_rest_of_a_batch_that_was_sent_and_not_ordered_counts_with_its_first_part(
    leader: Leader,
) -> None:
    cut, behind = leader.append(4), leader.append(2)
    leader.send(3)
    leader.fail(first_unknown=0, first_unsent=1)
    assert (is_definite(cut), is_definite(behind)) == (False, True)


def test_what_comes_behind_a_batch_that_was_cut_and_is_there_failed_for_certain(
    leader: Leader,
) -> None:
    cut, behind = leader.append(4), leader.append(2)
    leader.send(3)
    leader.acknowledge(1)
    leader.fail(first_unknown=2, first_unsent=2)
    assert places(cut) == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert is_definite(behind)
