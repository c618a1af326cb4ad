"""Limits of a reader of a ledger."""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.retry import RetryPolicy

OVERLOAD = RetryPolicy(first_delay_ms=50, delay_max_ms=1_000, attempts_max=20)


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """Limits of a reader.

    Attributes:
        size_bytes_ahead_max: Payload bytes beyond those that the application took: received ones,
            and those expected of pending requests. No more is requested above this.
        size_bytes_max: Upper bound of payload bytes in memory, for any size of entries: no request
            is sent if its answer might not fit. One entry may always be requested.
    """

    entries_ahead_max: int = 16_384  # beyond those that the application took
    size_bytes_ahead_max: int = 16 << 20
    size_bytes_max: int = 64 << 20
    batch_entries_max: int = 1_024  # 1 turns batches off
    batch_size_bytes_max: int = 1 << 20  # of one answer
    batches_in_flight_max: int = 6
    singles_in_flight_max: int = 256
    # another bookie gets a request after one to two times this
    hedge_delay_ms: int = 500
    reloads_max: int = 3  # for one entry
    overload: RetryPolicy = OVERLOAD  # about 15 s in all
