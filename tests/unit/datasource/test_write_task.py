"""A task whose ledgers are sealed in the middle: every row is written once, and in order."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.spark_types import stored_schema
from ledgerlog_spark.arrow.stream_codec import decode_entries
from ledgerlog_spark.datasource.write.task import MOVES_MAX, stage_ranges
from ledgerlog_spark.errors import LedgerClosedError, LedgerFencedError, SchemaMismatchError
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.state.records import StagedRange

FIELD = {"name": "n", "type": "long", "nullable": True, "metadata": {}}
SCHEMA = stored_schema(json.dumps({"type": "struct", "fields": [FIELD]}))
BATCHES, ROWS = 3, 2_100
"""An entry has about 500 rows: a batch makes four entries, and some rows wait for the next
batch."""


class TakenError(LedgerFencedError):
    """The error of a range whose ledger another process has sealed."""


class Range:
    """A range for a task. Its ledger is lost after `fails_at` entries were sent.

    Attributes:
        kept: The entries that the log would list.
    """

    is_full = False

    def __init__(self, ledger_id: int, fails_at: int | None, confirmed: int) -> None:
        self.ledger_id = ledger_id
        self.kept: list[tuple[bytes, int]] = []
        self._sent: list[tuple[bytes, int]] = []
        self._fails_at = fails_at
        self._confirmed = confirmed

    def append(self, payload: bytes, rows: int) -> None:
        self._sent.append((payload, rows))
        if len(self._sent) == self._fails_at:
            raise TakenError("another client is recovering the ledger")

    def finish(self, index: bytes | None, *, statistics: bytes) -> StagedRange:
        assert statistics
        assert index is not None
        if self._fails_at is not None:
            raise LedgerClosedError("the ledger is closed")
        self.kept = self._sent
        return self._staged()

    def cut(self) -> tuple[StagedRange | None, tuple[bytes, ...]]:
        self.kept = self._sent[: self._confirmed]
        again = tuple(payload for payload, _ in self._sent[self._confirmed :])
        return (self._staged() if self.kept else None), again

    def abandon(self) -> None:
        raise AssertionError("nothing fails for good")

    def _staged(self) -> StagedRange:
        rows = sum(rows for _, rows in self.kept)
        return StagedRange(self.ledger_id, 1, len(self.kept), NO_ENTRY, rows=rows, size_bytes=1)


def written(*losses: tuple[int, int]) -> list[int]:
    """The rows in the staged ranges.

    Args:
        losses: For each lost ledger, the numbers of sent and of confirmed entries.
    """
    ranges: dict[int, Range] = {}

    def open_range() -> Any:
        number = len(ranges)
        fails_at, confirmed = losses[number] if number < len(losses) else (None, 0)
        ranges[number] = Range(number, fails_at, confirmed)
        return ranges[number]

    numbers = [pa.array(range(at * ROWS, (at + 1) * ROWS)) for at in range(BATCHES)]
    batches = [pa.record_batch({"n": each}) for each in numbers]
    staged = stage_ranges(open_range, SCHEMA, batches, compression="none", target_entry_bytes=4096)
    rows: list[int] = []
    for each in staged:
        place = 0
        payloads = [payload for payload, _ in ranges[each.ledger_id].kept]
        for decoded in decode_entries(SCHEMA, payloads):
            assert decoded.first_row == place, "entries of a range follow each other"
            place += decoded.batch.num_rows
            rows += decoded.batch.column(0).to_pylist()
        assert place == each.rows
    return rows


ALL = list(range(BATCHES * ROWS))


@pytest.mark.parametrize("fails_at", range(1, 16))
def test_rows_of_a_ledger_that_is_lost_are_written_again_behind_those_it_confirmed(
    fails_at: int,
) -> None:
    for confirmed in range(fails_at + 1):
        assert written((fails_at, confirmed)) == ALL


@pytest.mark.parametrize("second", [(1, 0), (2, 1), (3, 3), (7, 2)])
@pytest.mark.parametrize("first", [(1, 1), (4, 0), (5, 3), (9, 9)])
def test_ledgers_may_be_lost_while_rows_are_written_again(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    assert written(first, second, first) == ALL


def test_a_ledger_that_is_lost_at_the_end_of_its_range_loses_nothing() -> None:
    assert written((1_000, 5)) == ALL  # this many are never sent: its end is refused


def test_an_attempt_gives_up_when_each_ledger_is_lost() -> None:
    class Lost(Range):
        def abandon(self) -> None:
            """Let the attempt fail."""

    opened: list[Range] = []

    def open_range() -> Any:
        opened.append(Lost(len(opened), 1, 0))
        return opened[-1]

    batch = pa.record_batch({"n": pa.array(range(ROWS))})
    with pytest.raises(TakenError):
        stage_ranges(open_range, SCHEMA, [batch], compression="none", target_entry_bytes=4096)
    assert len(opened) == MOVES_MAX + 1


def test_a_task_checks_the_lengths_of_texts() -> None:
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    field = {"name": "c", "type": "string", "nullable": True, "metadata": metadata}
    schema = stored_schema(json.dumps({"type": "struct", "fields": [field]}))

    def stored(text: str) -> list[Any]:
        taken = Range(1, None, 0)
        batch = pa.RecordBatch.from_pydict({"c": [text, None]})
        opened: Any = lambda: taken  # noqa: E731
        stage_ranges(opened, schema, [batch], compression="none", target_entry_bytes=4096)
        payloads = [memoryview(payload) for payload, _ in taken.kept]
        return [
            value
            for decoded in decode_entries(schema, payloads)
            for value in decoded.batch.column(0).to_pylist()
        ]

    assert stored("ä") == ["ä  ", None]
    taken = Range(2, None, 0)
    taken.abandon = lambda: None
    opened: Any = lambda: taken  # noqa: E731
    batch = pa.RecordBatch.from_pydict({"c": ["abcd"]})
    with pytest.raises(SchemaMismatchError, match="'c' has at most 3 characters"):
        stage_ranges(opened, schema, [batch], compression="none", target_entry_bytes=4096)
