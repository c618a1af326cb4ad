"""The rows of one task: which entries it needs, reading them, what it does about lost ones.

Batch scans and streams read the same way; only the plan is another.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.datasource.cluster import logs_at
from ledgerlog_spark.datasource.scan.committed_entries import CommittedEntries
from ledgerlog_spark.datasource.scan.index_entries import with_needed_entries
from ledgerlog_spark.datasource.scan.task import read_batches
from ledgerlog_spark.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ledgerlog_spark.datasource.scan.task import ScanTask

_logger = logging.getLogger(__name__)


def task_rows(
    uri: str,
    task: ScanTask,
    target: pa.Schema,
    *,
    password: bytes = b"",
    fail_on_data_loss: bool = True,
    ignores_case: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in order, in batches of the schema `target`.

    Args:
        uri: Of the cluster.
        task: What to read.
        target: The schema that Spark wants.
        password: Of the ledgers.
        fail_on_data_loss: False leaves out ranges of which an entry is lost, from there on, and
            says so in the worker's log.
        ignores_case: False fails on a column that the log has in another case alone.

    Raises:
        DataLossError: Listed rows that no bookie has.
        EntryUnknownError: Some replica could not answer, and none had an entry; retriable.
        DigestMismatchError: No replica had a good copy of an entry.
        SchemaMismatchError: Stored rows cannot become the target's.
        WireFormatError: A ledger is not what the log lists.
    """
    if task.ledgers:
        logs_at(uri).remember(task.ledgers)
    needed = with_needed_entries(uri, task, password)
    with CommittedEntries(uri, needed, password) as read_entries:
        if fail_on_data_loss:
            yield from read_batches(needed, target, read_entries, ignores_case=ignores_case)
        else:
            yield from _without_lost(needed, target, read_entries, ignores_case)


def _without_lost(
    task: ScanTask,
    target: pa.Schema,
    read_entries: Any,
    ignores_case: bool,
) -> Iterator[pa.RecordBatch]:
    for scanned in task.ranges:
        one = replace(task, ranges=(scanned,))
        try:
            yield from read_batches(one, target, read_entries, ignores_case=ignores_case)
        except DataLossError as error:
            _logger.warning(
                "%s", json.dumps({"event": "rows skipped by failOnDataLoss=false", **error.fields})
            )
