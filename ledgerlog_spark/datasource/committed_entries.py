"""Entries of a listed range, with an error that says what a reader can do (design 6.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.datasource.cluster import logs_at
from ledgerlog_spark.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.datasource.plan import ScanRange


def read_committed(uri: str, log_id: str, scanned: ScanRange, password: bytes) -> Iterator[Any]:
    """The range's entries, first to last, read ahead of whoever takes them.

    Raises:
        DataLossError: No bookie has an entry; names the option that reads on without it.
        EntryUnknownError: Some replica could not answer, and none had the entry; retriable.
        DigestMismatchError: No replica had a good copy.
    """
    log = logs_at(uri).open_by_id(scanned.log, log_id)
    batches = log.read_range(
        scanned.ledger_id, scanned.first_entry_id, scanned.last_entry_id, password=password
    )
    try:
        for batch in batches:
            yield from batch
    except DataLossError as error:
        raise DataLossError(
            f"{error.message}. Some rows may have been lost. Set the option "
            f'"failOnDataLoss" to "false" to read on without them.',
            **error.fields,
        ) from error
